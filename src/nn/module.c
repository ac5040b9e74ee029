/* SPDX-License-Identifier: Apache-2.0 */
/* Modules. A child belongs to its parent; names are kept in the child. Nothing here allocates after
 * a module is built: a forward pass takes no memory but what its ops take. */
#include "nn/module.h"

#include "base/ctxmem.h"
#include "base/error.h"
#include <ctrain/autograd.h>

#include <stdio.h>
#include <string.h>

ct_module *ct_module_new(ct_ctx *ctx, const ct_module_ops *ops, size_t self_bytes)
{
    const size_t head = (sizeof(ct_module) + 63) / 64 * 64;
    ct_module *m;

    if (!ctx || ct_error_code(ctx) != CT_OK)
        return NULL;
    if (!ops || !ops->name || !ops->forward) {
        ct_error_raise(ctx, CT_EINVAL, __func__, "a module needs ops with a name and a forward");
        return NULL;
    }
    m = self_bytes > SIZE_MAX - head ?
            NULL :
            cti_alloc(cti_ctx_mem(ctx), head + self_bytes, "ct_module_new");
    if (!m) {
        ct_error_raise(ctx, CT_ENOMEM, __func__, "%s: out of memory", ops->name);
        return NULL;
    }
    m->ctx = ctx;
    m->ops = ops;
    m->self = (char *)m + head;
    m->training = true;
    return m;
}

static void slots_free(ct_module *m, cti_slots *s)
{
    for (int i = 0; i < s->n; i++)
        ct_tensor_release(s->at[i].tensor);
    cti_free(cti_ctx_mem(m->ctx), s->at);
}

static void module_free(ct_module *m)
{
    cti_mem *mem = cti_ctx_mem(m->ctx);

    for (int i = 0; i < m->n_children; i++)
        module_free(m->child[i]);
    cti_free(mem, m->child);
    slots_free(m, &m->params);
    slots_free(m, &m->buffers);
    cti_module_hooks_free(m);
    if (m->ops->free)
        m->ops->free(m->self);
    cti_free(mem, m);
}

void ct_module_free(ct_module *m)
{
    if (m && !m->parent)
        module_free(m);
}

void *ct_module_self(ct_module *m)
{
    return m ? m->self : NULL;
}

ct_ctx *ct_module_ctx(const ct_module *m)
{
    return m ? m->ctx : NULL;
}

const char *ct_module_name(const ct_module *m)
{
    return m ? m->ops->name : "";
}

bool ct_module_is_training(const ct_module *m)
{
    return m && m->training;
}

int ct_module_n_children(const ct_module *m)
{
    return m ? m->n_children : 0;
}

ct_module *ct_module_child(const ct_module *m, int i, const char **name)
{
    if (!m || i < 0 || i >= m->n_children)
        return NULL;
    if (name)
        *name = m->child[i]->name;
    return m->child[i];
}

const char *cti_module_path(const ct_module *m, char *buf, size_t cap)
{
    size_t at = cap - 1;

    buf[at] = '\0';
    for (; m && m->parent; m = m->parent) {
        size_t n = strlen(m->name);

        if (n + 1 > at)
            break;
        if (buf[at] != '\0')
            buf[--at] = '.';
        at -= n;
        memcpy(buf + at, m->name, n);
    }
    memmove(buf, buf + at, cap - at);
    return buf;
}

const char *cti_shape_text(int ndim, const int64_t *shape, char *buf, size_t cap)
{
    size_t n = (size_t)snprintf(buf, cap, "[");

    for (int i = 0; i < ndim && n < cap; i++)
        n += (size_t)snprintf(buf + n, cap - n, "%s%lld", i ? "," : "", (long long)shape[i]);
    if (n < cap)
        snprintf(buf + n, cap - n, "]");
    return buf;
}

/* ---- adding ---- */

