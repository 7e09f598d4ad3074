/* fault_sim_scenario.c - see fault_sim_scenario.h. */
#include "sim/fault_sim_scenario.h"

#include <stdlib.h>
#include <string.h>

#include "arch/choose_plan.h"
#include "base/dtype.h"
#include "base/element.h"
#include "base/rng.h"
#include "sim/draw.h"

static int pick(gw_rng *rng, int bound) { return (int)gw_rng_below(rng, (uint64_t)bound); }

/* Replaces a call by a send from any rank to any other. */
static gw_sim_call random_send(const gw_sim_scenario *s, gw_rng *rng, gw_sim_call call) {
    call.collective = GW_COLL_SEND;
    call.builder = &gw_plan_send_recv;
    call.root = pick(rng, s->world);
    call.peer = (call.root + 1 + pick(rng, s->world - 1)) % s->world;
    return call;
}

/* A group of tagged sends to one receiver. Either tags differ, and the receiver asks for them in reverse. Or all have
 * one tag, and it accepts them from any source (distinct ones, so that the source tells the call) or in order. */
static void random_tagged_group(gw_sim_scenario *s, gw_rng *rng, int first, int size) {
    static const size_t counts[] = {0, 1, 1000, 20000, 70000, 200000};
    int receiver = pick(rng, s->world), kind = pick(rng, 3);
    bool differ = kind == 0, any = kind == 1 && size < s->world;
    bool alike = differ && pick(rng, 2); /* only the tags differ: an offer must not reach the wrong send */
    int sender = pick(rng, s->world - 1);
    size_t count = counts[pick(rng, 6)];
    for (int c = first; c < first + size; c++) {
        int distance = any ? (sender + c - first) % (s->world - 1) : sender;
        if (differ && !alike) distance = pick(rng, s->world - 1);
        if (!any && !alike) count = counts[pick(rng, 6)];
        s->call[c] = (gw_sim_call){.collective = GW_COLL_SEND, .builder = &gw_plan_send_recv, .dtype = GW_U8,
                                   .count = count, .root = (receiver + 1 + distance) % s->world, .peer = receiver,
                                   .tagged = true, .any_source = any || (differ && pick(rng, 2)), .reversed = differ,
                                   .tag = differ ? c : first, .group = first, .group_size = size};
    }
}

/* Fills the calls from c on; returns how many. No rank can wait for more of a group than it may have in flight. */
static int random_tagged(gw_sim_scenario *s, gw_rng *rng, int c) {
    int most = s->calls - c < s->ahead ? s->calls - c : s->ahead;
    if (s->world < 2 || most < 1 || pick(rng, 5)) return 0;
    int size = 1 + pick(rng, most);
    random_tagged_group(s, rng, c, size);
    return size;
}

static gw_scale random_scale(gw_rng *rng) {
    static const double factors[] = {1, 2, 0.5, -0.25};
    double prescale = factors[pick(rng, 4)];
    return gw_scale_of(prescale, factors[pick(rng, 4)]);
}

