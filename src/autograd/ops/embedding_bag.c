/* SPDX-License-Identifier: Apache-2.0 */
/* embedding_bag - the sum, mean or maximum of the rows of weight that each bag of ids names. Ids that are padding_idx
 * don't count (nor for the mean); a bag without ids is 0. Of equal maxima the first one has the gradient.
 * Shape: weight [V,D]; ids [B,L], or [n] with offsets [B], where the bags start (include_last_offset: [B+1], with
 * the end of the last one) -> [B,D]. A formula of embedding,
 * index_add and gather. Oracle: torch.nn.functional.embedding_bag. */
#include "autograd/op.h"

/* ---- where the bags are ---- Two ops of indices, without gradient. */

static void report_offset(ct_ctx *ctx, const ct_op *op, const int64_t found[3], int64_t arg)
{
    (void)arg;
    cti_raise(ctx, op, CT_EDATA,
              "offset %lld at position %lld: offsets start with 0, never fall and are at most the "
              "number of ids, %lld",
              (long long)found[1], (long long)found[0], (long long)found[2]);
}

static int bags_infer(cti_node *n)
{
    return cti_out(n, 0, CT_I64, 1, cti_x(n, 1)->shape);
}

static int bags_forward(cti_node *n)
{
    const ct_view *bad = cti_late(n, report_offset, 0);
    return bad ? cti_be(n)->index->bags(cti_stream(n), cti_y(n, 0), cti_x(n, 0), cti_x(n, 1),
                                        *(const int64_t *)cti_attr(n), bad) :
                 cti_pending(n);
}

/* offsets, ids (dense) -> the bag of each id; B where it is the padding. */
static const ct_op op_bags = {.name = "embedding_bag",
                              .torch_name = "EmbeddingBagBackward0",
                              .infer = bags_infer,
                              .forward = bags_forward};

static int winners_infer(cti_node *n)
{
    const int64_t shape[2] = {cti_x(n, 1)->shape[0], cti_x(n, 0)->shape[1]};
    return cti_out(n, 0, CT_I64, 2, shape);
}

static int winners_forward(cti_node *n)
{
    return cti_be(n)->index->bag_max(cti_stream(n), cti_y(n, 0), cti_x(n, 0), cti_x(n, 1),
                                     cti_x(n, 2), *(const int64_t *)cti_attr(n));
}

/* rows [n,D], offsets, ids (all dense) -> the row of each bag's maximum, by column; n: there is none. */
static const ct_op op_winners = {.name = "embedding_bag",
                                 .torch_name = "EmbeddingBagBackward0",
                                 .infer = winners_infer,
                                 .forward = winners_forward};

/* ---- the formula ---- */

typedef struct bags {
    ct_tensor *rows, *ids, *offsets, *bag;
    int64_t n, B, D, padding;
    int64_t marks; /* offsets: B, or one more for the end */
} bags;

/* Values [n] or [n,D] summed for each bag: [B] or [B,D]. */
static ct_tensor *sums(const bags *b, ct_tensor *values)
{
    const int64_t shape[2] = {b->marks + 1, b->D}; /* behind the bags: what doesn't count */
    ct_tensor *zeros = values ? ct_new_full(values, ct_tensor_ndim(values), shape, 0) : NULL;
    return ct_narrow(zeros ? ct_index_add(zeros, 0, b->bag, values, 1) : NULL, 0, 0, b->B);
}

static ct_tensor *mean(const bags *b)
{
    ct_tensor *one = ct_new_full(b->rows, 1, &b->n, 1), *count = sums(b, one);
    ct_tensor *none = count ? ct_eq(count, ct_zeros_like(count)) : NULL;
    count = none ? ct_add(count, ct_cast(none, ct_tensor_dtype(count))) : NULL;
    return count ? ct_div(sums(b, b->rows), ct_unsqueeze(count, 1)) : NULL;
}