static bool has_name(const ct_module *m, const char *name)
{
    for (int i = 0; i < m->params.n; i++)
        if (strcmp(m->params.at[i].name, name) == 0)
            return true;
    for (int i = 0; i < m->buffers.n; i++)
        if (strcmp(m->buffers.at[i].name, name) == 0)
            return true;
    for (int i = 0; i < m->n_children; i++)
        if (strcmp(m->child[i]->name, name) == 0)
            return true;
    return false;
}

/* Is `name` right for something new in m, whose longest path below is `below` bytes? */
static int check_name(ct_module *m, const char *name, size_t below)
{
    size_t reach;

    if (!name || !name[0] || strchr(name, '.'))
        return ct_error_raise(m->ctx, CT_EINVAL, "ct_module_add",
                              "%s: '%s' is no name: one or more characters, no dot", m->ops->name,
                              name ? name : "");
    if (has_name(m, name))
        return ct_error_raise(m->ctx, CT_EINVAL, "ct_module_add", "%s: there is a '%s' already",
                              m->ops->name, name);
    reach = strlen(name) + (below ? below + 1 : 0);
    for (const ct_module *a = m; a->parent && reach <= CTI_PATH_MAX; a = a->parent)
        reach += strlen(a->name) + 1;
    if (reach > CTI_PATH_MAX)
        return ct_error_raise(m->ctx, CT_EINVAL, "ct_module_add",
                              "%s: with '%.40s' a path gets over %d bytes long", m->ops->name, name,
                              CTI_PATH_MAX);
    return CT_OK;
}

static void grow_reach(ct_module *m, size_t reach)
{
    for (; m && m->reach < reach; m = m->parent) {
        m->reach = reach;
        reach += strlen(m->name) + 1;
    }
}

static int no_memory(const ct_module *m)
{
    return ct_error_raise(m->ctx, CT_ENOMEM, "ct_module_add", "%s: out of memory", m->ops->name);
}

static int add_slot(ct_module *m, cti_slots *s, const char *name, ct_tensor *t)
{
    void *at = s->at;
    int rc = check_name(m, name, 0);

    if (rc != CT_OK)
        return rc;
    if (ct_tensor_ctx(t) != m->ctx)
        return ct_error_raise(m->ctx, CT_EINVAL, "ct_module_add",
                              "%s: '%s' is a tensor of another context", m->ops->name, name);
    rc = cti_grow(cti_ctx_mem(m->ctx), &at, &s->cap, (size_t)s->n + 1, sizeof *s->at,
                  "ct_module_add");
    s->at = at;
    if (rc != CT_OK)
        return no_memory(m);
    snprintf(s->at[s->n].name, sizeof s->at[s->n].name, "%s", name);
    s->at[s->n++].tensor = t;
    grow_reach(m, strlen(name));
    return CT_OK;
}

/* What a missing argument means: the error of the call that should have made it. */
static int missing(ct_ctx *ctx, const char *where, const char *what)
{
    if (!ctx)
        return CT_EINVAL;
    if (ct_error_code(ctx) != CT_OK)
        return ct_error_code(ctx);
    return ct_error_raise(ctx, CT_EINVAL, where, "%s is NULL", what);
}

int ct_module_add_param(ct_module *m, const char *name, ct_tensor *t)
{
    int rc;

    if (!m || !t) {
        rc = missing(m ? m->ctx : t ? ct_tensor_ctx(t) : NULL, __func__, m ? "tensor" : "module");
        ct_tensor_release(t);
        return rc;
    }
    rc = ct_error_code(m->ctx);
    if (rc == CT_OK)
        rc = ct_tensor_set_requires_grad(m->ctx, t, true);
    if (rc == CT_OK)
        rc = add_slot(m, &m->params, name, t);
    if (rc != CT_OK)
        ct_tensor_release(t);
    return rc;
}

