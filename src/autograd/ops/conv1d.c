/* SPDX-License-Identifier: Apache-2.0 */
/* conv1d, conv_transpose1d - conv2d and conv_transpose2d of images of one row. Shape: x [N,C,L], w [K,C/groups,S]
 * -> [N,K,Q]; transposed: w [C,K/groups,S]. Oracle: torch.nn.functional.conv1d, conv_transpose1d. */
#include "autograd/op.h"

enum { TRANSPOSED = 1, SAME = 2 };

/* arg: TRANSPOSED, SAME or 0; stride, padding, output_padding, dilation, groups. in: x, weight, bias. */
static const ct_case cases[] = {
    {.name = "3, padding 1",
     .arg = {0, 1, 1, 0, 1, 1},
     .in = {CT_IN(NORMAL, 2, 3, 7), CT_IN(NORMAL, 4, 3, 3), CT_IN(NORMAL, 4)}},
    {.name = "stride 2, dilation 3, groups 2, no bias",
     .arg = {0, 2, 2, 0, 3, 2},
     .in = {CT_IN(NORMAL, 2, 4, 11), CT_IN(NORMAL, 6, 2, 3)}},
    {.name = "same, even",
     .arg = {SAME, 1, 0, 0, 1, 1},
     .in = {CT_IN(NORMAL, 1, 2, 5), CT_IN(NORMAL, 3, 2, 4), CT_IN(NORMAL, 3)}},
    {.name = "empty",
     .arg = {0, 1, 1, 0, 1, 1},
     .in = {CT_IN(NORMAL, 0, 3, 7), CT_IN(NORMAL, 4, 3, 3), CT_IN(NORMAL, 4)}},
    {.name = "transposed",
     .arg = {TRANSPOSED, 1, 1, 0, 1, 1},
     .in = {CT_IN(NORMAL, 2, 3, 7), CT_IN(NORMAL, 3, 4, 3), CT_IN(NORMAL, 4)}},
    {.name = "transposed, stride 3, output padding 2, dilation 2, groups 2",
     .arg = {TRANSPOSED, 3, 1, 2, 2, 2},
     .in = {CT_IN(NORMAL, 2, 4, 5), CT_IN(NORMAL, 4, 3, 3)}},
    {.name = "transposed, empty",
     .arg = {TRANSPOSED, 1, 0, 0, 1, 1},
     .in = {CT_IN(NORMAL, 0, 3, 7), CT_IN(NORMAL, 3, 4, 3), CT_IN(NORMAL, 4)}},
};

static ct_tensor *call(ct_tensor *const *in, const ct_case *c)
{
    const int64_t stride = (int64_t)c->arg[1], padding = (int64_t)c->arg[2],
                  output_padding = (int64_t)c->arg[3], dilation = (int64_t)c->arg[4],
                  groups = (int64_t)c->arg[5];
    return c->arg[0] == TRANSPOSED ?
               ct_conv_transpose1d(
                   in[0], in[1], in[2],
                   (ct_conv_transpose1d_opts){stride, padding, output_padding, dilation, groups}) :
               ct_conv1d(in[0], in[1], in[2],
                         (ct_conv1d_opts){stride, padding, dilation, groups, c->arg[0] == SAME});
}

const ct_op cti_op_conv1d = {.name = "conv1d", .optional = 1U << 2, CT_CASES(cases), .call = call};

static const ct_op transposed = {.name = "conv_transpose1d"}; /* for errors */

/* *x and *weight as images of one row, where both are given and have three dimensions. */
static bool widen(const ct_op *who, ct_tensor **x, ct_tensor **weight)
{
    char s[64], t[64];
    if (!*x || !*weight)
        return true;
    if (ct_tensor_ndim(*x) != 3 || ct_tensor_ndim(*weight) != 3) {
        ct_view v = cti_meta(*x), w = cti_meta(*weight);
        cti_raise(ct_tensor_ctx(*x), who, CT_ESHAPE,
                  "x %s must be [N,C,L], weight %s of three dimensions too",
                  cti_shape_str(&v, s, sizeof s), cti_shape_str(&w, t, sizeof t));
        return false;
    }
    *x = ct_unsqueeze(*x, 2);
    *weight = ct_unsqueeze(*weight, 2);
    return *x && *weight;
}

static ct_tensor *narrow_down(ct_tensor *y)
{
    return y ? ct_squeeze(y, 2) : NULL;
}

ct_conv1d_opts ct_conv1d_defaults(void)
{
    return (ct_conv1d_opts){.stride = 1, .dilation = 1, .groups = 1};
}

ct_tensor *ct_conv1d(ct_tensor *x, ct_tensor *weight, ct_tensor *bias, ct_conv1d_opts o)
{
    if (!widen(&cti_op_conv1d, &x, &weight))
        return NULL;
    return narrow_down(ct_conv2d(x, weight, bias,
                                 (ct_conv2d_opts){.stride = {1, o.stride},
                                                  .padding = {0, o.padding},
                                                  .dilation = {1, o.dilation},
                                                  .groups = o.groups,
                                                  .same = o.same}));
}

ct_conv_transpose1d_opts ct_conv_transpose1d_defaults(void)
{
    return (ct_conv_transpose1d_opts){.stride = 1, .dilation = 1, .groups = 1};
}

ct_tensor *ct_conv_transpose1d(ct_tensor *x, ct_tensor *weight, ct_tensor *bias,
                               ct_conv_transpose1d_opts o)
{
    if (!widen(&transposed, &x, &weight))
        return NULL;
    return narrow_down(
        ct_conv_transpose2d(x, weight, bias,
                            (ct_conv_transpose2d_opts){.stride = {1, o.stride},
                                                       .padding = {0, o.padding},
                                                       .output_padding = {0, o.output_padding},
                                                       .dilation = {1, o.dilation},
                                                       .groups = o.groups}));
}
