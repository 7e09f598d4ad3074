/* bench_reduce.c - how fast reductions run beside memcpy: GB/s of bytes read and written, medians of interleaved
 * rounds, and each result checked against the reference.
 *
 *     bench_reduce [KiB of one buffer ...]     (default 256 and 65536) */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/cpu.h"
#include "base/dtype.h"
#include "base/reduce.h"
#include "base/rng.h"

#define BUFFERS 8
#define ROUNDS 15

typedef struct setting {
    const char *name;
    gw_dtype dtype;
    gw_redop op;
    int sources, destinations; /* buffers 0.. are the sources, and also the destinations where there are several */
} setting;

static const setting settings[] = {
    {"memcpy", GW_F32, GW_SUM, 1, 1},
    {"pair f32 sum", GW_F32, GW_SUM, 2, 1},
    {"pair f16 sum", GW_F16, GW_SUM, 2, 1},
    {"pair bf16 sum", GW_BF16, GW_SUM, 2, 1},
    {"pair f64 sum", GW_F64, GW_SUM, 2, 1},
    {"pair f32 max", GW_F32, GW_MAX, 2, 1},
    {"pair u8 sum", GW_U8, GW_SUM, 2, 1},
    {"many f32 avg of 3", GW_F32, GW_AVG, 3, 1},
    {"many i8 avg of 4", GW_I8, GW_AVG, 4, 1},
    {"many i32 avg of 4", GW_I32, GW_AVG, 4, 1},
    {"many f32 sum of 4", GW_F32, GW_SUM, 4, 1},
    {"many f32 sum of 7", GW_F32, GW_SUM, 7, 1},
    {"many f16 sum of 4", GW_F16, GW_SUM, 4, 1},
    {"many bf16 sum of 4", GW_BF16, GW_SUM, 4, 1},
    {"many f8e4m3 sum of 4", GW_F8E4M3, GW_SUM, 4, 1},
    {"many f8e5m2 sum of 4", GW_F8E5M2, GW_SUM, 4, 1},
    {"pair bool sum", GW_BOOL, GW_SUM, 2, 1},
    {"push f32 sum 2 to 2", GW_F32, GW_SUM, 2, 2},
    {"push f32 sum 4 to 4", GW_F32, GW_SUM, 4, 4},
    {"push f16 sum 4 to 4", GW_F16, GW_SUM, 4, 4},
};
#define SETTINGS (sizeof settings / sizeof settings[0])

static void fill(gw_dtype dtype, char *buffer, size_t bytes, uint64_t seed) {
    gw_rng rng = gw_rng_make(seed, (uint64_t)dtype);
    for (size_t i = 0; i < bytes; i += 4) {
        uint32_t word = gw_rng_u32(&rng);
        if (dtype == GW_F32 || dtype == GW_BF16) word = (word & 0x807fff7f) | 0x3f003f00;
        if (dtype == GW_F16) word = (word & 0x83ff83ff) | 0x38003800;
        if (dtype == GW_F64) word = (word & 0x800fffff) | 0x3f000000;
        memcpy(buffer + i, &word, 4);
    }
}

/* The last buffer is the destination where there is one. */
static void run(const setting *s, char *const *buffer, size_t bytes) {
    gw_reduction r = {.dtype = s->dtype, .op = s->op, .world = s->sources};
    size_t count = bytes / gw_dtype_bytes(s->dtype);
    char *dst = buffer[BUFFERS - 1];
    if (s->sources == 1) memcpy(dst, buffer[0], bytes);
    else if (s->destinations > 1)
        gw_reduce_push(r, (void *const *)buffer, s->destinations, (const void *const *)buffer, s->sources, count, true);
    else if (s->sources > 2) gw_reduce_many(r, dst, (const void *const *)buffer, s->sources, count);
    else gw_reduce_pair(r, dst, buffer[0], false, buffer[1], false, count, true);
}

static bool right(const setting *s, char *const *buffer, size_t bytes) {
    size_t checked = bytes < 1 << 20 ? bytes : 1 << 20;
    char *expected = malloc(checked);
    for (int i = 0; i < BUFFERS; i++) fill(s->dtype, buffer[i], checked, (uint64_t)i);
    gw_reduction r = {.dtype = s->dtype, .op = s->op, .world = s->sources};
    gw_reduce_many_reference(r, expected, (const void *const *)buffer, s->sources, checked / gw_dtype_bytes(s->dtype),
                             true);
    run(s, buffer, checked);
    bool same = memcmp(expected, buffer[s->destinations > 1 ? 0 : BUFFERS - 1], checked) == 0;
    free(expected);
    return same;
}

static int compare(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static int bench(size_t bytes) {
    char *buffer[BUFFERS];
    double seconds[SETTINGS][ROUNDS], rate_of_memcpy = 0;
    int wrong = 0;
    for (int i = 0; i < BUFFERS; i++) {
        if (posix_memalign((void **)&buffer[i], 4096, bytes) != 0) return 1;
        memset(buffer[i], 0, bytes);
    }
    size_t repeats = bytes < 16 << 20 ? (16 << 20) / bytes : 1;
    for (int round = 0; round < ROUNDS; round++) {
        for (size_t i = 0; i < SETTINGS; i++) {
            gw_time start = gw_clock_now();
            for (size_t n = 0; n < repeats; n++) run(&settings[i], buffer, bytes);
            seconds[i][round] = (double)(gw_clock_now() - start) / 1e9 / (double)repeats;
        }
    }
    printf("%zu KiB a buffer, %s\n", bytes >> 10, gw_cpu_name(gw_cpu()));
    for (size_t i = 0; i < SETTINGS; i++) {
        const setting *s = &settings[i];
        qsort(seconds[i], ROUNDS, sizeof(double), compare);
        double rate = (double)bytes * (s->sources + s->destinations) / seconds[i][ROUNDS / 2] / 1e9;
        if (i == 0) rate_of_memcpy = rate;
        bool ok = right(s, buffer, bytes);
        wrong += !ok;
        printf("  %-22s %7.2f GB/s  %5.2f of memcpy%s\n", s->name, rate, rate / rate_of_memcpy, ok ? "" : "  WRONG");
    }
    for (int i = 0; i < BUFFERS; i++) free(buffer[i]);
    return wrong;
}

int main(int argc, char **argv) {
    int wrong = 0;
    for (int i = 1; i < argc; i++) wrong += bench(strtoull(argv[i], NULL, 10) << 10);
    if (argc == 1) wrong = bench(256 << 10) + bench(65536 << 10);
    return wrong != 0;
}
