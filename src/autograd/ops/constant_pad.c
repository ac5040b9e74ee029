/* SPDX-License-Identifier: Apache-2.0 */
/* constant_pad - more elements of one value at the ends of the last dimensions; negative pads crop. All dtypes.
 * Shape: size + begin + end. Gradient: dy padded by the negative amounts. Oracle: torch.nn.functional.pad. */
#include "autograd/op.h"

extern const ct_op cti_op_constant_pad;

typedef struct attrs {
    double value;
    int n;                                        /* of dimensions */
    int64_t begin[CT_MAX_DIMS], end[CT_MAX_DIMS]; /* from the last dimension on */
} attrs;

static int infer(cti_node *n)
{
    const attrs *a = cti_attr(n);
    const ct_view *x = cti_x(n, 0);
    ct_view y = *x;
    char s[64];
    for (int i = 0; i < a->n; i++) {
        int d = x->ndim - 1 - i;
        y.shape[d] += a->begin[i] + a->end[i];
        if (y.shape[d] < 0)
            return cti_op_fail(
                n, CT_ESHAPE, "%lld and %lld crop more than dimension %d of x %s has",
                (long long)a->begin[i], (long long)a->end[i], d, cti_shape_str(x, s, sizeof s));
    }
    return cti_view_channels_last(x) && x->ndim == 4 ?
               cti_out_channels_last(n, 0, x->dtype, y.shape) :
               cti_out_shaped_like(n, 0, x->dtype, &y);
}

static int forward(cti_node *n)
{
    const attrs *a = cti_attr(n);
    const ct_k_ew *ew = cti_be(n)->ew;
    ct_view from = *cti_x(n, 0), to = *cti_y(n, 0);
    const int64_t bytes = (int64_t)ct_dtype_bytes(to.dtype);
    bool grows = false;
    for (int i = 0; i < a->n; i++) {
        int d = from.ndim - 1 - i;
        int64_t b = a->begin[i], e = a->end[i];
        grows = grows || b > 0 || e > 0;
        from.data = (char *)from.data + (b < 0 ? -b : 0) * from.stride[d] * bytes;
        to.data = (char *)to.data + (b > 0 ? b : 0) * to.stride[d] * bytes;
        from.shape[d] += (b < 0 ? b : 0) + (e < 0 ? e : 0);
        from.shape[d] = from.shape[d] < 0 ? 0 : from.shape[d];
        to.shape[d] = from.shape[d];
    }
    int rc = grows ? ew->fill(cti_stream(n), cti_y(n, 0), a->value) : CT_OK;
    return rc || ct_view_numel(&to) == 0 ? rc : ew->copy(cti_stream(n), &to, &from);
}

static int vjp(cti_node *n, ct_tensor *const *dy, ct_tensor **dx)
{
    attrs a = *(const attrs *)cti_attr(n);
    a.value = 0;
    for (int i = 0; i < a.n; i++) {
        a.begin[i] = -a.begin[i];
        a.end[i] = -a.end[i];
    }
    dx[0] = cti_apply(&cti_op_constant_pad, &a, sizeof a, 1, &dy[0]);
    return cti_pending(n);
}

/* arg: value, n, pads... (the last dimension's begin, end, then of the one before). */
static const ct_case cases[] = {
    {.name = "two dims", .arg = {0.5, 4, 1, 2, 0, 3}, .in = {CT_IN(NORMAL, 3, 5)}},
    {.name = "cropped", .arg = {0, 4, -1, 2, 1, -2}, .in = {CT_IN(NORMAL, 2, 5, 7)}},
    {.name = "channels", .arg = {-1, 4, 1, 1, 2, 0}, .in = {CT_IN(NORMAL, 2, 3, 5, 7)}},
    {.name = "integers", .arg = {9, 2, 1, 1}, .in = {CT_IN(I64, 3)}},
    {.name = "no pads", .arg = {9, 0}, .in = {CT_IN(NORMAL, 3)}},
    {.name = "empty", .arg = {2, 2, 1, 1}, .in = {CT_IN(NORMAL, 3, 0)}},
};

static ct_tensor *call(ct_tensor *const *in, const ct_case *c)
{
    int64_t pads[6];
    for (int i = 0; i < 6; i++)
        pads[i] = (int64_t)c->arg[2 + i];
    return cti_constant_pad(in[0], (int)c->arg[1], pads, c->arg[0]);
}

const ct_op cti_op_constant_pad = {.name = "constant_pad",
                                   .torch_name = "ConstantPadNdBackward0",
                                   .infer = infer,
                                   .forward = forward,
                                   .vjp = vjp,
                                   CT_CASES(cases),
                                   .call = call};

ct_tensor *cti_constant_pad(ct_tensor *x, int n, const int64_t *pads, double value)
{
    attrs a = {.value = value, .n = n / 2};
    for (int i = 0; i < a.n; i++) {
        a.begin[i] = pads[2 * i];
        a.end[i] = pads[2 * i + 1];
    }
    return cti_apply(&cti_op_constant_pad, &a, sizeof a, 1, &x);
}
