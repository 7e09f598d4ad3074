/* kernels_avx512.c - passes of kernels.h for CPUs with AVX-512. */
#if defined(__x86_64__)
#include <immintrin.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#if defined(__clang__)
#pragma clang attribute push(__attribute__((target("avx512f,avx512bw,avx512dq,avx512vl,popcnt"))), apply_to = function)
#else
#pragma GCC target("avx512f,avx512bw,avx512dq,avx512vl,popcnt")
#endif

#define VECTOR_BYTES 64
#define TABLE gw_kernels_avx512
#include "compress/kernels_body.h"

#if defined(__clang__)
#pragma clang attribute pop
#endif
#endif
