/* kernels_avx2.c - passes of kernels.h for CPUs with AVX2. */
#if defined(__x86_64__)
#include <immintrin.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#if defined(__clang__)
#pragma clang attribute push(__attribute__((target("avx2,popcnt"))), apply_to = function)
#else
#pragma GCC target("avx2,popcnt")
#endif

#define VECTOR_BYTES 32
#define TABLE gw_kernels_avx2
#include "compress/kernels_body.h"

#if defined(__clang__)
#pragma clang attribute pop
#endif
#endif
