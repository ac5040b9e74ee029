/* SPDX-License-Identifier: Apache-2.0 */
/* What stands around a module's forward: hooks, and checkpointing. */
#include "nn/module.h"

#include "base/ctxmem.h"

#include <inttypes.h>

typedef struct cti_module_hook {
    struct cti_module_hook *next;
    uint64_t id;
    ct_module *m;
    ct_module_pre_hook before; /* one of these four */
    ct_module_hook after;
    ct_module_grad_hook of_output, of_input;
    void *user;
} cti_module_hook;

/* ---- registering ---- */

static uint64_t add(ct_module *m, const cti_module_hook *what, bool given)
{
    if (!m || ct_error_code(m->ctx) != CT_OK)
        return 0;
    if (!given) {
        ct_error_raise(m->ctx, CT_EINVAL, __func__, "%s: the hook is NULL", m->ops->name);
        return 0;
    }
    cti_module_hook *h = cti_alloc(cti_ctx_mem(m->ctx), sizeof *h, "module hook");
    if (!h) {
        ct_error_raise(m->ctx, CT_ENOMEM, __func__, "%s: out of memory for a hook", m->ops->name);
        return 0;
    }
    *h = *what;
    h->m = m;
    h->id = ++m->last_hook;
    cti_module_hook **at = &m->hooks;
    while (*at)
        at = &(*at)->next;
    *at = h;
    return h->id;
}

uint64_t ct_module_register_forward_pre_hook(ct_module *m, ct_module_pre_hook fn, void *user)
{
    return add(m, &(cti_module_hook){.before = fn, .user = user}, fn != NULL);
}

uint64_t ct_module_register_forward_hook(ct_module *m, ct_module_hook fn, void *user)
{
    return add(m, &(cti_module_hook){.after = fn, .user = user}, fn != NULL);
}

uint64_t ct_module_register_backward_pre_hook(ct_module *m, ct_module_grad_hook fn, void *user)
{
    return add(m, &(cti_module_hook){.of_output = fn, .user = user}, fn != NULL);
}

uint64_t ct_module_register_backward_hook(ct_module *m, ct_module_grad_hook fn, void *user)
{
    return add(m, &(cti_module_hook){.of_input = fn, .user = user}, fn != NULL);
}

int ct_module_remove_hook(ct_module *m, uint64_t id)
{
    if (!m)
        return CT_EINVAL;
    for (cti_module_hook **at = &m->hooks; *at; at = &(*at)->next) {
        cti_module_hook *h = *at;
        if (h->id != id)
            continue;
        *at = h->next;
        cti_free(cti_ctx_mem(m->ctx), h);
        return CT_OK;
    }
    return ct_error_raise(m->ctx, CT_EINVAL, __func__, "%s has no hook %" PRIu64, m->ops->name, id);
}

void cti_module_hooks_free(ct_module *m)
{
    while (m->hooks) {
        cti_module_hook *h = m->hooks;
        m->hooks = h->next;
        cti_free(cti_ctx_mem(m->ctx), h);
    }
}

/* ---- running ---- */

static ct_tensor *grad_of_output(ct_ctx *ctx, ct_tensor *grad, void *user)
{
    const cti_module_hook *h = user;
    (void)ctx;
    return h->of_output(h->m, grad, h->user);
}

static ct_tensor *grad_of_input(ct_ctx *ctx, ct_tensor *grad, void *user)
{
    const cti_module_hook *h = user;
    (void)ctx;
    return h->of_input(h->m, grad, h->user);
}

static bool watches_input(const ct_module *m)
{
    for (const cti_module_hook *h = m->hooks; h; h = h->next)
        if (h->of_input)
            return true;
    return false;
}

/* A view whose gradient is that of this use of x alone. */
static ct_tensor *apart(ct_tensor *x)
{
    return ct_expand(x, ct_tensor_ndim(x), ct_tensor_shape(x));
}

static int run_segment(ct_ctx *ctx, int n_in, ct_tensor *const *in, int n_out, ct_tensor **out,
                       void *user)
{
    ct_module *m = user;
    (void)n_in;
    (void)n_out;
    out[0] = m->ops->forward(m, m->self, in[0]);
    return ct_error_code(ctx);
}

static ct_tensor *forward(ct_module *m, ct_tensor *x)
{
    ct_tensor *y = NULL;
    if (!m->checkpoint || !ct_grad_enabled(m->ctx))
        return m->ops->forward(m, m->self, x);
    return ct_checkpoint(m->ctx, run_segment, m, 1, &x, 1, &y) < 0 ? NULL : y;
}

ct_tensor *cti_module_run(ct_module *m, ct_tensor *x)
{
    ct_ctx *ctx = m->ctx;
    if (!m->hooks)
        return forward(m, x);
    for (cti_module_hook *h = m->hooks; h && x; h = h->next) {
        ct_tensor *other = h->before ? h->before(m, x, h->user) : NULL;
        x = ct_error_code(ctx) ? NULL : other ? other : x;
    }
    if (x && watches_input(m) && ct_grad_enabled(ctx) && ct_tensor_requires_grad(x))
        x = apart(x);
    for (cti_module_hook *h = m->hooks; h && x; h = h->next)
        if (h->of_input && ct_grad_enabled(ctx) && ct_tensor_requires_grad(x) &&
            !ct_tensor_register_hook(ctx, x, grad_of_input, h))
            x = NULL;
    ct_tensor *y = x ? forward(m, x) : NULL;
    for (cti_module_hook *h = m->hooks; h && y; h = h->next) {
        ct_tensor *other = h->after ? h->after(m, x, y, h->user) : NULL;
        y = ct_error_code(ctx) ? NULL : other ? other : y;
    }
    for (cti_module_hook *h = m->hooks; h && y; h = h->next)
        if (h->of_output && ct_grad_enabled(ctx) && ct_tensor_requires_grad(y) &&
            !ct_tensor_register_hook(ctx, y, grad_of_output, h))
            y = NULL;
    return y;
}

void ct_module_set_checkpoint(ct_module *m, bool on)
{
    if (m)
        m->checkpoint = on;
}
