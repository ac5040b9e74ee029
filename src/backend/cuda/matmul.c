/* SPDX-License-Identifier: Apache-2.0 */
/* Matrix products by cublasLt.
 *
 * cublasLt is column-major: a row-major y = a b is to it y^T = b^T a^T, and so its A is our b, its B our a.
 * What it can't address (overlapping rows) goes through a dense copy in the workspace.
 *
 * An algorithm is asked for once for each problem, the alignment of its operands included; a problem that no
 * algorithm takes is remembered too. Sums split along K are reduced in f32 in a step of their own: the same
 * bytes in each run. */
#include "backend/cuda/cuda.h"

#include <string.h>

#define BUCKETS      256
#define CHAIN        8 /* problems of a bucket: the ones used last stay */
#define LT_WORKSPACE ((size_t)32 << 20)
#define ALGORITHMS   8 /* asked for */
#define COPY_ALIGN   256

/* ---- the problem, in few dimensions ---- */

/* y[m,n] = a[m,k] b[k,n] for each batch; the arrays hold strides of batch dimensions, outermost first. */
typedef struct problem {
    int64_t m, n, k;
    int nb;
    int64_t batch[CT_MAX_DIMS], ab[CT_MAX_DIMS], bb[CT_MAX_DIMS], yb[CT_MAX_DIMS];
    int64_t a_row, a_col, b_row, b_col, y_row;
} problem;

/* Rows of a batch that follow each other are more rows of one matrix, when b is the same for all:
 * a linear layer on [B,T,C] is one large product. */
static bool fold_into_rows(problem *p)
{
    const int last = p->nb - 1;
    if (last < 0 || p->bb[last] != 0 || p->ab[last] == 0)
        return false;
    if (p->m == 1) {
        if (p->a_col != 1 && p->k != 1)
            return false;
        p->a_row = p->ab[last];
        p->y_row = p->yb[last];
    } else if (p->ab[last] != p->m * p->a_row || p->yb[last] != p->m * p->y_row) {
        return false;
    }
    p->m *= p->batch[last];
    p->nb--;
    return true;
}

/* Makes one batch dimension of i and i + 1 when they are one in all three operands. */
static void join_batch(problem *p, int i)
{
    const int64_t inner = p->batch[i + 1];
    if (p->ab[i] != inner * p->ab[i + 1] || p->bb[i] != inner * p->bb[i + 1] ||
        p->yb[i] != inner * p->yb[i + 1])
        return;
    const size_t rest = (size_t)(p->nb - 1 - i) * sizeof(int64_t);
    memmove(p->ab + i, p->ab + i + 1, rest);
    memmove(p->bb + i, p->bb + i + 1, rest);
    memmove(p->yb + i, p->yb + i + 1, rest);
    p->batch[i + 1] *= p->batch[i];
    memmove(p->batch + i, p->batch + i + 1, rest);
    p->nb--;
}

static void reduce_problem(const ct_matmul_args *args, problem *p)
{
    const ct_view *y = &args->y, *a = &args->a, *b = &args->b;
    const int r = y->ndim - 2, c = r + 1;
    memset(p, 0, sizeof *p);
    for (int i = 0; i < r; i++) {
        if (y->shape[i] == 1)
            continue;
        p->batch[p->nb] = y->shape[i];
        p->ab[p->nb] = a->shape[i] == 1 ? 0 : a->stride[i];
        p->bb[p->nb] = b->shape[i] == 1 ? 0 : b->stride[i];
        p->yb[p->nb++] = y->stride[i];
    }
    p->m = y->shape[r];
    p->n = y->shape[c];
    p->k = a->shape[c];
    p->a_row = a->stride[r];
    p->a_col = a->stride[c];
    p->b_row = b->stride[r];
    p->b_col = b->stride[c];
    p->y_row = y->stride[r];
    while (fold_into_rows(p))
        ;
    for (int i = p->nb - 2; i >= 0; i--)
        join_batch(p, i);
}

/* ---- operands ---- */

/* A matrix of cublasLt: `transposed` where its columns are our columns. */
typedef struct operand {
    bool transposed;
    int64_t ld;
    void *data;
    bool copied; /* through the workspace: a dense copy is made first */
    ct_view from, to;
    size_t bytes;
} operand;

