/* SPDX-License-Identifier: Apache-2.0 */
/* The harness tested: a check that can't fail is a defect. Each check gets an op with a fault
 * that it must find, and the same op without the fault, which it must pass. */
#include "harness.h"

#include <criterion/criterion.h>
#include <criterion/parameterized.h>
#include <stdio.h>
#include <string.h>

static const ct_op *find(const char *name)
{
    for (int i = 0; i < cti_n_ops; i++)
        if (!strcmp(cti_ops[i]->name, name))
            return cti_ops[i];
    cr_assert(false, "the op table has no %s", name);
    return NULL;
}

/* ---- an op of our own with faults inside: y = 2 x ---- */

enum { NO_BETA = 1, WRONG_SIGN, FROZEN, TOUCHES, DETACHES };

static int twice_infer(cti_node *n)
{
    return cti_out_like(n, 0, 0);
}

static int twice_forward(cti_node *n)
{
    const ct_view *x = cti_x(n, 0);
    if (*(const int *)cti_attr(n) == TOUCHES && ct_view_numel(x)) {
        int rc = cti_be(n)->ew->fill(cti_stream(n), x, 1);
        if (rc)
            return rc;
    }
    return cti_be(n)->ew->affine(cti_stream(n), cti_y(n, 0), 0, x, 2, 0);
}

static int twice_backward(cti_node *n)
{
    int fault = *(const int *)cti_attr(n), beta = 0;
    const ct_view *dx = cti_dx(n, 0, &beta);
    if (!dx)
        return ct_error_code(cti_node_ctx(n));
    double k = fault == WRONG_SIGN ? -2 : fault == FROZEN ? 0 : 2;
    return cti_be(n)->ew->affine(cti_stream(n), dx, fault == NO_BETA ? 0 : beta, cti_dy(n, 0), k,
                                 0);
}

static int twice_vjp(cti_node *n, ct_tensor *const *dy, ct_tensor **dx)
{
    bool detach = *(const int *)cti_attr(n) == DETACHES;
    dx[0] = ct_affine(detach ? ct_detach(dy[0]) : dy[0], 2, 0);
    return cti_pending(n);
}

static const ct_case twice_cases[] = {
    {.name = "some", .in = {{.kind = CT_IN_NORMAL, .ndim = 2, .shape = {3, 5}}}},
    {.name = "none", .in = {{.kind = CT_IN_NORMAL, .ndim = 1, .shape = {0}}}},
};

static const ct_op twice = {.name = "twice",
                            .torch_name = "TwiceBackward0",
                            .accumulates = 1,
                            .infer = twice_infer,
                            .forward = twice_forward,
                            .backward = twice_backward,
                            .vjp = twice_vjp,
                            CT_CASES(twice_cases),
                            .no_golden = "PyTorch has no such op"};

static ct_tensor *call_twice(ct_tensor *x, int fault)
{
    return cti_apply(&twice, &fault, sizeof(fault), 1, &x);
}

static ct_tensor *twice_right(ct_tensor *const *in, const ct_case *c)
{
    (void)c;
    return call_twice(in[0], 0);
}
static ct_tensor *twice_no_beta(ct_tensor *const *in, const ct_case *c)
{
    (void)c;
    return call_twice(in[0], NO_BETA);
}
static ct_tensor *twice_wrong_sign(ct_tensor *const *in, const ct_case *c)
{
    (void)c;
    return call_twice(in[0], WRONG_SIGN);
}
static ct_tensor *twice_frozen(ct_tensor *const *in, const ct_case *c)
{
    (void)c;
    return call_twice(in[0], FROZEN);
}
static ct_tensor *twice_touches(ct_tensor *const *in, const ct_case *c)
{
    (void)c;
    return call_twice(in[0], TOUCHES);
}

static ct_tensor *twice_detaches(ct_tensor *const *in, const ct_case *c)
{
    (void)c;
    return call_twice(in[0], DETACHES);
}

/* ---- faults around an op ---- */

