/* SPDX-License-Identifier: Apache-2.0 */
/* Batch norm of the CUDA backend's table: by cuDNN where it takes the case, else by our own kernels (which
 * kernels_norm.c tests on their own); against the CPU's in f64. */
#include "pair.h"

TestSuite(cuda_dnn);

static const ct_dtype floats[] = {CT_F32, CT_BF16, CT_F16};
#define N(array) (sizeof(array) / sizeof *(array))

typedef struct norm {
    twin x, y, dy, dx;
    twin weight, bias, mean, invstd, running_mean, running_var, dw, db;
} norm;

static norm make(pair *p, ct_dtype t, enum layout lay, const int64_t *shape)
{
    const int64_t *c = shape + 1;
    norm q = {.x = twin_rand(p, t, lay, 4, shape, 1),
              .y = twin_new(p, t, lay, 4, shape),
              .dy = twin_rand(p, t, lay, 4, shape, 2),
              .dx = twin_new(p, t, lay, 4, shape),
              .weight = twin_rand(p, CT_F32, ROWS, 1, c, 3),
              .bias = twin_rand(p, CT_F32, ROWS, 1, c, 4),
              .mean = twin_new(p, CT_F32, ROWS, 1, c),
              .invstd = twin_new(p, CT_F32, ROWS, 1, c),
              .running_mean = twin_rand(p, CT_F32, ROWS, 1, c, 5),
              .running_var = twin_new(p, CT_F32, ROWS, 1, c),
              .dw = twin_new(p, CT_F32, ROWS, 1, c),
              .db = twin_new(p, CT_F32, ROWS, 1, c)};
    twin_noise(p, &q.running_var, 6, 0.4, 1);
    return q;
}

static void drop(pair *p, norm *q)
{
    twin *all[] = {&q->x,    &q->y,      &q->dy,           &q->dx,          &q->weight, &q->bias,
                   &q->mean, &q->invstd, &q->running_mean, &q->running_var, &q->dw,     &q->db};
    for (size_t i = 0; i < N(all); i++)
        twin_free(p, all[i]);
}

enum { NO_AFFINE = 1, NO_RUNNING = 2, NO_DX = 4, NO_DW = 8, BETA = 16, EVAL = 32 };

static ct_batchnorm_args args_of(const norm *q, unsigned flags, bool oracle)
{
    ct_batchnorm_args a = {.x = oracle ? q->x.o : q->x.v,
                           .y = oracle ? q->y.o : q->y.v,
                           .mean = oracle ? q->mean.o : q->mean.v,
                           .invstd = oracle ? q->invstd.o : q->invstd.v,
                           .momentum = 0.1,
                           .eps = 1e-5};
    if (!(flags & NO_AFFINE)) {
        a.weight = oracle ? &q->weight.o : &q->weight.v;
        a.bias = oracle ? &q->bias.o : &q->bias.v;
    }
    if (!(flags & NO_RUNNING)) {
        a.running_mean = oracle ? &q->running_mean.o : &q->running_mean.v;
        a.running_var = oracle ? &q->running_var.o : &q->running_var.v;
    }
    return a;
}

static int grad(const norm *q, unsigned flags, bool oracle, ct_stream *s, const ct_k_norm *k,
                void *workspace)
{
#define OF(t) (oracle ? &q->t.o : &q->t.v)
    const ct_view *dx = flags & NO_DX ? NULL : OF(dx),
                  *weight = flags & NO_AFFINE ? NULL : OF(weight);
    const ct_view *dw = flags & (NO_DW | NO_AFFINE) ? NULL : OF(dw);
    const ct_view *db = flags & (NO_DW | NO_AFFINE) ? NULL : OF(db);
    const int beta = (flags & BETA) != 0;
    return k ? k->batchnorm_grad(s, !(flags & EVAL), dx, beta, dw, db, OF(dy), OF(x), weight,
                                 OF(mean), OF(invstd), workspace) :
               cti_cuda_batchnorm_grad(s, !(flags & EVAL), dx, beta, dw, db, OF(dy), OF(x), weight,
                                       OF(mean), OF(invstd), workspace);
#undef OF
}

/* Forward, then backward. */
static void both(pair *p, norm *q, unsigned flags, const char *what)
{
    const ct_k_norm *k = p->be->norm;
    ct_batchnorm_args cuda = args_of(q, flags, false), cpu = args_of(q, flags, true);
    const size_t bytes = cti_cuda_batchnorm_workspace(p->cuda, &q->x.v);
    cuda.workspace = pair_scratch(p, bytes + 1);
    cpu.workspace = malloc(k->batchnorm_workspace(p->cpu, &q->x.o) + 1);
    if (flags & EVAL) {
        pair_ok(p, cti_cuda_batchnorm_eval(p->cuda, &cuda));
        pair_ok(p, k->batchnorm_eval(p->cpu, &cpu));
    } else {
        pair_ok(p, cti_cuda_batchnorm_train(p->cuda, &cuda));
        pair_ok(p, k->batchnorm_train(p->cpu, &cpu));
    }
    twin *out[] = {&q->y, &q->mean, &q->invstd, &q->running_mean, &q->running_var};
    for (size_t i = 0; i < N(out); i++)
        twin_same(p, out[i], 8, what);
    twin_from_oracle(p, &q->mean);
    twin_from_oracle(p, &q->invstd);
    if (flags & BETA)
        twin_noise(p, &q->dx, 9, 1, 0);
    pair_ok(p, grad(q, flags, false, p->cuda, NULL, cuda.workspace));
    pair_ok(p, grad(q, flags, true, p->cpu, k, cpu.workspace));
    twin_same(p, &q->dx, 8, what);
    twin_same(p, &q->dw, 8, what);
    twin_same(p, &q->db, 8, what);
    twin_untouched(p, &q->x, what);
    twin_untouched(p, &q->dy, what);
    pair_scratch_free(p, cuda.workspace);
    free(cpu.workspace);
}