/* Strides of dimensions of size 1 say nothing. False: cublasLt can't address it. */
static bool express(operand *o, int64_t rows, int64_t cols, int64_t row, int64_t col)
{
    o->transposed = false;
    o->ld = rows == 1 ? cols : row;
    if ((col == 1 || cols == 1) && o->ld >= cols)
        return true;
    o->transposed = true;
    o->ld = cols == 1 ? rows : col;
    return (row == 1 || rows == 1) && o->ld >= rows;
}

static size_t rounded(size_t n)
{
    return (n + COPY_ALIGN - 1) / COPY_ALIGN * COPY_ALIGN;
}

/* `stride`: of the batch dimensions; the copy's are put in their place. */
static void plan_operand(const problem *p, const ct_view *v, int64_t *stride, int64_t rows,
                         int64_t cols, int64_t row, int64_t col, operand *o)
{
    memset(o, 0, sizeof *o);
    o->data = v->data;
    if (express(o, rows, cols, row, col))
        return;
    int64_t n = 1;
    o->copied = true;
    o->from.data = v->data;
    o->from.dtype = v->dtype;
    o->from.ndim = p->nb + 2;
    o->to = o->from;
    o->to.data = NULL;
    for (int i = p->nb + 1; i >= 0; i--) {
        const bool one = i < p->nb && stride[i] == 0; /* broadcast: one is enough */
        o->from.shape[i] = i < p->nb ? (one ? 1 : p->batch[i]) : i == p->nb ? rows : cols;
        o->from.stride[i] = i < p->nb ? stride[i] : i == p->nb ? row : col;
        o->to.shape[i] = o->from.shape[i];
        o->to.stride[i] = n;
        if (i < p->nb && !one)
            stride[i] = n;
        n *= o->from.shape[i];
    }
    o->transposed = false;
    o->ld = cols;
    o->bytes = rounded((size_t)n * ct_dtype_bytes(v->dtype));
}

/* ---- algorithms ---- */

/* Compared as bytes: without padding. */
typedef struct lt_key {
    int64_t m, n, k, lda, ldb, ldd; /* ours: a, b, y */
    int64_t stride_a, stride_b, stride_d;
    int32_t batch, dtype;
    int32_t trans_a, trans_b;
    int32_t epilogue;
    int32_t align_a, align_b, align_d, align_vector; /* in bytes */
    int32_t none;
} lt_key;

typedef struct lt_entry lt_entry;
struct lt_entry {
    lt_entry *next;
    lt_key key;
    bool refused;
    cublasLtMatmulDesc_t op;
    cublasLtMatrixLayout_t a, b, d; /* ours */
    cublasLtMatmulAlgo_t algo;
    size_t workspace;
};

struct cti_lt_cache {
    lt_entry *bucket[BUCKETS];
};

static void drop(ct_stream *s, lt_entry *e)
{
    if (e->op)
        cublasLtMatmulDescDestroy(e->op);
    cublasLtMatrixLayout_t layouts[] = {e->a, e->b, e->d};
    for (int i = 0; i < 3; i++)
        if (layouts[i])
            cublasLtMatrixLayoutDestroy(layouts[i]);
    cti_free(s->mem, e);
}

static cudaDataType_t type_of(int32_t dtype)
{
    return dtype == CT_BF16 ? CUDA_R_16BF : dtype == CT_F16 ? CUDA_R_16F : CUDA_R_32F;
}

static cublasStatus_t make_layout(const lt_key *k, int64_t rows, int64_t cols, int64_t ld,
                                  int64_t stride, cublasLtMatrixLayout_t *out)
{
    cublasStatus_t e =
        cublasLtMatrixLayoutCreate(out, type_of(k->dtype), (uint64_t)rows, (uint64_t)cols, ld);
    if (!e)
        e = cublasLtMatrixLayoutSetAttribute(*out, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, &k->batch,
                                             sizeof k->batch);
    return e ? e :
               cublasLtMatrixLayoutSetAttribute(*out, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET,
                                                &stride, sizeof stride);
}

