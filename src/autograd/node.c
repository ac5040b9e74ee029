/* SPDX-License-Identifier: Apache-2.0 */
/* Nodes of the tape: making, what they save, freeing without recursion. */
#include "autograd/internal.h"

#include <string.h>

static size_t node_bytes(int n_in)
{
    size_t per_input = sizeof(ct_view) + sizeof(cti_edge) + sizeof(ct_tensor *);
    return sizeof(cti_node) + (size_t)n_in * per_input;
}

cti_node *cti_node_new(ct_ctx *ctx, const ct_op *op, int n_in, int n_out)
{
    cti_node *n = cti_cache_get_raw(ctx->cache, node_bytes(n_in), "node");
    if (!n) {
        cti_fail(&ctx->err, CT_ENOMEM, "%s: out of memory for a graph node", op->name);
        return NULL;
    }
    /* The attr and the views are written before they are read. */
    memset(n, 0, offsetof(cti_node, attr));
    n->x = NULL;
    n->in_view = (ct_view *)(n + 1);
    n->edge = (cti_edge *)(n->in_view + n_in);
    n->dx = (ct_tensor **)(n->edge + n_in);
    memset(n->edge, 0, (size_t)n_in * (sizeof *n->edge + sizeof *n->dx));
    n->op = op;
    n->ctx = ctx;
    n->refs = 1;
    n->n_in = n_in;
    n->n_out = n_out;
    return n;
}

void cti_node_set_live(cti_node *n)
{
    ct_ctx *ctx = n->ctx;
    n->seq = ctx->next_seq++;
    n->live_next = ctx->live_nodes;
    if (ctx->live_nodes)
        ctx->live_nodes->live_prev = n;
    ctx->live_nodes = n;
    ctx->n_live_nodes++;
    ctx->saved_bytes += n->saved_bytes;
}

static void unset_live(cti_node *n)
{
    ct_ctx *ctx = n->ctx;
    if (!n->seq)
        return;
    if (n->live_prev)
        n->live_prev->live_next = n->live_next;
    else
        ctx->live_nodes = n->live_next;
    if (n->live_next)
        n->live_next->live_prev = n->live_prev;
    ctx->n_live_nodes--;
}

void cti_node_retain(cti_node *n)
{
    n->refs++;
}

void cti_node_release_saved(cti_node *n)
{
    for (int s = 0; s < CTI_MAX_SLOTS; s++) {
        cti_storage_release(n->saved[s].storage);
        n->saved[s].storage = NULL;
    }
    if (n->seq)
        n->ctx->saved_bytes -= n->saved_bytes;
    n->saved_bytes = 0;
    n->released = true;
}

void cti_node_drop_temps(cti_node *n)
{
    for (int i = 0; i < n->n_temps; i++)
        ct_tensor_release(n->temp[i]);
    n->n_temps = 0;
}

static void destroy(cti_node *n)
{
    ct_ctx *ctx = n->ctx;
    cti_node_release_saved(n);
    cti_node_drop_temps(n);
    unset_live(n);
    for (int o = 0; o < n->n_out; o++)
        ct_tensor_release(n->dy[o]);
    for (int i = 0; i < n->n_in; i++) {
        ct_tensor_release(n->dx[i]);
        if (n->edge[i].fn)
            cti_node_release(n->edge[i].fn);
    }
    cti_hooks_free(ctx, &n->hooks);
    cti_free(ctx->mem, n->label);
    if (n->leaf) {
        n->leaf->accumulator = NULL;
        ct_tensor_release(n->leaf);
    }
    cti_cache_put(ctx->cache, n, node_bytes(n->n_in));
}

/* Freeing one node may free the next, and so on down a chain of any length: the dead wait in a list. */
void cti_node_release(cti_node *n)
{
    if (--n->refs > 0)
        return;
    ct_ctx *ctx = n->ctx;
    n->dead_next = ctx->dead_nodes;
    ctx->dead_nodes = n;
    if (ctx->freeing_nodes)
        return;
    ctx->freeing_nodes = true;
    while (ctx->dead_nodes) {
        cti_node *dead = ctx->dead_nodes;
        ctx->dead_nodes = dead->dead_next;
        destroy(dead);
    }
    ctx->freeing_nodes = false;
}

const ct_op cti_op_accumulate = {.name = "accumulate", .torch_name = "AccumulateGrad"};

cti_node *cti_accumulator_of(ct_tensor *leaf)
{
    cti_node *n = leaf->accumulator;
    if (n) {
        cti_node_retain(n);
        return n;
    }
    n = cti_node_new(leaf->ctx, &cti_op_accumulate, 0, 1);
    if (!n)
        return NULL;
    n->leaf = ct_tensor_retain(leaf);
    n->out_view[0] = leaf->view;
    leaf->accumulator = n;
    cti_node_set_live(n);
    return n;
}

/* ---- saving ---- */

