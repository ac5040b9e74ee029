/* SPDX-License-Identifier: Apache-2.0 */
/* border_pad - more elements at the ends of the last dimensions, copies of x's: the mirror image without the edge
 * (reflect), the edge again and again (replicate), or what comes at the other end (circular); the corners by the
 * last dimension first. All dtypes. Shape: size + begin + end. Gradient: each dy added to the element it is a copy
 * of. Oracle: torch.nn.functional.pad. */
#include "autograd/op.h"

extern const ct_op cti_op_border_pad;

/* Cells [start, start + length) of dimension d. */
static ct_view part(ct_view v, int d, int64_t start, int64_t length)
{
    v.data = (char *)v.data + start * v.stride[d] * (int64_t)ct_dtype_bytes(v.dtype);
    v.shape[d] = length;
    return v;
}

/* The first cell of dimension d at `start`, then every `step`-th: -1, 0 or 1. */
static ct_view walk(ct_view v, int d, int64_t start, int step, int64_t length)
{
    v = part(v, d, start, length);
    v.stride[d] *= step;
    return v;
}

/* Of the padded tensor, as it is when dimension number i from the end has its turn: the ones before it are whole, of
 * those after it only the inside counts. */
static ct_view turn_of(const cti_border *a, ct_view v, int i)
{
    for (int k = i + 1; k < a->n; k++) {
        int d = v.ndim - 1 - k;
        v = part(v, d, a->begin[k], v.shape[d] - a->begin[k] - a->end[k]);
    }
    return v;
}

/* The border at one end of that dimension, and the cells it is a copy of, in the same order. */
static ct_view border(const cti_border *a, ct_view v, int i, bool end, ct_view *of)
{
    const int64_t b = a->begin[i], e = a->end[i];
    const int d = v.ndim - 1 - i, step = (int)CT_PAD_REPLICATE - (int)a->mode; /* 1, 0, -1 */
    const int64_t size = v.shape[d] - b - e, n = end ? e : b;
    int64_t from = end ? b + size - 1 : b; /* replicate: the edge */
    if (a->mode == CT_PAD_REFLECT)
        from = end ? b + size - 2 : 2 * b;
    if (a->mode == CT_PAD_CIRCULAR)
        from = end ? b : size;
    *of = walk(v, d, from, -step, n);
    return part(v, d, end ? b + size : 0, n);
}

static ct_view inside(const cti_border *a, const ct_view *v)
{
    return turn_of(a, *v, -1);
}

static int declare(cti_node *n, int sign)
{
    const cti_border *a = cti_attr(n);
    const ct_view *x = cti_x(n, 0);
    ct_view y = *x;
    for (int i = 0; i < a->n; i++)
        y.shape[y.ndim - 1 - i] += sign * (a->begin[i] + a->end[i]);
    return cti_view_channels_last(x) ? cti_out_channels_last(n, 0, x->dtype, y.shape) :
                                       cti_out_shaped_like(n, 0, x->dtype, &y);
}

static int infer(cti_node *n)
{
    return declare(n, 1);
}

static int forward(cti_node *n)
{
    const cti_border *a = cti_attr(n);
    const ct_k_ew *ew = cti_be(n)->ew;
    ct_view middle = inside(a, cti_y(n, 0));
    int rc = ew->copy(cti_stream(n), &middle, cti_x(n, 0));
    for (int k = 0; k < 2 * a->n && !rc; k++) {
        ct_view of, to = border(a, turn_of(a, *cti_y(n, 0), k / 2), k / 2, k % 2, &of);
        if (ct_view_numel(&to) > 0)
            rc = ew->copy(cti_stream(n), &to, &of);
    }
    return rc;
}

/* ---- the gradient as an op: its own gradient is the padding ---- */

static int back_infer(cti_node *n)
{
    return declare(n, -1);
}

/* of += from, whose cells go along dimension d. */
static int add_border(cti_node *n, ct_view of, ct_view from, int d)
{
    int64_t last = from.shape[d] - 1;
    if (of.stride[d] == 0 && last > 0) { /* all to the edge */
        of.shape[d] = 1;
        return cti_sum_into(n, &of, 1, &from, 1);
    }
    if (of.stride[d] < 0) { /* what is written goes forwards */
        of = walk(of, d, last, -1, last + 1);
        from = walk(from, d, last, -1, last + 1);
    }
    return cti_be(n)->ew->affine(cti_stream(n), &of, 1, &from, 1, 0);
}