static ct_tensor *relu_off(ct_tensor *const *in, const ct_case *c)
{
    (void)c;
    return ct_affine(ct_relu(in[0]), 1 + (ts_on_cuda() ? 1e-4 : 1e-8), 0);
}

static ct_tensor *relu_off_in_low(ct_tensor *const *in, const ct_case *c)
{
    (void)c;
    bool low = in[0] && (ct_tensor_dtype(in[0]) == CT_BF16 || ct_tensor_dtype(in[0]) == CT_F16);
    return low ? ct_affine(ct_relu(in[0]), 1.03, 0) : ct_relu(in[0]);
}

static ct_tensor *relu_off_in_f32(ct_tensor *const *in, const ct_case *c)
{
    (void)c;
    bool f32 = in[0] && ct_tensor_dtype(in[0]) == CT_F32;
    return f32 ? ct_affine(ct_relu(in[0]), 1 + 1e-4, 0) : ct_relu(in[0]);
}

static ct_tensor *relu_blind_to_strides(ct_tensor *const *in, const ct_case *c)
{
    (void)c;
    bool dense = !in[0] || ct_tensor_is_contiguous(in[0]) || ct_tensor_numel(in[0]) < 2;
    return dense ? ct_relu(in[0]) : ct_affine(ct_relu(in[0]), 1, 0.5);
}

/* Another gradient when one input alone wants it. */
static ct_tensor *add_needs_both(ct_tensor *const *in, const ct_case *c)
{
    (void)c;
    bool one = in[0] && in[1] && ct_tensor_requires_grad(in[0]) != ct_tensor_requires_grad(in[1]);
    ct_tensor *y = ct_add(in[0], in[1]);
    return one ? ct_affine(y, 2, 0) : y;
}

static ct_tensor *add_takes_null(ct_tensor *const *in, const ct_case *c)
{
    (void)c;
    return in[0] && in[1] ? ct_add(in[0], in[1]) : ct_clone(in[0] ? in[0] : in[1]);
}

static ct_tensor *relu_clears_errors(ct_tensor *const *in, const ct_case *c)
{
    (void)c;
    if (in[0])
        ct_error_clear(ct_tensor_ctx(in[0]));
    return ct_relu(in[0]);
}

static ct_tensor *relu_hides_no_memory(ct_tensor *const *in, const ct_case *c)
{
    (void)c;
    ct_tensor *y = ct_relu(in[0]);
    if (y || !in[0] || ct_error_code(ct_tensor_ctx(in[0])) != CT_ENOMEM)
        return y;
    ct_error_clear(ct_tensor_ctx(in[0]));
    return in[0];
}

static ct_tensor *relu_keeps_its_result(ct_tensor *const *in, const ct_case *c)
{
    (void)c;
    return ct_tensor_retain(ct_relu(in[0]));
}

/* ---- the table ---- */

typedef struct plant {
    const char *fault, *op; /* op: "twice", or one of the table */
    h_check check;
    ct_tensor *(*call)(ct_tensor *const *, const ct_case *); /* NULL: the op's own */
    const char *torch_name;
    double arg0; /* added to each case's first argument */
    int skip_cases;
    bool drop_golden, drop_reason;
} plant;