static gw_sim_call random_call(const gw_sim_scenario *s, gw_rng *rng) {
    static const size_t counts[] = {0, 1, 3, 17, 100, 1023, 5000, 20000};
    gw_sim_call call = {.collective = (gw_collective)pick(rng, GW_COLL_BARRIER + 1),
                        .dtype = (gw_dtype)pick(rng, GW_DTYPES), .redop = (gw_redop)pick(rng, GW_REDOPS),
                        .count = counts[pick(rng, 8)], .root = -1};
    if (gw_redop_refuses(call.dtype, call.redop)) call.redop = GW_SUM;
    if (s->world > 1 && pick(rng, 6) == 0) return random_send(s, rng, call);
    if (pick(rng, 2)) call.collective = GW_COLL_ALLREDUCE;
    gw_scale scale = random_scale(rng);
    if (gw_sim_reduces(call.collective) && !gw_scale_refuses(call.dtype, call.redop)) call.scale = scale;
    bool large = call.collective == GW_COLL_ALLREDUCE || call.collective == GW_COLL_REDUCE ||
                 call.collective == GW_COLL_BROADCAST;
    if (!large || s->world > 64) call.count = call.count % 300;
    if (call.collective == GW_COLL_BARRIER) call.count = 0;
    call.in_place = call.collective == GW_COLL_ALLREDUCE && pick(rng, 2);
    bool parts = call.collective == GW_COLL_ALLGATHER || call.collective == GW_COLL_REDUCE_SCATTER ||
                 call.collective == GW_COLL_GATHER || call.collective == GW_COLL_SCATTER;
    call.uneven = parts && s->world <= 64 && pick(rng, 2); /* checking takes world^3 */
    if (call.collective == GW_COLL_ALLTOALL && s->world <= 64 && pick(rng, 2)) {
        call.collective = GW_COLL_ALLTOALLV;
        call.uneven = true;
    }
    bool rooted = call.collective == GW_COLL_REDUCE || call.collective == GW_COLL_BROADCAST ||
                  call.collective == GW_COLL_GATHER || call.collective == GW_COLL_SCATTER;
    if (rooted) call.root = pick(rng, s->world);
    gw_plan_request request = {.collective = call.collective, .count = call.count, .root = call.root,
                               .topology = {.world = s->world, .host_of = s->host_of}, .chunk_count = 1, .pipeline = 1};
    size_t *uneven = malloc(gw_counts_entries(GW_COLL_ALLTOALLV, s->world) * sizeof *uneven);
    if (!uneven && call.collective == GW_COLL_ALLTOALLV) call.collective = GW_COLL_ALLTOALL;
    call.uneven &= uneven != NULL;
    if (call.uneven) gw_sim_counts(s, &call, 0, uneven);
    request.collective = call.collective;
    request.counts = call.uneven ? uneven : NULL;
    gw_plan plan;
    call.builder = gw_arch_choose(gw_draw_technique(rng, GW_AXIS_ARCH)->name, &request, gw_dtype_bytes(call.dtype));
    bool wide = gw_plan_make(&plan, call.builder, &request, NULL) == GW_OK && plan.streams > (uint32_t)s->world;
    if (s->world > 64 && wide) /* every rank has streams to every peer: simulating them takes too long */
        call.builder = gw_arch_choose("auto", &request, gw_dtype_bytes(call.dtype));
    free(uneven);
    return call;
}

static void random_hosts(gw_sim_scenario *s, gw_rng *rng) {
    int per_host = 1 + pick(rng, 4), host = 0;
    for (int r = 0, on_host = 0; r < s->world; r++, on_host++) {
        if (on_host == per_host) {
            host++;
            on_host = 0;
            if (pick(rng, 3) == 0) per_host = 1 + pick(rng, 4);
        }
        s->host_of[r] = host;
    }
}

gw_status gw_sim_scenario_make(gw_sim_scenario *s, uint64_t seed, int world, gw_error *error) {
    gw_rng rng = gw_rng_make(seed, 0);
    *s = (gw_sim_scenario){.seed = seed, .deadline = 30 * GW_SECOND};
    int drawn = 2 + pick(&rng, 16);
    s->world = world ? world : drawn;
    s->host_of = calloc((size_t)s->world, sizeof *s->host_of);
    if (!s->host_of) return gw_fail(error, GW_MEMORY, "out of memory for %d simulated ranks", s->world);
    random_hosts(s, &rng);
    s->latency = 1000 + gw_rng_below(&rng, GW_MILLISECOND);
    s->jitter = pick(&rng, 2) ? gw_rng_below(&rng, 5 * GW_MILLISECOND) + 1 : 0;
    s->bytes_per_second = 1e7 * (double)(1 + pick(&rng, 1000));
    s->calls = 4 + pick(&rng, GW_SIM_OPERATIONS_MAX - 4);
    if (s->world > 64) s->calls = 3;
    s->ahead = 1 + pick(&rng, 4);
    s->fault = (gw_sim_fault)pick(&rng, GW_SIM_FAULTS);
    s->fault_at = gw_rng_below(&rng, (uint64_t)s->calls * 8 * (s->latency + s->jitter) + 1);
    s->victim = pick(&rng, s->world);
    s->second_victim = (s->victim + 1 + pick(&rng, s->world)) % s->world;
    s->mismatch_call = pick(&rng, s->calls);
    for (int c = 0, tagged; c < s->calls; c += tagged ? tagged : 1) {
        tagged = random_tagged(s, &rng, c);
        if (!tagged) s->call[c] = random_call(s, &rng);
    }
    if (s->fault == GW_SIM_MISMATCH) { /* a call in which every rank waits for every other */
        gw_sim_call *call = &s->call[s->mismatch_call];
        for (int i = 0; i < call->group_size; i++) s->call[call->group + i].reversed = false;
        *call = (gw_sim_call){.collective = GW_COLL_ALLREDUCE, .builder = &gw_plan_ring, .dtype = call->dtype,
                              .redop = call->redop, .scale = call->scale, .count = call->count + (size_t)s->world,
                              .root = -1};
    }
    return GW_OK;
}

