/* SPDX-License-Identifier: Apache-2.0 */
/* torch.nn.Sequential, and the residual block: x -> body(x) + shortcut(x). */
#include "nn/module.h"

#include <stdio.h>
#include <string.h>

static ct_tensor *forward_sequential(ct_module *m, void *self, ct_tensor *x)
{
    (void)self;
    for (int i = 0; i < m->n_children && x; i++)
        x = ct_module_forward(m->child[i], x);
    return x;
}

static const ct_module_ops sequential_ops = {"Sequential", forward_sequential, NULL, NULL};

ct_module *ct_nn_sequential_new(ct_ctx *ctx)
{
    return ct_module_new(ctx, &sequential_ops, 0);
}

int ct_nn_sequential_add(ct_module *seq, ct_module *child)
{
    char name[16];

    snprintf(name, sizeof name, "%d", ct_module_n_children(seq));
    return ct_module_add_child(seq, name, child);
}

static ct_tensor *forward_residual(ct_module *m, void *self, ct_tensor *x)
{
    ct_tensor *y = ct_module_forward(m->child[0], x);
    ct_tensor *s = m->n_children > 1 ? ct_module_forward(m->child[1], x) : x;

    (void)self;
    if (!y || !s)
        return NULL;
    /* Adding would broadcast: a block that does is a mistake. */
    if (ct_tensor_ndim(y) != ct_tensor_ndim(s) ||
        memcmp(ct_tensor_shape(y), ct_tensor_shape(s),
               (size_t)ct_tensor_ndim(y) * sizeof(int64_t)) != 0) {
        char a[128], b[128];

        ct_error_raise(m->ctx, CT_ESHAPE, "Residual", "Residual: the body gives %s, the %s %s",
                       cti_shape_text(ct_tensor_ndim(y), ct_tensor_shape(y), a, sizeof a),
                       m->n_children > 1 ? "shortcut" : "input is",
                       cti_shape_text(ct_tensor_ndim(s), ct_tensor_shape(s), b, sizeof b));
        return NULL;
    }
    return ct_add(y, s);
}

static const ct_module_ops residual_ops = {"Residual", forward_residual, NULL, NULL};

ct_module *ct_nn_residual_new(ct_ctx *ctx, ct_module *body, ct_module *shortcut)
{
    ct_module *m = body ? ct_module_new(ctx, &residual_ops, 0) : NULL;
    int rc;

    if (!m) {
        if (ctx && !body && ct_error_code(ctx) == CT_OK)
            ct_error_raise(ctx, CT_EINVAL, "Residual", "Residual: body is NULL");
        ct_module_free(body);
        ct_module_free(shortcut);
        return NULL;
    }
    rc = ct_module_add_child(m, "body", body);
    if (rc == CT_OK && shortcut)
        rc = ct_module_add_child(m, "shortcut", shortcut);
    else if (rc != CT_OK)
        ct_module_free(shortcut);
    return cti_module_done(m, rc);
}
