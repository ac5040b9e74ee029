/* SPDX-License-Identifier: Apache-2.0 */
/* What goes by index in captured work: the bytes of called work, and the verdict on an index out of range. */
#include "device.h"

TestSuite(lookup, .timeout = 120);

enum { V = 7, D = 5, B = 6 };

typedef struct lookup {
    ct_ctx *ctx;
    ct_tensor *w, *ids;
    ct_capture *capture;
} lookup;

static lookup lookup_open(void)
{
    float v[V * D];
    lookup l = {.ctx = device_ctx("cuda")};

    for (int i = 0; i < V * D; i++)
        v[i] = (float)(i * 37 % 17) / 8 - 1;
    l.w = ct_tensor_from(l.ctx, CT_F32, 2, (int64_t[]){V, D}, v);
    l.ids = ct_tensor_new(l.ctx, CT_I64, 1, (int64_t[]){B});
    l.capture = ct_capture_new(l.ctx);
    cr_assert(l.w && l.ids && l.capture, "%s", ct_error_get(l.ctx)->text);
    OK(l.ctx, ct_tensor_set_requires_grad(l.ctx, l.w, true));
    return l;
}

static void lookup_close(lookup *l)
{
    ct_capture_free(l->capture);
    ct_tensor_release(l->w);
    ct_tensor_release(l->ids);
    cr_expect_eq(ct_ctx_counters(l->ctx).live_tensors, 0);
    ct_ctx_free(l->ctx);
}

static int work(void *user)
{
    lookup *l = user;
    int r = ct_scope_begin(l->ctx, CT_SCOPE_PLAIN);

    if (r < 0)
        return r;
    ct_tensor *rows = ct_embedding(l->w, l->ids, 2),
              *back = ct_arange(l->ctx, CT_I64, B - 1, -1, -1);
    ct_tensor *bags = ct_embedding_bag(l->w, ct_reshape(l->ids, 2, (int64_t[]){2, B / 2}), NULL,
                                       ct_embedding_bag_defaults(CT_BAG_MAX));
    ct_tensor *turned = ct_mul(ct_index_select(rows, 0, back), rows);
    ct_tensor *most = ct_gather(rows, 1, ct_argmax(rows, 1, true));
    ct_tensor *all =
        ct_add(ct_sum(ct_square(bags), NULL, 0, false), ct_sum(turned, NULL, 0, false));
    all = ct_add(all, ct_sum(most, NULL, 0, false));
    r = ct_backward(l->ctx, all, NULL, CT_BACKWARD_DEFAULT);
    return ct_scope_end(l->ctx) < 0 ? ct_error_code(l->ctx) : r;
}

static void step(lookup *l, int k, bool captured, float *grad)
{
    int64_t ids[B];

    for (int i = 0; i < B; i++)
        ids[i] = (i * i + k) % V;
    OK(l->ctx, ct_tensor_write(l->ctx, l->ids, ids, sizeof ids));
    ct_zero_grad(l->w);
    OK(l->ctx, captured ? ct_capture_run(l->ctx, l->capture, work, l) : work(l));
    OK(l->ctx, ct_tensor_read(l->ctx, ct_tensor_grad(l->w), grad, V * D * sizeof *grad));
}

Test(lookup, replays_give_the_bytes_of_called_work)
{
    lookup a = lookup_open(), b = lookup_open();

    for (int k = 0; k < 6; k++) {
        float p[V * D], q[V * D];
        step(&a, k, true, p);
        step(&b, k, false, q);
        cr_assert_eq(memcmp(p, q, sizeof p), 0, "step %d", k);
    }
    cr_assert_str_empty(ct_capture_refused(a.capture), "%s", ct_capture_refused(a.capture));
    cr_assert_eq(ct_capture_replays(a.capture), 5);
    lookup_close(&a);
    lookup_close(&b);
}

Test(lookup, an_id_out_of_range_in_a_replay_is_told_by_the_next_read)
{
    lookup l = lookup_open();
    int64_t bad[B] = {0, 1, 2, V, 1, 0};
    float grad[V * D];

    for (int k = 0; k < 3; k++)
        step(&l, k, true, grad);
    OK(l.ctx, ct_tensor_write(l.ctx, l.ids, bad, sizeof bad));
    OK(l.ctx, ct_capture_run(l.ctx, l.capture, work, &l));
    cr_assert_eq(ct_tensor_read(l.ctx, ct_tensor_grad(l.w), grad, sizeof grad), CT_EDATA);
    cr_assert_str_eq(ct_error_get(l.ctx)->text,
                     "embedding: index 7 at position 3 is out of range for 7 elements (0..6) of "
                     "dimension 0; 1-based?");
    ct_error_clear(l.ctx);
    step(&l, 0, true, grad);
    lookup_close(&l);
}
