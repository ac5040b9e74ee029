/* SPDX-License-Identifier: Apache-2.0 */
/* What the files of the engine share. Op files see op.h alone. */
#ifndef AUTOGRAD_INTERNAL_H
#define AUTOGRAD_INTERNAL_H

#include "autograd/op.h"
#include "backend/device.h"
#include <ctrain/autograd.h>

#define CTI_MAX_OUT    4
#define CTI_MAX_SLOTS  6
#define CTI_MAX_TEMPS  8
#define CTI_ATTR_BYTES 160

/* Refcounted bytes on the device. A freed storage keeps its memory and waits in its context's cache. */
typedef struct cti_storage {
    ct_ctx *ctx;
    struct cti_pool *pool; /* where it goes when it is released */
    struct cti_storage *next_free;
    struct cti_storage *live_prev, *live_next; /* all of the context, free ones too */
    void *data;
    size_t bytes; /* of the size class: at least what was asked for */
    int size_class;
    int refs;
    uint64_t version;                 /* in-place changes so far */
    bool inference;                   /* made in inference mode: its version says nothing */
    struct cti_usage *usage;          /* of the op that asked for it */
    const struct ct_capture *capture; /* that has it in its list already */
} cti_storage;

#define CTI_SIZE_CLASSES 512

/* What the results, gradients and scratch of one op take. */
typedef struct cti_usage {
    const char *name; /* the op's own text: its address is the key */
    uint64_t live_bytes, peak_bytes;
} cti_usage;

#define CTI_USAGES 512 /* a power of two */

typedef struct cti_pool {
    cti_storage *free[CTI_SIZE_CLASSES];
} cti_pool;

typedef struct cti_scope cti_scope;

/* What is called with a gradient: one of fn, after, keeper. */
typedef struct cti_hook {
    struct cti_hook *next;
    uint64_t id;
    int nr;             /* which output of the node */
    ct_grad_hook fn;    /* may replace the gradient */
    ct_leaf_hook after; /* of a leaf: its gradient has been added to */
    void *user;
    ct_tensor *keeper; /* not owned: a result that keeps its gradient */
} cti_hook;

struct ct_tensor {
    ct_ctx *ctx;
    int refs;
    bool requires_grad;
    cti_storage *storage;
    ct_view view;      /* data points into the storage */
    cti_node *grad_fn; /* owned; NULL for leaves */
    int output_nr;
    cti_node *accumulator; /* a leaf's end of the graph: not owned, it owns us */
    ct_tensor *grad;       /* owned; leaves alone */
    ct_tensor *
        shadow; /* owned: of autocast; of shadow_version of the storage, cast in capture shadow_serial (0: by called work) */
    uint64_t shadow_version, shadow_serial;
    ct_tensor *origin;     /* a shadow's: whose it is; not owned */
    ct_tensor *grad_home;  /* owned: the fixed memory of grad, once the leaf was in captured work */
    cti_hook *hooks;       /* of a leaf: owned */
    bool keeps_grad;       /* a result with ct_tensor_retain_grad */
    bool untracked;        /* a view made while nothing was recorded */
    ct_tensor *base;       /* owned: what a view is a view of; it is none itself */
    uint64_t base_changes; /* base->changes when grad_fn was made */
    uint64_t changes;      /* recorded in-place changes of a base or of its views */
    cti_scope *scope;      /* that owns one reference; NULL: none */
    ct_tensor *scope_prev, *scope_next;
};

struct cti_scope {
    cti_scope *parent;
    ct_tensor *first;
    unsigned flags;
    bool outer_grad_mode, outer_inference, outer_anomaly, outer_autocast;
    ct_dtype outer_autocast_dtype;
    uint64_t live_nodes_at_begin;
};

typedef struct cti_edge {
    cti_node *fn; /* owned; NULL: no gradient wanted */
    int nr;       /* which output of fn */
} cti_edge;

typedef struct cti_slot {
    cti_storage *storage; /* owned; NULL: empty slot */
    uint64_t version;     /* when it was saved */
    ct_view view;
    char kind; /* 'x' input, 'y' output, 'n' new memory */
    int index; /* of the input or output */
} cti_slot;

/* A call of an op: a local record during forward, a node of the tape if a backward will come. */
struct cti_node {
    const ct_op *op;
    ct_ctx *ctx;
    cti_node *live_prev, *live_next, *dead_next;
    int refs;
    int n_in, n_out;
    bool recording;
    bool released; /* saved things are gone */
    bool had_saved;
    bool queued;    /* in the heap of a running backward */
    bool is_target; /* ct_grad wants what arrives here */
    uint64_t seq;
    uint64_t mark; /* cti_run.skip: leads to no target */
    size_t saved_bytes;
    bool inplace;    /* output 0 is input 0's memory */
    char *label;     /* owned: of anomaly detection */
    cti_hook *hooks; /* owned */
    ct_tensor *leaf; /* of an accumulator: owned */
    cti_slot saved[CTI_MAX_SLOTS];
    ct_view out_view[CTI_MAX_OUT];  /* data: forward alone */
    ct_tensor *y[CTI_MAX_OUT];      /* forward alone: owned */
    ct_tensor *dy[CTI_MAX_OUT];     /* gradients that arrived: owned */
    ct_tensor *temp[CTI_MAX_TEMPS]; /* of the running forward or backward: owned */
    int n_temps;
    _Alignas(16) unsigned char attr[CTI_ATTR_BYTES];
    ct_tensor *const *x; /* forward alone: borrowed */
    ct_tensor **dx;      /* [n_in] backward alone: fresh gradients, owned */
    ct_view *in_view;    /* [n_in]; data: forward alone */
    cti_edge *edge;      /* [n_in] */
};

