/* SPDX-License-Identifier: Apache-2.0 */
#include "backend/cpu/dnnl_versions.h"

#include <omp.h>
#include <stdio.h>
#include <string.h>

/* ---- a cached operation ---- */
enum { ARGS_MAX = 5 };

struct cti_dnnl_op {
    cti_dnnl_key key;
    uint64_t hash;
    cti_dnnl_op *chain;         /* the next in its bucket */
    cti_dnnl_op *newer, *older; /* by last use */
    bool refused;               /* there is no such primitive for bf16 */

    dnnl_primitive_t main;
    dnnl_exec_arg_t arg[ARGS_MAX];
    int n_args;
    int in, w, bias, out, scratch; /* places in arg; -1: none */

    /* Weights between row-major and the library's layout; NULL when that is row-major. */
    dnnl_primitive_t reorder;
    dnnl_exec_arg_t rarg[3];
    int rscratch;        /* place in rarg or -1 */
    bool reorder_after;  /* the weights are a result */
    size_t packed_bytes; /* of the weights in the library's layout, at the workspace's start */
    size_t bytes;        /* workspace: packed weights, then the scratchpad (of one at a time) */
};

enum { BUCKETS = 1024 };

struct cti_dnnl {
    dnnl_engine_t engine;
    dnnl_stream_t stream;
    dnnl_primitive_attr_t attr, attr_add; /* scratchpad from us; and y += */
    int count;
    cti_dnnl_op *newest, *oldest;
    cti_dnnl_op *bucket[BUCKETS];
};

static void describe(const cti_dnnl_key *key, char *out, size_t cap)
{
    if (key->kind == CTI_DNNL_MATMUL) {
        const cti_dnnl_matmul *k = &key->u.matmul;
        int64_t batch = 1;
        for (int i = 0; i < k->n_batch; i++)
            batch *= k->batch[i];
        snprintf(out, cap, "matmul of %lld x [%lld,%lld] by [%lld,%lld]", (long long)batch,
                 (long long)k->m, (long long)k->k, (long long)k->k, (long long)k->n);
        return;
    }
    static const char *const pass[] = {"forward", "backward data", "backward weight"};
    const cti_dnnl_conv *k = &key->u.conv;
    snprintf(
        out, cap,
        "convolution %s of [%lld,%lld,%lld,%lld] with [%lld,%lld,%lld,%lld] to [.,.,%lld,%lld], "
        "groups %lld, stride %lld,%lld",
        pass[k->pass], (long long)k->n, (long long)k->c, (long long)k->h, (long long)k->w,
        (long long)k->k, (long long)(k->c / k->groups), (long long)k->r, (long long)k->s,
        (long long)k->p, (long long)k->q, (long long)k->groups, (long long)k->stride[0],
        (long long)k->stride[1]);
}

static int fail(ct_stream *s, const cti_dnnl_key *key, const char *what, dnnl_status_t st)
{
    if (st == dnnl_out_of_memory)
        return CT_ENOMEM;
    char text[256], version[32];
    if (key)
        describe(key, text, sizeof text);
    else
        snprintf(text, sizeof text, "start");
    cti_dnnl_version(version, sizeof version);
    return cti_fail(s->err, CT_EDEVICE, "%s: %s failed with status %d%s in %s", version, what,
                    (int)st, st == dnnl_unimplemented ? " (not implemented)" : "", text);
}

/* oneDNN runs and plans with the calling thread's OpenMP setting: ours while it works, then the
 * application's again. */
static int threads_enter(const ct_stream *s)
{
    int before = omp_get_max_threads();
    if (before != s->threads)
        omp_set_num_threads(s->threads);
    return before;
}

static void threads_leave(const ct_stream *s, int before)
{
    if (before != s->threads)
        omp_set_num_threads(before);
}

static void op_free(ct_stream *s, cti_dnnl_op *op)
{
    for (int i = 0; i < op->n_args; i++)
        if (op->arg[i].memory)
            dnnl_memory_destroy(op->arg[i].memory);
    for (int i = 0; i < 3; i++)
        if (op->rarg[i].memory)
            dnnl_memory_destroy(op->rarg[i].memory);
    if (op->main)
        dnnl_primitive_destroy(op->main);
    if (op->reorder)
        dnnl_primitive_destroy(op->reorder);
    cti_free(s->mem, op);
}

