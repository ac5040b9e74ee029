/* SPDX-License-Identifier: Apache-2.0 */
/* PyTorch's behaviours of what goes by index and of images resized; and the errors of both. Values:
 * tests/golden/behaviours.py. */
#include "semantics.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

TestSuite(indices, .init = sem_open, .fini = sem_close);

/* An upstream gradient 1, 2, ... of y's shape. */
static void expect(const char *name, ct_tensor *x, ct_tensor *y)
{
    ct_tensor *dy = y ? sem_counting(ct_tensor_numel(y)) : NULL;
    sem_expect(name, x, y, dy ? ct_reshape(dy, ct_tensor_ndim(y), ct_tensor_shape(y)) : NULL);
}

Test(indices, embedding_adds_up_repeated_ids_and_gives_the_padding_no_gradient_though_it_is_read)
{
    ct_tensor *ids = ts_vec(sem_ctx, CT_I64, 5, (double[]){0, 1, 2, 1, 0});
    ct_tensor *x = sem_x("embedding_padding"), *z = sem_x("embedding_repeated");
    expect("embedding_padding", x, ct_embedding(x, ids, 1));
    expect("embedding_padding", x, ct_embedding(x, ids, -2));
    expect("embedding_repeated", z, ct_embedding(z, ids, CT_NO_PADDING));
    expect("embedding_repeated", z, ct_embedding(z, ct_cast(ids, CT_I32), CT_NO_PADDING));
    ct_tensor_release(ids);
}

Test(indices, embedding_bag_of_nothing_is_0_padding_does_not_count_and_the_first_maximum_wins)
{
    static const char *const modes[] = {"sum", "mean", "max"};
    ct_tensor *ids = ts_vec(sem_ctx, CT_I64, 5, (double[]){0, 2, 2, 3, 1});
    ct_tensor *offsets = ts_vec(sem_ctx, CT_I64, 4, (double[]){0, 3, 3, 4});
    ct_tensor *ends = ts_vec(sem_ctx, CT_I64, 4, (double[]){0, 3, 3, 5});
    ct_tensor *padded = ts_mat(sem_ctx, CT_I64, 2, 3, (double[]){0, 1, 2, 1, 1, 1});
    for (int m = 0; m < 3; m++) {
        char name[64];
        ct_embedding_bag_opts o = ct_embedding_bag_defaults((ct_bag_mode)m);
        snprintf(name, sizeof(name), "bag_%s", modes[m]);
        ct_tensor *x = sem_x(name);
        expect(name, x, ct_embedding_bag(x, ids, offsets, o));
        snprintf(name, sizeof(name), "bag_%s_last", modes[m]);
        o.include_last_offset = true;
        o.padding_idx = 2;
        x = sem_x(name);
        expect(name, x, ct_embedding_bag(x, ids, ends, o));
        o.include_last_offset = false;
        snprintf(name, sizeof(name), "bag_%s_padding", modes[m]);
        o.padding_idx = 1;
        x = sem_x(name);
        expect(name, x, ct_embedding_bag(x, padded, NULL, o));
    }
    ct_tensor_release(ids);
    ct_tensor_release(offsets);
    ct_tensor_release(padded);
    ct_tensor_release(ends);
}

/* PyTorch leaves open what becomes of them. */
Test(indices, embedding_bag_leaves_out_ids_behind_the_last_offset_and_all_where_there_is_no_bag)
{
    ct_tensor *w = ts_mat(sem_ctx, CT_F64, 3, 1, (double[]){1, 2, 4});
    ct_tensor *ids = ts_vec(sem_ctx, CT_I64, 4, (double[]){0, 1, 2, 2});
    ct_tensor *ends = ts_vec(sem_ctx, CT_I64, 3, (double[]){0, 1, 3});
    ct_tensor *none = ts_vec(sem_ctx, CT_I64, 0, (double[]){0});
    for (int m = 0; m < 3; m++) {
        ct_embedding_bag_opts o = ct_embedding_bag_defaults((ct_bag_mode)m);
        cr_expect_eq(ct_tensor_numel(ct_embedding_bag(w, ids, none, o)), 0);
        o.include_last_offset = true;
        ts_expect_values("bags", sem_ctx, ct_embedding_bag(w, ids, ends, o), 2,
                         (double[]){1, m == 0 ? 6 :
                                       m == 1 ? 3 :
                                                4},
                         TS_EXACT);
    }
    ct_tensor_release(w);
    ct_tensor_release(ids);
    ct_tensor_release(ends);
    ct_tensor_release(none);
}

