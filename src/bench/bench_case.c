/* bench_case.c - see bench_case.h. */
#include "bench/bench_case.h"

#include <stdio.h>

#include "base/dtype.h"

static bool has_parts(gw_collective collective) {
    return collective == GW_COLL_REDUCE_SCATTER || collective == GW_COLL_ALLGATHER || collective == GW_COLL_GATHER ||
           collective == GW_COLL_SCATTER || collective == GW_COLL_ALLTOALL;
}

bool gw_bench_reduces(gw_collective collective) {
    return collective == GW_COLL_ALLREDUCE || collective == GW_COLL_REDUCE || collective == GW_COLL_REDUCE_SCATTER;
}

bool gw_bench_has_root(gw_collective collective) {
    return collective == GW_COLL_REDUCE || collective == GW_COLL_BROADCAST || collective == GW_COLL_GATHER ||
           collective == GW_COLL_SCATTER;
}

size_t gw_bench_count(gw_collective collective, gw_dtype dtype, int world, uint64_t bytes) {
    if (collective == GW_COLL_BARRIER) return 0;
    size_t count = bytes / gw_dtype_bytes(dtype);
    return has_parts(collective) ? count / (size_t)world : count;
}

size_t gw_bench_total(const gw_bench_case *c, int world) {
    return has_parts(c->collective) ? c->count * (size_t)world : c->count;
}

double gw_bench_bus_factor(gw_collective collective, int world) {
    double others = (double)(world - 1) / world;
    if (collective == GW_COLL_ALLREDUCE) return 2 * others;
    return has_parts(collective) ? others : 1;
}

void gw_bench_case_print(const gw_bench_case *c, char line[GW_BENCH_LINE_BYTES]) {
    snprintf(line, GW_BENCH_LINE_BYTES, "run %s %s %s %d %zu %d %d %d %d", gw_collective_name(c->collective),
             gw_dtype_name(c->dtype), gw_redop_name(c->op), c->root, c->count, c->warmup, c->calls, c->check,
             (int)c->memory);
}

bool gw_bench_case_parse(const char *line, gw_bench_case *c) {
    char collective[24], dtype[8], op[8];
    int check, memory, used = 0;
    if (sscanf(line, "run %23s %7s %7s %d %zu %d %d %d %d%n", collective, dtype, op, &c->root, &c->count, &c->warmup,
               &c->calls, &check, &memory, &used) != 9 ||
        line[used])
        return false;
    c->check = check;
    c->memory = (gw_bench_memory)memory;
    if (memory < GW_BENCH_MALLOC || memory > GW_BENCH_REGISTERED) return false;
    return gw_collective_parse(collective, &c->collective) && gw_dtype_parse(dtype, &c->dtype) &&
           gw_redop_parse(op, &c->op) && c->warmup >= 0 && c->calls >= 0 && c->calls <= GW_BENCH_CALLS_MAX;
}