static dnnl_status_t arg_add(cti_dnnl_op *op, dnnl_engine_t engine, int id, desc_ref d, int *place)
{
    dnnl_exec_arg_t *a = &op->arg[op->n_args];
    dnnl_status_t st = dnnl_memory_create(&a->memory, d, engine, DNNL_MEMORY_NONE);
    if (st)
        return st;
    a->arg = id;
    *place = op->n_args++;
    return dnnl_success;
}

static size_t round64(size_t n)
{
    return (n + 63) / 64 * 64;
}

/* The primitive of a descriptor and its scratchpad. */
static dnnl_status_t op_main(ct_stream *s, cti_dnnl_op *op, dnnl_primitive_desc_t pd)
{
    dnnl_status_t st = dnnl_primitive_create(&op->main, pd);
    if (st)
        return st;
    s->counters.primitives++;
    desc_ref scratch = dnnl_primitive_desc_query_md(pd, dnnl_query_scratchpad_md, 0);
    size_t bytes = dnnl_memory_desc_get_size(scratch);
    op->bytes = round64(bytes);
    if (bytes)
        return arg_add(op, s->dnnl->engine, DNNL_ARG_SCRATCHPAD, scratch, &op->scratch);
    return dnnl_success;
}

/* ---- matmul ---- */
static dnnl_status_t matmul_make(ct_stream *s, cti_dnnl_op *op)
{
    const cti_dnnl_matmul *k = &op->key.u.matmul;
    struct cti_dnnl *dn = s->dnnl;
    const int nb = k->n_batch, nd = nb + 2;
    int64_t da[CT_MAX_DIMS], db[CT_MAX_DIMS], dy[CT_MAX_DIMS], one[CT_MAX_DIMS], ob[CT_MAX_DIMS];
    int64_t sa[CT_MAX_DIMS], sb[CT_MAX_DIMS];
    for (int i = 0; i < nd; i++) {
        bool batch = i < nb;
        dy[i] = batch ? k->batch[i] : i == nb ? k->m : k->n;
        da[i] = batch ? (k->a[i] ? k->batch[i] : 1) : i == nb ? k->m : k->k;
        db[i] = batch ? (k->b[i] ? k->batch[i] : 1) : i == nb ? k->k : k->n;
        /* Of a broadcast dimension the stride isn't used, but it has to be a possible one. */
        sa[i] = k->a[i] ? k->a[i] : k->m * k->k;
        sb[i] = k->b[i] ? k->b[i] : k->k * k->n;
        one[i] = i < nd - 1 ? 1 : k->n;
        ob[i] = i < nd - 1 ? k->n : 1;
    }
    desc a = {0}, b = {0}, bias = {0}, y = {0};
    dnnl_primitive_desc_t pd = NULL;
    dnnl_status_t st = desc_strided(&a, k->bf16 & CTI_BF16_IN, nd, da, sa);
    if (!st)
        st = desc_strided(&b, k->bf16 & CTI_BF16_IN, nd, db, sb);
    if (!st)
        st = desc_strided(&y, k->bf16 & CTI_BF16_OUT, nd, dy, k->y);
    if (!st && k->bias)
        st = desc_strided(&bias, k->bf16 & CTI_BF16_BIAS, nd, one, ob);
    if (!st)
        st = matmul_pd(&pd, dn->engine, REF(a), REF(b), k->bias ? REF(bias) : NULL, REF(y),
                       k->add ? dn->attr_add : dn->attr);
    if (!st)
        st = op_main(s, op, pd);
    if (!st)
        st = arg_add(op, dn->engine, DNNL_ARG_SRC, REF(a), &op->in);
    if (!st)
        st = arg_add(op, dn->engine, DNNL_ARG_WEIGHTS, REF(b), &op->w);
    if (!st)
        st = arg_add(op, dn->engine, DNNL_ARG_DST, REF(y), &op->out);
    if (!st && k->bias)
        st = arg_add(op, dn->engine, DNNL_ARG_BIAS, REF(bias), &op->bias);
    if (pd)
        dnnl_primitive_desc_destroy(pd);
    desc_clear(&a);
    desc_clear(&b);
    desc_clear(&bias);
    desc_clear(&y);
    return st;
}

