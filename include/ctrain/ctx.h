/* SPDX-License-Identifier: Apache-2.0 */
/* The context: device, allocator, error record, scopes, grad mode, random numbers, counters. There is
 * no other mutable state in ctrain. One thread uses a context at a time; many contexts run side by
 * side. */
#ifndef CTRAIN_CTX_H
#define CTRAIN_CTX_H

#include <ctrain/dtype.h>
#include <ctrain/error.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct ct_ctx ct_ctx;
typedef struct ct_tensor ct_tensor;

typedef struct ct_ctx_opts {
    const char *device; /* "auto", "cpu", "cuda", "cuda:N" */
    int threads;        /* CPU threads; 0: as many as the process may run on */
    bool tf32;      /* CUDA: f32 products may round their operands to TF32 (10 bits of mantissa) */
    ct_dtype dtype; /* of parameters and of data turned to floats: CT_F32, or CT_F64 for checks */
    uint64_t seed;
    /* The application's allocator; NULL members: the C library's. Called from any thread. */
    void *(*alloc)(size_t bytes, size_t align, void *user);
    void (*free)(void *p, void *user);
    void *user;
    /* No caching of freed memory: each block goes back at once, so that sanitizers see every use after
     * free. The default in a build with AddressSanitizer. */
    bool direct_alloc;
    /* Told at ct_ctx_free of what is still alive, by maker (leaks of the application). Optional. */
    void (*on_leak)(const char *maker, uint64_t blocks, uint64_t bytes, void *user);
} ct_ctx_opts;

/* auto, all threads, f32, seed 0. */
ct_ctx_opts ct_ctx_defaults(void);

/* NULL with err filled (CT_EINVAL, CT_EDEVICE, CT_ENOMEM). Owned. */
CT_NODISCARD ct_ctx *ct_ctx_new(ct_ctx_opts opts, ct_error *err);
/* Frees the context and every tensor, module and optimizer memory still in it; their handles must
 * not be used any more. NULL is fine. */
void ct_ctx_free(ct_ctx *ctx);

/* ---- errors ---- The first error since the last clear stays. While one is pending, tensor
 * expressions return NULL and acting calls return its code. */
int ct_error_code(const ct_ctx *ctx);            /* CT_OK when none is pending */
const ct_error *ct_error_get(const ct_ctx *ctx); /* borrowed; text "" when none is pending */
void ct_error_clear(ct_ctx *ctx);
/* Records an error of the application's own (a module's forward) unless one is pending. */
int ct_error_raise(ct_ctx *ctx, int code, const char *where, const char *fmt, ...) CT_PRINTF(4, 5);
/* The record itself, for calls that take a ct_error. Borrowed. */
ct_error *ct_error_record(ct_ctx *ctx);

/* ---- scopes ---- Each op's result belongs to the innermost open scope and goes when it ends, unless
 * it was retained, or handed up with ct_scope_return. Outside all scopes results live as long as the
 * context. A scope also sets the grad mode; its end restores it. */
typedef enum ct_scope_flags {
    CT_SCOPE_PLAIN = 0,
    CT_SCOPE_NO_GRAD = 1, /* nothing is recorded (PyTorch: no_grad) */
    CT_SCOPE_GRAD = 2,    /* recording on again inside NO_GRAD (PyTorch: enable_grad) */
    /* One training step: ending it with more live graph nodes than it began with records CT_ESTATE that
     * names the newest op alive (the `total += loss` leak). */
    CT_SCOPE_STEP = 4,
    /* Nothing is recorded, CT_SCOPE_GRAD inside changes nothing, and tensors made here have no version counter:
     * they can't be saved for a backward or be changed in place later (PyTorch: inference_mode). */
    CT_SCOPE_INFERENCE = 8,
    /* Anomaly detection (PyTorch: detect_anomaly), slow: after each op, forward and backward, its results are
     * looked at. Where an op makes a NaN or an Inf of operands that had none, CT_ENONFINITE names it, where it is
     * (ct_label_begin; modules do that), the shapes and what its operands are like. NaN or Inf that only
     * pass through are no error until ct_backward is called on them. */
    CT_SCOPE_ANOMALY = 16,
    /* Mixed precision (PyTorch: autocast): ops take their float32, bfloat16 and float16 operands by a policy of each
     * op. Products of matrices and convolutions run in this dtype; sums, means, norms, softmax, losses, exp, log, pow
     * and their like in float32; where operands differ in dtype the others take the widest, and in place that of
     * what is changed. Parameters stay float32, as do their gradients; the copies of them that are used are kept
     * until they change. float64 is left alone. Around forward and loss, not around backward, which takes
     * the dtypes that forward had. OFF inside: as without. */
    CT_SCOPE_AUTOCAST_BF16 = 32,
    CT_SCOPE_AUTOCAST_F16 = 64,
    CT_SCOPE_AUTOCAST_OFF = 128,
} ct_scope_flags;