static cublasStatus_t set_op(cublasLtMatmulDesc_t op, cublasLtMatmulDescAttributes_t name,
                             int32_t v)
{
    return cublasLtMatmulDescSetAttribute(op, name, &v, sizeof v);
}

static cublasStatus_t set_vector(cublasLtMatmulDesc_t op, void *vector)
{
    return cublasLtMatmulDescSetAttribute(op, CUBLASLT_MATMUL_DESC_BIAS_POINTER, &vector,
                                          sizeof vector);
}

/* vector: what the epilogue adds or writes, or NULL. */
static cublasStatus_t describe(const ct_stream *s, lt_entry *e, void *vector)
{
    const lt_key *k = &e->key;
    const bool fast = s->tf32 && k->dtype == CT_F32;
    cublasStatus_t r = cublasLtMatmulDescCreate(
        &e->op, fast ? CUBLAS_COMPUTE_32F_FAST_TF32 : CUBLAS_COMPUTE_32F, CUDA_R_32F);
    if (!r)
        r = set_op(e->op, CUBLASLT_MATMUL_DESC_TRANSA, k->trans_b ? CUBLAS_OP_T : CUBLAS_OP_N);
    if (!r)
        r = set_op(e->op, CUBLASLT_MATMUL_DESC_TRANSB, k->trans_a ? CUBLAS_OP_T : CUBLAS_OP_N);
    if (!r)
        r = set_op(e->op, CUBLASLT_MATMUL_DESC_EPILOGUE, k->epilogue);
    if (!r && vector)
        r = set_vector(e->op, vector);
    if (!r)
        r = make_layout(k, k->trans_b ? k->k : k->n, k->trans_b ? k->n : k->k, k->ldb, k->stride_b,
                        &e->b);
    if (!r)
        r = make_layout(k, k->trans_a ? k->m : k->k, k->trans_a ? k->k : k->m, k->lda, k->stride_a,
                        &e->a);
    return r ? r : make_layout(k, k->n, k->m, k->ldd, k->stride_d, &e->d);
}

static cublasStatus_t prefer(cublasLtMatmulPreference_t p, const lt_key *k)
{
    static const cublasLtMatmulPreferenceAttributes_t name[] = {
        CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES,
        CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES};
    const uint32_t align[] = {(uint32_t)k->align_b, (uint32_t)k->align_a, (uint32_t)k->align_d,
                              (uint32_t)k->align_d};
    const uint32_t reduction = CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE;
    const uint64_t most = LT_WORKSPACE;
    cublasStatus_t e = cublasLtMatmulPreferenceSetAttribute(
        p, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &most, sizeof most);
    if (!e)
        e = cublasLtMatmulPreferenceSetAttribute(p, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK,
                                                 &reduction, sizeof reduction);
    for (int i = 0; i < 4 && !e; i++)
        e = cublasLtMatmulPreferenceSetAttribute(p, name[i], &align[i], sizeof align[i]);
    return e;
}

/* "No algorithm" is no error. */
static cublasStatus_t choose(const ct_stream *s, lt_entry *e)
{
    cublasLtMatmulPreference_t p = NULL;
    cublasLtMatmulHeuristicResult_t found[ALGORITHMS];
    int n = 0;
    cublasStatus_t r = cublasLtMatmulPreferenceCreate(&p);
    if (!r)
        r = prefer(p, &e->key);
    if (!r)
        r = cublasLtMatmulAlgoGetHeuristic(s->lt, e->op, e->b, e->a, e->d, e->d, p, ALGORITHMS,
                                           found, &n);
    if (p)
        cublasLtMatmulPreferenceDestroy(p);
    e->refused = true;
    for (int i = 0; i < n && !r && e->refused; i++) {
        if (found[i].state != CUBLAS_STATUS_SUCCESS || found[i].workspaceSize > LT_WORKSPACE)
            continue;
        e->algo = found[i].algo;
        e->workspace = found[i].workspaceSize;
        e->refused = false;
    }
    return r == CUBLAS_STATUS_NOT_SUPPORTED ? CUBLAS_STATUS_SUCCESS : r;
}