static void resize(const char *name, ct_interpolate_opts o)
{
    ct_tensor *x = sem_x(name);
    sem_expect(name, x, ct_interpolate(x, o), NULL);
}

Test(indices, interpolate_has_pytorchs_places_and_weights)
{
    const ct_interpolate_mode bilinear = CT_INTERPOLATE_BILINEAR, nearest = CT_INTERPOLATE_NEAREST;
    resize("resize_bilinear_2_4", (ct_interpolate_opts){.size = {1, 4}, .mode = bilinear});
    resize("resize_bilinear", (ct_interpolate_opts){.size = {1, 7}, .mode = bilinear});
    resize("resize_bilinear_corners",
           (ct_interpolate_opts){.size = {1, 7}, .mode = bilinear, .align_corners = true});
    resize("resize_bilinear_down", (ct_interpolate_opts){.size = {1, 2}, .mode = bilinear});
    resize("resize_bilinear_scale", (ct_interpolate_opts){.scale = {1, 1.5}, .mode = bilinear});
    resize("resize_nearest", (ct_interpolate_opts){.size = {1, 7}, .mode = nearest});
    resize("resize_nearest_down", (ct_interpolate_opts){.size = {1, 2}, .mode = nearest});
    resize("resize_nearest_scale", (ct_interpolate_opts){.scale = {1, 1.5}, .mode = nearest});
}

Test(indices, bilinear_from_2_to_4_is_0_a_quarter_three_quarters_1)
{
    ct_tensor *x = sem_x("resize_bilinear_2_4");
    ct_interpolate_opts o = {.size = {1, 4}, .mode = CT_INTERPOLATE_BILINEAR};
    ts_expect_values("by hand", sem_ctx, ct_interpolate(x, o), 4, (double[]){0, .25, .75, 1},
                     TS_EXACT);
}

Test(indices, tril_and_triu_put_0_where_nan_was)
{
    ct_tensor *x = sem_x("tril_nan"), *z = sem_x("triu_nan");
    sem_expect("tril_nan", x, ct_tril(x, 0), NULL);
    sem_expect("triu_nan", z, ct_triu(z, 0), NULL);
}

Test(indices,
     scatter_takes_the_gradient_of_what_it_overwrites_and_take_along_dim_counts_from_the_end)
{
    ct_tensor *x = sem_x("scatter_over"), *z = sem_x("take_from_the_end");
    ct_tensor *one = ts_vec(sem_ctx, CT_I64, 1, (double[]){1});
    ct_tensor *four = ts_vec(sem_ctx, CT_I64, 4, (double[]){-1, 0, -3, -1});
    expect("scatter_over", x, ct_scatter_value(x, 0, one, 9));
    expect("take_from_the_end", z, ct_take_along_dim(z, four, 0));
    ct_tensor_release(one);
    ct_tensor_release(four);
}

/* PyTorch 2.15 refuses this backward; here the part of src that has no index gets 0. */
Test(indices, scatter_gives_what_it_did_not_take_of_src_no_gradient)
{
    ct_tensor *x = ts_vec(sem_ctx, CT_F64, 3, (double[]){1, 2, 3});
    ct_tensor *src = ts_param(sem_ctx, ts_vec(sem_ctx, CT_F64, 3, (double[]){7, 8, 9}));
    ct_tensor *index = ts_vec(sem_ctx, CT_I64, 2, (double[]){2, 2});
    ct_tensor *y = ct_scatter_add(x, 0, index, src);
    ts_expect_values("y", sem_ctx, y, 3, (double[]){1, 2, 18}, TS_EXACT);
    cr_expect(!ct_backward(sem_ctx, y, sem_counting(3), CT_BACKWARD_DEFAULT));
    ts_expect_values("dsrc", sem_ctx, ct_tensor_grad(src), 3, (double[]){3, 3, 0}, TS_EXACT);
    y = ct_scatter(x, 0, index, src);
    ts_expect_values("the last one stays", sem_ctx, y, 3, (double[]){1, 2, 8}, TS_EXACT);
    ct_tensor_release(x);
    ct_tensor_release(src);
    ct_tensor_release(index);
}

