/* SPDX-License-Identifier: Apache-2.0 */
/* Status codes and the error record. Every part of ctrain, and an application's own datasets and
 * models, report through these. */
#ifndef CTRAIN_ERROR_H
#define CTRAIN_ERROR_H

#ifdef __cplusplus
extern "C" {
#endif

#if defined(__GNUC__)
#define CT_NODISCARD         __attribute__((warn_unused_result))
#define CT_PRINTF(fmt, args) __attribute__((format(printf, fmt, args)))
#else
#define CT_NODISCARD
#define CT_PRINTF(fmt, args)
#endif

/* What an acting call returns: 0, or one of these (all negative). */
typedef enum ct_status {
    CT_OK = 0,
    CT_EINVAL = -1,        /* an argument is wrong in itself */
    CT_ESHAPE = -2,        /* shapes don't fit together */
    CT_EDTYPE = -3,        /* this dtype isn't accepted here */
    CT_ENOMEM = -4,        /* out of host or device memory */
    CT_ESTATE = -5,        /* right call, wrong moment (second backward, stale saved tensor) */
    CT_ENOTIMPL = -6,      /* not on this device, not in this build */
    CT_EIO = -7,           /* the system refused a read or a write (no rights, disk full) */
    CT_EFORMAT = -8,       /* a file is damaged or isn't what it should be */
    CT_EDATA = -9,         /* a sample or label is wrong */
    CT_ECONFIG = -10,      /* a config, a command line, or weights that don't fit the model */
    CT_EDEVICE = -11,      /* the device asked for isn't there or has failed */
    CT_ENONFINITE = -12,   /* loss or gradient became NaN or Inf and the run is told to stop */
    CT_EINTERRUPTED = -13, /* asked to stop; state was saved */
    CT_EBUSY = -14,        /* held by another process */
    CT_ECHECK = -15,       /* a check that was asked for failed (overfit-one-batch) */
    CT_EINTERNAL = -16,    /* a bug in ctrain: please report it */
} ct_status;

/* One error: the first that happened since the record was cleared. `text` is one line or more of
 * UTF-8 without a final newline: what, where, why and what to do. `where` is the function that
 * reported it. A zeroed record is the clear state. */
typedef struct ct_error {
    int code; /* ct_status */
    char where[48];
    char text[2048];
} ct_error;

/* Records an error unless one is pending in `err`, and returns `code` (so: `return
 * ct_error_set(...)`). For an application's datasets and models. `err` may be NULL. */
int ct_error_set(ct_error *err, int code, const char *where, const char *fmt, ...) CT_PRINTF(4, 5);

/* "CT_ESHAPE" for CT_ESHAPE; "CT_E?" for a number that is no code. Static storage. */
const char *ct_status_name(int code);

#ifdef __cplusplus
}
#endif
#endif
