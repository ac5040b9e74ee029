/* SPDX-License-Identifier: Apache-2.0 */
/* Unary functions and their gradients, binary arithmetic, comparisons, affine and mul_add. The
 * formulas of the unary functions are those of scalar.h, the CPU's. The often used forms are
 * kernels of their own; their strided cousins look at the function's number at run time. */
#include "backend/cuda/loop.cuh"

namespace cti
{

/* ---- unary ---- */
#define UNARY(ID, name, T, S, needs, value, grad)    \
    template <class M> struct un_##name {            \
        typedef M out, in;                           \
        static const int inputs = 1;                 \
        __device__ T operator()(T x, T) const        \
        {                                            \
            return value;                            \
        }                                            \
    };                                               \
    template <class M> struct gr_##name {            \
        typedef M out, in;                           \
        static const int inputs = 2;                 \
        __device__ T operator()(T dy, T other) const \
        {                                            \
            T x = other, y = other;                  \
            (void)x, (void)y;                        \
            return grad;                             \
        }                                            \
    };
CTI_UNARY_LIST(UNARY, float, f32)
#undef UNARY

#define CASE_VALUE(ID, name, T, S, needs, value, grad) \
    case ID:                                           \
        return un_##name<M>()(x, 0);
#define CASE_GRAD(ID, name, T, S, needs, value, grad) \
    case ID:                                          \
        return gr_##name<M>()(dy, other);
template <class M> struct un_any {
    typedef M out, in;
    static const int inputs = 1;
    int fn;
    __device__ float operator()(float x, float) const
    {
        switch (fn) {
            CTI_UNARY_LIST(CASE_VALUE, float, f32)
        default:
            return x;
        }
    }
};
template <class M> struct gr_any {
    typedef M out, in;
    static const int inputs = 2;
    int fn;
    __device__ float operator()(float dy, float other) const
    {
        switch (fn) {
            CTI_UNARY_LIST(CASE_GRAD, float, f32)
        default:
            return dy;
        }
    }
};
#undef CASE_VALUE
#undef CASE_GRAD

static const char *unary_name(ct_unary fn)
{
#define CASE_NAME(ID, name, T, S, needs, value, grad) \
    case ID:                                          \
        return #name;
    switch ((int)fn) {
        CTI_UNARY_LIST(CASE_NAME, float, f32)
    default:
        return "unary";
    }
#undef CASE_NAME
}

