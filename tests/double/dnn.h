/* SPDX-License-Identifier: Apache-2.0 */
/* cuDNN's graph API: descriptors are maps of attributes, a plan is its operation graph, and
 * executing interprets that. The real library says which graphs it takes (plans.c); this gives
 * them numbers. */
#ifndef DOUBLE_DNN_H
#define DOUBLE_DNN_H

#include "ctd.h"
#include "num.h"

#include <algorithm>
#include <cudnn.h>
#include <map>

struct cudnnContext {
    cudaStream_t stream;
};

namespace ctd
{
struct Desc;
typedef std::shared_ptr<Desc> DescPtr;

struct Attribute {
    cudnnBackendAttributeType_t type;
    int64_t count;
    std::vector<char> bytes;
    std::vector<DescPtr>
        children; /* of BACKEND_DESCRIPTOR: kept when the caller destroys its own */
};

struct Desc {
    cudnnBackendDescriptorType_t type;
    bool final = false;
    std::map<int, Attribute> attributes;
    int engine = -1; /* of ENGINE, ENGINECFG, EXECUTION_PLAN */

    const Attribute *find(int a) const
    {
        auto it = attributes.find(a);
        return it == attributes.end() ? nullptr : &it->second;
    }
    template <class T> T get(int a, T none = T()) const
    {
        const Attribute *at = find(a);
        if (at && at->bytes.size() >= sizeof(T))
            memcpy(&none, at->bytes.data(), sizeof(T));
        return none;
    }
    template <class T> std::vector<T> all(int a) const
    {
        const Attribute *at = find(a);
        std::vector<T> v(at ? at->bytes.size() / sizeof(T) : 0);
        if (!v.empty())
            memcpy(v.data(), at->bytes.data(), v.size() * sizeof(T));
        return v;
    }
    Desc *child(int a) const
    {
        const Attribute *at = find(a);
        return at && !at->children.empty() ? at->children[0].get() : nullptr;
    }
};

/* What the caller holds; parents share the descriptor itself. */
struct DescHandle {
    DescPtr d;
};

size_t attribute_bytes(cudnnBackendAttributeType_t t);

/* A failure with its text for cudnnGetLastErrorString. */
[[gnu::format(printf, 2, 3)]] cudnnStatus_t dnn_fail(cudnnStatus_t s, const char *fmt, ...);

enum { MAX_DIMS = 8 };
struct Tensor {
    cudnnDataType_t dtype = CUDNN_DATA_FLOAT;
    int nd = 0;
    int64_t dim[MAX_DIMS] = {0}, stride[MAX_DIMS] = {0};

    int64_t numel() const
    {
        int64_t n = 1;
        for (int i = 0; i < nd; i++)
            n *= dim[i];
        return n;
    }
    bool same_shape(const Tensor &o) const
    {
        return nd == o.nd && !memcmp(dim, o.dim, sizeof dim);
    }
};
Tensor tensor_of(const Desc *d);
cudaDataType cuda_type(cudnnDataType_t t);
size_t bytes_of(const Tensor &t);
bool overlaps(const Tensor &t);

/* The tensors of an operation: attribute numbers of inputs and outputs; absent ones may be
 * missing. */
struct Role {
    int attribute;
    bool output;
};
const std::vector<Role> &roles_of(const Desc *op); /* empty: the operation isn't modelled */

struct ConvOp {
    enum Kind { FORWARD, BACKWARD_DATA, BACKWARD_FILTER } kind;
    Desc *desc, *x, *w, *y;
    float alpha, beta;
};
bool conv_op(const Desc *op, ConvOp *c);

struct Window { /* of a convolution or a pool, 2-D */
    int64_t size[2], pre[2], post[2], stride[2], dilation[2];
};
Window conv_window(const Desc *conv, const Tensor &w);
Window pool_window(const Desc *resample);
int64_t window_out(const Window &w, int i, int64_t in);

cudnnStatus_t dnn_check(Desc *d); /* what Finalize checks */

enum { ENGINE_FAST, ENGINE_BIG, ENGINE_TENSOR_CORE, ENGINE_PLAIN, N_ENGINES };
std::vector<int> engines_for(const Desc *graph, cudnnBackendHeurMode_t mode);
int64_t engine_workspace(int engine);
std::vector<cudnnBackendNumericalNote_t> engine_notes(int engine);
bool dnn_refused(const Desc *graph);

void record_graph(const DescPtr &graph);

/* ---- numbers ---- */
struct Bound {
    Tensor t;
    void *p = nullptr;
    cudaDataType type() const
    {
        return cuda_type(t.dtype);
    }
};
typedef std::map<const Desc *, Bound> Bindings;
void run_conv(const Desc *op, Bindings &b, int engine);
void run_norm(const Desc *op, Bindings &b);
void run_resample(const Desc *op, Bindings &b);
void run_pointwise(const Desc *op, Bindings &b);
bool known_pointwise(cudnnPointwiseMode_t m);
} // namespace ctd

#endif
