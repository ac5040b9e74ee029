/* SPDX-License-Identifier: Apache-2.0 */
/* rnn - recurrent layers over a sequence x [T,N,I] (batch_first: [N,T,I]), torch.nn's RNN, LSTM and GRU, in layers and both
 * directions:
 *   RNN   h' = tanh or relu (W_ih x + b_ih + W_hh h + b_hh)
 *   LSTM  i, f, g, o = ...; c' = s(f) c + s(i) tanh(g), h' = s(o) tanh(c')
 *   GRU   r, z, n = ...; n = tanh(W_in x + b_in + r (W_hn h + b_hn)), h' = (1 - z) n + z h
 * With lengths a sequence ends at its own: results past it are 0, and its last state is that of its own end; the backward
 * direction begins there. Formulas: the input's products are one matrix product for all steps.
 * Oracle: torch.nn.RNN, LSTM, GRU, with packed sequences for lengths. */
#include "autograd/op.h"

#include <inttypes.h>

#define GATES(mode) ((mode) == CT_RNN_LSTM ? 4 : (mode) == CT_RNN_GRU ? 3 : 1)

/* arg: mode, layers, bidirectional, batch_first, result (0 y, 1 h_n, 2 c_n), lengths as T - n % T. in: x and w_ih, w_hh, b_ih,
 * b_hh of one layer and direction, which all have, the matrices times 0.2 (so input and hidden size are equal, and half as much in both directions). */
static const ct_case cases[] = {
    {.name = "tanh",
     .arg = {CT_RNN_TANH, 1},
     .in = {CT_IN(NORMAL, 5, 3, 4), CT_IN(NORMAL, 4, 4), CT_IN(NORMAL, 4, 4), CT_IN(NORMAL, 4),
            CT_IN(NORMAL, 4)}},
    {.name = "relu, batch first",
     .arg = {CT_RNN_RELU, 1, 0, 1},
     .in = {CT_IN(NORMAL, 3, 4, 5), CT_IN(POSITIVE, 5, 5), CT_IN(NORMAL, 5, 5), CT_IN(NORMAL, 5),
            CT_IN(NORMAL, 5)}},
    {.name = "lstm",
     .arg = {CT_RNN_LSTM, 1},
     .in = {CT_IN(NORMAL, 5, 3, 4), CT_IN(NORMAL, 16, 4), CT_IN(NORMAL, 16, 4), CT_IN(NORMAL, 16),
            CT_IN(NORMAL, 16)}},
    {.name = "lstm, 2 layers, last cell",
     .arg = {CT_RNN_LSTM, 2, 0, 0, 2},
     .in = {CT_IN(NORMAL, 4, 2, 3), CT_IN(NORMAL, 12, 3), CT_IN(NORMAL, 12, 3), CT_IN(NORMAL, 12),
            CT_IN(NORMAL, 12)}},
    {.name = "lstm, lengths, batch first",
     .arg = {CT_RNN_LSTM, 1, 0, 1, 0, 1},
     .in = {CT_IN(NORMAL, 3, 5, 4), CT_IN(NORMAL, 16, 4), CT_IN(NORMAL, 16, 4), CT_IN(NORMAL, 16),
            CT_IN(NORMAL, 16)}},
    {.name = "gru, no bias",
     .arg = {CT_RNN_GRU, 1},
     .in = {CT_IN(NORMAL, 5, 3, 4), CT_IN(NORMAL, 12, 4), CT_IN(NORMAL, 12, 4)}},
    {.name = "gru, lengths, last states",
     .arg = {CT_RNN_GRU, 2, 0, 0, 1, 1},
     .in = {CT_IN(NORMAL, 5, 3, 4), CT_IN(NORMAL, 12, 4), CT_IN(NORMAL, 12, 4), CT_IN(NORMAL, 12),
            CT_IN(NORMAL, 12)}},
    {.name = "gru, both directions, lengths",
     .arg = {CT_RNN_GRU, 1, 1, 0, 0, 1},
     .in = {CT_IN(NORMAL, 4, 3, 2), CT_IN(NORMAL, 6, 2), CT_IN(NORMAL, 6, 2), CT_IN(NORMAL, 6),
            CT_IN(NORMAL, 6)}},
    {.name = "lstm, both directions, last states",
     .arg = {CT_RNN_LSTM, 1, 1, 0, 1, 1},
     .in = {CT_IN(NORMAL, 4, 3, 2), CT_IN(NORMAL, 8, 2), CT_IN(NORMAL, 8, 2), CT_IN(NORMAL, 8),
            CT_IN(NORMAL, 8)}},
};

