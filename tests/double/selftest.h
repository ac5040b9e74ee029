/* SPDX-License-Identifier: Apache-2.0 */
/* The kernels and the chapters of the double's own test. */
#ifndef DOUBLE_SELFTEST_H
#define DOUBLE_SELFTEST_H

#include <cstdint>
#include <cuda_bf16.h>
#include <cuda_runtime_api.h>

cudaError_t k_axpy(float *y, const float *x, float a, int64_t n, cudaStream_t s);
cudaError_t k_axpy_bf16(__nv_bfloat16 *y, const __nv_bfloat16 *x, float a, int64_t n,
                        cudaStream_t s);
cudaError_t k_sum(float *out, const float *x, int n, int blocks, cudaStream_t s);
cudaError_t k_features(int *x, unsigned *counts, int blocks, cudaStream_t s);
enum { WRONG_RACE, WRONG_OVERRUN, WRONG_DIVERGENT, WRONG_MASK, WRONG_BOUNDS };
cudaError_t k_wrong(int which, float *x, int n, cudaStream_t s);

/* Counts a failure and says where. */
extern int failures;
bool check(bool ok, const char *text, const char *file, int line);
#define CHECK(x) check((x), #x, __FILE__, __LINE__)
#define OK(x)    check((x) == 0, #x, __FILE__, __LINE__)

/* f must end the process with a finding (status 70) whose text has `words` in it. */
void check_fault(const char *what, const char *words, void (*f)());

float random_float();                         /* in [-1, 1) */
void *device(const void *from, size_t bytes); /* from NULL: undefined */
void host(void *to, const void *from, size_t bytes);
extern cudaStream_t stream;

void test_lt();
void test_dnn();
#endif
