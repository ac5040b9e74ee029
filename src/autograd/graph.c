/* SPDX-License-Identifier: Apache-2.0 */
/* Looking at the graph. */
#include "autograd/internal.h"

const ct_grad_fn *ct_tensor_grad_fn(const ct_tensor *t)
{
    if (!t || cti_tensor_sync((ct_tensor *)t) < 0)
        return NULL;
    return (const ct_grad_fn *)t->grad_fn;
}

const char *ct_grad_fn_name(const ct_grad_fn *fn)
{
    return fn ? ((const cti_node *)fn)->op->torch_name : NULL;
}

int ct_grad_fn_inputs(const ct_grad_fn *fn)
{
    return fn ? ((const cti_node *)fn)->n_in : 0;
}

const ct_grad_fn *ct_grad_fn_next(const ct_grad_fn *fn, int i)
{
    const cti_node *n = (const cti_node *)fn;
    return n && i >= 0 && i < n->n_in ? (const ct_grad_fn *)n->edge[i].fn : NULL;
}

size_t ct_grad_fn_saved_bytes(const ct_grad_fn *fn)
{
    return fn ? ((const cti_node *)fn)->saved_bytes : 0;
}

uint64_t ct_grad_fn_sequence(const ct_grad_fn *fn)
{
    return fn ? ((const cti_node *)fn)->seq : 0;
}