static ct_tensor *lengths_of(ct_tensor *x, bool batch_first)
{
    int64_t n = ct_tensor_size(x, batch_first ? 0 : 1), t = ct_tensor_size(x, batch_first ? 1 : 0);
    ct_ctx *ctx = ct_tensor_ctx(x);
    ct_tensor *i = ct_arange(ctx, CT_F32, 0, (double)n, 1);
    return ct_cast(ct_affine(ct_clamp(i, NULL, &(double){(double)t - 1}), -1, (double)t), CT_I64);
}

static ct_tensor *call(ct_tensor *const *in, const ct_case *c)
{
    ct_rnn_opts o = ct_rnn_defaults((ct_rnn_mode)c->arg[0]);
    ct_tensor *params[16], *out[3] = {NULL};
    o.layers = (int)c->arg[1];
    o.bidirectional = c->arg[2] != 0;
    o.batch_first = c->arg[3] != 0;
    if (c->arg[5] != 0 && in[0])
        o.lengths = lengths_of(in[0], o.batch_first);
    for (int k = 0; k < 4 * o.layers * (o.bidirectional ? 2 : 1); k++)
        params[k] = k % 4 < 2 && in[1 + k % 4] ? ct_affine(in[1 + k % 4], 0.2, 0) : in[1 + k % 4];
    int rc = ct_rnn(in[0], NULL, NULL, params, o, &out[0], &out[1], &out[2]);
    return rc ? NULL : out[(int)c->arg[4]];
}

const ct_op cti_op_rnn = {.name = "rnn",
                          .optional = 24,
                          CT_CASES(cases),
                          .call = call,
                          .no_empty = "a sequence without steps is an error, as in PyTorch"};

ct_rnn_opts ct_rnn_defaults(ct_rnn_mode mode)
{
    return (ct_rnn_opts){.mode = mode, .layers = 1};
}

/* ---- one step ---- */

typedef struct state {
    ct_tensor *h, *c; /* [N,H] */
} state;

static ct_tensor *part(ct_tensor *gates, int i, int64_t hidden)
{
    return ct_narrow(gates, -1, i * hidden, hidden);
}

static state step_lstm(ct_tensor *gates, state s, int64_t hidden)
{
    ct_tensor *i = ct_sigmoid(part(gates, 0, hidden)), *f = ct_sigmoid(part(gates, 1, hidden));
    ct_tensor *g = ct_tanh(part(gates, 2, hidden)), *o = ct_sigmoid(part(gates, 3, hidden));
    ct_tensor *c = ct_add(ct_mul(f, s.c), ct_mul(i, g));
    return (state){ct_mul(o, ct_tanh(c)), c};
}

static state step_gru(ct_tensor *gx, ct_tensor *gh, state s, int64_t hidden)
{
    ct_tensor *r = ct_sigmoid(ct_add(part(gx, 0, hidden), part(gh, 0, hidden)));
    ct_tensor *z = ct_sigmoid(ct_add(part(gx, 1, hidden), part(gh, 1, hidden)));
    ct_tensor *n = ct_tanh(ct_add(part(gx, 2, hidden), ct_mul(r, part(gh, 2, hidden))));
    return (state){ct_add(n, ct_mul(z, ct_sub(s.h, n))), NULL};
}

static state step(ct_rnn_mode mode, ct_tensor *gx, ct_tensor *const *p, state s, int64_t hidden)
{
    ct_tensor *gh = ct_linear(s.h, p[1], p[3]);
    if (mode == CT_RNN_GRU)
        return step_gru(gx, gh, s, hidden);
    ct_tensor *gates = ct_add(gx, gh);
    if (mode == CT_RNN_LSTM)
        return step_lstm(gates, s, hidden);
    return (state){mode == CT_RNN_TANH ? ct_tanh(gates) : ct_relu(gates), NULL};
}