static ct_tensor *maximum(const bags *b)
{
    const int64_t one[2] = {1, b->D};
    ct_tensor *in[3] = {b->rows, b->offsets, b->ids};
    ct_tensor *at =
        b->offsets ? cti_apply(&op_winners, &b->padding, sizeof b->padding, 3, in) : NULL;
    ct_tensor *parts[2] = {b->rows, ct_new_full(b->rows, 2, one, 0)};
    return at && parts[1] ? ct_gather(ct_cat(parts, 2, 0), 0, ct_narrow(at, 0, 0, b->B)) : NULL;
}

static ct_tensor *flat(ct_tensor *t)
{
    const int64_t all = -1;
    t = t ? ct_reshape(t, 1, &all) : NULL;
    return t ? ct_contiguous(t) : NULL;
}

/* arg: mode, padding_idx + 1000 (0: none). in: weight, ids, offsets, per_sample_weights. */
static const ct_case cases[] = {
    {.name = "sum", .arg = {0}, .in = {CT_IN(NORMAL, 7, 5), CT_IN_LABELS(7, 3, 4)}},
    {.name = "mean", .arg = {1}, .in = {CT_IN(NORMAL, 7, 5), CT_IN_LABELS(7, 3, 4)}},
    {.name = "max", .arg = {2}, .in = {CT_IN(DISTINCT, 7, 5), CT_IN_LABELS(7, 3, 4)}},
    {.name = "weighted",
     .arg = {0},
     .in = {CT_IN(NORMAL, 7, 5), CT_IN_LABELS(7, 3, 4), {.kind = CT_IN_NONE}, CT_IN(NORMAL, 3, 4)}},
    {.name = "one bag",
     .arg = {1},
     .in = {CT_IN(NORMAL, 7, 5), CT_IN_LABELS(7, 9), CT_IN_LABELS(1, 1)}},
    {.name = "bags of nothing, then one",
     .arg = {0},
     .in = {CT_IN(NORMAL, 7, 5), CT_IN_LABELS(7, 9), CT_IN_LABELS(1, 3)}},
    {.name = "mean, padding",
     .arg = {1, 1002},
     .in = {CT_IN(NORMAL, 3, 5), CT_IN_LABELS(3, 4, 3)},
     .skip_diff = "rows of padding are no part of it"},
    {.name = "max, padding",
     .arg = {2, 1001},
     .in = {CT_IN(DISTINCT, 3, 5), CT_IN_LABELS(3, 4, 3)},
     .skip_diff = "rows of padding are no part of it"},
    {.name = "empty",
     .arg = {0},
     .in = {CT_IN(NORMAL, 7, 5), CT_IN_LABELS(7, 0), CT_IN_LABELS(1, 2)}},
};

static ct_tensor *call(ct_tensor *const *in, const ct_case *c)
{
    ct_embedding_bag_opts o = ct_embedding_bag_defaults((ct_bag_mode)c->arg[0]);
    o.per_sample_weights = in[3];
    if (c->arg[1])
        o.padding_idx = (int64_t)c->arg[1] - 1000;
    return ct_embedding_bag(in[0], in[1], in[2], o);
}

const ct_op cti_op_embedding_bag = {
    .name = "embedding_bag", .optional = 12, CT_CASES(cases), .call = call};