#define CASE_RUN(ID, name, T, S, needs, value, grad) \
    case ID:                                         \
        return map(s, #name, v, 0, un_##name<M>(), un_any<M>{ID});
#define CASE_RUN_GRAD(ID, name, T, S, needs, value, grad) \
    case ID:                                              \
        return map(s, #name " backward", v, beta, gr_##name<M>(), gr_any<M>{ID});
template <class M> static int unary(ct_stream *s, ct_unary fn, const ct_view *const (&v)[2])
{
    switch ((int)fn) {
        CTI_UNARY_LIST(CASE_RUN, float, f32)
    default:
        return CT_EINVAL;
    }
}

template <class M>
static int unary_grad(ct_stream *s, ct_unary fn, const ct_view *const (&v)[3], int beta)
{
    switch ((int)fn) {
        CTI_UNARY_LIST(CASE_RUN_GRAD, float, f32)
    default:
        return CT_EINVAL;
    }
}
#undef CASE_RUN
#undef CASE_RUN_GRAD

CTI_DEFINE_UNARY_NEEDS(unary_needs)

/* ---- binary ---- Integers are unsigned here: they wrap. */
template <class M> __device__ inline M arithmetic_of(int fn, M a, M b)
{
    switch (fn) {
    case CT_BIN_ADD:
        return a + b;
    case CT_BIN_SUB:
        return a - b;
    case CT_BIN_MUL:
        return a * b;
    default:
        return a / b;
    }
}

template <class T, int FN> struct arithmetic {
    typedef T out, in;
    static const int inputs = 2;
    __device__ math_t<T> operator()(math_t<T> a, math_t<T> b) const
    {
        return arithmetic_of(FN, a, b);
    }
};

template <class T> struct arithmetic_any {
    typedef T out, in;
    static const int inputs = 2;
    int fn;
    __device__ math_t<T> operator()(math_t<T> a, math_t<T> b) const
    {
        return arithmetic_of(fn, a, b);
    }
};

template <class T>
static int run_arithmetic(ct_stream *s, ct_binary fn, const ct_view *const (&v)[3])
{
    arithmetic_any<T> any = {(int)fn};
    switch (fn) {
    case CT_BIN_ADD:
        return map(s, "add", v, 0, arithmetic<T, CT_BIN_ADD>(), any);
    case CT_BIN_SUB:
        return map(s, "sub", v, 0, arithmetic<T, CT_BIN_SUB>(), any);
    case CT_BIN_MUL:
        return map(s, "mul", v, 0, arithmetic<T, CT_BIN_MUL>(), any);
    default:
        return map(s, "div", v, 0, arithmetic<T, CT_BIN_DIV>(), any);
    }
}

template <class T> struct compare {
    typedef uint8_t out;
    typedef T in;
    static const int inputs = 2;
    int fn;
    __device__ uint8_t operator()(math_t<T> a, math_t<T> b) const
    {
        switch (fn) {
        case CT_BIN_EQ:
            return a == b;
        case CT_BIN_NE:
            return a != b;
        case CT_BIN_LT:
            return a < b;
        case CT_BIN_LE:
            return a <= b;
        case CT_BIN_GT:
            return a > b;
        default:
            return a >= b;
        }
    }
};

template <class T> static int run_compare(ct_stream *s, ct_binary fn, const ct_view *const (&v)[3])
{
    return map(s, "compare", v, 0, compare<T>{(int)fn});
}

/* ---- affine, mul_add ---- */
/* Without `add` nothing is added, so that -0 stays -0. */
template <class T> struct affine {
    typedef T out, in;
    static const int inputs = 1;
    math_t<T> mul, add;
    __device__ math_t<T> operator()(math_t<T> x, math_t<T>) const
    {
        math_t<T> v = x * mul;
        return add != 0 ? v + add : v;
    }
};

template <class T>
static int run_affine(ct_stream *s, const ct_view *const (&v)[2], int beta, math_t<T> mul,
                      math_t<T> add)
{
    return map(s, "affine", v, beta, affine<T>{mul, add});
}

/* The kernels of mul. */
template <class T> static int run_mul_add(ct_stream *s, const ct_view *const (&v)[3], int beta)
{
    return map(s, "mul_add", v, beta, arithmetic<T, CT_BIN_MUL>(), arithmetic_any<T>{CT_BIN_MUL});
}

} // namespace cti

using namespace cti;

int cti_cuda_unary(ct_stream *s, ct_unary fn, const ct_view *y, const ct_view *x)
{
    const ct_view *const v[] = {y, x};

    if (x->dtype == y->dtype)
        switch (y->dtype) {
            CTI_CASES_FLOAT(return unary<T>(s, fn, v))
        default:
            break;
        }
    return cti_cuda_no_dtype(s, unary_name(fn), x->dtype);
}

int cti_cuda_unary_grad(ct_stream *s, ct_unary fn, const ct_view *dx, int beta, const ct_view *dy,
                        const ct_view *x, const ct_view *y)
{
    int needs = unary_needs((int)fn);
    const ct_view *other = needs == CTI_NEEDS_X ? x : needs == CTI_NEEDS_Y ? y : dy;
    const ct_view *const v[] = {dx, dy, other};

    if (dy->dtype == dx->dtype && other->dtype == dx->dtype)
        switch (dx->dtype) {
            CTI_CASES_FLOAT(return unary_grad<T>(s, fn, v, beta))
        default:
            break;
        }
    return cti_cuda_no_dtype(s, unary_name(fn), dy->dtype);
}

int cti_cuda_binary(ct_stream *s, ct_binary fn, const ct_view *y, const ct_view *a,
                    const ct_view *b)
{
    static const char *const names[CT_BIN_COUNT] = {"add", "sub", "mul", "div", "eq",
                                                    "ne",  "lt",  "le",  "gt",  "ge"};
    const ct_view *const v[] = {y, a, b};
    bool comparing = fn >= CT_BIN_EQ, whole = a->dtype == CT_I32 || a->dtype == CT_I64;
    ct_dtype out = comparing ? CT_BOOL : a->dtype;

    if (a->dtype != b->dtype || y->dtype != out || (fn == CT_BIN_DIV && whole))
        return cti_cuda_no_dtype(s, names[fn], a->dtype);
    if (comparing)
        switch (a->dtype) {
            CTI_CASES_FLOAT(return run_compare<T>(s, fn, v))
            CTI_CASES_WIDE(return run_compare<T>(s, fn, v))
            CTI_CASES_INT(return run_compare<T>(s, fn, v))
        default:
            return run_compare<uint8_t>(s, fn, v);
        }
    switch (a->dtype) {
        CTI_CASES_FLOAT(return run_arithmetic<T>(s, fn, v))
    case CT_F64:
        return map(s, names[fn], v, 0, arithmetic_any<double>{(int)fn});
    case CT_I32:
        return map(s, names[fn], v, 0, arithmetic_any<uint32_t>{(int)fn});
    case CT_I64:
        return map(s, names[fn], v, 0, arithmetic_any<uint64_t>{(int)fn});
    default:
        return cti_cuda_no_dtype(s, names[fn], a->dtype);
    }
}

int cti_cuda_affine(ct_stream *s, const ct_view *y, int beta, const ct_view *x, double mul,
                    double add)
{
    const ct_view *const v[] = {y, x};

    if (x->dtype == y->dtype)
        switch (y->dtype) {
            CTI_CASES_FLOAT(return run_affine<T>(s, v, beta, (float)mul, (float)add))
            CTI_CASES_WIDE(return run_affine<T>(s, v, beta, mul, add))
        case CT_I32:
            return run_affine<uint32_t>(s, v, beta, (uint32_t)i64_of(mul), (uint32_t)i64_of(add));
        case CT_I64:
            return run_affine<uint64_t>(s, v, beta, (uint64_t)i64_of(mul), (uint64_t)i64_of(add));
        default:
            break;
        }
    return cti_cuda_no_dtype(s, "affine", x->dtype);
}

int cti_cuda_mul_add(ct_stream *s, const ct_view *y, int beta, const ct_view *a, const ct_view *b)
{
    const ct_view *const v[] = {y, a, b};

    if (a->dtype == y->dtype && b->dtype == y->dtype)
        switch (y->dtype) {
            CTI_CASES_FLOAT(return run_mul_add<T>(s, v, beta))
        case CT_F64:
            return map(s, "mul_add", v, beta, arithmetic_any<double>{CT_BIN_MUL});
        default:
            break;
        }
    return cti_cuda_no_dtype(s, "mul_add", a->dtype);
}
