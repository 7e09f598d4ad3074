/* vectors_avx512.c - the loops of vectors.h for CPUs with AVX-512. */
#if defined(__x86_64__)
#if defined(__clang__)
#pragma clang attribute push(__attribute__((target("avx512f,avx512dq,avx512bw,avx512vl"))), apply_to = function)
#else
#pragma GCC target("avx512f,avx512dq,avx512bw,avx512vl")
#endif

#define TABLE gw_vectors_avx512
#include "nn/vectors_body.h"

#if defined(__clang__)
#pragma clang attribute pop
#endif
#endif
