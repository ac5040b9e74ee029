/* SPDX-License-Identifier: Apache-2.0 */
/* Convolution of the CUDA backend against the CPU's in f64: by cuDNN, with the bias apart, and by our own
 * kernels, which a failing cudnnBackendFinalize leads to: nothing is supported then. */
#include "backend/cuda/conv.h"
#include "pair.h"

TestSuite(cuda_conv);

static const ct_dtype floats[] = {CT_F32, CT_BF16, CT_F16};
#define N(array) (sizeof(array) / sizeof *(array))

typedef struct layer {
    int64_t n, c, h, w, k, r, s, groups;
    int64_t stride[2], dilation[2], begin[2], end[2];
} layer;

static const layer layers[] = {
    {2, 1, 8, 8, 6, 5, 5, 1, {1, 1}, {1, 1}, {2, 2}, {2, 2}},
    {3, 8, 7, 7, 16, 3, 3, 1, {1, 1}, {1, 1}, {1, 1}, {1, 1}},
    {2, 5, 9, 8, 7, 3, 3, 1, {2, 2}, {1, 1}, {0, 0}, {1, 1}},   /* odd sizes, one-sided padding */
    {2, 6, 9, 7, 9, 3, 2, 3, {1, 2}, {2, 1}, {2, 0}, {1, 1}},   /* groups, dilation */
    {1, 4, 10, 11, 4, 3, 3, 4, {1, 1}, {1, 1}, {1, 1}, {1, 1}}, /* depthwise */
    {2, 3, 5, 5, 6, 3, 3, 3, {3, 2}, {1, 1}, {0, 1}, {0, 0}},   /* rows that no window reaches */
    {1, 1, 1, 1, 1, 1, 1, 1, {1, 1}, {1, 1}, {0, 0}, {0, 0}},
    {2, 32, 4, 4, 33, 1, 1, 1, {1, 1}, {1, 1}, {0, 0}, {0, 0}},
    {1, 3, 2, 2, 2, 3, 3, 1, {1, 1}, {3, 3}, {4, 4}, {4, 4}}, /* taps in the padding alone */
    {5, 2, 8, 8, 2, 3, 3, 1, {1, 1}, {1, 1}, {1, 1}, {1, 1}}, /* a long sum for each weight */
};

typedef struct tensors {
    twin x, w, y, bias;
} tensors;

static int64_t out_size(const layer *l, int i)
{
    const int64_t in = i ? l->w : l->h, taps = i ? l->s : l->r;
    return (in + l->begin[i] + l->end[i] - (taps - 1) * l->dilation[i] - 1) / l->stride[i] + 1;
}

static tensors make(pair *p, const layer *l, ct_dtype t)
{
    tensors q = {.x = twin_new(p, t, LAST, 4, SHAPE(l->n, l->c, l->h, l->w)),
                 .w = twin_new(p, t, ROWS, 4, SHAPE(l->k, l->c / l->groups, l->r, l->s)),
                 .y = twin_new(p, t, LAST, 4, SHAPE(l->n, l->k, out_size(l, 0), out_size(l, 1))),
                 .bias = twin_rand(p, t, ROWS, 1, &l->k, 3)};
    return q;
}

static void drop(pair *p, tensors *q)
{
    twin_free(p, &q->x), twin_free(p, &q->w), twin_free(p, &q->y), twin_free(p, &q->bias);
}

static ct_conv_args args_of(const layer *l, const tensors *q, bool bias, bool oracle)
{
    ct_conv_args a = {.x = oracle ? q->x.o : q->x.v,
                      .w = oracle ? q->w.o : q->w.v,
                      .y = oracle ? q->y.o : q->y.v,
                      .groups = l->groups};
    if (bias)
        a.bias = oracle ? &q->bias.o : &q->bias.v;
    for (int i = 0; i < 2; i++) {
        a.stride[i] = l->stride[i];
        a.dilation[i] = l->dilation[i];
        a.pad_begin[i] = l->begin[i];
        a.pad_end[i] = l->end[i];
    }
    return a;
}

