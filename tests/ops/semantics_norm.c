/* SPDX-License-Identifier: Apache-2.0 */
/* Rules of layer, RMS, group and instance norm: biased variance, constants, the dtype's own eps, a far mean; and
 * their errors. */
#include "semantics.h"

#include <float.h>
#include <math.h>

TestSuite(row_norms, .init = sem_open, .fini = sem_close);

static ct_tensor *shaped(ct_tensor *x, int ndim, const int64_t *shape)
{
    return ct_reshape(x, ndim, shape);
}

Test(row_norms, the_variance_is_the_biased_one)
{
    const double y = 1 / sqrt(1 + 1e-5), want[] = {-y, y, -y, y};
    ct_tensor *x = ts_mat(sem_ctx, CT_F64, 2, 2, (double[]){1, 3, 7, 9});
    ct_tensor *images = shaped(x, 3, (int64_t[]){1, 2, 2});
    ts_expect_values("layer_norm", sem_ctx, ct_layer_norm(x, 1, (int64_t[]){2}, NULL, NULL, 1e-5),
                     4, want, TS_F64);
    ts_expect_values("group_norm", sem_ctx, ct_group_norm(images, 2, NULL, NULL, 1e-5), 4, want,
                     TS_F64);
    ts_expect_values("instance_norm", sem_ctx, ct_instance_norm(images, NULL, NULL, 1e-5), 4, want,
                     TS_F64);
    ct_tensor_release(x);
}

Test(row_norms, zeros_and_constants_give_the_bias)
{
    ct_tensor *x = ts_mat(sem_ctx, CT_F64, 2, 2, (double[]){0, 0, 5, 5});
    ct_tensor *w = ts_vec(sem_ctx, CT_F64, 2, (double[]){2, 3});
    ct_tensor *b = ts_vec(sem_ctx, CT_F64, 2, (double[]){-1, 4});
    ct_tensor *images = shaped(x, 3, (int64_t[]){1, 2, 2});
    ts_expect_values("layer_norm", sem_ctx, ct_layer_norm(x, 1, (int64_t[]){2}, w, b, 1e-5), 4,
                     (double[]){-1, 4, -1, 4}, TS_EXACT);
    ts_expect_values("group_norm", sem_ctx, ct_group_norm(images, 2, w, b, 1e-5), 4,
                     (double[]){-1, -1, 4, 4}, TS_EXACT);
    ts_expect_values("rms_norm of zeros", sem_ctx,
                     ct_rms_norm(ct_affine(x, 0, 0), 1, (int64_t[]){2}, w, -1), 4,
                     (double[]){0, 0, 0, 0}, TS_EXACT);
    ct_tensor_release(x);
    ct_tensor_release(w);
    ct_tensor_release(b);
}

Test(row_norms, rms_norm_without_eps_takes_that_of_the_dtype)
{
    const double wide = 1e-8 / sqrt(1e-16 + DBL_EPSILON), narrow = 1e-4 / sqrt(1e-8 + FLT_EPSILON);
    ct_tensor *x = ts_vec(sem_ctx, CT_F64, 2, (double[]){1e-8, 1e-8});
    ct_tensor *f = ts_vec(sem_ctx, CT_F32, 2, (double[]){1e-4, 1e-4});
    ts_expect_values("f64", sem_ctx, ct_rms_norm(x, 1, (int64_t[]){2}, NULL, -1), 2,
                     (double[]){wide, wide}, TS_F64);
    ts_expect_values("f32", sem_ctx, ct_rms_norm(f, 1, (int64_t[]){2}, NULL, -1), 2,
                     (double[]){narrow, narrow}, TS_F32);
    ct_tensor_release(x);
    ct_tensor_release(f);
}

/* Values from 10000 to 10001, normalised in f32: within `ulps` of the mean's own, over the deviation. */
static void expect_far(int n, double ulps)
{
    double v[1024], want[1024], mean = 0, var = 0, largest = 0;
    for (int i = 0; i < n; i++) {
        v[i] = 10000 + (i * 37 % 64) / 64.0;
        mean += v[i] / n;
    }
    for (int i = 0; i < n; i++)
        var += (v[i] - mean) * (v[i] - mean) / n;
    for (int i = 0; i < n; i++) {
        want[i] = (v[i] - mean) / sqrt(var + 1e-5);
        largest = fmax(largest, fabs(want[i]));
    }
    ct_ctx *ctx = ts_ctx(CT_F32, false); /* on the device that is tested */
    ct_tensor *x = ts_mat(ctx, CT_F32, 1, n, v);
    ct_tensor *image = shaped(x, 3, (int64_t[]){1, 4, n / 4});
    /* The tolerance is scaled by the largest value. */
    const ts_tol tol = {1e-5, 1e-6 + ulps * ldexp(1, -10) / sqrt(var + 1e-5) / largest};
    ts_expect_values("layer_norm", ctx, ct_layer_norm(x, 1, (int64_t[]){n}, NULL, NULL, 1e-5), n,
                     want, tol);
    ts_expect_values("group_norm", ctx, ct_group_norm(image, 1, NULL, NULL, 1e-5), n, want, tol);
    ct_tensor_release(x);
    ct_ctx_free(ctx);
}

/* Of squares less the square of the mean nothing would be left. The mean itself is kept in f32, in PyTorch too:
 * where f32 has no such number its rounding, half an ulp, shifts all values. */
Test(row_norms, a_mean_of_ten_thousand_costs_its_own_rounding_alone_in_f32)
{
    expect_far(1024, 0);
    expect_far(1000, 0.5);
}

Test(row_norms, shapes_that_do_not_fit_are_refused)
{
    ct_tensor *x = ts_mat(sem_ctx, CT_F64, 2, 3, (double[]){1, 2, 3, 4, 5, 6});
    ct_tensor *w = ts_vec(sem_ctx, CT_F64, 2, (double[]){1, 1});
    cr_expect_null(ct_layer_norm(x, 1, (int64_t[]){2}, NULL, NULL, 1e-5));
    ts_expect_error(sem_ctx, CT_ESHAPE, "layer_norm", "[2,3]", NULL);
    cr_expect_null(ct_rms_norm(x, 1, (int64_t[]){3}, w, 1e-5));
    ts_expect_error(sem_ctx, CT_ESHAPE, "rms_norm", "[2]", NULL);
    cr_expect_null(ct_group_norm(x, 2, NULL, NULL, 1e-5));
    ts_expect_error(sem_ctx, CT_ESHAPE, "group_norm", "[2,3]", "2 groups", NULL);
    cr_expect_null(ct_max_pool1d(x, ct_pool1d_defaults(2)));
    ts_expect_error(sem_ctx, CT_ESHAPE, "max_pool1d", "[2,3]", "[N,C,L]", NULL);
    cr_expect_null(ct_conv_transpose1d(x, w, NULL, ct_conv_transpose1d_defaults()));
    ts_expect_error(sem_ctx, CT_ESHAPE, "conv_transpose1d", "[2,3]", "[N,C,L]", NULL);
    ct_tensor_release(x);
    ct_tensor_release(w);
}