static bool check(ct_tensor *weight, ct_tensor *ids, ct_tensor *offsets,
                  const ct_embedding_bag_opts *o)
{
    ct_ctx *ctx = ct_tensor_ctx(weight);
    const ct_op *op = &cti_op_embedding_bag;
    char s[96], t[96];
    int ndim = ct_tensor_ndim(ids);
    if ((unsigned)o->mode > CT_BAG_MAX)
        cti_raise(ctx, op, CT_EINVAL, "mode %d is none of CT_BAG_*", (int)o->mode);
    else if (ct_tensor_ndim(weight) != 2)
        cti_raise(ctx, op, CT_ESHAPE, "weight, %s, must be [V,D]",
                  ct_tensor_describe(weight, s, sizeof s));
    else if (offsets ? ndim != 1 || ct_tensor_ndim(offsets) != 1 : ndim != 2)
        cti_raise(ctx, op, CT_ESHAPE, "ids, %s%s%s: [B,L] is needed, or [n] with offsets [B]",
                  ct_tensor_describe(ids, s, sizeof s), offsets ? ", and offsets, " : "",
                  offsets ? ct_tensor_describe(offsets, t, sizeof t) : "");
    else if (offsets && ct_tensor_dtype(offsets) != CT_I64 && ct_tensor_dtype(offsets) != CT_I32)
        cti_raise(ctx, op, CT_EDTYPE, "offsets are %s: int64 or int32 is needed",
                  ct_dtype_name(ct_tensor_dtype(offsets)));
    else if (o->include_last_offset && (!offsets || ct_tensor_size(offsets, 0) < 1))
        cti_raise(ctx, op, CT_EINVAL, "include_last_offset needs offsets, one more than bags");
    else if (o->per_sample_weights && o->mode != CT_BAG_SUM)
        cti_raise(ctx, op, CT_EINVAL, "per_sample_weights are for the sum alone");
    else if (o->per_sample_weights) {
        ct_view a = cti_meta(o->per_sample_weights), b = cti_meta(ids);
        if (!cti_same_shape(&a, &b))
            cti_raise(ctx, op, CT_ESHAPE, "per_sample_weights, %s, must have the shape of ids, %s",
                      ct_tensor_describe(o->per_sample_weights, s, sizeof s),
                      ct_tensor_describe(ids, t, sizeof t));
    }
    return ct_error_code(ctx) == CT_OK;
}

ct_embedding_bag_opts ct_embedding_bag_defaults(ct_bag_mode mode)
{
    return (ct_embedding_bag_opts){.mode = mode, .padding_idx = CT_NO_PADDING};
}

ct_tensor *ct_embedding_bag(ct_tensor *weight, ct_tensor *ids, ct_tensor *offsets,
                            ct_embedding_bag_opts opts)
{
    bags b = {.padding = opts.padding_idx};
    if (!weight || !ids)
        return ct_embedding(weight, ids, CT_NO_PADDING);
    if (!check(weight, ids, offsets, &opts) ||
        !cti_padding_row(&cti_op_embedding_bag, weight, &b.padding))
        return NULL;
    ct_ctx *ctx = ct_tensor_ctx(weight);
    int64_t L = offsets ? 0 : ct_tensor_size(ids, 1);
    b.n = ct_tensor_numel(ids);
    b.D = ct_tensor_size(weight, 1);
    b.marks = ct_tensor_size(offsets ? offsets : ids, 0);
    b.B = b.marks - opts.include_last_offset;
    b.ids = flat(cti_index_i64(ids));
    b.offsets = offsets ? ct_contiguous(cti_index_i64(offsets)) :
                L > 0   ? ct_arange(ctx, CT_I64, 0, (double)(b.marks * L), (double)L) :
                b.ids   ? ct_new_full(b.ids, 1, &b.marks, 0) :
                          NULL;
    b.rows = ct_embedding(weight, b.ids, b.padding < 0 ? CT_NO_PADDING : b.padding);
    ct_tensor *in[2] = {b.offsets, b.ids};
    if (!b.rows || !b.offsets)
        return NULL;
    b.bag = cti_apply(&op_bags, &b.padding, sizeof b.padding, 2, in);
    if (!b.bag)
        return NULL;
    if (opts.mode == CT_BAG_MAX)
        return maximum(&b);
    if (opts.mode == CT_BAG_MEAN)
        return mean(&b);
    if (opts.per_sample_weights)
        b.rows = ct_mul(b.rows, ct_unsqueeze(flat(opts.per_sample_weights), 1));
    return sums(&b, b.rows);
}
