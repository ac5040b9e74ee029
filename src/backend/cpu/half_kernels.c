/* SPDX-License-Identifier: Apache-2.0 */
/* The families that work in buffers: each call is the one for f32 between widening and rounding. */
#include "backend/cpu/half.h"

#define IN(v)         cti_half_in(&h, v)
#define OUT(v)        cti_half_out(&h, v, false)
#define IN_OUT(v)     cti_half_out(&h, v, true)
#define RESULT(v, be) cti_half_out(&h, v, (be) != 0)
#define DONE(call)    cti_half_done(&h, h.rc ? h.rc : (call))

/* ---- reductions ---- */
static size_t reduce_workspace(ct_stream *s, ct_reduce op, const ct_view *y, const ct_view *x)
{
    ct_view wy = cti_wide_meta(y), wx = cti_wide_meta(x);
    return cti_cpu_reduce.workspace(s, op, &wy, &wx);
}

static int reduce(ct_stream *s, ct_reduce op, const ct_view *y, int beta, const ct_view *x,
                  double scale, void *workspace)
{
    cti_half h = {.s = s};
    const ct_view *wy = RESULT(y, beta), *wx = IN(x);
    return DONE(cti_cpu_reduce.reduce(s, op, wy, beta, wx, scale, workspace));
}

static int argmax(ct_stream *s, const ct_view *y, const ct_view *x, int dim)
{
    cti_half h = {.s = s};
    const ct_view *wx = IN(x);
    return DONE(cti_cpu_reduce.argmax(s, y, wx, dim));
}

static int scan(ct_stream *s, ct_scan fn, const ct_view *y, const ct_view *x)
{
    cti_half h = {.s = s};
    const ct_view *wy = OUT(y), *wx = IN(x);
    return DONE(cti_cpu_reduce.scan(s, fn, wy, wx));
}

static size_t sort_workspace(ct_stream *s, const ct_view *x)
{
    return cti_cpu_reduce.sort_workspace(s, x);
}

static int sort(ct_stream *s, const ct_view *y, const ct_view *index, const ct_view *x,
                bool descending, void *workspace)
{
    cti_half h = {.s = s};
    const ct_view *wy = OUT(y), *wx = IN(x);
    return DONE(cti_cpu_reduce.sort(s, wy, index, wx, descending, workspace));
}

const ct_k_reduce cti_half_reduce = {
    .workspace = reduce_workspace,
    .reduce = reduce,
    .argmax = argmax,
    .scan = scan,
    .sort_workspace = sort_workspace,
    .sort = sort,
};

/* ---- pooling ---- */
static int pool_max(ct_stream *s, const ct_pool_args *args, const ct_view *index)
{
    cti_half h = {.s = s};
    ct_pool_args a = *args;
    a.x = *IN(&args->x);
    a.y = *OUT(&args->y);
    return DONE(cti_cpu_pool.max(s, &a, index));
}

static int pool_max_grad(ct_stream *s, const ct_pool_args *args, const ct_view *dx, int beta,
                         const ct_view *dy, const ct_view *index)
{
    cti_half h = {.s = s};
    const ct_view *wdx = RESULT(dx, beta), *wdy = IN(dy);
    return DONE(cti_cpu_pool.max_grad(s, args, wdx, beta, wdy, index));
}

static int pool_avg(ct_stream *s, const ct_pool_args *args)
{
    cti_half h = {.s = s};
    ct_pool_args a = *args;
    a.x = *IN(&args->x);
    a.y = *OUT(&args->y);
    return DONE(cti_cpu_pool.avg(s, &a));
}

static int pool_avg_grad(ct_stream *s, const ct_pool_args *args, const ct_view *dx, int beta,
                         const ct_view *dy)
{
    cti_half h = {.s = s};
    const ct_view *wdx = RESULT(dx, beta), *wdy = IN(dy);
    return DONE(cti_cpu_pool.avg_grad(s, args, wdx, beta, wdy));
}

const ct_k_pool cti_half_pool = {
    .max = pool_max,
    .max_grad = pool_max_grad,
    .avg = pool_avg,
    .avg_grad = pool_avg_grad,
};

/* ---- normalisation ---- */
static size_t batchnorm_workspace(ct_stream *s, const ct_view *x)
{
    return cti_cpu_norm.batchnorm_workspace(s, x);
}

static int batchnorm(ct_stream *s, const ct_batchnorm_args *args, bool train)
{
    cti_half h = {.s = s};
    ct_batchnorm_args a = *args;
    a.x = *IN(&args->x);
    a.y = *OUT(&args->y);
    a.weight = IN(args->weight);
    a.bias = IN(args->bias);
    a.running_mean = train ? IN_OUT(args->running_mean) : IN(args->running_mean);
    a.running_var = train ? IN_OUT(args->running_var) : IN(args->running_var);
    return DONE((train ? cti_cpu_norm.batchnorm_train : cti_cpu_norm.batchnorm_eval)(s, &a));
}

