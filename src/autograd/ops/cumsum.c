/* SPDX-License-Identifier: Apache-2.0 */
/* cumsum - y[..., i] = sum of x[..., 0..i] along dim. Shape: as x. Gradient: the sum of dy from i on. A formula around an op
 * on rows. Oracle: torch.cumsum. */
#include "autograd/op.h"

static int infer(cti_node *n)
{
    int rc = cti_check_float(n, 0);
    return rc ? rc : cti_out_like(n, 0, 0);
}

static int forward(cti_node *n)
{
    return cti_be(n)->reduce->scan(cti_stream(n), CT_SCAN_SUM, cti_y(n, 0), cti_x(n, 0));
}

static int vjp(cti_node *n, ct_tensor *const *dy, ct_tensor **dx)
{
    int last = -1;
    dx[0] = ct_flip(ct_cumsum(ct_flip(dy[0], 1, &last), last), 1, &last);
    return cti_pending(n);
}

static const ct_op op_rows = {.name = "cumsum",
                              .torch_name = "CumsumBackward0",
                              .autocast = CTI_F32,
                              .infer = infer,
                              .forward = forward,
                              .vjp = vjp};

/* arg: dim. */
static const ct_case cases[] = {
    {.name = "last", .arg = {-1}, .in = {CT_IN(NORMAL, 3, 5)}},
    {.name = "first", .arg = {0}, .in = {CT_IN(NORMAL, 33, 5)}},
    {.name = "channels", .arg = {1}, .in = {CT_IN(NORMAL, 2, 3, 5, 7)}},
    {.name = "vector", .arg = {0}, .in = {CT_IN(NORMAL, 37)}},
    {.name = "empty", .arg = {1}, .in = {CT_IN(NORMAL, 0, 5)}},
};

static ct_tensor *call(ct_tensor *const *in, const ct_case *c)
{
    return ct_cumsum(in[0], (int)c->arg[0]);
}

const ct_op cti_op_cumsum = {.name = "cumsum", CT_CASES(cases), .call = call};

ct_tensor *ct_cumsum(ct_tensor *x, int dim)
{
    ct_tensor *rows = cti_rows_of(x, dim);
    return cti_rows_back(cti_apply(&op_rows, NULL, 0, 1, &rows), dim);
}