Test(indices, in_place_forms_change_x_raise_its_version_and_keep_the_gradient)
{
    static ct_tensor *(*const fns[])(ct_tensor *, int, ct_tensor *,
                                     ct_tensor *) = {ct_scatter_, ct_scatter_add_, ct_index_copy_};
    static const double want[][3] = {{1, 7, 3}, {1, 9, 3}, {1, 7, 3}, {1, 16, 3}};
    ct_tensor *index = ts_vec(sem_ctx, CT_I64, 1, (double[]){1});
    for (int i = 0; i < 4; i++) {
        ct_tensor *x = ts_param(sem_ctx, ts_vec(sem_ctx, CT_F64, 3, (double[]){1, 2, 3}));
        ct_tensor *src = ts_param(sem_ctx, ts_vec(sem_ctx, CT_F64, 1, (double[]){7}));
        ct_scope_begin(sem_ctx, CT_SCOPE_PLAIN);
        ct_tensor *t = ct_affine(x, 1, 0);
        uint64_t version = ct_tensor_version(t);
        ct_tensor *y = i < 3 ? fns[i](t, 0, index, src) : ct_index_add_(t, 0, index, src, 2);
        cr_expect_eq(y, t);
        cr_expect_eq(ct_tensor_version(t), version + 1);
        ts_expect_values("y", sem_ctx, t, 3, want[i], TS_EXACT);
        cr_expect(!ct_backward(sem_ctx, t, sem_counting(3), CT_BACKWARD_DEFAULT));
        bool adds = i % 2;
        ts_expect_values("dx", sem_ctx, ct_tensor_grad(x), 3, (double[]){1, adds ? 2 : 0, 3},
                         TS_EXACT);
        ts_expect_values("dsrc", sem_ctx, ct_tensor_grad(src), 1, (double[]){i < 3 ? 2 : 4},
                         TS_EXACT);
        ct_scope_end(sem_ctx);
        ct_tensor_release(x);
        ct_tensor_release(src);
    }
    ct_tensor_release(index);
}

/* ---- indices out of range ---- On the CPU told at once; on CUDA floats are NaN, and it is told by the read. */

static void expect_bad(ct_ctx *ctx, ct_tensor *y, const char *op, const char *value,
                       const char *bound)
{
    if (!y) {
        ts_expect_error(ctx, CT_EDATA, op, value, bound, NULL);
        return;
    }
    cr_expect(ts_on_cuda(), "%s: an index out of range gives a result", op);
    ts_array v = ts_values(ctx, y);
    cr_expect(!v.v, "%s: a result that an index out of range had to do with can be read", op);
    ts_array_free(&v);
    ts_expect_error(ctx, CT_EDATA, op, value, bound, NULL);
}

Test(indices, out_of_range_are_told_with_op_value_position_and_bound)
{
    static const double bads[] = {3, -1, 4000000000000};
    ct_ctx *ctx = ts_ctx(CT_F32, true);
    ct_tensor *x = ts_mat(ctx, CT_F32, 3, 3, (double[]){1, 2, 3, 4, 5, 6, 7, 8, 9});
    for (int i = 0; i < TS_LEN(bads); i++) {
        char value[64];
        snprintf(value, sizeof(value), "index %.0f at position 1 ", bads[i]);
        ct_tensor *v = ts_vec(ctx, CT_I64, 3, (double[]){2, bads[i], 0});
        ct_scope_begin(ctx, CT_SCOPE_PLAIN);
        ct_tensor *m = ct_reshape(v, 2, (int64_t[]){3, 1});
        expect_bad(ctx, ct_gather(x, 1, m), "gather", value, "3 elements (0..2) of dimension 1");
        expect_bad(ctx, ct_scatter(x, 1, m, x), "scatter", value, "(0..2) of dimension 1");
        expect_bad(ctx, ct_scatter_value(x, 1, m, 5), "scatter", value, "(0..2)");
        expect_bad(ctx, ct_scatter_add(x, 1, m, x), "scatter_add", value, "(0..2)");
        expect_bad(ctx, ct_index_select(x, 0, v), "index_select", value, "(0..2) of dimension 0");
        expect_bad(ctx, ct_index_add(x, 0, v, x, 1), "index_add", value, "(0..2) of dimension 0");
        expect_bad(ctx, ct_index_copy(x, 0, v, x), "index_copy", value, "(0..2) of dimension 0");
        expect_bad(ctx, ct_embedding(x, v, CT_NO_PADDING), "embedding", value, "(0..2)");
        expect_bad(ctx, ct_one_hot(v, 3), "one_hot", value, "(0..2)");
        ct_scope_end(ctx);
        ct_tensor_release(v);
    }
    ts_expect_ok(ctx, "afterwards");
    ct_tensor_release(x);
    ct_ctx_free(ctx);
}