int ct_module_add_buffer(ct_module *m, const char *name, ct_tensor *t)
{
    int rc;

    if (!m || !t) {
        rc = missing(m ? m->ctx : t ? ct_tensor_ctx(t) : NULL, __func__, m ? "tensor" : "module");
        ct_tensor_release(t);
        return rc;
    }
    rc = ct_error_code(m->ctx);
    if (rc == CT_OK)
        rc = add_slot(m, &m->buffers, name, t);
    if (rc != CT_OK)
        ct_tensor_release(t);
    return rc;
}

static int check_child(ct_module *m, const char *name, const ct_module *child)
{
    int rc = ct_error_code(m->ctx);

    if (rc != CT_OK)
        return rc;
    if (child->ctx != m->ctx)
        return ct_error_raise(m->ctx, CT_EINVAL, "ct_module_add_child",
                              "%s: child '%s' is of another context", m->ops->name, name);
    for (const ct_module *a = m; a; a = a->parent)
        if (a == child)
            return ct_error_raise(m->ctx, CT_EINVAL, "ct_module_add_child",
                                  "%s: a module can't be its own child", m->ops->name);
    return check_name(m, name, child->reach);
}

int ct_module_add_child(ct_module *m, const char *name, ct_module *child)
{
    void *at;
    int rc;

    if (!m || !child) {
        rc = missing(m ? m->ctx : child ? child->ctx : NULL, __func__, m ? "child" : "module");
        ct_module_free(child);
        return rc;
    }
    if (child->parent)
        return ct_error_raise(m->ctx, CT_EINVAL, __func__, "%s: '%s' is a child already",
                              m->ops->name, child->name);
    rc = check_child(m, name, child);
    if (rc == CT_OK) {
        at = m->child;
        rc = cti_grow(cti_ctx_mem(m->ctx), &at, &m->child_cap, (size_t)m->n_children + 1,
                      sizeof *m->child, "ct_module_add");
        m->child = at;
        if (rc != CT_OK)
            rc = no_memory(m);
    }
    if (rc != CT_OK) {
        if (child != m)
            ct_module_free(child);
        return rc;
    }
    snprintf(child->name, sizeof child->name, "%s", name);
    m->child[m->n_children++] = child;
    child->parent = m;
    grow_reach(m, strlen(name) + (child->reach ? child->reach + 1 : 0));
    return CT_OK;
}

/* ---- using ---- */

ct_module *cti_module_root(ct_module *m)
{
    while (m->parent)
        m = m->parent;
    return m;
}

/* An op's error says what is wrong; the path in front says in which layer: once, of the innermost. */
static void name_error(ct_module *m, ct_module *root)
{
    char path[CTI_PATH_MAX + 1];

    if (root->error_named || ct_error_code(m->ctx) == CT_OK)
        return;
    root->error_named = true;
    if (m->parent)
        cti_error_prefix(ct_error_record(m->ctx), "layer %s (%s)",
                         cti_module_path(m, path, sizeof path), m->ops->name);
}

ct_tensor *ct_module_forward(ct_module *m, ct_tensor *x)
{
    ct_module *root;
    ct_tensor *y;

    if (!m || !x) {
        ct_ctx *ctx = m ? m->ctx : x ? ct_tensor_ctx(x) : NULL;

        if (ctx && ct_error_code(ctx) == CT_OK)
            ct_error_raise(ctx, CT_EINVAL, __func__, m ? "%s: the input is NULL" : "no module",
                           m ? m->ops->name : "");
        return NULL;
    }
    if (ct_error_code(m->ctx) != CT_OK)
        return NULL;
    root = cti_module_root(m);
    root->depth++;
    bool labelled = m->parent && ct_anomaly_enabled(m->ctx);
    if (labelled)
        ct_label_begin(m->ctx, m->name);
    y = cti_module_run(m, x);
    if (labelled)
        ct_label_end(m->ctx);
    if (!y) {
        name_error(m, root);
    } else if (root->watching) {
        m->out_ndim = ct_tensor_ndim(y);
        memcpy(m->out_shape, ct_tensor_shape(y), (size_t)m->out_ndim * sizeof *m->out_shape);
    }
    if (--root->depth == 0)
        root->error_named = false;
    return y;
}

