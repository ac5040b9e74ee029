/* SPDX-License-Identifier: Apache-2.0 */
/* The zoo: names, sizes, what it computes on the shapes it is for, and what it refuses. */
#include "../../models/models.h"
#include "nn_fixture.h"

static ct_model_spec spec_of(int64_t c, int64_t h, int64_t w, const char *const *values)
{
    return (ct_model_spec){.ndim = 3, .shape = {c, h, w}, .n_classes = 10, .values = values};
}

static void expect_model(const ct_model_def *def, ct_model_spec spec, int64_t params,
                         const char *names)
{
    ct_ctx *ctx = open_ctx(CT_F32);
    ct_module *m = def->build(ctx, &spec);
    int64_t shape[CT_MAX_DIMS] = {2};
    char got[64];
    ct_tensor *x;

    cr_assert_not_null(m, "%s: %s", def->name, ct_error_get(ctx)->text);
    cr_expect_eq(ct_module_n_params(m), params, "%s: %d", def->name, (int)ct_module_n_params(m));
    if (names)
        expect_names(m, names);
    memcpy(shape + 1, spec.shape, (size_t)spec.ndim * sizeof *shape);
    x = ct_tensor_new(ctx, CT_F32, spec.ndim + 1, shape);
    ct_scope_begin(ctx, CT_SCOPE_PLAIN);
    ct_tensor *y = ct_module_forward(m, x);
    cr_assert_not_null(y, "%s: %s", def->name, ct_error_get(ctx)->text);
    cr_expect_str_eq(ct_tensor_describe(y, got, sizeof got), "float32 [2,10]");
    ct_scope_end(ctx);
    ct_tensor_release(x);
    ct_module_free(m);
    close_ctx(ctx);
}

Test(nn_models, every_model_has_names_and_docs)
{
    int n = 0;

    for (const ct_model_def *const *d = ct_zoo; *d; d++, n++) {
        cr_expect((*d)->name && (*d)->doc && (*d)->build);
        for (int k = 0; k < CT_MODEL_MAX_KEYS && (*d)->keys[k].name; k++)
            cr_expect((*d)->keys[k].default_value && (*d)->keys[k].doc);
    }
    cr_expect_eq(n, 3);
}

Test(nn_models, mlp)
{
    expect_model(&model_mlp, spec_of(1, 8, 8, NULL), 64 * 256 + 256 + 256 * 128 + 128 + 1290,
                 "1.weight 1.bias 3.weight 3.bias 5.weight 5.bias");
    expect_model(&model_mlp, spec_of(1, 8, 8, (const char *[]){"", "relu", "0"}), 650,
                 "1.weight 1.bias");
    expect_model(&model_mlp, spec_of(1, 8, 8, (const char *[]){"7", "tanh", "0.1"}),
                 64 * 7 + 7 + 80, "1.weight 1.bias 4.weight 4.bias");
    expect_model(&model_mlp, spec_of(1, 8, 8, (const char *[]){"7 5", "silu", "0"}),
                 64 * 7 + 7 + 40 + 60, NULL);
    expect_model(
        &model_mlp,
        (ct_model_spec){
            .ndim = 1, .shape = {4}, .n_classes = 10, .values = (const char *[]){"3", "gelu", "0"}},
        15 + 40, NULL);
}

Test(nn_models, lenet)
{
    expect_model(
        &model_lenet, spec_of(1, 28, 28, NULL), 61706,
        "0.weight 0.bias 3.weight 3.bias 7.weight 7.bias 9.weight 9.bias 11.weight 11.bias");
    expect_model(&model_lenet, spec_of(3, 12, 13, (const char *[]){"tanh", "avg"}),
                 3 * 150 + 6 + 2416 + 16 * 120 + 120 + 10164 + 850, NULL);
}

Test(nn_models, convnet)
{
    expect_model(
        &model_convnet, spec_of(1, 8, 8, NULL), 288 + 64 + 18432 + 128 + 1024 * 128 + 128 + 1290,
        "0.weight 1.weight 1.bias [1.running_mean] [1.running_var] [1.num_batches_tracked] "
        "4.weight 5.weight 5.bias [5.running_mean] [5.running_var] [5.num_batches_tracked] "
        "8.weight 8.bias 10.weight 10.bias");
    expect_model(&model_convnet, spec_of(3, 5, 4, (const char *[]){"6", "", "0.5"}),
                 3 * 54 + 12 + 120 * 10 + 10, NULL);
}

static void expect_refused(const ct_model_def *def, ct_model_spec spec, const char *text)
{
    ct_ctx *ctx = open_ctx(CT_F32);

    cr_expect_null(def->build(ctx, &spec));
    expect_text(ctx, CT_ECONFIG, text);
    close_ctx(ctx);
}

Test(nn_models, refused)
{
    ct_model_spec flat = {.ndim = 1, .shape = {64}, .n_classes = 10};

    expect_refused(
        &model_lenet, spec_of(1, 8, 8, NULL),
        "model lenet expects images of at least 12x12, got 8x8; for digits take model.name = "
        "convnet");
    expect_refused(&model_convnet, flat,
                   "model convnet expects images [C,H,W], but a sample has 1 dimensions; for plain "
                   "features take model.name = mlp");
    expect_refused(
        &model_convnet, spec_of(1, 8, 8, (const char *[]){"32, x", "", "0"}),
        "model.channels = 32, x: model convnet expects up to 16 sizes of 1 to 1048576, for "
        "example 32, 64");
    expect_refused(
        &model_mlp, spec_of(1, 8, 8, (const char *[]){"0", "relu", "0"}),
        "model.hidden = 0: model mlp expects up to 16 sizes of 1 to 1048576, for example 256, "
        "128");
    expect_refused(
        &model_mlp, spec_of(1, 8, 8, (const char *[]){"3x", "relu", "0"}),
        "model.hidden = 3x: model mlp expects up to 16 sizes of 1 to 1048576, for example 256, "
        "128");
    expect_refused(&model_mlp, spec_of(1, 8, 8, (const char *[]){"3", "rely", "0"}),
                   "model.activation = rely: model mlp expects one of relu, gelu, silu, tanh");
    expect_refused(&model_mlp, spec_of(1, 8, 8, (const char *[]){"3", "relu", "1"}),
                   "model.dropout = 1: model mlp expects a number of at least 0 and less than 1");
}

Test(nn_models, every_allocation_failing)
{
    for (const ct_model_def *const *d = ct_zoo; *d; d++) {
        for (uint64_t n = 1;; n++) {
            ct_ctx *ctx = open_ctx(CT_F32);
            ct_model_spec spec = spec_of(1, 12, 12, NULL);
            ct_module *m;
            bool failed;

            ct_ctx_fail_alloc_at(ctx, n, true);
            m = (*d)->build(ctx, &spec);
            failed = ct_ctx_alloc_failed(ctx);
            ct_ctx_fail_alloc_at(ctx, 0, false);
            cr_expect_eq(m == NULL, failed, "%s: allocation %d", (*d)->name, (int)n);
            cr_expect_eq(ct_error_code(ctx), failed ? CT_ENOMEM : CT_OK);
            ct_error_clear(ctx);
            ct_module_free(m);
            close_ctx(ctx);
            if (!failed)
                break;
        }
    }
}