/* The first finding stays, with its own bound, whatever the op is asked after it. */
Test(indices, the_first_index_out_of_range_is_the_one_told)
{
    ct_ctx *ctx = ts_ctx(CT_F32, true);
    ct_tensor *x = ts_vec(ctx, CT_F32, 3, (double[]){1, 2, 3}),
              *big = ts_vec(ctx, CT_F32, 7, (double[7]){0});
    ct_tensor *bad = ts_vec(ctx, CT_I64, 4, (double[]){2, 1, 5, 9}),
              *good = ts_vec(ctx, CT_I64, 1, (double[]){6});
    ct_scope_begin(ctx, CT_SCOPE_PLAIN);
    ct_tensor *y = ct_index_select(x, 0, bad);
    if (ts_on_cuda())
        y = ct_index_select(big, 0, good);
    expect_bad(ctx, y, "index_select", "index 5 at position 2 ", "3 elements (0..2)");
    ct_scope_end(ctx);
    ct_tensor_release(x);
    ct_tensor_release(big);
    ct_tensor_release(bad);
    ct_tensor_release(good);
    ct_ctx_free(ctx);
}

Test(indices, offsets_that_fall_or_go_too_far_are_told)
{
    static const struct {
        double offsets[3];
        const char *value;
    } bads[] = {{{1, 2, 3}, "offset 1 at position 0"},
                {{0, 3, 2}, "offset 2 at position 2"},
                {{0, 2, 5}, "offset 5 at position 2"}};
    ct_ctx *ctx = ts_ctx(CT_F32, true);
    ct_tensor *w = ts_mat(ctx, CT_F32, 2, 2, (double[]){1, 2, 3, 4});
    ct_tensor *ids = ts_vec(ctx, CT_I64, 4, (double[]){0, 1, 1, 0});
    for (int i = 0; i < TS_LEN(bads); i++) {
        ct_tensor *offsets = ts_vec(ctx, CT_I64, 3, bads[i].offsets);
        ct_scope_begin(ctx, CT_SCOPE_PLAIN);
        expect_bad(ctx, ct_embedding_bag(w, ids, offsets, ct_embedding_bag_defaults(CT_BAG_SUM)),
                   "embedding_bag", bads[i].value, "number of ids, 4");
        ct_scope_end(ctx);
        ct_tensor_release(offsets);
    }
    ct_tensor_release(w);
    ct_tensor_release(ids);
    ct_ctx_free(ctx);
}

/* ---- shapes, dims, dtypes that don't fit ---- */

static ct_tensor *zeros(int ndim, const int64_t *shape, ct_dtype dtype)
{
    ct_tensor *t = ct_tensor_new(sem_ctx, dtype, ndim, shape);
    ct_tensor *v = ct_detach(t);
    ct_tensor_release(t);
    return v;
}
#define ZEROS(dtype, ...)                                                                      \
    zeros((int)(sizeof((int64_t[]){__VA_ARGS__}) / sizeof(int64_t)), (int64_t[]){__VA_ARGS__}, \
          dtype)

static void refused(ct_tensor *y, int code, const char *op, const char *a, const char *b)
{
    cr_expect_null(y, "%s: %s", op, a);
    ts_expect_error(sem_ctx, code, op, a, b, NULL);
}

