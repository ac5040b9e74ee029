/* SPDX-License-Identifier: Apache-2.0 */
/* Devices, events, copies beside the computation: here on the CPU, where all has happened at once. What
 * CUDA makes of them: tests/cuda. */
#include "engine.h"
#include <ctrain/device.h>

#include <string.h>

TestSuite(device, .init = engine_open, .fini = engine_close);

Test(device, names_are_checked)
{
    char what[200];
    cr_expect_eq(ct_device_check("cpu", what, sizeof what), CT_OK);
    cr_expect_str_eq(what, "cpu");
    static const char *const wrong[] = {"",        "gpu",     "auto",  "cuda:",     "cuda:x",
                                        "cuda:1x", "cuda:-1", "cuda1", "cuda:1234", "cpu:0"};
    for (int i = 0; i < TS_LEN(wrong); i++) {
        cr_expect_eq(ct_device_check(wrong[i], what, sizeof what), CT_EINVAL, "%s", wrong[i]);
        cr_expect(strstr(what, "allowed: cpu, cuda, cuda:N"), "%s", what);
    }
    cr_expect_eq(ct_device_check(NULL, NULL, 0), CT_EINVAL);
}

Test(device, events_of_the_cpu_have_happened)
{
    ct_event *e = ct_event_new(ctx);
    cr_assert_not_null(e);
    cr_expect_eq(ct_event_query(ctx, e), 1);
    OK(ct_event_record(ctx, e));
    cr_expect_eq(ct_event_query(ctx, e), 1);
    OK(ct_event_sync(ctx, e));
    ct_event_free(e);
    ct_event_free(NULL);
    cr_expect_eq(ct_event_record(ctx, NULL), CT_EINVAL);
    ts_expect_error(ctx, CT_EINVAL, "event", "NULL", NULL);
    cr_expect_eq(ct_event_query(NULL, e), CT_EINVAL);
}

Test(device, an_event_of_another_context_is_refused)
{
    ct_ctx *other = ts_ctx(CT_F64, true);
    ct_event *e = ct_event_new(other);
    cr_expect_eq(ct_event_record(ctx, e), CT_EINVAL);
    ts_expect_error(ctx, CT_EINVAL, "another context", NULL);
    ct_event_free(e);
    ct_ctx_free(other);
}

Test(device, copies_are_done_and_change_the_version)
{
    ct_tensor *t = LEAF(1, 2, 3);
    double *host = ct_host_alloc(ctx, 3 * sizeof *host);
    ct_event *e = ct_event_new(ctx);
    uint64_t version = ct_tensor_version(t);
    cr_assert(host && e);
    memcpy(host, (double[]){4, 5, 6}, 3 * sizeof *host);
    OK(ct_tensor_write_async(ctx, t, host, 3 * sizeof *host, NULL, e));
    EXPECT_VALUES("written", t, 4, 5, 6);
    cr_expect_eq(ct_tensor_version(t), version + 1);
    memset(host, 0, 3 * sizeof *host);
    OK(ct_tensor_read_async(ctx, t, host, 3 * sizeof *host, e));
    cr_expect(host[0] == 4 && host[1] == 5 && host[2] == 6);
    ct_event_free(e);
    ct_host_free(ctx, host);
    ct_host_free(ctx, NULL);
}

Test(device, copies_check_what_they_get)
{
    ct_tensor *t = LEAF(1, 2, 3), *w = WANTING(1, 2);
    ct_tensor *view =
        ct_permute(ct_reshape(LEAF(1, 2, 3, 4), 2, (int64_t[]){2, 2}), 2, (int[]){1, 0});
    ct_event *e = ct_event_new(ctx);
    double host[4];
    cr_expect_eq(ct_tensor_write_async(ctx, t, host, 8, NULL, e), CT_EINVAL);
    ts_expect_error(ctx, CT_EINVAL, "write_async", "8 bytes", "has 24", NULL);
    cr_expect_eq(ct_tensor_write_async(ctx, NULL, host, 8, NULL, e), CT_EINVAL);
    ts_expect_error(ctx, CT_EINVAL, "NULL", NULL);
    cr_expect_eq(ct_tensor_write_async(ctx, t, NULL, 24, NULL, e), CT_EINVAL);
    ts_expect_error(ctx, CT_EINVAL, "0 bytes", NULL);
    cr_expect_eq(ct_tensor_write_async(ctx, t, host, 24, NULL, NULL), CT_EINVAL);
    ts_expect_error(ctx, CT_EINVAL, "event is NULL", NULL);
    cr_expect_eq(ct_tensor_write_async(ctx, w, host, 16, NULL, e), CT_ESTATE);
    ts_expect_error(ctx, CT_ESTATE, "requires grad", NULL);
    cr_expect_eq(ct_tensor_read_async(ctx, view, host, 32, e), CT_EINVAL);
    ts_expect_error(ctx, CT_EINVAL, "isn't contiguous", NULL);
    ct_event_free(e);
}

Test(device, a_verdict_of_the_device_is_told_at_once_and_only_once)
{
    ct_tensor *x = ct_tensor_new(ctx, CT_F64, 2, (int64_t[]){2, 3});
    ct_tensor *bad = ts_vec(ctx, CT_I64, 2, (double[]){1, 5}),
              *good = ts_vec(ctx, CT_I64, 2, (double[]){1, 2});
    for (int i = 0; i < 2; i++) {
        cr_expect_null(ct_cross_entropy(x, bad, ct_cross_entropy_defaults()));
        ts_expect_error(ctx, CT_EDATA, "cross_entropy: target 5 at row 1", NULL);
        cr_expect_not_null(ct_cross_entropy(x, good, ct_cross_entropy_defaults()));
        ts_expect_ok(ctx, "a good target after a bad one");
    }
    ct_tensor_release(x);
    ct_tensor_release(bad);
    ct_tensor_release(good);
}
