/* cpu.c - see cpu.h. */
#include "base/cpu.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#if defined(__x86_64__)
#include <cpuid.h>
#endif

static const char *const level_names[] = {"plain", "avx2", "avx512"};

static _Atomic int level_in_force = -1; /* -1: not decided yet */

/* The compiler's builtin also checks that the operating system saves the registers. It does not know f16c. */
static gw_cpu_level hardware_level(void) {
#if defined(__x86_64__)
    unsigned a, b, c, d;
    if (!__get_cpuid(1, &a, &b, &c, &d) || !(c & bit_F16C)) return GW_CPU_PLAIN;
    if (!__builtin_cpu_supports("avx2")) return GW_CPU_PLAIN;
    if (!__builtin_cpu_supports("avx512f") || !__builtin_cpu_supports("avx512bw")) return GW_CPU_AVX2;
    if (!__builtin_cpu_supports("avx512dq") || !__builtin_cpu_supports("avx512vl")) return GW_CPU_AVX2;
    return GW_CPU_AVX512;
#else
    return GW_CPU_PLAIN;
#endif
}

/* An unknown name in the environment changes nothing. */
static gw_cpu_level allowed_level(void) {
    gw_cpu_level level = hardware_level();
    const char *name = getenv("GRADWIRE_CPU");
    for (int lower = GW_CPU_PLAIN; name && lower < (int)level; lower++) {
        if (strcmp(name, level_names[lower]) == 0) return (gw_cpu_level)lower;
    }
    return level;
}

gw_cpu_level gw_cpu(void) {
    int level = atomic_load_explicit(&level_in_force, memory_order_relaxed);
    if (level < 0) {
        level = (int)allowed_level();
        atomic_store_explicit(&level_in_force, level, memory_order_relaxed);
    }
    return (gw_cpu_level)level;
}

const char *gw_cpu_name(gw_cpu_level level) { return (unsigned)level <= GW_CPU_AVX512 ? level_names[level] : "?"; }

gw_cpu_level gw_cpu_limit(gw_cpu_level level) {
    gw_cpu_level allowed = allowed_level();
    if (level > allowed) level = allowed;
    atomic_store_explicit(&level_in_force, (int)level, memory_order_relaxed);
    return level;
}
