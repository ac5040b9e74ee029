/* SPDX-License-Identifier: Apache-2.0 */
/* embedding - y[.., :] = weight[ids[..], :]. Shape: weight [V,D], ids (i64 or i32) of any shape -> ids' shape and D.
 * Gradient: dweight[v] = the sum of dy where ids is v, in the order of ids; that of row padding_idx is 0. Oracle:
 * torch.nn.functional.embedding. */
#include "autograd/op.h"

static int infer(cti_node *n)
{
    const int64_t *padding = cti_attr(n);
    const ct_view *w = cti_x(n, 0), *ids = cti_x(n, 1);
    int64_t shape[CT_MAX_DIMS];
    char s[64];
    int rc = cti_check_float(n, 0);
    rc = rc ? rc : cti_check_index_dtype(n, 1);
    if (rc)
        return rc;
    if (w->ndim != 2)
        return cti_op_fail(n, CT_ESHAPE, "weight %s must be [V,D]", cti_shape_str(w, s, sizeof s));
    if (ids->ndim == CT_MAX_DIMS)
        return cti_op_fail(n, CT_ESHAPE, "ids %s leave no dimension for the rows",
                           cti_shape_str(ids, s, sizeof s));
    if (*padding < -1 || *padding >= w->shape[0])
        return cti_op_fail(n, CT_EINVAL, "padding_idx is out of range for weight %s",
                           cti_shape_str(w, s, sizeof s));
    for (int d = 0; d < ids->ndim; d++)
        shape[d] = ids->shape[d];
    shape[ids->ndim] = w->shape[1];
    return cti_out(n, 0, w->dtype, ids->ndim + 1, shape);
}

/* rows: y or dy as [n,D]; ids (row-major) as an index of that shape along dimension 0. */
static ct_view ids_of(const ct_view *ids, const ct_view *rows)
{
    ct_view flat = {.data = ids->data, .dtype = CT_I64, .ndim = 1};
    flat.shape[0] = rows->shape[0];
    flat.stride[0] = 1;
    return cti_index_along(&flat, rows, 0);
}

static int forward(cti_node *n)
{
    const ct_view *w = cti_x(n, 0), *ids = cti_x(n, 1);
    ct_view rows;
    cti_view_rows(cti_y(n, 0), &rows);
    ct_view index = ids_of(ids, &rows);
    int rc = cti_check_indices(n, ids, w->shape[0], 0);
    if (rc)
        return rc;
    cti_save_in(n, 0, 1);
    return cti_be(n)->index->gather(cti_stream(n), &rows, w, 0, &index);
}

static int backward(cti_node *n)
{
    int beta;
    const ct_view *dw = cti_dx(n, 0, &beta), *dy = cti_dy(n, 0);
    ct_view rows;
    if (!dw)
        return cti_pending(n);
    if (!cti_view_rows(dy, &rows)) {
        ct_view like = *dy;
        cti_row_major(like.ndim, like.shape, like.stride);
        dy = cti_dy_like(n, 0, &like);
        if (!dy)
            return cti_pending(n);
        cti_view_rows(dy, &rows);
    }
    ct_view index = ids_of(cti_saved(n, 0), &rows);
    int rc = beta ? CT_OK : cti_be(n)->ew->fill(cti_stream(n), dw, 0);
    return rc ? rc : cti_scatter_into(n, dw, &rows, 0, &index, true, *(const int64_t *)cti_attr(n));
}

static int vjp(cti_node *n, ct_tensor *const *dy, ct_tensor **dx)
{
    const int64_t padding = *(const int64_t *)cti_attr(n), *w = cti_in_meta(n, 0)->shape;
    const int64_t flat = -1, rows[2] = {ct_view_numel(cti_in_meta(n, 1)), w[1]};
    ct_tensor *ids = ct_reshape(cti_saved_tensor(n, 0), 1, &flat);
    ct_tensor *dw =
        ct_index_add(ct_new_full(dy[0], 2, w, 0), 0, ids, ct_reshape(dy[0], 2, rows), 1);
    if (padding >= 0 && dw) {
        const int64_t one[2] = {1, w[1]};
        ct_tensor *parts[3] = {ct_narrow(dw, 0, 0, padding), ct_new_full(dw, 2, one, 0),
                               ct_narrow(dw, 0, padding + 1, w[0] - padding - 1)};
        dw = parts[0] && parts[1] && parts[2] ? ct_cat(parts, 3, 0) : NULL;
    }
    dx[0] = dw;
    return cti_pending(n);
}

/* arg: padding_idx + 1000 (0: none). in: weight, ids. */
static const ct_case cases[] = {
    {.name = "sequences", .in = {CT_IN(NORMAL, 7, 5), CT_IN_LABELS(7, 2, 3)}},
    {.name = "repeated", .in = {CT_IN(NORMAL, 3, 5), CT_IN_LABELS(3, 19)}},
    {.name = "padding",
     .arg = {1002},
     .in = {CT_IN(NORMAL, 5, 3), CT_IN_LABELS(5, 2, 7)},
     .skip_diff = "no gradient of the padding row, though it is read"},
    {.name = "padding from the end",
     .arg = {999},
     .in = {CT_IN(NORMAL, 3, 3), CT_IN_LABELS(3, 9)},
     .skip_diff = "no gradient of the padding row, though it is read"},
    {.name = "wide", .in = {CT_IN(NORMAL, 3, 300), CT_IN_LABELS(3, 5)}},
    {.name = "one id", .in = {CT_IN(NORMAL, 1, 5), {.kind = CT_IN_CLASS, .classes = 1}}},
    {.name = "columns of one", .in = {CT_IN(NORMAL, 5, 1), CT_IN_LABELS(5, 4)}},
    {.name = "empty", .in = {CT_IN(NORMAL, 5, 3), CT_IN_LABELS(5, 0, 2)}},
};

static ct_tensor *call(ct_tensor *const *in, const ct_case *c)
{
    int64_t padding = c->arg[0] ? (int64_t)c->arg[0] - 1000 : CT_NO_PADDING;
    return ct_embedding(in[0], in[1], padding);
}

const ct_op cti_op_embedding = {.name = "embedding",
                                .torch_name = "EmbeddingBackward0",
                                .accumulates = 1,
                                .infer = infer,
                                .forward = forward,
                                .backward = backward,
                                .vjp = vjp,
                                CT_CASES(cases),
                                .call = call};

bool cti_padding_row(const ct_op *op, ct_tensor *weight, int64_t *padding)
{
    char s[96];
    int64_t rows = weight ? ct_tensor_size(weight, 0) : 0;
    if (*padding == CT_NO_PADDING)
        *padding = -1;
    else if (weight && (*padding < -rows || *padding >= rows))
        return cti_raise(ct_tensor_ctx(weight), op, CT_EINVAL,
                         "padding_idx %lld is out of range for %lld rows of weight, %s",
                         (long long)*padding, (long long)rows,
                         ct_tensor_describe(weight, s, sizeof s)),
               false;
    else
        *padding += *padding < 0 ? rows : 0;
    return true;
}

ct_tensor *ct_embedding(ct_tensor *weight, ct_tensor *ids, int64_t padding_idx)
{
    ct_tensor *in[2] = {weight, cti_index_i64(ids)};
    if (!cti_padding_row(&cti_op_embedding, weight, &padding_idx))
        return NULL;
    if (in[1] && !ct_tensor_is_contiguous(in[1]))
        in[1] = ct_contiguous(in[1]);
    return ids && !in[1] ? NULL :
                           cti_apply(&cti_op_embedding, &padding_idx, sizeof padding_idx, 2, in);
}