/* A backward, or a ct_grad, while it runs. */
typedef struct cti_run {
    unsigned flags;
    uint64_t skip; /* the mark of nodes that are left out; 0: none is */
    int n_targets; /* ct_grad's inputs: where their gradients arrive, and what did */
    cti_edge *target;
    ct_tensor **got; /* NULL: leaves accumulate */
    int came;        /* of anomaly detection, for the node that runs */
} cti_run;

typedef struct cti_function cti_function;

/* A verdict of work queued before, in device memory: two numbers, the first -1 as long as all is well. */
typedef struct cti_late_slot {
    cti_late_report report;
    const ct_op *op;
    int64_t arg;
    cti_storage *storage;
    ct_view view;
} cti_late_slot;

#define CTI_MAX_LATE   24
#define CTI_MAX_LABELS 32

struct ct_ctx {
    cti_mem *mem;
    cti_cache *cache; /* tensors, nodes, scopes */
    cti_device device;
    ct_error err;
    ct_ctx_opts opts;
    cti_scope root;
    cti_scope *scope; /* innermost */
    bool grad_mode, inference, anomaly;
    bool autocast;
    ct_dtype autocast_dtype;
    bool saw_grad; /* an operand required grad, recorded or not */
    bool direct;
    char fallback[256]; /* why device = auto isn't CUDA */
    const ct_op *running;
    /* random numbers */
    uint64_t seed;
    uint32_t step, micro, dropout_ordinal, init_ordinal;
    /* the tape */
    uint64_t next_seq;
    cti_node *live_nodes; /* newest first */
    cti_node *dead_nodes;
    bool freeing_nodes;
    uint64_t n_live_nodes, n_live_tensors, saved_bytes;
    /* heap of a running backward, kept for the next */
    cti_node **heap;
    size_t heap_cap;
    size_t heap_n;
    cti_run *run; /* in a backward */
    /* for ct_grad */
    cti_node **order;
    size_t order_cap;
    uint64_t last_mark, last_hook;
    /* anomaly detection */
    char label[256];
    unsigned short label_end[CTI_MAX_LABELS];
    int n_labels;
    char passed_on[400];     /* the first op that handed a NaN or an Inf on */
    bool recomputing;        /* a checkpointed segment runs again */
    cti_function *functions; /* of the application, seen so far */
    /* memory */
    cti_usage usage[CTI_USAGES];
    cti_storage *storages; /* all, newest first */
    cti_pool main_pool, capture_pool;
    cti_pool *pool; /* where new storages come from */
    cti_storage *workspace;
    uint64_t capture_serial;         /* captures begun */
    size_t wanted_bytes, room_bytes; /* of the last failed allocation */
    /* captured work */
    struct ct_capture *capture; /* warming up or being captured */
    int n_captures;
    uint64_t capture_misses; /* storages that the captures' pool didn't have */
    cti_storage *position;   /* step and micro of random numbers in captured work */
    uint32_t sent[2];
    bool position_sent;
    /* verdicts that are read later */
    cti_late_slot late[CTI_MAX_LATE];
    int n_late;
    bool late_armed;
};

/* storage.c */
cti_storage *cti_storage_new(ct_ctx *ctx, size_t bytes); /* not zeroed; NULL: recorded */
void cti_storage_retain(cti_storage *st);
void cti_storage_release(cti_storage *st);
/* The same, never from the captures' pool: it lives longer than the work at hand. */
cti_storage *cti_storage_new_lasting(ct_ctx *ctx, size_t bytes);
void cti_pool_trim(ct_ctx *ctx, cti_pool *pool); /* frees what is cached */

/* tensor.c */
ct_tensor *cti_tensor_alloc(
    ct_ctx *ctx, ct_dtype dtype, int ndim, const int64_t *shape,
    const int64_t *stride); /* strides NULL: row-major. Not zeroed. refs 1 */
ct_tensor *cti_tensor_view_of(ct_ctx *ctx, cti_storage *st, const ct_view *view); /* refs 1 */
/* Checks before a write: pending error, mixed contexts, recording, expanded views. */
int cti_check_inplace(ct_ctx *ctx, ct_tensor *t, const char *who);

/* view.c */
void cti_row_major(int ndim, const int64_t *shape, int64_t *stride);
void cti_dense_order(const ct_view *like, int64_t *stride); /* dense strides in like's order */
bool cti_view_is_row_major(const ct_view *v);
bool cti_view_is_dense(const ct_view *v); /* covers its memory once, in some order */
bool cti_same_shape(const ct_view *a, const ct_view *b);