void gw_sim_scenario_free(gw_sim_scenario *s) { free(s->host_of); }

static bool many_in(gw_collective c) {
    return c == GW_COLL_REDUCE_SCATTER || c == GW_COLL_ALLTOALL || c == GW_COLL_ALLTOALLV || c == GW_COLL_SCATTER;
}
static bool many_out(gw_collective c) {
    return c == GW_COLL_ALLGATHER || c == GW_COLL_ALLTOALL || c == GW_COLL_ALLTOALLV || c == GW_COLL_GATHER;
}

bool gw_sim_reduces(gw_collective c) {
    return c == GW_COLL_ALLREDUCE || c == GW_COLL_REDUCE || c == GW_COLL_REDUCE_SCATTER;
}

bool gw_sim_shrinks(const gw_sim_scenario *s) {
    bool shrinkable = s->fault == GW_SIM_KILL || s->fault == GW_SIM_KILL_TWO || s->fault == GW_SIM_MISMATCH ||
                      s->fault == GW_SIM_ABORT;
    return shrinkable && s->world <= 64 && s->seed % 2; /* a shrink connects every rank with every other */
}

int gw_sim_order(const gw_sim_scenario *s, int rank, int n) {
    const gw_sim_call *call = &s->call[n];
    return call->reversed && rank == call->peer ? 2 * call->group + call->group_size - 1 - n : n;
}

bool gw_sim_takes_part(const gw_sim_call *call, int rank) {
    return call->collective != GW_COLL_SEND || rank == call->root || rank == call->peer;
}

size_t gw_sim_part(const gw_sim_call *call, int rank) {
    return call->uneven ? (call->count + 1) * (size_t)(rank * 5 % 4) / 2 : call->count;
}

/* What one rank sends to another in an alltoallv; as much goes back. */
static size_t pair_part(const gw_sim_scenario *s, const gw_sim_call *call, int from, int to) {
    return gw_sim_part(call, (from + to) % s->world);
}

/* Where it begins in the sender's buffer. */
static size_t pair_begins(const gw_sim_scenario *s, const gw_sim_call *call, int from, int to) {
    size_t at = 0;
    for (int r = 0; r < to; r++) at += pair_part(s, call, from, r);
    return at;
}

void gw_sim_counts(const gw_sim_scenario *s, const gw_sim_call *call, int rank, size_t *counts) {
    size_t world = (size_t)s->world;
    for (int r = 0; r < s->world; r++) {
        counts[r] = gw_sim_part(call, r);
        if (call->collective != GW_COLL_ALLTOALLV) continue;
        counts[GW_ALLTOALLV_IN_COUNTS * world + (size_t)r] = pair_part(s, call, rank, r);
        counts[GW_ALLTOALLV_OUT_COUNTS * world + (size_t)r] = pair_part(s, call, rank, r);
        counts[GW_ALLTOALLV_IN_OFFSETS * world + (size_t)r] = pair_begins(s, call, rank, r);
        counts[GW_ALLTOALLV_OUT_OFFSETS * world + (size_t)r] = pair_begins(s, call, rank, r);
    }
}

/* Offset of a rank's part; with rank = world, the length of all parts. */
static size_t part_begins(const gw_sim_call *call, int rank) {
    size_t at = 0;
    if (!call->uneven) return call->count * (size_t)rank;
    for (int r = 0; r < rank; r++) at += gw_sim_part(call, r);
    return at;
}

size_t gw_sim_in_count(const gw_sim_scenario *s, const gw_sim_call *call, int rank) {
    return many_in(call->collective) ? part_begins(call, s->world) : gw_sim_part(call, rank);
}

size_t gw_sim_out_count(const gw_sim_scenario *s, const gw_sim_call *call, int rank) {
    return many_out(call->collective) ? part_begins(call, s->world) : gw_sim_part(call, rank);
}