/* cuDNN, its bias refused, all of it refused. */
enum way { BY_CUDNN, BIAS_APART, NATIVE, WAYS };

static const char *const spoil[] = {[BY_CUDNN] = NULL,
                                    [BIAS_APART] = "cudnnBackendFinalize:1",
                                    [NATIVE] = "cudnnBackendFinalize:1+"};

static void run(pair *p, const layer *l, const tensors *q, ct_conv_pass pass, bool bias,
                enum way way)
{
    ct_conv_args cuda = args_of(l, q, bias, false), cpu = args_of(l, q, bias, true);
    size_t bytes = 1, cpu_bytes = 1;
    pair_fail(spoil[way]);
    pair_ok(p, cti_cuda_conv_workspace(p->cuda, pass, &cuda, &bytes));
    pair_fail(NULL);
    cuda.workspace = bytes ? pair_scratch(p, bytes) : NULL;
    if (way == NATIVE && !pair_on_double()) /* a device's cuDNN refuses nothing */
        pair_ok(p, cti_cuda_conv_native(p->cuda, pass, &cuda));
    else
        pair_ok(p, cti_cuda_conv(p->cuda, pass, &cuda));
    pair_ok(p, p->be->conv->workspace(p->cpu, pass, &cpu, &cpu_bytes));
    cpu.workspace = malloc(cpu_bytes + 1);
    pair_ok(p, p->be->conv->run(p->cpu, pass, &cpu));
    pair_scratch_free(p, cuda.workspace);
    free(cpu.workspace);
}

/* All passes, each with a new stream's plans where some are to be refused. */
static void passes(pair *p, const layer *l, ct_dtype t, enum way way, double factor)
{
    char what[80];
    for (int i = 0; i < 4; i++) {
        const ct_conv_pass pass = i < 2  ? CT_CONV_FORWARD :
                                  i == 2 ? CT_CONV_BACKWARD_DATA :
                                           CT_CONV_BACKWARD_WEIGHT;
        if (way == BIAS_APART && i != 1)
            continue;
        snprintf(what, sizeof what, "layer %d, pass %d, way %d", (int)(l - layers), i, (int)way);
        tensors q = make(p, l, t);
        twin *out = i < 2 ? &q.y : i == 2 ? &q.x : &q.w, *all[] = {&q.x, &q.w, &q.y};
        for (int j = 0; j < 3; j++)
            if (all[j] != out)
                twin_noise(p, all[j], (uint64_t)j, 1, 0);
        run(p, l, &q, pass, i == 1, way);
        twin_same(p, out, factor, what);
        for (int j = 0; j < 3; j++)
            if (all[j] != out)
                twin_untouched(p, all[j], what);
        drop(p, &q);
    }
}

static void all_layers(enum way way, bool tf32, double factor)
{
    pair p;
    pair_open(&p);
    p.cuda->tf32 = tf32;
    for (size_t t = 0; t < N(floats); t++)
        for (size_t i = 0; i < N(layers); i++)
            passes(&p, &layers[i], floats[t], way, factor);
    if (pair_on_double()) {
        cr_assert_eq(pair_work("cudnnBackendExecute") > 0, way != NATIVE);
        cr_assert_eq(pair_work("conv_") > 0, way == NATIVE);
    }
    pair_close(&p);
}

Test(cuda_conv, by_cudnn)
{
    all_layers(BY_CUDNN, false, 8);
}

Test(cuda_conv, the_bias_apart)
{
    all_layers(BIAS_APART, false, 8); /* rounded twice */
}

Test(cuda_conv, by_our_own_kernels)
{
    all_layers(NATIVE, false, 8);
}

Test(cuda_conv, tf32_rounds_the_operands_of_f32)
{
    all_layers(BY_CUDNN, true, 600);
}

/* Twice the same bytes, and more work than a grid takes at once. */
Test(cuda_conv, our_own_kernels_on_many_elements)
{
    static const layer big = {2, 2, 190, 180, 2, 3, 3, 1, {1, 1}, {1, 1}, {1, 1}, {1, 1}};
    pair p;
    pair_open(&p);
    p.cuda->sms = 1; /* a small grid */
    passes(&p, &big, CT_F32, NATIVE, 60);
    pair_close(&p);
}

