/* test_bench.c - benchmark cases as text, data patterns that show errors, and one rank's measurement. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/dtype.h"
#include "bench/data_pattern.h"
#include "bench/measure.h"
#include "test.h"

static void case_as_text(void) {
    gw_bench_case c = {.collective = GW_COLL_REDUCE_SCATTER, .dtype = GW_BF16, .op = GW_AVG, .root = 3,
                       .count = (size_t)1 << 40, .warmup = 5, .calls = 7, .check = true,
                       .memory = GW_BENCH_REGISTERED},
                  back = {0};
    char line[GW_BENCH_LINE_BYTES];
    gw_bench_case_print(&c, line);
    CHECK(gw_bench_case_parse(line, &back));
    CHECK(back.collective == c.collective && back.dtype == c.dtype && back.op == c.op && back.root == 3);
    CHECK(back.count == c.count && back.warmup == 5 && back.calls == 7 && back.check &&
          back.memory == GW_BENCH_REGISTERED);
    CHECK(!gw_bench_case_parse("run allreduce f32 sum 0 1 1 1 1", &back));
    CHECK(!gw_bench_case_parse("run allreduce f32 sum 0 1 1 1 1 1 1", &back));
    CHECK(!gw_bench_case_parse("run allreduce f33 sum 0 1 1 1 1 1", &back));
    CHECK(!gw_bench_case_parse("run allreduce f32 sum 0 1 1 99999999 1 1", &back));
}

static void sizes_and_bandwidths(void) {
    CHECK(gw_bench_count(GW_COLL_ALLREDUCE, GW_F32, 4, 4096) == 1024);
    CHECK(gw_bench_count(GW_COLL_ALLGATHER, GW_F32, 4, 4096) == 256);
    CHECK(gw_bench_total(&(gw_bench_case){.collective = GW_COLL_ALLGATHER, .count = 256}, 4) == 1024);
    CHECK(fabs(gw_bench_bus_factor(GW_COLL_ALLREDUCE, 4) - 1.5) < 1e-9);
    CHECK(fabs(gw_bench_bus_factor(GW_COLL_ALLTOALL, 4) - 0.75) < 1e-9);
    CHECK(gw_bench_bus_factor(GW_COLL_BROADCAST, 4) == 1);
}

/* A pattern is found again wherever it begins; anything else is noticed: one element, a shift, another rank, another
 * salt. */
static void check_pattern(gw_dtype dtype, gw_redop op) {
    enum { COUNT = 3 * GW_PATTERN_PERIOD + 17 };
    gw_pattern one = {0}, other = {0};
    size_t bytes = gw_dtype_bytes(dtype);
    uint8_t *memory = calloc(COUNT, bytes);
    CHECK(memory && gw_pattern_of_rank(&one, dtype, op, 2, false) == GW_OK);
    CHECK(gw_pattern_of_rank(&other, dtype, op, 3, false) == GW_OK);
    gw_pattern_fill(&one, memory, 100, COUNT, 5);
    CHECK(gw_pattern_wrong(&one, memory, 100, COUNT, 5) == 0);
    CHECK(gw_pattern_wrong(&one, memory + 1000 * bytes, 1100, COUNT - 1000, 5) == 0);
    CHECK(gw_pattern_wrong(&one, memory, 101, COUNT, 5) > COUNT / 4);
    CHECK(gw_pattern_wrong(&one, memory, 100, COUNT, 4) > COUNT / 4);
    CHECK(gw_pattern_wrong(&other, memory, 100, COUNT, 5) > COUNT / 4);
    memory[(COUNT - 1) * bytes] ^= 1;
    memory[bytes] ^= 1;
    CHECK(gw_pattern_wrong(&one, memory, 100, COUNT, 5) == 2);
    gw_pattern_free(&one);
    gw_pattern_free(&other);
    free(memory);
}

static void patterns_notice(void) {
    for (int dtype = 0; dtype < GW_DTYPES; dtype++)
        for (int op = 0; op < GW_REDOPS; op++)
            if (!gw_redop_refuses((gw_dtype)dtype, (gw_redop)op)) check_pattern((gw_dtype)dtype, (gw_redop)op);
}

static void pattern_of_all_is_the_sum(void) {
    gw_pattern all = {0}, part = {0};
    double sums[64] = {0};
    for (int r = 0; r < 5; r++) {
        CHECK(gw_pattern_of_rank(&part, GW_F64, GW_SUM, r, false) == GW_OK);
        for (int i = 0; i < 64; i++) sums[i] += ((const double *)part.block)[i];
        gw_pattern_free(&part);
    }
    CHECK(gw_pattern_of_all(&all, GW_F64, GW_SUM, 5, false) == GW_OK);
    CHECK(memcmp(all.block, sums, sizeof sums) == 0);
    gw_pattern_free(&all);
}

/* A world of one rank with a fake library: right results, wrong results, or failure. */
typedef struct fake {
    int calls, barriers;
    bool spoils, fails;
} fake;

static gw_status fake_call(void *ctx, const gw_bench_case *c, const gw_bench_buffers *b, gw_error *error) {
    fake *f = ctx;
    f->calls++;
    if (f->spoils) memset(b->out, 0, c->count * gw_dtype_bytes(c->dtype));
    return f->fails ? gw_fail(error, GW_SYSTEM, "as told") : GW_OK;
}

static gw_status fake_meet(void *ctx, gw_error *error) {
    (void)error;
    ((fake *)ctx)->barriers++;
    return GW_OK;
}

static gw_status measure(fake *f, bool check, gw_bench_tally *tally) {
    static const gw_bench_library library = {.call = fake_call};
    gw_bench_rank rank = {.library = &library, .ctx = f, .meet = fake_meet, .meet_ctx = f, .rank = 0, .world = 1};
    gw_bench_case c = {.collective = GW_COLL_ALLREDUCE, .dtype = GW_F32, .op = GW_SUM, .count = 1000, .warmup = 2,
                       .calls = 3, .check = check};
    gw_bench_work *work = NULL;
    uint64_t times[3];
    gw_error error = {0};
    CHECK(gw_bench_open(&work, &rank, &c, &error) == GW_OK && gw_bench_fits(work, &c));
    gw_status status = gw_bench_measure(work, &c, times, tally, &error);
    c.count++;
    CHECK(!gw_bench_fits(work, &c));
    gw_bench_close(work);
    return status;
}

static void measurements(void) {
    gw_bench_tally tally;
    fake good = {0}, bad = {.spoils = true}, broken = {.fails = true};
    CHECK(measure(&good, true, &tally) == GW_OK && tally.wrong == 0 && tally.cpu_ns > 0 && good.calls == 5 &&
          good.barriers == 6);
    CHECK(measure(&bad, false, &tally) == GW_OK && tally.wrong == 2000);
    CHECK(measure(&bad, true, &tally) == GW_OK && tally.wrong == 5000);
    CHECK(measure(&broken, true, &tally) == GW_SYSTEM && broken.calls == 1);
}

TEST_MAIN(CASE(case_as_text), CASE(sizes_and_bandwidths), CASE(patterns_notice), CASE(pattern_of_all_is_the_sum),
          CASE(measurements))
