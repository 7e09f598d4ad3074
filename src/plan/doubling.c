/* doubling.c - an all-reduce by recursive doubling, for any number of ranks: in every round pairs of ranks exchange all
 * that they have summed so far. For little data.
 *
 * With q the largest power of two <= p, the first 2(p-q) ranks form pairs: the odd rank folds its data into the even
 * one and gets the result from it at the end. Of the q "cores" that remain, core c exchanges with core c ^ (q >> l) in
 * round l. So every element is combined by the same tree of ranks as in halving.c, and the bits are the same.
 *
 * In place: an element of OUT is written only after that element of IN has been summed and sent. Each round has its own
 * slots of WORK for as many chunks as the pipeline is deep; they are free again when the next round has used them.
 *
 * Cost of n elements: each core sends n in log2 q rounds; p > q adds up to two rounds and 2 (p-q) n elements. */
#include "plan/build.h"

/* Streams 0 and 1 connect the ranks of a pair. After them each round has a send stream and a receive stream. */
enum { FOLD_IN, FOLD_OUT, FIRST_ROUND };

typedef struct shape {
    int cores, levels, folded; /* q, log2 q, p - q */
    int core;                  /* this rank's core; on the odd rank of a pair, its partner's */
    bool odd;
    uint64_t window; /* slots of a round */
    size_t slot;     /* elements of one slot */
} shape;

static const char *refuses(const gw_plan_request *request) {
    return request->collective == GW_COLL_ALLREDUCE ? NULL : "supports only allreduce";
}

static shape shape_of(const gw_plan_request *request) {
    int world = request->topology.world, rank = request->rank;
    shape s = {.levels = 31 - __builtin_clz((unsigned)world)};
    s.cores = 1 << s.levels;
    s.folded = world - s.cores;
    s.core = rank < 2 * s.folded ? rank / 2 : rank - s.folded;
    s.odd = rank < 2 * s.folded && rank % 2 == 1;
    s.slot = gw_min_size(request->chunk_count, request->count);
    s.window = gw_min_size((size_t)request->pipeline, gw_ceil_div(request->count, request->chunk_count));
    return s;
}

static int first_rank(const shape *s, int core) { return core < s->folded ? 2 * core : core + s->folded; }
static int partner(const shape *s, int level) { return s->core ^ s->cores >> level; }
/* Whether a core has a partial sum, of the accumulator type, before a round. */
static bool has_sum(const shape *s, int core, int level) { return level > 1 || core < s->folded; }

static uint32_t send_stream(int level) { return FIRST_ROUND + 2 * (uint32_t)(level - 1); }
static uint32_t recv_stream(int level) { return send_stream(level) + 1; }
/* The stream whose steps complete the sum that exists before a round. */
static uint32_t source_stream(int level) { return level == 1 ? (uint32_t)FOLD_IN : recv_stream(level - 1); }

static void lay_out(gw_plan *plan) {
    shape s = shape_of(&plan->request);
    plan->streams = s.odd ? FIRST_ROUND : FIRST_ROUND + 2 * (uint32_t)s.levels;
    plan->work_count = s.odd ? 0 : (size_t)(s.levels + 1) * (size_t)s.window * s.slot;
    GW_PLAN_KEEP(plan, &s);
}

static void stream(const gw_plan *plan, uint32_t index, gw_stream *out) {
    shape s;
    GW_PLAN_RECALL(plan, &s);
    uint64_t chunks = gw_ceil_div(plan->request.count, plan->request.chunk_count);
    *out = (gw_stream){.kind = GW_STREAM_LOCAL, .peer = -1};
    if (index < FIRST_ROUND) {
        if (s.core >= s.folded) return;
        bool sends = s.odd == (index == FOLD_IN);
        *out = (gw_stream){.kind = sends ? GW_STREAM_SEND : GW_STREAM_RECV, .peer = first_rank(&s, s.core) + !s.odd,
                           .channel = index == FOLD_IN ? 0 : 1 + (uint32_t)s.levels, .actions = chunks};
        return;
    }
    int level = 1 + (int)(index - FIRST_ROUND) / 2;
    *out = (gw_stream){.kind = index == send_stream(level) ? GW_STREAM_SEND : GW_STREAM_RECV,
                       .peer = first_rank(&s, partner(&s, level)), .channel = (uint32_t)level, .actions = chunks};
}

/* The slot of the sum of chunk i after a round; level 0: the sum of a pair. */
static gw_slot sum_slot(const shape *s, int level, uint64_t i, size_t count) {
    return gw_slot_at(GW_SPACE_WORK, (size_t)((uint64_t)level * s->window + i % s->window) * s->slot, count);
}

static void wait_for_slot(const shape *s, int level, uint64_t i, gw_action *out) {
    if (i < s->window) return;
    uint64_t used = i - s->window + 1;
    bool last = level == s->levels;
    out->free[0] = gw_post_op(recv_stream(last ? level : level + 1), used);
    if (!last) out->free[1] = gw_post_op(send_stream(level + 1), used);
}