Test(cuda_conv, data_that_is_barely_aligned)
{
    pair p;
    pair_open(&p);
    for (size_t t = 0; t < N(floats); t++) {
        const layer *l = &layers[2];
        tensors q = make(&p, l, floats[t]);
        twin more = twin_rand(&p, floats[t], ROWS, 1, SHAPE(2 * 5 * 9 * 8 + 1), 7);
        twin x = twin_as(&more, 1, 4, q.x.v.shape, q.x.v.stride), old = q.x;
        twin_noise(&p, &q.w, 8, 1, 0);
        q.x = x;
        run(&p, l, &q, CT_CONV_FORWARD, true, BY_CUDNN);
        twin_same(&p, &q.y, 8, "offset");
        q.x = old;
        drop(&p, &q);
        twin_free(&p, &more);
    }
    pair_close(&p);
}

/* No images, no input channels, no output channels: zeros, or the bias. */
Test(cuda_conv, empty)
{
    static const layer empty[] = {{0, 3, 5, 5, 4, 3, 3, 1, {1, 1}, {1, 1}, {1, 1}, {1, 1}},
                                  {2, 0, 5, 5, 4, 3, 3, 1, {1, 1}, {1, 1}, {1, 1}, {1, 1}},
                                  {2, 3, 5, 5, 0, 3, 3, 1, {1, 1}, {1, 1}, {1, 1}, {1, 1}}};
    pair p;
    pair_open(&p);
    for (size_t t = 0; t < N(floats); t++)
        for (size_t i = 0; i < N(empty); i++)
            passes(&p, &empty[i], floats[t], BY_CUDNN, 0);
    pair_close(&p);
}

Test(cuda_conv, nan_and_infinity_go_through)
{
    pair p;
    pair_open(&p);
    for (int way = 0; way < WAYS; way += NATIVE) {
        tensors q = make(&p, &layers[1], CT_F32);
        twin_noise(&p, &q.x, 1, 1, 0);
        twin_noise(&p, &q.w, 2, 1, 0);
        twin_put(&p, &q.x, 17, NAN);
        twin_put(&p, &q.x, 230, INFINITY);
        twin_upload(&p, &q.x);
        run(&p, &layers[1], &q, CT_CONV_FORWARD, false, (enum way)way);
        twin_same(&p, &q.y, 8, "nan");
        drop(&p, &q);
        pair_close(&p); /* plans are of a stream: the second way is another one */
        if (way == NATIVE)
            return;
        pair_open(&p);
    }
}

/* ---- the plans, refusals, failures ---- */

static uint64_t primitives(pair *p)
{
    ct_device_counters c;
    cti_cuda_mem.counters(p->cuda, &c);
    return c.primitives;
}

Test(cuda_conv, steady_calls_make_nothing)
{
    pair p;
    pair_open(&p);
    tensors q = make(&p, &layers[1], CT_BF16);
    ct_conv_args a = args_of(&layers[1], &q, true, false);
    size_t bytes;
    pair_ok(&p, cti_cuda_conv_workspace(p.cuda, CT_CONV_FORWARD, &a, &bytes));
    a.workspace = pair_scratch(&p, bytes + 1);
    const uint64_t made = primitives(&p), calls = cti_mem_get_stats(p.mem).calls;
    for (int i = 0; i < 10; i++)
        pair_ok(&p, cti_cuda_conv(p.cuda, CT_CONV_FORWARD, &a));
    cr_assert_eq(primitives(&p), made);
    cr_assert_eq(cti_mem_get_stats(p.mem).calls, calls);
    pair_scratch_free(&p, a.workspace);
    drop(&p, &q);
    pair_close(&p);
}