static const ct_view *save(cti_node *n, int slot, cti_storage *st, const ct_view *view, char kind,
                           int index)
{
    cti_slot *s = &n->saved[slot];
    cti_storage_release(s->storage);
    cti_storage_retain(st);
    *s = (cti_slot){st, st->version, *view, kind, index};
    if (st->inference)
        cti_op_fail(
            n, CT_ESTATE,
            "%s %d was made in inference mode (CT_SCOPE_INFERENCE) and can't be saved for "
            "backward; ct_clone it outside of that scope, or make it in a CT_SCOPE_NO_GRAD scope",
            kind == 'x' ? "input" : "output", index);
    n->saved_bytes += (size_t)ct_view_numel(view) * ct_dtype_bytes(view->dtype);
    n->had_saved = true;
    return &s->view;
}

/* Memory that the op is about to write over: what it holds now. */
static void save_copy(cti_node *n, int slot, int i)
{
    int64_t stride[CT_MAX_DIMS];
    const ct_view *x = &n->x[i]->view;
    cti_dense_order(x, stride);
    ct_tensor *t = cti_tensor_alloc(n->ctx, x->dtype, x->ndim, x->shape, stride);
    if (!t)
        return;
    int r = n->ctx->device.be->ew->copy(n->ctx->device.stream, &t->view, x);
    if (cti_kernel_status(n, "saving an input", r) >= 0)
        save(n, slot, t->storage, &t->view, 'x', i);
    ct_tensor_release(t);
}

void cti_save_in(cti_node *n, int slot, int i)
{
    if (!n->recording || !n->x[i])
        return;
    if (n->inplace && n->x[i]->storage == n->x[0]->storage)
        save_copy(n, slot, i);
    else
        save(n, slot, n->x[i]->storage, &n->x[i]->view, 'x', i);
}

void cti_save_out(cti_node *n, int slot, int o)
{
    if (n->recording)
        save(n, slot, n->y[o]->storage, &n->out_view[o], 'y', o);
}

void cti_save_tensor(cti_node *n, int slot, ct_tensor *t)
{
    if (n->recording)
        save(n, slot, t->storage, &t->view, 'n', slot);
}

static ct_tensor *temp_new(cti_node *n, ct_dtype dtype, int ndim, const int64_t *shape,
                           const int64_t *stride)
{
    ct_tensor *t =
        n->n_temps < CTI_MAX_TEMPS ?
            cti_tensor_alloc(n->ctx, dtype, ndim, shape, stride) :
            (cti_fail(&n->ctx->err, CT_EINTERNAL, "%s: too many temporaries", n->op->name), NULL);
    if (t)
        n->temp[n->n_temps++] = t;
    return t;
}

const ct_view *cti_save_new(cti_node *n, int slot, ct_dtype dtype, int ndim, const int64_t *shape)
{
    ct_tensor *t = temp_new(n, dtype, ndim, shape, NULL);
    if (!t)
        return NULL;
    return n->recording ? save(n, slot, t->storage, &t->view, 'n', slot) : &t->view;
}

const ct_view *cti_save_new_like(cti_node *n, int slot, ct_dtype dtype, const ct_view *like)
{
    int64_t stride[CT_MAX_DIMS];
    cti_dense_order(like, stride);
    ct_tensor *t = temp_new(n, dtype, like->ndim, like->shape, stride);
    if (!t)
        return NULL;
    return n->recording ? save(n, slot, t->storage, &t->view, 'n', slot) : &t->view;
}

const ct_view *cti_saved(const cti_node *n, int slot)
{
    return n->saved[slot].storage ? &n->saved[slot].view : NULL;
}

const ct_view *cti_temp_like(cti_node *n, ct_dtype dtype, const ct_view *like)
{
    int64_t stride[CT_MAX_DIMS];
    cti_dense_order(like, stride);
    ct_tensor *t = temp_new(n, dtype, like->ndim, like->shape, stride);
    return t ? &t->view : NULL;
}

void *cti_workspace(cti_node *n, size_t bytes)
{
    ct_ctx *ctx = n->ctx;
    if (bytes == 0)
        return NULL;
    if (!ctx->workspace || ctx->workspace->bytes < bytes) {
        cti_storage_release(ctx->workspace);
        ctx->workspace = cti_storage_new_lasting(ctx, bytes);
    }
    return ctx->workspace ? ctx->workspace->data : NULL;
}

/* ---- lists of formulas ---- */

ct_tensor **cti_list_begin(ct_ctx *ctx, cti_node_list *list, int64_t n)
{
    *list = (cti_node_list){.ctx = ctx, .bytes = (size_t)n * sizeof(ct_tensor *)};
    list->at = n > 0 ? cti_cache_get(ctx->cache, list->bytes, "list") : NULL;
    if (n > 0 && !list->at)
        cti_fail(&ctx->err, CT_ENOMEM, "out of memory for a list of %zu bytes", list->bytes);
    return list->at;
}

void cti_list_end(cti_node_list *list)
{
    if (list->at)
        cti_cache_put(list->ctx->cache, list->at, list->bytes);
    list->at = NULL;
}