static int batchnorm_train(ct_stream *s, const ct_batchnorm_args *args)
{
    return batchnorm(s, args, true);
}

static int batchnorm_eval(ct_stream *s, const ct_batchnorm_args *args)
{
    return batchnorm(s, args, false);
}

static int batchnorm_grad(ct_stream *s, bool train, const ct_view *dx, int beta, const ct_view *dw,
                          const ct_view *db, const ct_view *dy, const ct_view *x,
                          const ct_view *weight, const ct_view *mean, const ct_view *invstd,
                          void *workspace)
{
    cti_half h = {.s = s};
    const ct_view *wdx = RESULT(dx, beta), *wdw = OUT(dw), *wdb = OUT(db), *wdy = IN(dy),
                  *wx = IN(x), *ww = IN(weight);
    return DONE(cti_cpu_norm.batchnorm_grad(s, train, wdx, beta, wdw, wdb, wdy, wx, ww, mean,
                                            invstd, workspace));
}

static int rownorm(ct_stream *s, const ct_rownorm_args *args)
{
    cti_half h = {.s = s};
    ct_rownorm_args a = *args;
    a.x = *IN(&args->x);
    a.y = *OUT(&args->y);
    a.weight = IN(args->weight);
    a.bias = IN(args->bias);
    return DONE(cti_cpu_norm.rownorm(s, &a));
}

static int rownorm_grad(ct_stream *s, const ct_rownorm_args *args, const ct_view *dx, int beta,
                        const ct_view *t, const ct_view *dy)
{
    cti_half h = {.s = s};
    ct_rownorm_args a = *args;
    a.x = *IN(&args->x);
    a.weight = IN(args->weight);
    const ct_view *wdx = RESULT(dx, beta), *wt = OUT(t), *wdy = IN(dy);
    return DONE(cti_cpu_norm.rownorm_grad(s, &a, wdx, beta, wt, wdy));
}

const ct_k_norm cti_half_norm = {
    .batchnorm_workspace = batchnorm_workspace,
    .batchnorm_train = batchnorm_train,
    .batchnorm_eval = batchnorm_eval,
    .batchnorm_grad = batchnorm_grad,
    .rownorm = rownorm,
    .rownorm_grad = rownorm_grad,
};

/* ---- softmax and losses ---- */
static int softmax(ct_stream *s, const ct_view *y, const ct_view *x, int dim, bool log)
{
    cti_half h = {.s = s};
    const ct_view *wy = OUT(y), *wx = IN(x);
    return DONE(cti_cpu_loss.softmax(s, wy, wx, dim, log));
}

static int softmax_grad(ct_stream *s, const ct_view *dx, int beta, const ct_view *dy,
                        const ct_view *y, int dim, bool log)
{
    cti_half h = {.s = s};
    const ct_view *wdx = RESULT(dx, beta), *wdy = IN(dy), *wy = IN(y);
    return DONE(cti_cpu_loss.softmax_grad(s, wdx, beta, wdy, wy, dim, log));
}

static size_t cross_entropy_workspace(ct_stream *s, const ct_cross_entropy_args *args)
{
    return cti_cpu_loss.cross_entropy_workspace(s, args);
}

static ct_cross_entropy_args cross_entropy_args(cti_half *h, const ct_cross_entropy_args *args)
{
    ct_cross_entropy_args a = *args;
    a.logits = *cti_half_in(h, &args->logits);
    a.target = *cti_half_in(h, &args->target);
    a.weight = cti_half_in(h, args->weight);
    return a;
}

static int cross_entropy(ct_stream *s, const ct_cross_entropy_args *args)
{
    cti_half h = {.s = s};
    ct_cross_entropy_args a = cross_entropy_args(&h, args);
    a.loss = *OUT(&args->loss);
    return DONE(cti_cpu_loss.cross_entropy(s, &a));
}

static int cross_entropy_grad(ct_stream *s, const ct_cross_entropy_args *args,
                              const ct_view *dlogits, int beta, const ct_view *dloss)
{
    cti_half h = {.s = s};
    ct_cross_entropy_args a = cross_entropy_args(&h, args);
    const ct_view *wdx = RESULT(dlogits, beta), *wdy = IN(dloss);
    a.loss = cti_wide_meta(&args->loss);
    return DONE(cti_cpu_loss.cross_entropy_grad(s, &a, wdx, beta, wdy));
}

