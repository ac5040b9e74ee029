/* SPDX-License-Identifier: Apache-2.0 */
/* The less often used elementwise functions (scalar_math.h), and where. One kernel of each kind: the function is
 * chosen by its number at run time. */
#include "backend/cuda/loop.cuh"
#include "backend/scalar_math.h"

namespace cti
{

#define CASE_VALUE(ID, name, T, S, needs, value, grad) \
    case ID:                                           \
        return value;
#define CASE_GRAD(ID, name, T, S, needs, value, grad) \
    case ID:                                          \
        return grad;
template <class M> struct math_of {
    typedef M out, in;
    static const int inputs = 1;
    int fn;
    float a, b;
    __device__ float operator()(float x, float) const
    {
        switch (fn) {
            CTI_MATH_LIST(CASE_VALUE, float, f32)
        default:
            return x;
        }
    }
};

template <class M> struct math_grad_of {
    typedef M out, in;
    static const int inputs = 2;
    int fn;
    float a, b;
    __device__ float operator()(float dy, float other) const
    {
        float x = other, y = other;
        switch (fn) {
            CTI_MATH_LIST(CASE_GRAD, float, f32)
        default:
            return dy;
        }
    }
};
#undef CASE_VALUE
#undef CASE_GRAD

#define CASE_VALUE(ID, name, T, S, value) \
    case ID:                              \
        return value;
template <class M> struct math2_of {
    typedef M out, in;
    static const int inputs = 2;
    int fn;
    __device__ float operator()(float a, float b) const
    {
        switch (fn) {
            CTI_MATH2_LIST(CASE_VALUE, float, f32)
        default:
            return a;
        }
    }
};
#undef CASE_VALUE

template <class M> struct extremum {
    typedef M out, in;
    static const int inputs = 2;
    bool largest;
    __device__ M operator()(M a, M b) const
    {
        return (a > b) == largest ? a : b;
    }
};

struct logic {
    typedef uint8_t out, in;
    static const int inputs = 2;
    int fn;
    __device__ uint8_t operator()(uint8_t a, uint8_t b) const
    {
        return fn == CT_MA2_AND ? a && b : fn == CT_MA2_OR ? a || b : !a != !b;
    }
};

template <class T> struct where_of {
    __device__ void operator()(char *const *p) const
    {
        *(T *)p[0] = *(const uint8_t *)p[1] ? *(const T *)p[2] : *(const T *)p[3];
    }
};

CTI_DEFINE_MATH_NEEDS(math_needs)

} // namespace cti

using namespace cti;

int cti_cuda_math(ct_stream *s, ct_math fn, double a, double b, const ct_view *y, const ct_view *x)
{
    const ct_view *const v[] = {y, x};

    if (x->dtype == y->dtype)
        switch (y->dtype) {
            CTI_CASES_FLOAT(return map(s, "math", v, 0, math_of<T>{(int)fn, (float)a, (float)b}))
        default:
            break;
        }
    return cti_cuda_no_dtype(s, "math", x->dtype);
}

int cti_cuda_math_grad(ct_stream *s, ct_math fn, double a, double b, const ct_view *dx, int beta,
                       const ct_view *dy, const ct_view *x, const ct_view *y)
{
    int needs = math_needs((int)fn);
    const ct_view *other = needs == CTI_NEEDS_X ? x : needs == CTI_NEEDS_Y ? y : dy;
    const ct_view *const v[] = {dx, dy, other};

    if (dy->dtype == dx->dtype && other->dtype == dx->dtype)
        switch (dx->dtype) {
            CTI_CASES_FLOAT(return map(s, "math backward", v, beta,
                                       math_grad_of<T>{(int)fn, (float)a, (float)b}))
        default:
            break;
        }
    return cti_cuda_no_dtype(s, "math backward", dy->dtype);
}

int cti_cuda_math2(ct_stream *s, ct_math2 fn, const ct_view *y, const ct_view *a, const ct_view *b)
{
    const ct_view *const v[] = {y, a, b};
    bool logical = fn >= CT_MA2_AND, extreme = fn == CT_MA2_MAXIMUM || fn == CT_MA2_MINIMUM;

    if (a->dtype == y->dtype && b->dtype == y->dtype) {
        if (logical && y->dtype == CT_BOOL)
            return map(s, "logic", v, 0, logic{(int)fn});
        if (!logical)
            switch (y->dtype) {
                CTI_CASES_FLOAT(return map(s, "math2", v, 0, math2_of<T>{(int)fn}))
            case CT_I32:
                if (extreme)
                    return map(s, "extremum", v, 0, extremum<int32_t>{fn == CT_MA2_MAXIMUM});
                break;
            case CT_I64:
                if (extreme)
                    return map(s, "extremum", v, 0, extremum<int64_t>{fn == CT_MA2_MAXIMUM});
                break;
            default:
                break;
            }
    }
    return cti_cuda_no_dtype(s, "math2", a->dtype);
}

int cti_cuda_where(ct_stream *s, const ct_view *y, const ct_view *cond, const ct_view *a,
                   const ct_view *b)
{
    const ct_view *const v[] = {y, cond, a, b};

    if (cond->dtype != CT_BOOL || a->dtype != y->dtype || b->dtype != y->dtype)
        return cti_cuda_no_dtype(s, "where", a->dtype);
    switch (ct_dtype_bytes(y->dtype)) {
    case 1:
        return for_each(s, "where", v, where_of<uint8_t>());
    case 2:
        return for_each(s, "where", v, where_of<uint16_t>());
    case 4:
        return for_each(s, "where", v, where_of<uint32_t>());
    default:
        return for_each(s, "where", v, where_of<uint64_t>());
    }
}
