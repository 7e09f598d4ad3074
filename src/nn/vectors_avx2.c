/* vectors_avx2.c - the loops of vectors.h for CPUs with AVX2. */
#if defined(__x86_64__)
#if defined(__clang__)
#pragma clang attribute push(__attribute__((target("avx2"))), apply_to = function)
#else
#pragma GCC target("avx2")
#endif

#define TABLE gw_vectors_avx2
#include "nn/vectors_body.h"

#if defined(__clang__)
#pragma clang attribute pop
#endif
#endif