const ct_k_loss cti_half_loss = {
    .softmax = softmax,
    .softmax_grad = softmax_grad,
    .cross_entropy_workspace = cross_entropy_workspace,
    .cross_entropy = cross_entropy,
    .cross_entropy_grad = cross_entropy_grad,
};

/* ---- indices ---- What moves elements does so by their size. */
static int check(ct_stream *s, const ct_view *index, int64_t bound, const ct_view *bad)
{
    return cti_cpu_index.check(s, index, bound, bad);
}

static int gather(ct_stream *s, const ct_view *y, const ct_view *x, int dim, const ct_view *index)
{
    return cti_cpu_index.gather(s, y, x, dim, index);
}

static int scatter(ct_stream *s, const ct_scatter_args *args)
{
    cti_half h = {.s = s};
    ct_scatter_args a = *args;
    if (!args->add)
        return cti_cpu_index.scatter(s, args);
    a.y = *IN_OUT(&args->y);
    a.src = IN(args->src);
    return DONE(cti_cpu_index.scatter(s, &a));
}

static int iota(ct_stream *s, const ct_view *y, double first, double last, double step)
{
    return cti_cpu_index.iota(s, y, first, last, step);
}

static int tri(ct_stream *s, const ct_view *y, const ct_view *x, int64_t diagonal, bool upper)
{
    return cti_cpu_index.tri(s, y, x, diagonal, upper);
}

static int bags(ct_stream *s, const ct_view *bag, const ct_view *offsets, const ct_view *ids,
                int64_t skip, const ct_view *bad)
{
    return cti_cpu_index.bags(s, bag, offsets, ids, skip, bad);
}

static int bag_max(ct_stream *s, const ct_view *index, const ct_view *x, const ct_view *offsets,
                   const ct_view *ids, int64_t skip)
{
    cti_half h = {.s = s};
    const ct_view *wx = IN(x);
    return DONE(cti_cpu_index.bag_max(s, index, wx, offsets, ids, skip));
}

const ct_k_index cti_half_index = {
    .check = check,
    .gather = gather,
    .scatter = scatter,
    .iota = iota,
    .tri = tri,
    .bags = bags,
    .bag_max = bag_max,
};

/* ---- images ---- */
static int unfold(ct_stream *s, const ct_unfold_args *args)
{
    cti_half h = {.s = s};
    ct_unfold_args a = *args;
    a.x = *IN(&args->x);
    a.y = *OUT(&args->y);
    return DONE(cti_cpu_image.unfold(s, &a));
}

static int fold(ct_stream *s, const ct_unfold_args *args, int beta)
{
    cti_half h = {.s = s};
    ct_unfold_args a = *args;
    a.x = *RESULT(&args->x, beta);
    a.y = *IN(&args->y);
    return DONE(cti_cpu_image.fold(s, &a, beta));
}

static int resize(ct_stream *s, const ct_resize_args *args)
{
    cti_half h = {.s = s};
    ct_resize_args a = *args;
    a.x = *IN(&args->x);
    a.y = *OUT(&args->y);
    return DONE(cti_cpu_image.resize(s, &a));
}

static int resize_grad(ct_stream *s, const ct_resize_args *args, int beta)
{
    cti_half h = {.s = s};
    ct_resize_args a = *args;
    a.x = *RESULT(&args->x, beta);
    a.y = *IN(&args->y);
    return DONE(cti_cpu_image.resize_grad(s, &a, beta));
}

const ct_k_image cti_half_image = {
    .unfold = unfold,
    .fold = fold,
    .resize = resize,
    .resize_grad = resize_grad,
};

/* ---- random numbers ---- */
static int dropout(ct_stream *s, const ct_view *y, int beta, const ct_view *x, double p,
                   const ct_rng *rng)
{
    cti_half h = {.s = s};
    const ct_view *wy = RESULT(y, beta), *wx = IN(x);
    return DONE(cti_cpu_random.dropout(s, wy, beta, wx, p, rng));
}

static int uniform(ct_stream *s, const ct_view *y, double low, double high, const ct_rng *rng)
{
    cti_half h = {.s = s};
    const ct_view *wy = OUT(y);
    return DONE(cti_cpu_random.uniform(s, wy, low, high, rng));
}

static int normal(ct_stream *s, const ct_view *y, double mean, double std, const ct_rng *rng)
{
    cti_half h = {.s = s};
    const ct_view *wy = OUT(y);
    return DONE(cti_cpu_random.normal(s, wy, mean, std, rng));
}

const ct_k_random cti_half_random = {
    .dropout = dropout,
    .uniform = uniform,
    .normal = normal,
};
