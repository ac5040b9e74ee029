/* SPDX-License-Identifier: Apache-2.0 */
/* Counting parameters, and the table of a model: path, layer, output shape, parameters. */
#include "nn/module.h"

#include <ctrain/autograd.h>

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

/* Does `t` stand anywhere before parameter `stop` of `owner`? A shared tensor is counted once. */
static bool seen_before(const ct_module *m, const ct_tensor *t, const ct_module *owner, int stop,
                        bool *reached)
{
    for (int i = 0; i < m->params.n; i++) {
        if (m == owner && i == stop) {
            *reached = true;
            return false;
        }
        if (m->params.at[i].tensor == t)
            return true;
    }
    for (int i = 0; i < m->n_children && !*reached; i++)
        if (seen_before(m->child[i], t, owner, stop, reached))
            return true;
    return false;
}

int64_t cti_module_count(const ct_module *root, const ct_module *m, bool deep, bool trainable)
{
    int64_t n = 0;

    for (int i = 0; i < m->params.n; i++) {
        const ct_tensor *t = m->params.at[i].tensor;
        bool reached = false;

        if (trainable && !ct_tensor_requires_grad(t))
            continue;
        if (!seen_before(root, t, m, i, &reached))
            n += ct_tensor_numel(t);
    }
    for (int i = 0; deep && i < m->n_children; i++)
        n += cti_module_count(root, m->child[i], deep, trainable);
    return n;
}

typedef struct table {
    char *buf;
    size_t cap, n; /* n: bytes the text has, also beyond cap */
    int width[3];
    const ct_module *root;
} table;

CT_PRINTF(2, 3) static void put(table *t, const char *fmt, ...)
{
    va_list args;
    int n;

    va_start(args, fmt);
    n = vsnprintf(t->n < t->cap ? t->buf + t->n : NULL, t->n < t->cap ? t->cap - t->n : 0, fmt,
                  args);
    va_end(args);
    if (n > 0)
        t->n += (size_t)n;
}

/* One row: measured first (`measure`), printed then. */
static void row(table *t, ct_module *m, bool measure)
{
    char path[CTI_PATH_MAX + 1], args[160] = "", layer[224], shape[192] = "-";
    const char *cell[3] = {path, layer, shape};

    cti_module_path(m, path, sizeof path);
    if (!path[0])
        snprintf(path, sizeof path, "(model)");
    if (m->ops->describe)
        m->ops->describe(m, m->self, args, sizeof args);
    snprintf(layer, sizeof layer, "%s%s%s%s", m->ops->name, args[0] ? "(" : "", args,
             args[0] ? ")" : "");
    if (m->out_ndim >= 0)
        cti_shape_text(m->out_ndim, m->out_shape, shape, sizeof shape);
    for (int i = 0; measure && i < 3; i++)
        if (t->width[i] < (int)strlen(cell[i]))
            t->width[i] = (int)strlen(cell[i]);
    if (!measure)
        put(t, "%-*s  %-*s  %-*s  %12lld\n", t->width[0], path, t->width[1], layer, t->width[2],
            shape, (long long)cti_module_count(t->root, m, m == t->root, false));
    for (int i = 0; i < m->n_children; i++)
        row(t, m->child[i], measure);
}

static void keep_modes(ct_module *m, bool restore)
{
    if (restore)
        m->training = m->was_training;
    m->was_training = m->training;
    m->out_ndim = -1;
    for (int i = 0; i < m->n_children; i++)
        keep_modes(m->child[i], restore);
}

int ct_module_summary(ct_module *m, int ndim, const int64_t *shape, char *buf, size_t cap)
{
    table t = {.buf = buf, .cap = buf ? cap : 0, .width = {4, 5, 12}, .root = m};
    ct_module *root;
    ct_tensor *x;
    int rc, end;

    if (!m)
        return CT_EINVAL;
    rc = ct_scope_begin(m->ctx, CT_SCOPE_NO_GRAD);
    if (rc != CT_OK)
        return rc;
    root = cti_module_root(m);
    keep_modes(m, false);
    ct_module_train(m, false);
    x = ct_tensor_new(m->ctx, ct_ctx_dtype(m->ctx), ndim, shape);
    root->watching = true;
    if (!ct_module_forward(m, x))
        rc = ct_error_code(m->ctx);
    root->watching = false;
    ct_tensor_release(x);
    end = ct_scope_end(m->ctx);
    rc = rc != CT_OK ? rc : end;
    if (rc == CT_OK) {
        row(&t, m, true);
        put(&t, "%-*s  %-*s  %-*s  %12s\n", t.width[0], "path", t.width[1], "layer", t.width[2],
            "output shape", "parameters");
        row(&t, m, false);
        put(&t, "%lld parameters, %lld of them trained\n",
            (long long)cti_module_count(m, m, true, false),
            (long long)cti_module_count(m, m, true, true));
    }
    keep_modes(m, true);
    return rc != CT_OK ? rc : (int)t.n;
}