/* The input of a rank at an index: small whole numbers; for products nearly all ones. */
static int value(const gw_sim_scenario *s, int call, int rank, size_t index) {
    const gw_sim_call *c = &s->call[call];
    int drawn = (int)((index * 7 + (size_t)rank * 3 + (size_t)call + s->seed % 5) % 4);
    if (c->dtype == GW_BOOL) return drawn != 0;
    if (c->redop == GW_PROD) return (size_t)rank == (index + (size_t)call) % (size_t)s->world ? 2 : 1;
    return drawn;
}

void gw_sim_fill(const gw_sim_scenario *s, int call, int rank, void *in) {
    size_t count = gw_sim_in_count(s, &s->call[call], rank);
    for (size_t i = 0; i < count; i++) gw_element_store(s->call[call].dtype, in, i, value(s, call, rank, i));
}

static double combined(gw_redop op, double a, double b) {
    switch (op) {
    case GW_PROD: return a * b;
    case GW_MIN: return b < a ? b : a;
    case GW_MAX: return b > a ? b : a;
    case GW_BAND: return (double)((int)a & (int)b);
    case GW_BOR: return (double)((int)a | (int)b);
    case GW_BXOR: return (double)((int)a ^ (int)b);
    default: return a + b;
    }
}

/* Factors are powers of two, so it does not matter where they are applied. */
static double reduced(const gw_sim_scenario *s, int call, size_t index) {
    const gw_sim_call *c = &s->call[call];
    double result = value(s, call, 0, index);
    for (int r = 1; r < s->world; r++) result = combined(c->redop, result, value(s, call, r, index));
    if (c->redop == GW_AVG) result /= s->world;
    return c->scale.set ? result * c->scale.prescale * c->scale.postscale : result;
}

/* Narrow integers may wrap in sums over many ranks; everything else is exact, or rounded once as
 * gw_element_store rounds. */
static double expected(const gw_sim_scenario *s, int call, int rank, size_t i) {
    const gw_sim_call *c = &s->call[call];
    size_t within = i;
    int part = 0;
    if (many_out(c->collective) && !c->uneven) {
        part = (int)(i / c->count);
        within = i % c->count;
    }
    int shift = c->collective == GW_COLL_ALLTOALLV ? rank : 0;
    while (c->uneven && many_out(c->collective) && within >= gw_sim_part(c, (part + shift) % s->world))
        within -= gw_sim_part(c, (part++ + shift) % s->world);
    switch (c->collective) {
    case GW_COLL_ALLREDUCE:
    case GW_COLL_REDUCE: return reduced(s, call, i);
    case GW_COLL_REDUCE_SCATTER: return reduced(s, call, part_begins(c, rank) + i);
    case GW_COLL_ALLGATHER:
    case GW_COLL_GATHER: return value(s, call, part, within);
    case GW_COLL_SEND:
    case GW_COLL_BROADCAST: return value(s, call, c->root, i);
    case GW_COLL_SCATTER: return value(s, call, c->root, part_begins(c, rank) + i);
    case GW_COLL_ALLTOALLV: return value(s, call, part, pair_begins(s, c, part, rank) + within);
    case GW_COLL_ALLTOALL: return value(s, call, part, (size_t)rank * c->count + within);
    default: return 0;
    }
}

/* The call whose message a tagged receive got: that of its source in the group; -1: none. */
static int sent_by(const gw_sim_scenario *s, int call, int source) {
    const gw_sim_call *c = &s->call[call];
    if (c->root == source) return call;
    for (int i = c->group; c->any_source && i < c->group + c->group_size; i++)
        if (s->call[i].tagged && s->call[i].tag == c->tag && s->call[i].root == source) return i;
    return -1;
}

int64_t gw_sim_check(const gw_sim_scenario *s, int call, int rank, int source, const void *out) {
    if (s->call[call].tagged && rank == s->call[call].peer) call = sent_by(s, call, source);
    if (call < 0) return 0;
    const gw_sim_call *c = &s->call[call];
    if ((c->collective == GW_COLL_REDUCE || c->collective == GW_COLL_GATHER) && rank != c->root) return -1;
    if (c->collective == GW_COLL_SEND && rank != c->peer) return -1;
    size_t bytes = gw_dtype_bytes(c->dtype), count = gw_sim_out_count(s, c, rank);
    for (size_t i = 0; i < count; i++) {
        uint64_t right = 0;
        gw_element_store(c->dtype, &right, 0, expected(s, call, rank, i));
        if (memcmp((const uint8_t *)out + i * bytes, &right, bytes) != 0) return (int64_t)i;
    }
    return -1;
}