/* ---- one layer in one direction ---- x [T,N,I] -> y [T,N,H] and the last state. */

static ct_tensor *one_way(ct_tensor *x, ct_tensor *const *p, const ct_rnn_opts *o,
                          ct_tensor *const *alive, bool back, state *s)
{
    if (!s->h)
        return NULL;
    int64_t steps = ct_tensor_size(x, 0), hidden = ct_tensor_size(s->h, -1);
    ct_tensor *gx = ct_linear(x, p[0], p[2]), *y = NULL, **out;
    cti_node_list list;
    if (!gx || !(out = cti_list_begin(ct_tensor_ctx(x), &list, steps)))
        return NULL;
    for (int64_t k = 0; k < steps && s->h; k++) {
        int64_t t = back ? steps - 1 - k : k;
        state next = step(o->mode, ct_select(gx, 0, t), p, *s, hidden);
        out[t] = next.h;
        if (alive && next.h) {
            out[t] = ct_where(alive[t], next.h, ct_zeros_like(next.h));
            next.h = ct_where(alive[t], next.h, s->h);
            next.c = next.c ? ct_where(alive[t], next.c, s->c) : NULL;
        }
        *s = next;
    }
    if (s->h)
        y = ct_stack(out, (int)steps, 0);
    cti_list_end(&list);
    return y;
}

/* ---- the whole ---- */

static int check(ct_tensor *x, ct_tensor *h0, ct_tensor *c0, ct_tensor *const *params,
                 const ct_rnn_opts *o)
{
    ct_ctx *ctx = ct_tensor_ctx(x);
    const ct_op *op = &cti_op_rnn;
    char s[64], t[64];
    ct_view vx = cti_meta(x);
    if (vx.ndim != 3 || vx.shape[0] < 1 || vx.shape[1] < 1)
        return cti_raise(ctx, op, CT_ESHAPE,
                         "x %s must be [T,N,I], or [N,T,I] with batch_first, with steps",
                         cti_shape_str(&vx, s, sizeof s)),
               CT_ESHAPE;
    if (o->layers < 1 || !params || !params[0] || !params[1] || ct_tensor_ndim(params[1]) != 2)
        return cti_raise(ctx, op, CT_EINVAL, "at least one layer is needed, with w_ih and w_hh"),
               CT_EINVAL;
    int64_t hidden = ct_tensor_size(params[1], 1), ways = o->bidirectional ? 2 : 1;
    int64_t n = vx.shape[o->batch_first ? 0 : 1];
    for (int k = 0; k < o->layers * ways; k++) {
        const int64_t in = k < ways ? vx.shape[2] : hidden * ways, rows = GATES(o->mode) * hidden;
        ct_tensor *const *p = params + 4 * k;
        for (int i = 0; i < 2; i++) {
            ct_view want = {.ndim = 2, .shape = {rows, i ? hidden : in}},
                    v = p[i] ? cti_meta(p[i]) : (ct_view){0};
            if (!p[i] || !cti_same_shape(&v, &want))
                return cti_raise(ctx, op, CT_ESHAPE, "%s of layer %d%s is %s, must be %s",
                                 i ? "w_hh" : "w_ih", (int)(k / ways), k % ways ? ", backward" : "",
                                 p[i] ? cti_shape_str(&v, s, sizeof s) : "NULL",
                                 cti_shape_str(&want, t, sizeof t)),
                       CT_ESHAPE;
        }
    }
    for (int i = 0; i < 2; i++) {
        ct_tensor *s0 = i ? c0 : h0;
        ct_view want = {.ndim = 3, .shape = {o->layers * ways, n, hidden}},
                v = s0 ? cti_meta(s0) : want;
        if (!cti_same_shape(&v, &want))
            return cti_raise(ctx, op, CT_ESHAPE,
                             "%s is %s, must be %s: [layers * directions, N, hidden]",
                             i ? "c0" : "h0", cti_shape_str(&v, s, sizeof s),
                             cti_shape_str(&want, t, sizeof t)),
                   CT_ESHAPE;
    }
    if (o->lengths && (ct_tensor_ndim(o->lengths) != 1 || ct_tensor_size(o->lengths, 0) != n ||
                       ct_tensor_dtype(o->lengths) != CT_I64))
        return cti_raise(ctx, op, CT_ESHAPE,
                         "lengths must be int64 [%" PRId64 "], one for each sequence", n),
               CT_ESHAPE;
    return CT_OK;
}