static lt_entry **bucket_of(ct_stream *s, const lt_key *key)
{
    const unsigned char *at = (const unsigned char *)key;
    uint64_t h = 14695981039346656037u;
    for (size_t i = 0; i < sizeof *key; i++)
        h = (h ^ at[i]) * 1099511628211u;
    return &s->lt_cache->bucket[(h ^ h >> 32) % BUCKETS];
}

static int make_entry(ct_stream *s, const lt_key *key, void *vector, lt_entry **out)
{
    lt_entry *e = cti_alloc(s->mem, sizeof *e, "cublasLt algorithm");
    if (!e)
        return cti_fail(s->err, CT_ENOMEM, "out of memory for an algorithm of cublasLt");
    e->key = *key;
    cublasStatus_t r = describe(s, e, vector);
    if (!r)
        r = choose(s, e);
    if (r) {
        drop(s, e);
        return cti_lt_check(s, r, "asking cublasLt for an algorithm");
    }
    s->counters.primitives++;
    *out = e;
    return CT_OK;
}

/* The algorithm for a problem, which may be that there is none. */
static int get_entry(ct_stream *s, const lt_key *key, void *vector, lt_entry **out)
{
    lt_entry **bucket = bucket_of(s, key), **at = bucket, *e;
    int depth = 0;
    while (*at && memcmp(&(*at)->key, key, sizeof *key) != 0) {
        at = &(*at)->next;
        depth++;
    }
    e = *at;
    if (e) {
        *at = e->next;
    } else {
        int r = make_entry(s, key, vector, &e);
        if (r < 0)
            return r;
        if (depth >= CHAIN) {
            for (at = bucket; (*at)->next; at = &(*at)->next)
                ;
            drop(s, *at);
            *at = NULL;
        }
    }
    e->next = *bucket;
    *bucket = e;
    *out = e;
    return CT_OK;
}

/* ---- the plan of a call ---- */

typedef struct plan {
    problem p;
    operand a, b;
    lt_entry *e;
    bool add_bias, sum_apart; /* what no algorithm does on the way */
    size_t apart;             /* workspace of the sum */
} plan;

/* All that p is a multiple of, up to 256. */
static int32_t alignment(uint64_t p)
{
    uint64_t bit = (p | 256) & ~((p | 256) - 1);
    return (int32_t)bit;
}

static ct_view column(const ct_view *a_sum)
{
    ct_view v = {.data = a_sum->data, .dtype = a_sum->dtype, .ndim = 2};
    v.shape[0] = a_sum->shape[0];
    v.shape[1] = v.stride[0] = v.stride[1] = 1;
    return v;
}

static void *vector_of(const ct_matmul_args *args, int32_t epilogue)
{
    return epilogue == CUBLASLT_EPILOGUE_BIAS   ? args->bias->data :
           epilogue == CUBLASLT_EPILOGUE_BGRADB ? args->a_sum->data :
                                                  NULL;
}

static void make_key(const ct_matmul_args *args, const plan *pl, int32_t epilogue, lt_key *k)
{
    const problem *p = &pl->p;
    const uint64_t es = ct_dtype_bytes(args->y.dtype);
    uint64_t a = pl->a.copied ? 0 : (uintptr_t)pl->a.data,
             b = pl->b.copied ? 0 : (uintptr_t)pl->b.data, y = (uintptr_t)args->y.data;
    for (int i = 0; i < p->nb; i++) {
        a |= (uint64_t)p->ab[i] * es;
        b |= (uint64_t)p->bb[i] * es;
        y |= (uint64_t)p->yb[i] * es;
    }
    const int last = p->nb - 1;
    *k = (lt_key){.m = p->m,
                  .n = p->n,
                  .k = p->k,
                  .lda = pl->a.ld,
                  .ldb = pl->b.ld,
                  .ldd = p->m == 1 ? p->n : p->y_row,
                  .stride_a = last < 0 ? 0 : p->ab[last],
                  .stride_b = last < 0 ? 0 : p->bb[last],
                  .stride_d = last < 0 ? 0 : p->yb[last],
                  .batch = last < 0 ? 1 : (int32_t)p->batch[last],
                  .dtype = (int32_t)args->y.dtype,
                  .trans_a = pl->a.transposed,
                  .trans_b = pl->b.transposed,
                  .epilogue = epilogue,
                  .align_a = alignment(a),
                  .align_b = alignment(b),
                  .align_d = alignment(y),
                  .align_vector = alignment((uintptr_t)vector_of(args, epilogue))};
}