Test(indices, shapes_dims_and_dtypes_that_do_not_fit_are_told)
{
    ct_scope_begin(sem_ctx, CT_SCOPE_PLAIN);
    ct_tensor *x = ZEROS(CT_F64, 3, 5), *v = ZEROS(CT_I64, 4), *m = ZEROS(CT_I64, 4, 2);
    ct_tensor *f = ZEROS(CT_F64, 4), *i32 = ZEROS(CT_I32, 2, 2), *i = ZEROS(CT_I64, 3, 5);
    refused(ct_gather(x, 2, m), CT_EINVAL, "gather", "dimension 2", "-2 to 1");
    refused(ct_gather(x, 1, v), CT_ESHAPE, "gather", "[4]", "[3,5]");
    refused(ct_gather(x, 1, m), CT_ESHAPE, "gather", "[4,2]", "dimension 1");
    refused(ct_gather(x, 1, i32), CT_EDTYPE, "gather", "int32", "int64");
    refused(ct_scatter(x, 0, m, f), CT_ESHAPE, "scatter", "[4,2]", "[3,5]");
    refused(ct_scatter_add(x, 0, m, m), CT_EDTYPE, "scatter_add", "float64", "int64");
    refused(ct_index_select(x, -3, v), CT_EINVAL, "index_select", "dimension -3", "-2 to 1");
    refused(ct_index_select(x, 0, m), CT_ESHAPE, "index_select", "[4,2]", "vector");
    refused(ct_index_add(x, 0, v, x, 1), CT_ESHAPE, "index_add", "[3,5]", "[4]");
    refused(ct_index_copy(x, 0, v, m), CT_EDTYPE, "index_copy", "float64", "int64");
    refused(ct_embedding(f, v, 0), CT_ESHAPE, "embedding", "[4]", "[V,D]");
    refused(ct_embedding(x, v, 3), CT_EINVAL, "embedding", "padding_idx 3", "3 rows");
    refused(ct_embedding(x, f, 0), CT_EDTYPE, "embedding", "float64", "int64");
    refused(ct_one_hot(v, 0), CT_EINVAL, "one_hot", "classes is 0", "1 or more");
    refused(ct_take_along_dim(x, v, 0), CT_ESHAPE, "take_along_dim", "[4]", "[3,5]");
    refused(ct_tril(f, 0), CT_ESHAPE, "tril", "[4]", "rows, columns");
    refused(ct_diagonal(x, 0, 0, -2), CT_EINVAL, "diagonal", "both 0", "two dimensions");
    ct_embedding_bag_opts o = ct_embedding_bag_defaults(CT_BAG_MEAN);
    refused(ct_embedding_bag(x, v, NULL, o), CT_ESHAPE, "embedding_bag", "[4]", "[B,L]");
    o.include_last_offset = true;
    refused(ct_embedding_bag(x, i, NULL, o), CT_EINVAL, "embedding_bag", "include_last", "offsets");
    o.include_last_offset = false;
    o.per_sample_weights = x;
    refused(ct_embedding_bag(x, i, NULL, o), CT_EINVAL, "embedding_bag", "per_sample_weights",
            "sum");
    ct_scope_end(sem_ctx);
}

Test(indices, pieces_that_do_not_fit_are_told)
{
    ct_tensor *out[4];
    ct_scope_begin(sem_ctx, CT_SCOPE_PLAIN);
    ct_tensor *x = ZEROS(CT_F64, 3, 5), *v = ZEROS(CT_F64, 4);
    cr_expect_eq(ct_split(x, 0, 1, out, 4), CT_EINVAL);
    ts_expect_error(sem_ctx, CT_EINVAL, "split", "size is 0", "[3,5]", NULL);
    cr_expect_eq(ct_split(x, 1, 1, out, 4), CT_EINVAL);
    ts_expect_error(sem_ctx, CT_EINVAL, "split", "5 pieces", "room for 4", NULL);
    cr_expect_eq(ct_split_sizes(x, 2, (int64_t[]){1, 3}, 1, out), CT_EINVAL);
    ts_expect_error(sem_ctx, CT_EINVAL, "split", "add up to 5", "[3,5]", NULL);
    cr_expect_eq(ct_chunk(x, 0, 1, out), CT_EINVAL);
    ts_expect_error(sem_ctx, CT_EINVAL, "split", "0 chunks", NULL);
    cr_expect_eq(ct_unbind(x, 2, out, 4), CT_EINVAL);
    ts_expect_error(sem_ctx, CT_EINVAL, "select", "dimension 2", "-2 to 1", NULL);
    refused(ct_select(x, 0, 3), CT_EINVAL, "select", "index 3", "3 elements");
    refused(ct_stack((ct_tensor *[]){x, v}, 2, 0), CT_ESHAPE, "stack", "[4]", "[3,5]");
    refused(ct_bmm(x, x), CT_ESHAPE, "bmm", "[3,5]", "[B,M,K]");
    refused(ct_addmm(v, x, ct_transpose(x, 0, 1), 1, 1), CT_ESHAPE, "addmm", "[4]", "[3,3]");
    refused(ct_outer(x, v), CT_ESHAPE, "outer", "[3,5]", "vectors");
    refused(ct_flip(x, 2, (int[]){1, -1}), CT_EINVAL, "flip", "dimension 1", "twice");
    refused(ct_roll(x, 2, (int64_t[]){1, 2}, NULL), CT_EINVAL, "roll", "2 shifts", "dims");
    refused(ct_repeat(x, 1, (int64_t[]){2}), CT_EINVAL, "repeat", "1 repeats", "[3,5]");
    refused(ct_repeat_interleave(x, -1, 0), CT_EINVAL, "repeat", "-1 repeats", "from 0");
    refused(ct_tile(x, 1, (int64_t[]){INT64_MAX}), CT_EINVAL, "repeat", "9223372036854775807",
            "2^31");
    refused(ct_movedim(x, 2, (int[]){0, 0}, (int[]){0, 1}), CT_EINVAL, "movedim", "twice", "0");
    ct_scope_end(sem_ctx);
}

