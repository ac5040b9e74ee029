/* SPDX-License-Identifier: Apache-2.0 */
/* Plans of cuDNN, made once for each problem. A plan is an operation graph (the cudnnBackend* API), an
 * engine that takes it and gives the same bytes each time, and its workspace. */
#ifndef BACKEND_CUDA_DNN_H
#define BACKEND_CUDA_DNN_H

#include "backend/cuda/cuda.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef enum cti_dnn_kind {
    CTI_DNN_FORWARD,
    CTI_DNN_FORWARD_BIAS,
    CTI_DNN_BACKWARD_DATA,
    CTI_DNN_BACKWARD_WEIGHT,
    CTI_DNN_NORM_TRAIN,
    CTI_DNN_NORM_GRAD,
    CTI_DNN_KINDS
} cti_dnn_kind;

/* The problem: all of it that a plan depends on. Zero at first; compared as bytes. Data is channels-last,
 * weights [K,C/groups,R,S] are row-major. */
typedef struct cti_dnn_key {
    int32_t kind;    /* a cti_dnn_kind */
    int32_t dtype;   /* of the data; parameters and statistics of norms are f32 */
    int32_t aligned; /* all data begins at a multiple of 16 bytes */
    int32_t running; /* CTI_DNN_NORM_TRAIN: there are running statistics */
    int64_t n, c, h, w;
    int64_t k, r, s, p, q, groups; /* convolutions */
    int64_t stride[2], dilation[2], pad_begin[2], pad_end[2];
} cti_dnn_key;

/* The tensors of the graphs. Running statistics are read and written in place. */
enum {
    CTI_DNN_X = 1, /* or dx */
    CTI_DNN_Y,     /* or dy */
    CTI_DNN_W,     /* or dw */
    CTI_DNN_BIAS,
    CTI_DNN_DX, /* norms */
    CTI_DNN_SCALE,
    CTI_DNN_MEAN,
    CTI_DNN_INVSTD,
    CTI_DNN_DSCALE,
    CTI_DNN_DBIAS,
    CTI_DNN_EPS,      /* a float on the host, read by the call */
    CTI_DNN_MOMENTUM, /* likewise */
    CTI_DNN_RUNNING_MEAN,
    CTI_DNN_RUNNING_VAR,
    CTI_DNN_NEXT_MEAN, /* written: the same memory as RUNNING_MEAN */
    CTI_DNN_NEXT_VAR,
    CTI_DNN_TENSORS
};

typedef struct cti_dnn_plan cti_dnn_plan;

/* *plan is NULL where no engine takes the problem: remembered. Plans stay until the stream is closed, since
 * captured work runs their code. A problem that is new during a capture is an error. */
int cti_dnn_get(ct_stream *s, const cti_dnn_key *key, const cti_dnn_plan **plan);
size_t cti_dnn_workspace(const cti_dnn_plan *plan);
/* data[i] belongs to the tensor uid[i]; all tensors of the graph must be there. */
int cti_dnn_run(ct_stream *s, const cti_dnn_plan *plan, int n, const int64_t *uid,
                void *const *data, void *workspace);

#ifdef __cplusplus
}
#endif

#endif