/* ---- convolution ---- */
static dnnl_status_t conv_describe(const cti_dnnl_conv *k, conv_descs *c)
{
    const int64_t x[4] = {k->n, k->c, k->h, k->w}, y[4] = {k->n, k->k, k->p, k->q};
    const int64_t wg[5] = {k->groups, k->k / k->groups, k->c / k->groups, k->r, k->s};
    const int64_t w[4] = {k->k, k->c, k->r, k->s};
    for (int i = 0; i < 2; i++) {
        c->stride[i] = k->stride[i];
        c->dilation[i] = k->dilation[i] - 1;
        c->pad_begin[i] = k->pad_begin[i];
        c->pad_end[i] = k->pad_end[i];
    }
    c->has_bias = k->bias;
    dnnl_status_t st = desc_tagged(&c->x, k->bf16 & CTI_BF16_IN, 4, x, dnnl_nhwc);
    if (!st)
        st = desc_tagged(&c->y, k->bf16 & CTI_BF16_IN, 4, y, dnnl_nhwc);
    if (!st && k->bias)
        st = desc_tagged(&c->bias, k->bf16 & CTI_BF16_BIAS, 1, &k->k, dnnl_a);
    if (!st)
        st = k->groups > 1 ?
                 desc_tagged(&c->w, k->bf16 & CTI_BF16_WEIGHT, 5, wg, dnnl_format_tag_any) :
                 desc_tagged(&c->w, k->bf16 & CTI_BF16_WEIGHT, 4, w, dnnl_format_tag_any);
    return st;
}

/* The reorder between the caller's weights and `packed`, whose memory object is arg[op->w]. */
static dnnl_status_t conv_reorder(ct_stream *s, cti_dnnl_op *op, desc_ref plain, desc_ref packed)
{
    struct cti_dnnl *dn = s->dnnl;
    desc_ref from = op->reorder_after ? packed : plain, to = op->reorder_after ? plain : packed;
    dnnl_primitive_desc_t pd = NULL;
    dnnl_status_t st =
        dnnl_reorder_primitive_desc_create(&pd, from, dn->engine, to, dn->engine, dn->attr);
    if (st)
        return st;
    st = dnnl_primitive_create(&op->reorder, pd);
    if (!st) {
        s->counters.primitives++;
        op->rarg[0].arg = DNNL_ARG_FROM;
        op->rarg[1].arg = DNNL_ARG_TO;
        op->rarg[2].arg = DNNL_ARG_SCRATCHPAD;
        st = dnnl_memory_create(&op->rarg[0].memory, from, dn->engine, DNNL_MEMORY_NONE);
    }
    if (!st)
        st = dnnl_memory_create(&op->rarg[1].memory, to, dn->engine, DNNL_MEMORY_NONE);
    desc_ref scratch = dnnl_primitive_desc_query_md(pd, dnnl_query_scratchpad_md, 0);
    size_t bytes = dnnl_memory_desc_get_size(scratch);
    if (!st && bytes) {
        op->rscratch = 2;
        st = dnnl_memory_create(&op->rarg[2].memory, scratch, dn->engine, DNNL_MEMORY_NONE);
    }
    dnnl_primitive_desc_destroy(pd);
    op->packed_bytes = round64(dnnl_memory_desc_get_size(packed));
    size_t most = round64(bytes) > op->bytes ? round64(bytes) : op->bytes;
    op->bytes = op->packed_bytes + most;
    return st;
}