/* A shape that is new in a capture is an error, one that is known is taken down. */
Test(cuda_conv, captured)
{
    pair p;
    pair_open(&p);
    tensors q = make(&p, &layers[1], CT_F32), r = make(&p, &layers[2], CT_F32);
    ct_conv_args a = args_of(&layers[1], &q, false, false),
                 b = args_of(&layers[2], &r, false, false);
    size_t bytes;
    ct_graph *g;
    twin_noise(&p, &q.x, 1, 1, 0);
    twin_noise(&p, &q.w, 2, 1, 0);
    run(&p, &layers[1], &q, CT_CONV_FORWARD, false, BY_CUDNN);
    pair_ok(&p, cti_cuda_conv_workspace(p.cuda, CT_CONV_FORWARD, &a, &bytes));
    a.workspace = pair_scratch(&p, bytes + 1);
    twin_upload(&p, &q.y); /* NaN again */
    pair_ok(&p, cti_cuda_mem.capture_begin(p.cuda));
    cr_assert_eq(cti_cuda_conv_workspace(p.cuda, CT_CONV_FORWARD, &b, &bytes), CT_EDEVICE);
    p.err = (ct_error){0};
    pair_ok(&p, cti_cuda_conv(p.cuda, CT_CONV_FORWARD, &a));
    pair_ok(&p, cti_cuda_mem.capture_end(p.cuda, &g));
    pair_ok(&p, cti_cuda_mem.graph_launch(p.cuda, g));
    twin_same(&p, &q.y, 8, "captured");
    cti_cuda_mem.graph_free(p.cuda, g);
    pair_scratch_free(&p, a.workspace);
    drop(&p, &q);
    drop(&p, &r);
    pair_close(&p);
}

Test(cuda_conv, other_dtypes_are_refused)
{
    pair p;
    pair_open(&p);
    tensors q = make(&p, &layers[1], CT_F64), r = make(&p, &layers[1], CT_F32);
    ct_conv_args a = args_of(&layers[1], &q, false, false),
                 b = args_of(&layers[1], &r, false, false);
    size_t bytes;
    pair_refuses(&p, cti_cuda_conv_workspace(p.cuda, CT_CONV_FORWARD, &a, &bytes));
    pair_refuses(&p, cti_cuda_conv(p.cuda, CT_CONV_FORWARD, &a));
    pair_refuses(&p, cti_cuda_conv_native(p.cuda, CT_CONV_FORWARD, &a));
    b.w.dtype = CT_BF16;
    pair_refuses(&p, cti_cuda_conv(p.cuda, CT_CONV_FORWARD, &b));
    drop(&p, &q);
    drop(&p, &r);
    pair_close(&p);
}

Test(cuda_conv, failures_are_told)
{
    if (!pair_on_double())
        cr_skip_test("only the double fails when it is told to");
    static const char *const calls[] = {"cudnnCreate:1",
                                        "cudnnSetStream:1",
                                        "cudnnBackendCreateDescriptor:1",
                                        "cudnnBackendCreateDescriptor:5",
                                        "cudnnBackendCreateDescriptor:7+",
                                        "cudnnBackendExecute:1"};
    for (size_t i = 0; i <= N(calls); i++) {
        pair p;
        pair_open(&p);
        tensors q = make(&p, &layers[1], CT_F32);
        ct_conv_args a = args_of(&layers[1], &q, false, false);
        size_t bytes = 0;
        if (i < N(calls))
            pair_fail(calls[i]);
        else
            cti_mem_fail_at(p.mem, 1, false);
        int rc = cti_cuda_conv_workspace(p.cuda, CT_CONV_FORWARD, &a, &bytes);
        if (rc == CT_OK) {
            a.workspace = bytes ? pair_scratch(&p, bytes) : NULL;
            rc = cti_cuda_conv(p.cuda, CT_CONV_FORWARD, &a);
            pair_scratch_free(&p, a.workspace);
        }
        pair_fail(NULL);
        cr_assert(rc == CT_EDEVICE || rc == CT_ENOMEM, "%zu: %d", i, rc);
        cr_assert_eq(p.err.code, rc);
        p.err = (ct_error){0};
        drop(&p, &q);
        pair_close(&p);
    }
}