int ct_scope_begin(ct_ctx *ctx, unsigned flags);
/* CT_ESTATE for a step that leaked, or when no scope is open. Ends the scope also when an error is
 * pending, and then returns it. */
int ct_scope_end(ct_ctx *ctx);
/* Hands t (a result of this scope) to the enclosing scope. Returns t; NULL passes through. */
ct_tensor *ct_scope_return(ct_tensor *t);
bool ct_grad_enabled(const ct_ctx *ctx);
bool ct_anomaly_enabled(const ct_ctx *ctx);
/* Is autocast on here? *dtype (or NULL): its dtype, float32 when it is off. */
bool ct_autocast_enabled(const ct_ctx *ctx, ct_dtype *dtype);
/* What is being computed, for anomaly detection: names that nest ("encoder.0"). Begin and end pair. */
void ct_label_begin(ct_ctx *ctx, const char *name);
void ct_label_end(ct_ctx *ctx);

/* ---- random numbers ---- Philox: a draw depends on (seed, stream, step, micro-batch, ordinal of the call
 * in it, index of the element), on nothing else. */
void ct_ctx_set_seed(ct_ctx *ctx, uint64_t seed);
uint64_t ct_ctx_seed(const ct_ctx *ctx);
/* Where the next dropout draws: call it before each micro-batch. Sets the ordinal to 0. */
void ct_ctx_set_position(ct_ctx *ctx, uint32_t step, uint32_t micro);

/* ---- looking in ---- */
typedef struct ct_counters {
    uint64_t allocs; /* calls to the allocator, host and device, since the start */
    uint64_t live_blocks, live_bytes, peak_bytes;
    uint64_t live_tensors;
    uint64_t live_nodes;  /* of the tape */
    uint64_t saved_bytes; /* that live nodes keep for backward */
    uint64_t primitives;  /* oneDNN primitives (CUDA: plans) created */
    uint64_t syncs;       /* waits for the device */
    uint64_t wanted_bytes,
        room_bytes; /* of the last allocation that failed: its size, what was free */
} ct_counters;

ct_counters ct_ctx_counters(const ct_ctx *ctx);

/* Device memory by the op that asked for it: its results, what it keeps for backward, its gradients and scratch;
 * "tensors" is what no op made. */
typedef struct ct_op_memory {
    const char *name; /* as the op's; borrowed */
    uint64_t live_bytes, peak_bytes;
} ct_op_memory;
/* Fills out[0..cap), the largest peak first when all fit; returns how many there are. */
int ct_ctx_op_memory(const ct_ctx *ctx, ct_op_memory *out, int cap);
void ct_ctx_reset_peaks(ct_ctx *ctx); /* of these: each becomes what is live now */
ct_dtype ct_ctx_dtype(const ct_ctx *ctx);

typedef struct ct_build_info {
    const char *version; /* "0.1.0" */
    char device[64];     /* "cpu" */
    char isa[64];        /* "avx512_core_bf16" */
    char libraries[96];  /* "oneDNN 2.6.3" */
    int threads;         /* the team the device really runs */
} ct_build_info;

void ct_ctx_build_info(ct_ctx *ctx, ct_build_info *out);
/* Why device = auto chose the CPU: "no NVIDIA driver (libcuda.so.1 not found)"; "" when it didn't. Borrowed. */
const char *ct_ctx_fallback(const ct_ctx *ctx);
const char *ct_version(void);

/* Test mode: the n-th allocation from now fails, and all after it when `sticky`; 0 ends it. */
void ct_ctx_fail_alloc_at(ct_ctx *ctx, uint64_t n, bool sticky);
/* True when the n-th allocation was reached. */
bool ct_ctx_alloc_failed(const ct_ctx *ctx);

#ifdef __cplusplus
}
#endif
#endif
