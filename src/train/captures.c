/* SPDX-License-Identifier: Apache-2.0 */
#include "train/captures.h"

void cti_captures_clear(cti_captures *c)
{
    for (int i = 0; i < c->n; i++) {
        ct_capture_free(c->entry[i].capture);
        ct_tensor_release(c->entry[i].x);
    }
    c->n = 0;
}

int cti_captured(cti_captures *c, cti_work work, int64_t count, ct_tensor *x,
                 int (*fn)(void *user), void *user)
{
    int i;

    if (!c->on)
        return fn(user);
    for (i = 0; i < c->n; i++)
        if (c->entry[i].work == work && c->entry[i].count == count && c->entry[i].x == x)
            return ct_capture_run(c->ctx, c->entry[i].capture, fn, user);
    if (i == CTI_CAPTURES)
        return fn(user);
    c->entry[i].capture = ct_capture_new(c->ctx);
    if (!c->entry[i].capture)
        return ct_error_code(c->ctx);
    c->entry[i].work = work;
    c->entry[i].count = count;
    c->entry[i].x = ct_tensor_retain(x);
    c->n++;
    return ct_capture_run(c->ctx, c->entry[i].capture, fn, user);
}

const char *cti_captures_refused(const cti_captures *c)
{
    const char *why = "";

    for (int i = 0; i < c->n && !why[0]; i++)
        why = ct_capture_refused(c->entry[i].capture);
    return why;
}
