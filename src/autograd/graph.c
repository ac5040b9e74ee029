/* SPDX-License-Identifier: Apache-2.0 */
/* Looking at the graph. */
#include "autograd/internal.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

const ct_grad_fn *ct_tensor_grad_fn(const ct_tensor *t)
{
    if (!t || cti_tensor_sync((ct_tensor *)t) < 0)
        return NULL;
    return (const ct_grad_fn *)t->grad_fn;
}

const char *ct_grad_fn_name(const ct_grad_fn *fn)
{
    return fn ? ((const cti_node *)fn)->op->torch_name : NULL;
}

int ct_grad_fn_inputs(const ct_grad_fn *fn)
{
    return fn ? ((const cti_node *)fn)->n_in : 0;
}

const ct_grad_fn *ct_grad_fn_next(const ct_grad_fn *fn, int i)
{
    const cti_node *n = (const cti_node *)fn;
    return n && i >= 0 && i < n->n_in ? (const ct_grad_fn *)n->edge[i].fn : NULL;
}

size_t ct_grad_fn_saved_bytes(const ct_grad_fn *fn)
{
    return fn ? ((const cti_node *)fn)->saved_bytes : 0;
}

uint64_t ct_grad_fn_sequence(const ct_grad_fn *fn)
{
    return fn ? ((const cti_node *)fn)->seq : 0;
}

/* ---- Graphviz ---- */

static void write_node(FILE *f, const cti_node *n)
{
    char shape[128];
    if (n->leaf)
        fprintf(f, "  n%" PRIu64 " [shape=ellipse, label=\"%s %s\"];\n", n->seq,
                ct_dtype_name(n->leaf->view.dtype),
                cti_shape_str(&n->leaf->view, shape, sizeof shape));
    else
        fprintf(f, "  n%" PRIu64 " [shape=box, label=\"%s\\nkeeps %zu bytes\"];\n", n->seq,
                n->op->torch_name, n->saved_bytes);
    for (int i = 0; i < n->n_in; i++)
        if (n->edge[i].fn)
            fprintf(f, "  n%" PRIu64 " -> n%" PRIu64 ";\n", n->seq, n->edge[i].fn->seq);
}

int ct_graph_dot(ct_ctx *ctx, int n, ct_tensor *const *outputs, const char *path)
{
    char shape[128];
    if (!ctx)
        return CT_EINVAL;
    if (ctx->err.code)
        return ctx->err.code;
    if (n < 1 || !outputs || !path)
        return cti_fail(&ctx->err, CT_EINVAL, "graph_dot: an output and a path are needed");
    for (int o = 0; o < n; o++)
        if (!outputs[o] || outputs[o]->ctx != ctx || cti_tensor_sync(outputs[o]) < 0)
            return cti_fail(&ctx->err, CT_EINVAL, "graph_dot: output %d is %s", o,
                            outputs[o] ? "of another context" : "NULL");
    int64_t nodes = cti_reachable(ctx, n, outputs);
    if (nodes < 0)
        return ctx->err.code;
    FILE *f = fopen(path, "w");
    if (!f)
        return cti_fail(&ctx->err, CT_EIO, "graph_dot: %s: %s", path, strerror(errno));
    fprintf(f, "digraph autograd {\n  rankdir=BT;\n");
    for (int64_t k = 0; k < nodes; k++)
        write_node(f, ctx->order[k]);
    for (int o = 0; o < n; o++) {
        fprintf(f, "  y%d [shape=plaintext, label=\"output %d %s\"];\n", o, o,
                cti_shape_str(&outputs[o]->view, shape, sizeof shape));
        if (outputs[o]->grad_fn)
            fprintf(f, "  y%d -> n%" PRIu64 ";\n", o, outputs[o]->grad_fn->seq);
    }
    fprintf(f, "}\n");
    bool bad = ferror(f) != 0;
    if (fclose(f) != 0 || bad)
        return cti_fail(&ctx->err, CT_EIO, "graph_dot: %s: %s", path, strerror(errno));
    return CT_OK;
}