static int back_forward(cti_node *n)
{
    const cti_border *a = cti_attr(n);
    const ct_k_ew *ew = cti_be(n)->ew;
    ct_view rows = *cti_x(n, 0);
    cti_row_major(rows.ndim, rows.shape, rows.stride);
    const ct_view *t = cti_temp_like(n, rows.dtype, &rows);
    if (!t)
        return cti_pending(n);
    int rc = ew->copy(cti_stream(n), t, cti_x(n, 0));
    for (int k = 2 * a->n - 1; k >= 0 && !rc; k--) {
        ct_view of, from = border(a, turn_of(a, *t, k / 2), k / 2, k % 2, &of);
        if (ct_view_numel(&from) > 0)
            rc = add_border(n, of, from, rows.ndim - 1 - k / 2);
    }
    ct_view middle = inside(a, t);
    return rc ? rc : ew->copy(cti_stream(n), cti_y(n, 0), &middle);
}

static int back_vjp(cti_node *n, ct_tensor *const *dy, ct_tensor **dx)
{
    dx[0] = cti_apply(&cti_op_border_pad, cti_attr(n), sizeof(cti_border), 1, &dy[0]);
    return cti_pending(n);
}

static const ct_op back = {.name = "border_pad",
                           .torch_name = "ReflectionPad2DBackwardBackward0",
                           .infer = back_infer,
                           .forward = back_forward,
                           .vjp = back_vjp};

static int vjp(cti_node *n, ct_tensor *const *dy, ct_tensor **dx)
{
    dx[0] = cti_apply(&back, cti_attr(n), sizeof(cti_border), 1, &dy[0]);
    return cti_pending(n);
}

/* arg: mode, n, pads... (the last dimension's begin, end, then of the one before). */
static const ct_case cases[] = {
    {.name = "reflect", .arg = {1, 2, 3, 4}, .in = {CT_IN(NORMAL, 2, 3, 5)}},
    {.name = "reflect, 2-D", .arg = {1, 4, 1, 2, 2, 0}, .in = {CT_IN(NORMAL, 2, 3, 4, 5)}},
    {.name = "reflect, 3-D", .arg = {1, 6, 1, 1, 0, 1, 1, 2}, .in = {CT_IN(NORMAL, 1, 2, 3, 2, 3)}},
    {.name = "replicate", .arg = {2, 4, 3, 1, 0, 2}, .in = {CT_IN(NORMAL, 2, 3, 2, 3)}},
    {.name = "replicate, 3-D",
     .arg = {2, 6, 1, 1, 0, 1, 1, 2},
     .in = {CT_IN(NORMAL, 1, 2, 3, 1, 2)}},
    {.name = "circular", .arg = {3, 4, 3, 1, 0, 2}, .in = {CT_IN(NORMAL, 2, 3, 4, 3)}},
    {.name = "circular, 1-D", .arg = {3, 2, 2, 5}, .in = {CT_IN(NORMAL, 2, 3, 5)}},
    {.name = "circular, 3-D",
     .arg = {3, 6, 3, 3, 1, 2, 0, 2},
     .in = {CT_IN(NORMAL, 1, 2, 3, 2, 3)}},
    {.name = "empty", .arg = {2, 2, 1, 2}, .in = {CT_IN_FIXED(NORMAL, 0, 3, 5)}},
};

static ct_tensor *call(ct_tensor *const *in, const ct_case *c)
{
    int64_t pads[6];
    for (int i = 0; i < 6; i++)
        pads[i] = (int64_t)c->arg[2 + i];
    return ct_pad(in[0], (int)c->arg[1], pads, (ct_pad_mode)c->arg[0], 0);
}

const ct_op cti_op_border_pad = {.name = "border_pad",
                                 .torch_name = "ReflectionPad2DBackward0",
                                 .infer = infer,
                                 .forward = forward,
                                 .vjp = vjp,
                                 CT_CASES(cases),
                                 .call = call};

ct_tensor *cti_border_pad(ct_tensor *x, cti_border a)
{
    return cti_apply(&cti_op_border_pad, &a, sizeof a, 1, &x);
}