/* The epilogues first, the bare product where no algorithm has them. */
static int make_plan(ct_stream *s, const ct_matmul_args *args, plan *pl)
{
    problem *p = &pl->p;
    lt_key key;
    memset(pl, 0, sizeof *pl);
    reduce_problem(args, p);
    plan_operand(p, &args->a, p->ab, p->m, p->k, p->a_row, p->a_col, &pl->a);
    plan_operand(p, &args->b, p->bb, p->k, p->n, p->b_row, p->b_col, &pl->b);
    pl->sum_apart = args->a_sum && args->bias;
    int32_t epilogue = args->bias  ? CUBLASLT_EPILOGUE_BIAS :
                       args->a_sum ? CUBLASLT_EPILOGUE_BGRADB :
                                     CUBLASLT_EPILOGUE_DEFAULT;
    make_key(args, pl, epilogue, &key);
    int r = get_entry(s, &key, vector_of(args, epilogue), &pl->e);
    if (r == CT_OK && pl->e->refused && epilogue != CUBLASLT_EPILOGUE_DEFAULT) {
        pl->add_bias = args->bias != NULL;
        pl->sum_apart = args->a_sum != NULL;
        make_key(args, pl, CUBLASLT_EPILOGUE_DEFAULT, &key);
        r = get_entry(s, &key, NULL, &pl->e);
    }
    if (r == CT_OK && pl->e->refused)
        return cti_fail(s->err, CT_EDEVICE,
                        "matmul: cublasLt has no algorithm for [%lld,%lld] x [%lld,%lld] in %s",
                        (long long)p->m, (long long)p->k, (long long)p->k, (long long)p->n,
                        ct_dtype_name(args->y.dtype));
    if (r == CT_OK && pl->sum_apart) {
        ct_view sum = column(args->a_sum);
        pl->apart = cti_cuda_reduce_workspace(s, CT_RED_SUM, &sum, &args->a);
    }
    return r;
}

/* ---- the family ---- */

static int check_dtype(ct_stream *s, const ct_matmul_args *args)
{
    const ct_dtype d = args->y.dtype;
    if (d != CT_F32 && d != CT_BF16 && d != CT_F16)
        return cti_cuda_no_dtype(s, "matmul", d);
    const ct_dtype others[] = {args->a.dtype, args->b.dtype, args->bias ? args->bias->dtype : d,
                               args->a_sum ? args->a_sum->dtype : d};
    for (int i = 0; i < 4; i++)
        if (others[i] != d)
            return cti_fail(s->err, CT_EDTYPE, "matmul: %s with %s", ct_dtype_name(d),
                            ct_dtype_name(others[i]));
    return CT_OK;
}

static bool is_empty(const ct_matmul_args *args)
{
    return !ct_view_numel(&args->y) || !args->a.shape[args->a.ndim - 1];
}

int cti_cuda_matmul_workspace(ct_stream *s, const ct_matmul_args *args, size_t *bytes)
{
    plan pl;
    *bytes = 0;
    int r = check_dtype(s, args);
    if (r < 0)
        return r;
    if (is_empty(args)) {
        if (args->a_sum && ct_view_numel(args->a_sum)) {
            ct_view sum = column(args->a_sum);
            *bytes = cti_cuda_reduce_workspace(s, CT_RED_SUM, &sum, &args->a);
        }
        return CT_OK;
    }
    r = make_plan(s, args, &pl);
    if (r == CT_OK) /* the sum comes after the product: one workspace serves both */
        *bytes =
            pl.a.bytes + pl.b.bytes + (pl.apart > pl.e->workspace ? pl.apart : pl.e->workspace);
    return r;
}

static ct_view wide_bias(const ct_matmul_args *args)
{
    ct_view v = args->y;
    v.data = args->bias->data;
    for (int i = 0; i < v.ndim; i++)
        v.stride[i] = i == v.ndim - 1;
    return v;
}

