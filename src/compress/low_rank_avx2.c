/* low_rank_avx2.c - the products of low_rank.h for CPUs with AVX2. */
#if defined(__x86_64__)
#if defined(__clang__)
#pragma clang attribute push(__attribute__((target("avx2"))), apply_to = function)
#else
#pragma GCC target("avx2")
#endif

#define VECTOR_BYTES 32
#define DOT_ROWS 2
#define DOT_COLS 2
#define ROWS 2
#define TABLE gw_low_rank_avx2
#include "compress/low_rank_body.h"

#if defined(__clang__)
#pragma clang attribute pop
#endif
#endif