/* scope.c */
void cti_scope_adopt(ct_ctx *ctx, ct_tensor *t); /* takes over the caller's reference */
void cti_scope_leave(ct_tensor *t);

/* node.c */
cti_node *cti_node_new(ct_ctx *ctx, const ct_op *op, int n_in,
                       int n_out); /* refs 1; NULL: recorded */
void cti_node_retain(cti_node *n);
void cti_node_release(cti_node *n);
void cti_node_release_saved(cti_node *n);
void cti_save_tensor(cti_node *n, int slot, ct_tensor *t); /* neither input nor output */
void cti_node_drop_temps(cti_node *n);
void cti_node_set_live(cti_node *n);           /* counted, given a sequence number */
cti_node *cti_accumulator_of(ct_tensor *leaf); /* a new reference; NULL: recorded */
extern const ct_op cti_op_accumulate;

/* device.c */
int cti_device_open(ct_ctx *ctx); /* by ctx->opts */
bool cti_device_name_ok(const char *name);
/* Before any work: this thread may have used another device. */
static inline void cti_enter(ct_ctx *ctx)
{
    if (ctx->device.be->mem->enter)
        ctx->device.be->mem->enter(ctx->device.stream);
}

/* tape.c */
bool cti_is_exclusive(const ct_tensor *t);
int cti_add_into(ct_ctx *ctx, ct_tensor *dst, const ct_tensor *src);
int cti_deliver(ct_ctx *ctx, cti_edge to, ct_tensor *g); /* takes g over */
/* The nodes that the outputs lead to, newest first, into ctx->order: how many, or an error. */
int64_t cti_reachable(ct_ctx *ctx, int n_outputs, ct_tensor *const *outputs);
int cti_deliver_to(ct_tensor *t, ct_tensor *g); /* to where t's gradient goes; takes g over */
static inline bool cti_edge_wanted(const cti_node *n, int i)
{
    const cti_node *fn = n->edge[i].fn;
    return fn && !(n->ctx->run && n->ctx->run->skip && fn->mark == n->ctx->run->skip);
}

/* hooks.c */
int cti_run_hooks(cti_node *n);          /* on the gradients that came */
int cti_run_leaf_hooks(ct_tensor *leaf); /* after accumulation */
void cti_hooks_free(ct_ctx *ctx, cti_hook **list);
void cti_hooks_forget_keeper(ct_tensor *t); /* it is about to go */

/* apply.c */
typedef struct cti_apply_call {
    const ct_op *op;
    const void *attr;
    size_t attr_bytes;
    int n_in;
    ct_tensor *const *in;
    bool inplace;       /* output 0 is written over input 0 */
    bool always_record; /* also where no input requires grad */
} cti_apply_call;
int cti_apply_run(const cti_apply_call *call, int n_out, ct_tensor **out);

/* autocast.c */
bool cti_autocast_changes(const cti_apply_call *call);        /* is an operand to be cast? */
int cti_autocast(const cti_apply_call *call, ct_tensor **in); /* the operands to take */
ct_tensor *cti_uncast_gradient(cti_node *n, ct_tensor *g, const ct_tensor *leaf);

/* inplace.c */
int cti_tensor_sync(ct_tensor *t); /* a view's grad_fn, after its base was changed in place */

/* gradients.c */
ct_tensor *cti_saved_in_graph(cti_node *n, int slot); /* with its graph, whatever the mode */

/* function.c */
void cti_functions_free(ct_ctx *ctx);

/* anomaly.c */
int cti_anomaly_forward(cti_node *n);
int cti_anomaly_start(ct_ctx *ctx, const ct_tensor *output);
int cti_anomaly_came(cti_node *n); /* how bad it is: for cti_anomaly_gave */
int cti_anomaly_gave(cti_node *n, int i, const ct_tensor *g, int came);

/* accumulate.c */
int cti_accumulate(cti_node *n);
bool cti_home_is_free(const ct_tensor *leaf, const ct_tensor *g); /* does nobody else hold it? */

/* capture.c; changed apart, they do nothing unless work is being captured */
/* What runs now can't be replayed: work being captured is called from now on. CT_OK unless a capture has to stop
 * at once. */
int cti_capture_refuse(ct_ctx *ctx, const char *why);
bool cti_capture_is_recording(const ct_ctx *ctx);
void cti_storage_changed(cti_storage *st); /* in place: its version goes up */
void cti_capture_uses(ct_ctx *ctx, cti_storage *st);
void cti_capture_attached(ct_tensor *leaf); /* its gradient was NULL and is its home now */

/* late.c */
int cti_late_look(
    ct_ctx *ctx); /* reads the verdicts: waits for the device; the error, if there is one */
void cti_late_free(ct_ctx *ctx);

/* apply.c */
int cti_kernel_status(cti_node *n, const char *what,
                      int status); /* makes a text if the kernel didn't */

#endif
