/* vectors.c - the loops of vectors.h for any CPU, and the choice of a version. */
#define TABLE gw_vectors_plain
#include "base/cpu.h"
#include "nn/vectors_body.h"

const gw_vectors *gw_vectors_get(void) {
#if defined(__x86_64__)
    switch (gw_cpu()) {
    case GW_CPU_AVX512: return &gw_vectors_avx512;
    case GW_CPU_AVX2: return &gw_vectors_avx2;
    case GW_CPU_PLAIN: break;
    }
#endif
    return &gw_vectors_plain;
}
