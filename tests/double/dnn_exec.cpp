/* SPDX-License-Identifier: Apache-2.0 */
/* cudnnBackendExecute: every tensor of the graph must be given, aligned as its descriptor says
 * and within one allocation; the workspace is scribbled on. */
#include "dnn.h"

namespace ctd
{
struct Run {
    DescPtr plan;
    const Desc *graph;
    int engine;
    Bindings bound;
    std::vector<std::vector<char>> owned; /* virtual tensors, and values of host scalars */
    void *workspace;
    int64_t workspace_bytes;

    const std::vector<DescPtr> &ops() const
    {
        return graph->find(CUDNN_ATTR_OPERATIONGRAPH_OPS)->children;
    }
};

static bool attach(Run &r, const Desc *t, const std::vector<int64_t> &ids,
                   const std::vector<void *> &pointers)
{
    const char *who = "cudnnBackendExecute";
    if (r.bound.count(t))
        return true;
    Bound b;
    b.t = tensor_of(t);
    size_t bytes = bytes_of(b.t);
    int64_t id = t->get<int64_t>(CUDNN_ATTR_TENSOR_UNIQUE_ID);
    int64_t align = t->get<int64_t>(CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT);
    size_t i = 0;
    if (t->get<bool>(CUDNN_ATTR_TENSOR_IS_VIRTUAL)) {
        r.owned.emplace_back(bytes, (char)0xff);
        b.p = r.owned.back().data();
        r.bound[t] = b;
        return true;
    }
    while (i < ids.size() && ids[i] != id)
        i++;
    if (i == ids.size()) {
        fault("%s: no pointer for tensor id %ld", who, (long)id);
        return false;
    }
    if (t->get<bool>(CUDNN_ATTR_TENSOR_IS_BY_VALUE)) {
        if (!pointers[i] || is_device(pointers[i])) {
            fault("%s: tensor id %ld is by value: its pointer must be to host memory", who,
                  (long)id);
            return false;
        }
        r.owned.emplace_back((const char *)pointers[i], (const char *)pointers[i] + bytes);
        b.p = r.owned.back().data();
        r.bound[t] = b;
        return true;
    }
    if ((uintptr_t)pointers[i] % (size_t)align) {
        fault("%s: tensor id %ld isn't aligned to %ld bytes, as its descriptor says", who, (long)id,
              (long)align);
        return false;
    }
    char what[40];
    snprintf(what, sizeof what, "tensor id %ld", (long)id);
    b.p = pointers[i];
    r.bound[t] = b;
    return check_range(who, what, b.p, bytes);
}

static void run(Run &r)
{
    if (r.workspace)
        memset(r.workspace, 0xCD, (size_t)r.workspace_bytes);
    for (const DescPtr &op : r.ops())
        switch (op->type) {
        case CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR:
            run_pointwise(op.get(), r.bound);
            break;
        case CUDNN_BACKEND_OPERATION_NORM_FORWARD_DESCRIPTOR:
        case CUDNN_BACKEND_OPERATION_NORM_BACKWARD_DESCRIPTOR:
            run_norm(op.get(), r.bound);
            break;
        case CUDNN_BACKEND_OPERATION_RESAMPLE_FWD_DESCRIPTOR:
        case CUDNN_BACKEND_OPERATION_RESAMPLE_BWD_DESCRIPTOR:
            run_resample(op.get(), r.bound);
            break;
        default:
            run_conv(op.get(), r.bound, r.engine);
        }
}
} // namespace ctd

using namespace ctd;

extern "C" cudnnStatus_t cudnnBackendExecute(cudnnHandle_t h, cudnnBackendDescriptor_t plan_handle,
                                             cudnnBackendDescriptor_t pack_handle)
{
    CTD_LIBRARY(CUDNN_STATUS_EXECUTION_FAILED);
    if (sticky())
        return dnn_fail(CUDNN_STATUS_EXECUTION_FAILED, "Execute: the device is lost");
    if (!h || !plan_handle || !pack_handle)
        return dnn_fail(CUDNN_STATUS_BAD_PARAM_NULL_POINTER, "Execute: NULL");
    DescPtr plan = ((DescHandle *)plan_handle)->d, pack = ((DescHandle *)pack_handle)->d;
    if (!plan->final || !pack->final || plan->type != CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR ||
        pack->type != CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR)
        return dnn_fail(CUDNN_STATUS_BAD_PARAM_NOT_FINALIZED,
                        "Execute: the plan or the variant pack");
    auto r = std::make_shared<Run>();
    r->plan = plan;
    r->engine = plan->engine;
    r->graph = plan->child(CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG)
                   ->child(CUDNN_ATTR_ENGINECFG_ENGINE)
                   ->child(CUDNN_ATTR_ENGINE_OPERATION_GRAPH);
    r->workspace = pack->get<void *>(CUDNN_ATTR_VARIANT_PACK_WORKSPACE);
    r->workspace_bytes = engine_workspace(plan->engine);
    auto ids = pack->all<int64_t>(CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS);
    auto pointers = pack->all<void *>(CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS);
    if (r->workspace_bytes == 0)
        r->workspace = nullptr;
    else if (!check_range("cudnnBackendExecute", "workspace", r->workspace,
                          (size_t)r->workspace_bytes))
        return dnn_fail(CUDNN_STATUS_BAD_PARAM, "Execute: the workspace");
    r->owned.reserve(64); /* its buffers are pointed to */
    for (const DescPtr &op : r->ops())
        for (const Role &role : roles_of(op.get()))
            if (const Desc *t = op->child(role.attribute))
                if (!attach(*r, t, ids, pointers))
                    return dnn_fail(CUDNN_STATUS_BAD_PARAM, "Execute: a tensor");
    return enqueue(h->stream, "cudnnBackendExecute", [r] { run(*r); }) ?
               CUDNN_STATUS_EXECUTION_FAILED :
               CUDNN_STATUS_SUCCESS;
}