static dnnl_status_t conv_args(ct_stream *s, cti_dnnl_op *op, dnnl_primitive_desc_t pd,
                               const conv_descs *c)
{
    const cti_dnnl_conv *k = &op->key.u.conv;
    const int64_t wg[5] = {k->groups, k->k / k->groups, k->c / k->groups, k->r, k->s};
    const int64_t w[4] = {k->k, k->c, k->r, k->s};
    const ct_conv_pass pass = (ct_conv_pass)k->pass;
    const bool dx = pass == CT_CONV_BACKWARD_DATA, dw = pass == CT_CONV_BACKWARD_WEIGHT;
    dnnl_engine_t engine = s->dnnl->engine;
    desc_ref packed = dnnl_primitive_desc_query_md(
        pd, dw ? dnnl_query_diff_weights_md : dnnl_query_weights_md, 0);
    dnnl_status_t st =
        arg_add(op, engine, dx ? DNNL_ARG_DIFF_SRC : DNNL_ARG_SRC, REF(c->x), &op->in);
    if (!st)
        st = arg_add(op, engine, pass ? DNNL_ARG_DIFF_DST : DNNL_ARG_DST, REF(c->y), &op->out);
    if (!st)
        st = arg_add(op, engine, dw ? DNNL_ARG_DIFF_WEIGHTS : DNNL_ARG_WEIGHTS, packed, &op->w);
    if (!st && c->has_bias)
        st = arg_add(op, engine, DNNL_ARG_BIAS, REF(c->bias), &op->bias);
    if (st)
        return st;
    desc plain = {0};
    st = k->groups > 1 ? desc_tagged(&plain, k->bf16 & CTI_BF16_WEIGHT, 5, wg, dnnl_goihw) :
                         desc_tagged(&plain, k->bf16 & CTI_BF16_WEIGHT, 4, w, dnnl_oihw);
    op->reorder_after = dw;
    if (!st && !dnnl_memory_desc_equal(packed, REF(plain)))
        st = conv_reorder(s, op, REF(plain), packed);
    desc_clear(&plain);
    return st;
}

static dnnl_status_t conv_make(ct_stream *s, cti_dnnl_op *op)
{
    const ct_conv_pass pass = (ct_conv_pass)op->key.u.conv.pass;
    struct cti_dnnl *dn = s->dnnl;
    conv_descs c;
    memset(&c, 0, sizeof c);
    dnnl_primitive_desc_t hint = NULL, pd = NULL;
    dnnl_status_t st = conv_describe(&op->key.u.conv, &c);
    if (!st && pass != CT_CONV_FORWARD)
        st = conv_pd(&hint, dn->engine, CT_CONV_FORWARD, &c, NULL, dn->attr);
    if (!st)
        st = conv_pd(&pd, dn->engine, pass, &c, hint, dn->attr);
    if (!st)
        st = op_main(s, op, pd);
    if (!st)
        st = conv_args(s, op, pd, &c);
    if (pd)
        dnnl_primitive_desc_destroy(pd);
    if (hint)
        dnnl_primitive_desc_destroy(hint);
    desc_clear(&c.x);
    desc_clear(&c.w);
    desc_clear(&c.bias);
    desc_clear(&c.y);
    return st;
}

/* ---- the cache ---- */
static bool key_equal(const cti_dnnl_key *a, const cti_dnnl_key *b)
{
    return a->kind == b->kind && !memcmp(&a->u, &b->u, (size_t)a->bytes);
}

static uint64_t key_hash(const cti_dnnl_key *key)
{
    uint64_t h = (uint64_t)key->kind * 0x9e3779b97f4a7c15U;
    for (int i = 0; i < key->bytes / 8; i++) {
        h = (h ^ key->u.words[i]) * 0xff51afd7ed558ccdU;
        h ^= h >> 32;
    }
    return h;
}

static void lru_unlink(struct cti_dnnl *dn, cti_dnnl_op *op)
{
    *(op->newer ? &op->newer->older : &dn->newest) = op->older;
    *(op->older ? &op->older->newer : &dn->oldest) = op->newer;
}

static void lru_front(struct cti_dnnl *dn, cti_dnnl_op *op)
{
    op->newer = NULL;
    op->older = dn->newest;
    *(dn->newest ? &dn->newest->newer : &dn->oldest) = op;
    dn->newest = op;
}

static void evict_oldest(ct_stream *s)
{
    struct cti_dnnl *dn = s->dnnl;
    cti_dnnl_op *op = dn->oldest;
    cti_dnnl_op **at = &dn->bucket[op->hash % BUCKETS];
    while (*at != op)
        at = &(*at)->chain;
    *at = op->chain;
    lru_unlink(dn, op);
    op_free(s, op);
    dn->count--;
}

