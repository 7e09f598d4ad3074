/* low_rank_avx512.c - the products of low_rank.h for CPUs with AVX-512 (F, BW, DQ, VL). */
#if defined(__x86_64__)
#if defined(__clang__)
#pragma clang attribute push(__attribute__((target("avx512f,avx512bw,avx512dq,avx512vl"))), apply_to = function)
#else
#pragma GCC target("avx512f,avx512bw,avx512dq,avx512vl")
#endif

#define VECTOR_BYTES 64
#define DOT_ROWS 4
#define DOT_COLS 4
#define ROWS 4
#define TABLE gw_low_rank_avx512
#include "compress/low_rank_body.h"

#if defined(__clang__)
#pragma clang attribute pop
#endif
#endif
