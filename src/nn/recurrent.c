/* SPDX-License-Identifier: Apache-2.0 */
/* torch.nn.RNN, LSTM, GRU: weight_ih_l0, weight_hh_l0, bias_ih_l0, bias_hh_l0, ..._reverse; all U(+-1/sqrt(hidden)). */
#include "nn/module.h"

#include "base/ctxmem.h"

#include <math.h>
#include <stdio.h>

typedef struct recurrent {
    int64_t in, hidden;
    ct_rnn_opts opts; /* training and lengths are the call's */
    bool bias;
    int n;              /* layers * directions */
    ct_tensor **params; /* owned list of borrowed tensors: 4 for each */
    ct_ctx *ctx;
} recurrent;

int ct_nn_rnn_forward(ct_module *m, ct_tensor *x, ct_tensor *h0, ct_tensor *c0, ct_tensor *lengths,
                      ct_tensor **y, ct_tensor **h_n, ct_tensor **c_n)
{
    recurrent *r = ct_module_self(m);
    ct_rnn_opts o = r->opts;

    o.training = ct_module_is_training(m);
    o.lengths = lengths;
    return ct_rnn(x, h0, c0, r->params, o, y, h_n, c_n);
}

static ct_tensor *forward(ct_module *m, void *self, ct_tensor *x)
{
    ct_tensor *y = NULL;

    (void)self;
    return ct_nn_rnn_forward(m, x, NULL, NULL, NULL, &y, NULL, NULL) < 0 ? NULL : y;
}

static void describe(ct_module *m, const void *self, char *buf, size_t cap)
{
    const recurrent *r = self;

    (void)m;
    snprintf(buf, cap,
             "%lld, %lld, num_layers=%d, bias=%s, batch_first=%s, dropout=%g, bidirectional=%s",
             (long long)r->in, (long long)r->hidden, r->opts.layers, r->bias ? "true" : "false",
             r->opts.batch_first ? "true" : "false", r->opts.dropout,
             r->opts.bidirectional ? "true" : "false");
}

static void release(void *self)
{
    recurrent *r = self;

    if (r->ctx)
        cti_free(cti_ctx_mem(r->ctx), r->params);
}

static const ct_module_ops ops[] = {
    [CT_RNN_TANH] = {"RNN", forward, describe, release},
    [CT_RNN_RELU] = {"RNN", forward, describe, release},
    [CT_RNN_LSTM] = {"LSTM", forward, describe, release},
    [CT_RNN_GRU] = {"GRU", forward, describe, release},
};

/* The parameters of layer and direction k, in PyTorch's order. */
static int add_params(ct_module *m, recurrent *r, int k)
{
    static const char *const names[] = {"weight_ih", "weight_hh", "bias_ih", "bias_hh"};
    int ways = r->opts.bidirectional ? 2 : 1, layer = k / ways, rc = CT_OK;
    int64_t gates = r->opts.mode == CT_RNN_LSTM ? 4 : r->opts.mode == CT_RNN_GRU ? 3 : 1;
    int64_t in = layer ? r->hidden * ways : r->in;
    char name[CTI_PATH_MAX + 1];

    for (int i = 0; i < (r->bias ? 4 : 2) && rc == CT_OK; i++) {
        int64_t shape[2] = {gates * r->hidden, i == 0 ? in : r->hidden};

        snprintf(name, sizeof name, "%s_l%d%s", names[i], layer, k % ways ? "_reverse" : "");
        rc = cti_param_uniform(m, name, i < 2 ? 2 : 1, shape, 1 / sqrt((double)r->hidden));
        if (rc == CT_OK)
            r->params[4 * k + i] = ct_module_get_param(m, name);
    }
    return rc;
}

ct_module *ct_nn_rnn_new(ct_ctx *ctx, int64_t in, int64_t hidden, ct_rnn_opts opts, bool bias)
{
    ct_module *m;
    recurrent *r;
    int rc = CT_OK;

    if (!ctx || ct_error_code(ctx) != CT_OK)
        return NULL;
    if ((unsigned)opts.mode > CT_RNN_GRU) {
        ct_error_raise(ctx, CT_EINVAL, "RNN", "RNN: mode %d is none of CT_RNN_*", (int)opts.mode);
        return NULL;
    }
    if (cti_check_least(ctx, ops[opts.mode].name, "input_size", in, 1) != CT_OK ||
        cti_check_least(ctx, ops[opts.mode].name, "hidden_size", hidden, 1) != CT_OK ||
        cti_check_least(ctx, ops[opts.mode].name, "num_layers", opts.layers, 1) != CT_OK)
        return NULL;
    m = ct_module_new(ctx, &ops[opts.mode], sizeof *r);
    if (!m)
        return NULL;
    r = ct_module_self(m);
    *r = (recurrent){.in = in, .hidden = hidden, .opts = opts, .bias = bias, .ctx = ctx};
    r->n = opts.layers * (opts.bidirectional ? 2 : 1);
    r->params =
        cti_alloc(cti_ctx_mem(ctx), (size_t)r->n * 4 * sizeof(ct_tensor *), "recurrent layer");
    if (!r->params)
        rc = ct_error_raise(ctx, CT_ENOMEM, m->ops->name, "%s: out of memory", m->ops->name);
    for (int k = 0; k < r->n && rc == CT_OK; k++)
        rc = add_params(m, r, k);
    return cti_module_done(m, rc);
}
