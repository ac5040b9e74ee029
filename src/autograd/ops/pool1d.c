/* SPDX-License-Identifier: Apache-2.0 */
/* max_pool1d, avg_pool1d, adaptive_avg_pool1d - the pools of images of one row. Shape: [N,C,L] -> [N,C,Q].
 * Oracle: torch.nn.functional of the same names. */
#include "autograd/op.h"

enum { MAX, AVG, ADAPTIVE };

/* arg: which; kernel (adaptive: output size), stride, padding, dilation, ceil_mode, count_include_pad. */
static const ct_case cases[] = {
    {.name = "max, 3, stride 2, padding 1",
     .arg = {MAX, 3, 2, 1, 1, 0, 1},
     .in = {CT_IN(DISTINCT, 2, 3, 8)}},
    {.name = "max, dilated, ceil",
     .arg = {MAX, 2, 2, 0, 2, 1, 1},
     .in = {CT_IN(DISTINCT, 2, 3, 9)}},
    {.name = "max, empty", .arg = {MAX, 2, 0, 0, 1, 0, 1}, .in = {CT_IN(DISTINCT, 0, 3, 4)}},
    {.name = "avg, stride 0 is the kernel",
     .arg = {AVG, 3, 0, 0, 1, 0, 1},
     .in = {CT_IN(NORMAL, 2, 3, 10)}},
    {.name = "avg, padding not counted",
     .arg = {AVG, 4, 3, 2, 1, 1, 0},
     .in = {CT_IN(NORMAL, 2, 2, 9)}},
    {.name = "adaptive", .arg = {ADAPTIVE, 3}, .in = {CT_IN(NORMAL, 2, 3, 7)}},
    {.name = "adaptive, to more", .arg = {ADAPTIVE, 5}, .in = {CT_IN(NORMAL, 1, 2, 3)}},
};

static ct_tensor *call(ct_tensor *const *in, const ct_case *c)
{
    ct_pool1d_opts o = {.kernel = (int64_t)c->arg[1],
                        .stride = (int64_t)c->arg[2],
                        .padding = (int64_t)c->arg[3],
                        .dilation = (int64_t)c->arg[4],
                        .ceil_mode = c->arg[5] != 0,
                        .count_include_pad = c->arg[6] != 0};
    return c->arg[0] == MAX ? ct_max_pool1d(in[0], o) :
           c->arg[0] == AVG ? ct_avg_pool1d(in[0], o) :
                              ct_adaptive_avg_pool1d(in[0], o.kernel);
}

const ct_op cti_op_pool1d = {.name = "pool1d", CT_CASES(cases), .call = call};

static const ct_op max = {.name = "max_pool1d"}, avg = {.name = "avg_pool1d"},
                   adaptive = {.name = "adaptive_avg_pool1d"}; /* for errors */

/* x as images of one row; NULL, told, where it isn't [N,C,L]. */
static ct_tensor *widen(const ct_op *who, ct_tensor *x)
{
    char s[64];
    if (!x)
        return NULL;
    ct_view v = cti_meta(x);
    if (v.ndim != 3)
        return cti_raise(ct_tensor_ctx(x), who, CT_ESHAPE, "x %s must be [N,C,L]",
                         cti_shape_str(&v, s, sizeof s));
    return ct_unsqueeze(x, 2);
}

static ct_tensor *narrow_down(ct_tensor *y)
{
    return y ? ct_squeeze(y, 2) : NULL;
}

ct_pool1d_opts ct_pool1d_defaults(int64_t kernel)
{
    return (ct_pool1d_opts){
        .kernel = kernel, .stride = kernel, .dilation = 1, .count_include_pad = true};
}

static ct_pool2d_opts one_row(ct_pool1d_opts o)
{
    return (ct_pool2d_opts){.kernel = {1, o.kernel},
                            .stride = {1, o.stride},
                            .padding = {0, o.padding},
                            .dilation = {1, o.dilation},
                            .ceil_mode = o.ceil_mode,
                            .count_include_pad = o.count_include_pad};
}

ct_tensor *ct_max_pool1d(ct_tensor *x, ct_pool1d_opts opts)
{
    x = widen(&max, x);
    return x ? narrow_down(ct_max_pool2d(x, one_row(opts))) : NULL;
}

ct_tensor *ct_avg_pool1d(ct_tensor *x, ct_pool1d_opts opts)
{
    x = widen(&avg, x);
    return x ? narrow_down(ct_avg_pool2d(x, one_row(opts))) : NULL;
}

ct_tensor *ct_adaptive_avg_pool1d(ct_tensor *x, int64_t out)
{
    x = widen(&adaptive, x);
    return x ? narrow_down(ct_adaptive_avg_pool2d(x, 1, out)) : NULL;
}