static int sum_of_a(ct_stream *s, const ct_matmul_args *args, void *workspace)
{
    ct_view sum = column(args->a_sum);
    return cti_cuda_reduce(s, CT_RED_SUM, &sum, 0, &args->a, 1, workspace);
}

/* K = 0, or no y: cublasLt refuses these. */
static int run_empty(ct_stream *s, const ct_matmul_args *args)
{
    int r = CT_OK;
    if (args->bias) {
        ct_view bias = wide_bias(args);
        r = cti_cuda_copy(s, &args->y, &bias);
    } else if (!args->beta) {
        r = cti_cuda_fill(s, &args->y, 0);
    }
    return r < 0 || !args->a_sum ? r : sum_of_a(s, args, args->workspace);
}

static int multiply(ct_stream *s, const ct_matmul_args *args, const plan *pl, void *workspace)
{
    const problem *p = &pl->p;
    const int outer = p->nb > 1 ? p->nb - 1 : 0;
    const int64_t es = (int64_t)ct_dtype_bytes(args->y.dtype);
    const float one = 1, beta = args->beta ? 1 : 0;
    const lt_entry *e = pl->e;
    void *vector = vector_of(args, e->key.epilogue);
    int64_t count = 1;
    int r = CT_OK;
    if (vector)
        r = cti_lt_check(s, set_vector(e->op, vector), "cublasLtMatmulDescSetAttribute");
    for (int i = 0; i < outer; i++)
        count *= p->batch[i];
    for (int64_t t = 0; t < count && r == CT_OK; t++) {
        char *a = pl->a.data, *b = pl->b.data, *y = args->y.data;
        int64_t at = t;
        for (int i = outer - 1; i >= 0; i--) {
            const int64_t c = at % p->batch[i];
            at /= p->batch[i];
            a += c * p->ab[i] * es;
            b += c * p->bb[i] * es;
            y += c * p->yb[i] * es;
        }
        r = cti_lt_check(s,
                         cublasLtMatmul(s->lt, e->op, &one, b, e->b, a, e->a, &beta, y, e->d, y,
                                        e->d, &e->algo, workspace, e->workspace, s->compute),
                         "cublasLtMatmul");
    }
    return r;
}

int cti_cuda_matmul(ct_stream *s, const ct_matmul_args *args)
{
    plan pl;
    char *workspace = args->workspace;
    int r = check_dtype(s, args);
    if (r < 0)
        return r;
    if (is_empty(args))
        return run_empty(s, args);
    r = make_plan(s, args, &pl);
    operand *both[] = {&pl.a, &pl.b};
    for (int i = 0; i < 2 && r == CT_OK; i++) {
        if (!both[i]->copied)
            continue;
        both[i]->data = both[i]->to.data = workspace;
        workspace += both[i]->bytes;
        r = cti_cuda_copy(s, &both[i]->to, &both[i]->from);
    }
    if (r == CT_OK)
        r = multiply(s, args, &pl, workspace);
    if (r == CT_OK && pl.add_bias) {
        ct_view bias = wide_bias(args);
        r = cti_cuda_binary(s, CT_BIN_ADD, &args->y, &args->y, &bias);
    }
    return r == CT_OK && pl.sum_apart ? sum_of_a(s, args, workspace) : r;
}

/* ---- opening ---- */

int cti_lt_open(ct_stream *s)
{
    s->lt_cache = cti_alloc(s->mem, sizeof *s->lt_cache, "cublasLt algorithms");
    if (!s->lt_cache)
        return cti_fail(s->err, CT_ENOMEM, "out of memory for cublasLt's algorithms");
    int r = cti_lt_check(s, cublasLtCreate(&s->lt), "opening cublasLt");
    if (r < 0)
        s->lt = NULL;
    return r;
}

void cti_lt_close(ct_stream *s)
{
    cti_lt_cache *c = s->lt_cache;
    for (int i = 0; c && i < BUCKETS; i++) {
        while (c->bucket[i]) {
            lt_entry *e = c->bucket[i];
            c->bucket[i] = e->next;
            drop(s, e);
        }
    }
    if (s->lt)
        cublasLtDestroy(s->lt);
    cti_free(s->mem, c);
    s->lt = NULL;
    s->lt_cache = NULL;
}