static void one(pair *p, ct_dtype t, enum layout lay, const int64_t *shape, unsigned flags,
                long executions)
{
    char what[80];
    const long before = pair_work("cudnnBackendExecute");
    norm q = make(p, t, lay, shape);
    snprintf(what, sizeof what, "[%d,%d,%d,%d], layout %d, flags %x", (int)shape[0], (int)shape[1],
             (int)shape[2], (int)shape[3], (int)lay, flags);
    both(p, &q, flags, what);
    const long done = pair_work("cudnnBackendExecute") - before;
    cr_assert(!pair_on_double() || done == executions, "%s (%s): %ld by cuDNN", what,
              ct_dtype_name(t), done);
    drop(p, &q);
}

Test(cuda_dnn, norms_by_cudnn)
{
    pair p;
    pair_open(&p);
    for (size_t t = 0; t < N(floats); t++) {
        one(&p, floats[t], LAST, SHAPE(6, 16, 4, 5), 0, 2);
        one(&p, floats[t], LAST, SHAPE(6, 16, 4, 5), 0, 2);
        one(&p, floats[t], LAST, SHAPE(6, 16, 4, 5), NO_RUNNING, 2);
        one(&p, floats[t], LAST, SHAPE(33, 8, 1, 1), 0, 2);
        one(&p, floats[t], LAST, SHAPE(1, 24, 7, 3), NO_DX, 1);
        one(&p, floats[t], LAST, SHAPE(1, 24, 7, 3), NO_DW, 1);
        one(&p, floats[t], LAST, SHAPE(1, 24, 7, 3), BETA, 1);
    }
    pair_close(&p);
}

Test(cuda_dnn, norms_by_our_own_kernels)
{
    pair p;
    pair_open(&p);
    for (size_t t = 0; t < N(floats); t++) {
        one(&p, floats[t], LAST, SHAPE(3, 5, 4, 3), 0, 0);
        one(&p, floats[t], ROWS, SHAPE(6, 16, 4, 5), 0, 0);
        one(&p, floats[t], LAST, SHAPE(6, 16, 4, 5), NO_AFFINE, 0);
        one(&p, floats[t], LAST, SHAPE(6, 16, 4, 5), EVAL, 0);
        one(&p, floats[t], LAST, SHAPE(1, 16, 1, 1), 0, 0);
        one(&p, floats[t], LAST, SHAPE(0, 16, 2, 2), EVAL, 0);
    }
    pair_close(&p);
}

Test(cuda_dnn, refused_norms_are_remembered)
{
    if (!pair_on_double())
        cr_skip_test("only the double fails when it is told to");
    pair p;
    pair_open(&p);
    pair_fail("cudnnBackendFinalize:1+");
    one(&p, CT_F32, LAST, SHAPE(6, 16, 4, 5), 0, 0);
    pair_fail(NULL);
    one(&p, CT_F32, LAST, SHAPE(6, 16, 4, 5), 0, 0);
    one(&p, CT_F32, LAST, SHAPE(6, 16, 4, 6), 0, 2);
    pair_close(&p);
}

/* Data in the middle of an allocation, and f64. */
Test(cuda_dnn, what_cudnn_is_not_asked_for)
{
    pair p;
    pair_open(&p);
    norm q = make(&p, CT_F32, LAST, SHAPE(6, 16, 4, 5));
    twin more = twin_rand(&p, CT_F32, ROWS, 1, SHAPE(6 * 16 * 4 * 5 + 1), 7), old = q.x;
    q.x = twin_as(&more, 1, 4, q.x.v.shape, q.x.v.stride);
    both(&p, &q, 0, "offset");
    cr_assert_eq(pair_work("cudnnBackendExecute"), 0);
    q.x = old;
    drop(&p, &q);
    twin_free(&p, &more);
    q = make(&p, CT_F64, LAST, SHAPE(6, 16, 4, 5));
    ct_batchnorm_args a = args_of(&q, 0, false);
    pair_refuses(&p, cti_cuda_batchnorm_train(p.cuda, &a));
    pair_refuses(&p, grad(&q, 0, false, p.cuda, NULL, NULL));
    drop(&p, &q);
    pair_close(&p);
}

Test(cuda_dnn, failures_are_told)
{
    if (!pair_on_double())
        cr_skip_test("only the double fails when it is told to");
    pair p;
    pair_open(&p);
    norm q = make(&p, CT_F32, LAST, SHAPE(6, 16, 4, 5));
    ct_batchnorm_args a = args_of(&q, 0, false);
    a.workspace = pair_scratch(&p, cti_cuda_batchnorm_workspace(p.cuda, &q.x.v));
    cti_mem_fail_at(p.mem, 1, false);
    cr_assert_eq(cti_cuda_batchnorm_train(p.cuda, &a), CT_ENOMEM);
    p.err = (ct_error){0};
    cti_mem_fail_at(p.mem, 1, false);
    cr_assert_eq(grad(&q, 0, false, p.cuda, NULL, a.workspace), CT_ENOMEM);
    p.err = (ct_error){0};
    pair_ok(&p, cti_cuda_batchnorm_train(p.cuda, &a));
    pair_fail("cudnnBackendExecute:1");
    cr_assert_eq(grad(&q, 0, false, p.cuda, NULL, a.workspace), CT_EDEVICE);
    p.err = (ct_error){0};
    pair_fail(NULL);
    pair_scratch_free(&p, a.workspace);
    drop(&p, &q);
    pair_close(&p);
}