static bool key_bf16(const cti_dnnl_key *key)
{
    return key->kind == CTI_DNNL_MATMUL ? key->u.matmul.bf16 : key->u.conv.bf16;
}

static int found(cti_dnnl_op *op, cti_dnnl_op **out)
{
    *out = op->refused ? NULL : op;
    return op->refused ? CT_EDTYPE : CT_OK;
}

static int op_make(ct_stream *s, const cti_dnnl_key *key, uint64_t hash, cti_dnnl_op **out)
{
    struct cti_dnnl *dn = s->dnnl;
    cti_dnnl_op *op = cti_alloc(s->mem, sizeof *op, "oneDNN primitive");
    if (!op)
        return CT_ENOMEM;
    op->key = *key;
    op->hash = hash;
    op->in = op->w = op->bias = op->out = op->scratch = op->rscratch = -1;
    int before = threads_enter(s);
    dnnl_status_t st = key->kind == CTI_DNNL_MATMUL ? matmul_make(s, op) : conv_make(s, op);
    threads_leave(s, before);
    op->refused = st == dnnl_unimplemented && key_bf16(key);
    if (st && !op->refused) {
        op_free(s, op);
        return fail(s, key, "making a primitive", st);
    }
    if (dn->count == CTI_DNNL_CACHE_MAX)
        evict_oldest(s);
    op->chain = dn->bucket[hash % BUCKETS];
    dn->bucket[hash % BUCKETS] = op;
    lru_front(dn, op);
    dn->count++;
    return found(op, out);
}

void cti_dnnl_key_init(cti_dnnl_key *key, cti_dnnl_kind kind)
{
    memset(key, 0, sizeof *key);
    key->kind = kind;
    key->bytes =
        kind == CTI_DNNL_MATMUL ? (int32_t)sizeof key->u.matmul : (int32_t)sizeof key->u.conv;
}

int cti_dnnl_get(ct_stream *s, const cti_dnnl_key *key, cti_dnnl_op **out)
{
    struct cti_dnnl *dn = s->dnnl;
    /* A workspace query and the call that follows it ask twice in a row. */
    if (dn->newest && key_equal(&dn->newest->key, key)) {
        return found(dn->newest, out);
    }
    uint64_t hash = key_hash(key);
    for (cti_dnnl_op *op = dn->bucket[hash % BUCKETS]; op; op = op->chain) {
        if (op->hash == hash && key_equal(&op->key, key)) {
            lru_unlink(dn, op);
            lru_front(dn, op);
            return found(op, out);
        }
    }
    return op_make(s, key, hash, out);
}

size_t cti_dnnl_workspace(const cti_dnnl_op *op)
{
    return op->bytes;
}

const char *cti_dnnl_impl(const cti_dnnl_op *op)
{
    const char *name = "?";
    const_dnnl_primitive_desc_t pd;
    if (!dnnl_primitive_get_primitive_desc(op->main, &pd))
        dnnl_primitive_desc_query(pd, dnnl_query_impl_info_str, 0, (void *)&name);
    return name;
}

/* ---- execution ---- */
static dnnl_status_t set(const dnnl_exec_arg_t *arg, int place, void *p)
{
    return place < 0 ? dnnl_success : dnnl_memory_set_data_handle(arg[place].memory, p);
}

static dnnl_status_t run_reorder(ct_stream *s, const cti_dnnl_op *op, void *plain, void *packed,
                                 void *scratch)
{
    dnnl_status_t st = set(op->rarg, 0, op->reorder_after ? packed : plain);
    if (!st)
        st = set(op->rarg, 1, op->reorder_after ? plain : packed);
    if (!st)
        st = set(op->rarg, op->rscratch, scratch);
    return st ? st :
                dnnl_primitive_execute(op->reorder, s->dnnl->stream, op->rscratch < 0 ? 2 : 3,
                                       op->rarg);
}