/* alive[t] [N,1]: is step t within each sequence? */
static bool find_alive(const ct_rnn_opts *o, int64_t steps, ct_tensor **alive)
{
    ct_tensor *column = ct_unsqueeze(o->lengths, 1);
    for (int64_t t = 0; t < steps; t++)
        alive[t] = column ? ct_gt(column, ct_full_like(column, (double)t)) : NULL;
    return steps == 0 || alive[steps - 1];
}

static int run(ct_tensor *x, ct_tensor *h0, ct_tensor *c0, ct_tensor *const *params,
               const ct_rnn_opts *o, ct_tensor *const *alive, ct_tensor **ends, ct_tensor **y)
{
    int ways = o->bidirectional ? 2 : 1, n = o->layers * ways;
    int64_t shape[2] = {ct_tensor_size(x, 1), ct_tensor_size(params[1], 1)};
    ct_tensor *none = ct_new_full(x, 2, shape, 0);
    for (int l = 0; l < o->layers && x; l++) {
        ct_tensor *ys[2] = {NULL, NULL};
        for (int d = 0; d < ways; d++) {
            int k = l * ways + d;
            state s = {h0 ? ct_select(h0, 0, k) : none, c0 ? ct_select(c0, 0, k) : none};
            ys[d] = one_way(x, params + (size_t)(4 * k), o, alive, d == 1, &s);
            ends[k] = s.h;
            ends[n + k] = s.c;
        }
        x = ways == 2 ? ct_cat(ys, 2, -1) : ys[0];
        if (l + 1 < o->layers)
            x = ct_dropout(x, o->dropout, o->training);
    }
    *y = x;
    return x ? CT_OK : CT_EINVAL;
}

int ct_rnn(ct_tensor *x, ct_tensor *h0, ct_tensor *c0, ct_tensor *const *params, ct_rnn_opts o,
           ct_tensor **y, ct_tensor **h_n, ct_tensor **c_n)
{
    ct_tensor **outs[3] = {y, h_n, c_n}, *all = NULL, **alive = NULL, **ends;
    cti_node_list steps_list, ends_list;
    for (int i = 0; i < 3; i++)
        if (outs[i])
            *outs[i] = NULL;
    if (!x) {
        ct_ctx *ctx = cti_ctx_of(params ? 4 : 0, params);
        return ctx ? (cti_raise(ctx, &cti_op_rnn, CT_EINVAL, "x is NULL"), ct_error_code(ctx)) :
                     CT_EINVAL;
    }
    ct_ctx *ctx = ct_tensor_ctx(x);
    if (ct_error_code(ctx) || check(x, h0, c0, params, &o) < 0)
        return ct_error_code(ctx);
    if (o.batch_first)
        x = ct_transpose(x, 0, 1);
    int64_t steps = x ? ct_tensor_size(x, 0) : 0;
    int n = o.layers * (o.bidirectional ? 2 : 1);
    if (!x || !(alive = cti_list_begin(ctx, &steps_list, steps)))
        return ct_error_code(ctx);
    if ((ends = cti_list_begin(ctx, &ends_list, 2 * n))) {
        if (!o.lengths || find_alive(&o, steps, alive))
            run(x, h0, c0, params, &o, o.lengths ? alive : NULL, ends, &all);
        if (all && y)
            *y = o.batch_first ? ct_transpose(all, 0, 1) : all;
        if (all && h_n)
            *h_n = ct_stack(ends, n, 0);
        if (all && c_n && o.mode == CT_RNN_LSTM)
            *c_n = ct_stack(ends + n, n, 0);
        cti_list_end(&ends_list);
    }
    cti_list_end(&steps_list);
    return ct_error_code(ctx);
}