static gw_slot user_slot(gw_space space, gw_range at) { return gw_slot_at(space, at.from, at.to - at.from); }

/* The operand of a core before a round, and the wait for it. */
static gw_slot operand(const shape *s, int level, uint64_t i, gw_range at, bool *wide, gw_waits *ready) {
    *wide = has_sum(s, s->core, level);
    if (!*wide) return user_slot(GW_SPACE_IN, at);
    *ready = gw_post_op(source_stream(level), i + 1);
    return sum_slot(s, level - 1, i, at.to - at.from);
}

static void round_recv(const gw_plan *plan, const shape *s, int level, uint64_t i, gw_range at, gw_action *out) {
    *out = (gw_action){.kind = GW_ACTION_RECV_REDUCE, .wide = has_sum(s, partner(s, level), level),
                       .landed_first = partner(s, level) < s->core, .finish = level == s->levels};
    out->src = operand(s, level, i, at, &out->src_wide, &out->ready[0]);
    out->land = out->dst = sum_slot(s, level, i, at.to - at.from);
    wait_for_slot(s, level, i, out);
    if (level < s->levels) return;
    out->dst = user_slot(GW_SPACE_OUT, at);
    if (!has_sum(s, s->core, 1) && !plan->request.apart) out->ready[1] = gw_post_op(send_stream(1), i + 1);
}

static void fold_in(const shape *s, uint64_t i, gw_range at, gw_action *out) {
    *out = (gw_action){.kind = s->odd ? GW_ACTION_SEND : GW_ACTION_RECV_REDUCE, .src = user_slot(GW_SPACE_IN, at)};
    if (s->odd) return;
    out->land = out->dst = sum_slot(s, 0, i, at.to - at.from);
    wait_for_slot(s, 0, i, out);
}

static void fold_out(const shape *s, uint64_t i, gw_range at, gw_action *out) {
    *out = (gw_action){.kind = s->odd ? GW_ACTION_RECV : GW_ACTION_SEND};
    if (s->odd) {
        out->land = out->dst = user_slot(GW_SPACE_OUT, at);
    } else {
        out->src = user_slot(GW_SPACE_OUT, at);
        out->ready[0] = gw_post_op(recv_stream(s->levels), i + 1);
    }
}

static void step(const gw_plan *plan, uint32_t index, uint64_t i, gw_action *out) {
    shape s;
    GW_PLAN_RECALL(plan, &s);
    gw_range at = gw_chunk_of((gw_range){0, plan->request.count}, plan->request.chunk_count, i);
    int level = 1 + (int)(index - FIRST_ROUND) / 2;
    if (index == FOLD_IN) {
        fold_in(&s, i, at, out);
    } else if (index == FOLD_OUT) {
        fold_out(&s, i, at, out);
    } else if (index == recv_stream(level)) {
        round_recv(plan, &s, level, i, at, out);
    } else {
        *out = (gw_action){.kind = GW_ACTION_SEND};
        out->src = operand(&s, level, i, at, &out->wide, &out->ready[0]);
    }
}

static gw_cost cost(const gw_plan_request *request) {
    shape s = shape_of(request);
    uint64_t n = request->count, chunks = gw_ceil_div(n, request->chunk_count), folded = (uint64_t)s.folded;
    uint64_t rounds = (uint64_t)s.cores * (uint64_t)s.levels, raw = (uint64_t)s.cores - folded;
    return (gw_cost){.messages = (rounds + 2 * folded) * chunks,
                     .elements = (raw + 2 * folded) * n,
                     .wide_elements = (rounds - raw) * n,
                     .start_ups = n ? (uint64_t)s.levels + (2 * s.folded > s.cores ? 2
                                                            : folded               ? 1
                                                                                   : 0)
                                    : 0};
}

/* Two ranks send no more than in a ring, and need not wait between two phases as there. They add one part while the
 * rest arrives, so only half of the addition counts. */
static gw_cost_terms work(const gw_cost_inputs *s) {
    int levels = gw_floor_log2(s->ranks), cores = 1 << levels, folded = s->ranks - cores;
    double summed = s->ranks > 2 ? levels + (folded ? 1 : 0) : 0.5;
    return (gw_cost_terms){.rounds = levels + (2 * folded > cores ? 2
                                               : folded           ? 1
                                                                  : 0),
                           .bytes = (levels + (folded ? 1 : 0)) * s->bytes,
                           .messages = levels + (folded ? 1 : 0),
                           .reduced = summed * s->bytes,
                           .crowd = gw_cost_congestion(s, GW_CONGESTION_HALVING),
                           .preference = 4};
}

const gw_plan_builder gw_plan_doubling = {
    .technique = {.name = "doubling",
                  .about = "recursive doubling: all data in each of log2 p rounds, the same bits as halving"},
    .refuses = refuses,
    .lay_out = lay_out,
    .stream = stream,
    .action = step,
    .cost = cost,
    .work = work,
};