static dnnl_status_t run(ct_stream *s, const cti_dnnl_op *op, const cti_dnnl_data *data,
                         void *workspace)
{
    char *scratch = workspace ? (char *)workspace + op->packed_bytes : NULL;
    void *w = op->reorder ? workspace : data->w;
    dnnl_status_t st = set(op->arg, op->in, data->in);
    if (!st)
        st = set(op->arg, op->w, w);
    if (!st)
        st = set(op->arg, op->bias, data->bias);
    if (!st)
        st = set(op->arg, op->out, data->out);
    if (!st)
        st = set(op->arg, op->scratch, scratch);
    if (!st && op->reorder && !op->reorder_after)
        st = run_reorder(s, op, data->w, w, scratch);
    if (!st)
        st = dnnl_primitive_execute(op->main, s->dnnl->stream, op->n_args, op->arg);
    if (!st && op->reorder && op->reorder_after)
        st = run_reorder(s, op, data->w, w, scratch);
    return st ? st : dnnl_stream_wait(s->dnnl->stream);
}

int cti_dnnl_run(ct_stream *s, cti_dnnl_op *op, const cti_dnnl_data *data, void *workspace)
{
    int before = threads_enter(s);
    dnnl_status_t st = run(s, op, data, workspace);
    threads_leave(s, before);
    return st ? fail(s, &op->key, "execution", st) : CT_OK;
}

/* ---- the library ---- */
int cti_dnnl_open(ct_stream *s)
{
    struct cti_dnnl *dn = cti_alloc(s->mem, sizeof *dn, "oneDNN");
    if (!dn)
        return CT_ENOMEM;
    s->dnnl = dn;
    dnnl_post_ops_t sum = NULL;
    dnnl_status_t st = dnnl_engine_create(&dn->engine, dnnl_cpu, 0);
    if (!st)
        st = dnnl_stream_create(&dn->stream, dn->engine, dnnl_stream_default_flags);
    if (!st)
        st = dnnl_primitive_attr_create(&dn->attr);
    if (!st)
        st = dnnl_primitive_attr_set_scratchpad_mode(dn->attr, dnnl_scratchpad_mode_user);
    if (!st)
        st = dnnl_primitive_attr_clone(&dn->attr_add, dn->attr);
    if (!st)
        st = dnnl_post_ops_create(&sum);
    if (!st)
        st = post_sum(sum);
    if (!st)
        st = dnnl_primitive_attr_set_post_ops(dn->attr_add, sum);
    if (sum)
        dnnl_post_ops_destroy(sum);
    if (st) {
        int rc = fail(s, NULL, "opening the CPU engine", st);
        cti_dnnl_close(s);
        return rc;
    }
    return CT_OK;
}

void cti_dnnl_close(ct_stream *s)
{
    struct cti_dnnl *dn = s->dnnl;
    if (!dn)
        return;
    while (dn->count)
        evict_oldest(s);
    if (dn->attr_add)
        dnnl_primitive_attr_destroy(dn->attr_add);
    if (dn->attr)
        dnnl_primitive_attr_destroy(dn->attr);
    if (dn->stream)
        dnnl_stream_destroy(dn->stream);
    if (dn->engine)
        dnnl_engine_destroy(dn->engine);
    cti_free(s->mem, dn);
    s->dnnl = NULL;
}

void cti_dnnl_isa(char *out, size_t cap)
{
    static const struct {
        unsigned bits;
        const char *name;
    } known[] = {
        {0x1, "sse41"},
        {0x3, "avx"},
        {0x7, "avx2"},
#if DNNL_VERSION_MAJOR >= 3
        {0xf, "avx2_vnni"},
        {0x1f, "avx2_vnni_2"},
        {0x1ef, "avx512_core_fp16"},
        {0xfef, "avx512_core_amx"},
        {0x1fef, "avx512_core_amx_fp16"},
#else
        {0x407, "avx2_vnni"},
        {0x3e7, "avx512_core_amx"},
#endif
        {0x27, "avx512_core"},
        {0x67, "avx512_core_vnni"},
        {0xe7, "avx512_core_bf16"},
    };
    unsigned isa = (unsigned)dnnl_get_effective_cpu_isa();
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        if (known[i].bits == isa) {
            snprintf(out, cap, "%s", known[i].name);
            return;
        }
    }
    snprintf(out, cap, "isa 0x%x", isa);
}

void cti_dnnl_version(char *out, size_t cap)
{
    const dnnl_version_t *v = dnnl_version();
    snprintf(out, cap, "oneDNN %d.%d.%d", v->major, v->minor, v->patch);
}
