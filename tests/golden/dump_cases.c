/* SPDX-License-Identifier: Apache-2.0 */
/* Prints every op and its cases as JSON: what make.py reads. */
#include "base/json.h"
#include "base/mem.h"
#include "support/support.h"
#include <stdio.h>

static void put_case(cti_jw *w, const ct_case *c)
{
    char signature[2048];
    ts_case_signature(c, signature, sizeof(signature));
    cti_jw_object(w, NULL);
    cti_jw_string(w, "name", c->name);
    cti_jw_string(w, "signature", signature);
    cti_jw_array(w, "arg");
    for (int i = 0; i < CT_CASE_MAX_ARG; i++)
        cti_jw_f64(w, NULL, c->arg[i]);
    cti_jw_end(w);
    cti_jw_array(w, "in");
    for (int i = 0; i < CT_CASE_MAX_IN; i++) {
        cti_jw_object(w, NULL);
        cti_jw_string(w, "kind", ts_kind_name(c->in[i].kind));
        cti_jw_array(w, "shape");
        for (int d = 0; d < c->in[i].ndim; d++)
            cti_jw_i64(w, NULL, c->in[i].shape[d]);
        cti_jw_end(w);
        cti_jw_i64(w, "classes", c->in[i].classes);
        cti_jw_bool(w, "no_grad", c->in[i].no_grad);
        cti_jw_end(w);
    }
    cti_jw_end(w);
    cti_jw_end(w);
}

static void put_op(cti_jw *w, const ct_op *op)
{
    cti_jw_object(w, NULL);
    cti_jw_string(w, "name", op->name);
    cti_jw_string(w, "torch_name", op->torch_name ? op->torch_name : "");
    cti_jw_string(w, "no_golden", op->no_golden ? op->no_golden : "");
    cti_jw_bool(w, "differentiable", op->backward || op->vjp || !op->infer);
    cti_jw_array(w, "cases");
    for (int i = 0; i < op->n_cases; i++)
        put_case(w, &op->cases[i]);
    cti_jw_end(w);
    cti_jw_end(w);
}

int main(void)
{
    cti_mem *m = cti_mem_new(NULL);
    cti_jw *w = m ? cti_jw_new(m, true) : NULL;
    if (!w)
        return 1;
    cti_jw_object(w, NULL);
    cti_jw_array(w, "ops");
    for (int i = 0; i < cti_n_ops; i++)
        put_op(w, cti_ops[i]);
    cti_jw_end(w);
    cti_jw_end(w);
    const char *text = cti_jw_text(w, NULL);
    int rc = text && puts(text) >= 0 ? 0 : 1;
    cti_jw_free(w);
    cti_mem_free(m, NULL, NULL);
    return rc;
}