Test(indices, images_and_pads_that_do_not_fit_are_told)
{
    ct_scope_begin(sem_ctx, CT_SCOPE_PLAIN);
    ct_tensor *x = ZEROS(CT_F64, 3, 5), *image = ZEROS(CT_F64, 1, 3, 4, 5);
    const ct_pad_mode constant = CT_PAD_CONSTANT;
    refused(ct_pad(x, 3, (int64_t[]){1, 1, 1}, constant, 0), CT_EINVAL, "pad", "3 pads", "pairs");
    refused(ct_pad(x, 2, (int64_t[]){-3, -3}, constant, 0), CT_ESHAPE, "pad", "-3 and -3", "[3,5]");
    refused(ct_pad(x, 2, (int64_t[]){5, 0}, CT_PAD_REFLECT, 0), CT_EINVAL, "pad", "5 and 0",
            "0 to 4");
    refused(ct_pad(x, 2, (int64_t[]){0, 6}, CT_PAD_CIRCULAR, 0), CT_EINVAL, "pad", "0 and 6",
            "0 to 5");
    ct_interpolate_opts o = {.size = {2, 2}, .align_corners = true};
    refused(ct_interpolate(image, o), CT_EINVAL, "upsample", "align_corners", "bilinear");
    o.align_corners = false;
    refused(ct_interpolate(x, o), CT_ESHAPE, "upsample", "[3,5]", "[N,C,H,W]");
    o.scale[0] = 2;
    refused(ct_interpolate(image, o), CT_EINVAL, "upsample", "size 2 and scale 2", "one of them");
    o = (ct_interpolate_opts){.scale = {NAN, 1}};
    refused(ct_interpolate(image, o), CT_EINVAL, "upsample", "scale", "from 1");
    o = (ct_interpolate_opts){.scale = {0.1, 1}};
    refused(ct_interpolate(image, o), CT_EINVAL, "upsample", "scale 0.1 of 4", "from 1");
    refused(ct_unfold(image, ct_unfold_defaults(6)), CT_ESHAPE, "unfold", "6 cells", "height");
    refused(ct_unfold(x, ct_unfold_defaults(2)), CT_ESHAPE, "unfold", "[3,5]", "[N,C,H,W]");
    refused(ct_fold(ZEROS(CT_F64, 1, 4, 8), 4, 4, ct_unfold_defaults(2)), CT_ESHAPE, "fold",
            "[1,4,8]", "9");
    refused(ct_pixel_shuffle(image, 2), CT_ESHAPE, "pixel_shuffle", "[1,3,4,5]", "multiple of 4");
    refused(ct_arange(sem_ctx, CT_F64, 0, 3, -1), CT_EINVAL, "arange", "from 0 to 3 by -1", "step");
    refused(ct_arange(sem_ctx, CT_BOOL, 0, 3, 1), CT_EDTYPE, "arange", "bool", "int64");
    ct_scope_end(sem_ctx);
}