static const plant plants[] = {
    {"values off", "relu", H_GOLDEN, relu_off, NULL, 0, 0, false, false},
    {"a case changed since make.py ran", "relu", H_GOLDEN, NULL, NULL, 1, 0, false, false},
    {"no golden file", "relu", H_GOLDEN, NULL, NULL, 0, 0, true, false},
    {"a gradient with the wrong sign", "twice", H_DIFF, twice_wrong_sign, NULL, 0, 0, false, false},
    {"a gradient of zeros", "twice", H_DIFF, twice_frozen, NULL, 0, 0, false, false},
    {"a gradient without a graph", "twice", H_SECOND, twice_detaches, NULL, 0, 0, false, false},
    {"f32 off by 1e-4", "relu", H_F32, relu_off_in_f32, NULL, 0, 0, false, false},
    {"strides not looked at", "relu", H_STRIDED, relu_blind_to_strides, NULL, 0, 0, false, false},
    {"beta not looked at", "twice", H_ACCUM, twice_no_beta, NULL, 0, 0, false, false},
    {"two gradients or none", "add", H_MODES, add_needs_both, NULL, 0, 0, false, false},
    {"an input changed", "twice", H_MODES, twice_touches, NULL, 0, 0, false, false},
    {"another node name", "twice", H_MODES, NULL, "ThriceBackward0", 0, 0, false, false},
    {"NULL taken for nothing", "add", H_NULL, add_takes_null, NULL, 0, 0, false, false},
    {"a pending error cleared", "relu", H_PENDING, relu_clears_errors, NULL, 0, 0, false, false},
    {"no memory, not told", "relu", H_ALLOC, relu_hides_no_memory, NULL, 0, 0, false, false},
    {"memory lost when it ran out", "relu", H_ALLOC, relu_keeps_its_result, NULL, 0, 0, false,
     false},
    {"a tensor kept", "relu", H_LEAK, relu_keeps_its_result, NULL, 0, 0, false, false},
    {"an allocation a step", "relu", H_STEADY, relu_keeps_its_result, NULL, 0, 0, false, false},
    {"bf16 and f16 off by 3%", "relu", H_LOW, relu_off_in_low, NULL, 0, 0, false, false},
    {"no empty case", "twice", H_EMPTY, NULL, NULL, 0, 1, false, true},
};

static void run(const plant *p, bool planted, int *done, int *failed, char *first, size_t cap)
{
    static ct_case cases[32];
    ct_op op = strcmp(p->op, "twice") ? *find(p->op) : twice;
    if (!op.call)
        op.call = twice_right;
    cr_assert(op.n_cases <= TS_LEN(cases), "%s has more cases than this test has room for", p->op);
    memcpy(cases, op.cases, (size_t)op.n_cases * sizeof(ct_case));
    op.cases = cases;
    if (planted) {
        op.call = p->call ? p->call : op.call;
        op.n_cases -= p->skip_cases;
        op.no_empty = p->drop_reason ? NULL : op.no_empty;
        for (int i = 0; i < op.n_cases; i++)
            cases[i].arg[0] += p->arg0;
    }
    harness h;
    h_open(&h, &op, true);
    if (planted && p->torch_name)
        op.torch_name = p->torch_name;
    if (planted && p->drop_golden) {
        ts_golden_close(h.golden);
        h.golden = NULL;
    }
    h_run_check(&h, p->check);
    *done = h.done[p->check];
    *failed = h.failed[p->check];
    snprintf(first, cap, "%s", h.first[p->check]);
    h_close(&h);
}

ParameterizedTestParameters(harness, finds_a_planted_fault)
{
    int *which = cr_malloc(sizeof(plants) / sizeof(plants[0]) * sizeof(int));
    for (int i = 0; i < TS_LEN(plants); i++)
        which[i] = i;
    return cr_make_param_array(int, which, TS_LEN(plants), NULL);
}

ParameterizedTest(int *which, harness, finds_a_planted_fault)
{
    const plant *p = &plants[*which];
    int done, failed;
    char first[512];
    /* Not of this device; on CUDA `second` compares with the CPU, which has the fault, too. */
    if (ts_on_cuda() ? p->check == H_DIFF || p->check == H_SECOND : p->check == H_LOW)
        return;
    run(p, false, &done, &failed, first, sizeof(first));
    cr_expect(done > 0, "%s: check %s checked nothing", p->op, h_check_names[p->check]);
    cr_expect(!failed, "%s without a fault fails check %s: %s", p->op, h_check_names[p->check],
              first);
    run(p, true, &done, &failed, first, sizeof(first));
    cr_expect(failed > 0, "check %s didn't find \"%s\" in %s", h_check_names[p->check], p->fault,
              p->op);
}

Test(harness, has_a_planted_fault_for_each_check)
{
    for (int k = 0; k < H_CHECKS; k++) {
        bool found = false;
        for (int i = 0; i < TS_LEN(plants); i++)
            found = found || plants[i].check == (h_check)k;
        cr_expect(found, "check %s has no planted fault", h_check_names[k]);
    }
}