void ct_module_train(ct_module *m, bool training)
{
    if (!m)
        return;
    m->training = training;
    for (int i = 0; i < m->n_children; i++)
        ct_module_train(m->child[i], training);
}

/* Finds the module and the last name of a path. */
static const ct_module *walk(const ct_module *m, const char **path)
{
    const char *dot;

    while (m && (dot = strchr(*path, '.'))) {
        const ct_module *next = NULL;
        size_t n = (size_t)(dot - *path);

        for (int i = 0; i < m->n_children && !next; i++)
            if (strncmp(m->child[i]->name, *path, n) == 0 && m->child[i]->name[n] == '\0')
                next = m->child[i];
        m = next;
        *path = dot + 1;
    }
    return m;
}

ct_tensor *ct_module_get_param(ct_module *m, const char *path)
{
    const ct_module *owner = path ? walk(m, &path) : NULL;

    for (int i = 0; owner && i < owner->params.n; i++)
        if (strcmp(owner->params.at[i].name, path) == 0)
            return owner->params.at[i].tensor;
    return NULL;
}

typedef struct listing {
    ct_named_tensor *out;
    int cap, n;
    char path[CTI_PATH_MAX + 1]; /* of the module being listed, with a dot behind */
} listing;

static void list_slots(listing *l, const cti_slots *s, bool is_buffer)
{
    for (int i = 0; i < s->n; i++, l->n++) {
        size_t n = strlen(l->path);
        ct_named_tensor *o;

        if (l->n >= l->cap)
            continue;
        o = &l->out[l->n];
        memcpy(o->name, l->path, n);
        snprintf(o->name + n, sizeof o->name - n, "%s", s->at[i].name);
        o->tensor = s->at[i].tensor;
        o->is_buffer = is_buffer;
    }
}

static void list_module(listing *l, const ct_module *m)
{
    size_t end = strlen(l->path);

    list_slots(l, &m->params, false);
    list_slots(l, &m->buffers, true);
    for (int i = 0; i < m->n_children; i++) {
        snprintf(l->path + end, sizeof l->path - end, "%s.", m->child[i]->name);
        list_module(l, m->child[i]);
        l->path[end] = '\0';
    }
}

int ct_module_state(ct_module *m, ct_named_tensor *out, int cap)
{
    listing l = {.out = out, .cap = out ? cap : 0};

    if (m)
        list_module(&l, m);
    return l.n;
}

int64_t ct_module_n_params(ct_module *m)
{
    return m ? cti_module_count(m, m, true, false) : 0;
}

int ct_module_set_requires_grad(ct_module *m, bool requires_grad)
{
    int rc = CT_OK;

    if (!m)
        return CT_EINVAL;
    rc = ct_error_code(m->ctx);
    for (int i = 0; i < m->params.n && rc == CT_OK; i++)
        rc = ct_tensor_set_requires_grad(m->ctx, m->params.at[i].tensor, requires_grad);
    for (int i = 0; i < m->n_children && rc == CT_OK; i++)
        rc = ct_module_set_requires_grad(m->child[i], requires_grad);
    return rc;
}

void ct_module_zero_grad(ct_module *m)
{
    if (!m)
        return;
    for (int i = 0; i < m->params.n; i++)
        ct_zero_grad(m->params.at[i].tensor);
    for (int i = 0; i < m->n_children; i++)
        ct_module_zero_grad(m->child[i]);
}

int ct_module_set_dropout(ct_module *m, double p)
{
    int n = 0;

    if (!m)
        return 0;
    if (cti_is_dropout(m)) {
        cti_dropout_set(m, p);
        n++;
    }
    for (int i = 0; i < m->n_children; i++)
        n += ct_module_set_dropout(m->child[i], p);
    return n;
}
