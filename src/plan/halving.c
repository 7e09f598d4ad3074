/* halving.c - recursive halving, then recursive doubling (Rabenseifner 2004), for any number of ranks.
 *
 * With q the largest power of two <= p, the first 2(p-q) ranks pair up: the odd one folds its data into the even one
 * and gets its result from it at the end. The q "cores" that remain halve the data log2 q times, beginning with the
 * core q/2 away: at level l a core exchanges with core ^ (q >> l) and keeps the half that holds its own block. Doubling
 * goes back the same way.
 *
 * An all-reduce of little data merges two exchanges. At the last level two cores would exchange halves of a block, sum
 * them, and then exchange the sums. Instead they exchange the whole block once and both sum it: the same bytes, one
 * message and one round less.
 *
 * Every element is combined by the same tree of ranks with the lower core's operand first, whatever its position, so
 * the bits do not depend on how data is cut into calls, windows or messages.
 *
 * An all-reduce works through windows of 2 * pipeline chunks, one behind the other, so WORK is bounded; reduce-scatter
 * is one window, and its WORK grows with the data. Level l's partial sums have a region of their own (two, where
 * windows follow each other), free again when level l+1 has used them.
 *
 * In place: a rank reads each element of IN once, and a finished element arrives only after that.
 *
 * Cost of an all-reduce of n elements: each core sends 2 (q-1)/q n in 2 log2 q rounds (little data: one round less).
 * p > q adds two rounds and 2 (p-q) n elements. */
#include "plan/build.h"

/* Streams of a core, by role and level 1..levels (FOLD_IN, FOLD_OUT and COPY have no level). A pair's odd rank has
 * FOLD_IN and FOLD_OUT only. */
enum role { FOLD_IN, FOLD_OUT, COPY, RS_SEND, RS_RECV, AG_SEND, AG_RECV };
#define LEVEL_ROLES 4

typedef struct shape {
    uint64_t windows;
    size_t window;             /* elements of a full window */
    int cores, levels, folded; /* q, log2 q, p - q */
    int core;                  /* this rank's core; on the odd rank of a pair, its partner's */
    bool odd;
    bool merged; /* the last halving and the first doubling are one exchange */
} shape;

/* The elements that a stream moves in one window: [from, split) and [split, to), each cut into chunks separately. */
typedef struct span {
    size_t from, split, to;
} span;

static const char *refuses(const gw_plan_request *request) {
    bool supported = request->collective == GW_COLL_ALLREDUCE || request->collective == GW_COLL_REDUCE_SCATTER ||
                     request->collective == GW_COLL_ALLGATHER;
    return supported ? NULL : "supports only allreduce, reduce_scatter and allgather";
}

static shape shape_of(const gw_plan_request *request) {
    int world = request->topology.world, rank = request->rank;
    shape s = {.windows = 1, .levels = 31 - __builtin_clz((unsigned)world), .window = gw_plan_total(request)};
    s.cores = 1 << s.levels;
    s.folded = world - s.cores;
    s.core = rank < 2 * s.folded ? rank / 2 : rank - s.folded;
    s.odd = rank < 2 * s.folded && rank % 2 == 1;
    size_t wanted;
    if (request->collective == GW_COLL_ALLREDUCE &&
        !__builtin_mul_overflow(request->chunk_count, 2 * (size_t)request->pipeline, &wanted) && wanted < s.window) {
        s.windows = gw_ceil_div(s.window, wanted);
        s.window = wanted;
    }
    /* Not with two cores: their first exchange would be the merged one, and IN would be overwritten while it is sent.
     * doubling.c handles two cores. */
    s.merged = request->collective == GW_COLL_ALLREDUCE && s.levels > 1 &&
               gw_ceil_div(s.window, (uint64_t)s.cores / 2) <= request->chunk_count;
    return s;
}

static int first_rank(const shape *s, int core) { return core < s->folded ? 2 * core : core + s->folded; }

/* Where core's block begins. */
static size_t bound(const gw_plan_request *request, const shape *s, uint64_t window, int core) {
    size_t total = gw_plan_total(request);
    if (request->collective != GW_COLL_ALLREDUCE)
        return core == s->cores ? total : gw_plan_part(request, first_rank(s, core)).from;
    size_t from = (size_t)window * s->window, length = gw_min_size(s->window, total - from), offset, part;
    if (core == s->cores) return from + length;
    gw_part(length, s->cores, core, &offset, &part);
    return from + offset;
}

/* The range that a core keeps at a level: everything at level 0, its own block at the last level, or, if that exchange
 * is merged, also its partner's. In a reduce-scatter the blocks of a pair belong to two ranks and are cut
 * separately. */
static span kept(const gw_plan_request *request, const shape *s, uint64_t window, int core, int level) {
    int below = s->levels - level + (s->merged && level == s->levels), first = core >> below << below;
    span kept = {.from = bound(request, s, window, first), .to = bound(request, s, window, first + (1 << below))};
    kept.split = kept.to;
    if (level == s->levels && request->collective == GW_COLL_REDUCE_SCATTER && core < s->folded)
        kept.split = gw_plan_part(request, first_rank(s, core)).to;
    return kept;
}

static int partner(const shape *s, int level) { return s->core ^ s->cores >> level; }

static uint32_t stream_of(enum role role, int level) {
    return role < RS_SEND ? (uint32_t)role : (uint32_t)(RS_SEND + LEVEL_ROLES * (level - 1) + (int)(role - RS_SEND));
}

static enum role role_of(uint32_t stream, int *level) {
    *level = stream < RS_SEND ? 0 : 1 + (int)(stream - RS_SEND) / LEVEL_ROLES;
    return stream < RS_SEND ? (enum role)stream : (enum role)(RS_SEND + (stream - RS_SEND) % LEVEL_ROLES);
}

static span whole_part(const gw_plan_request *request, int rank) {
    gw_range part = gw_plan_part(request, rank);
    return (span){part.from, part.to, part.to};
}

static span span_of(const gw_plan_request *request, const shape *s, enum role role, int level, uint64_t window) {
    bool scatters = request->collective == GW_COLL_REDUCE_SCATTER, gathers = request->collective == GW_COLL_ALLGATHER;
    bool pair = s->core < s->folded, gathered = scatters || (s->merged && level == s->levels);
    int odd_rank = first_rank(s, s->core) + 1;
    switch (role) {
    case FOLD_IN:
        if (!pair) return (span){0};
        return gathers ? whole_part(request, odd_rank) : kept(request, s, window, s->core, 0);
    case FOLD_OUT:
        if (!pair) return (span){0};
        return scatters ? whole_part(request, odd_rank) : kept(request, s, window, s->core, 0);
    case COPY: return gathers ? whole_part(request, first_rank(s, s->core)) : (span){0};
    case RS_SEND: return gathers ? (span){0} : kept(request, s, window, partner(s, level), level);
    case RS_RECV: return gathers ? (span){0} : kept(request, s, window, s->core, level);
    case AG_SEND: return gathered ? (span){0} : kept(request, s, window, s->core, level);
    default: return gathered ? (span){0} : kept(request, s, window, partner(s, level), level);
    }
}

static uint64_t chunks_of(const gw_plan_request *request, span at) {
    return gw_ceil_div(at.split - at.from, request->chunk_count) + gw_ceil_div(at.to - at.split, request->chunk_count);
}

static uint64_t steps_in(const gw_plan *plan, const shape *s, enum role role, int level, uint64_t window) {
    return chunks_of(&plan->request, span_of(&plan->request, s, role, level, window));
}

/* Steps before a window: all windows but the last are alike. */
static uint64_t steps_before(const gw_plan *plan, const shape *s, enum role role, int level, uint64_t window) {
    return window ? window * steps_in(plan, s, role, level, 0) : 0;
}

static gw_waits after_window(const gw_plan *plan, const shape *s, enum role role, int level, uint64_t window) {
    uint64_t steps = steps_before(plan, s, role, level, window) + steps_in(plan, s, role, level, window);
    return gw_post_op(stream_of(role, level), steps);
}

static gw_range chunk_at(const gw_plan_request *request, span at, uint64_t k) {
    uint64_t first = gw_ceil_div(at.split - at.from, request->chunk_count);
    return k < first ? gw_chunk_of((gw_range){at.from, at.split}, request->chunk_count, k)
                     : gw_chunk_of((gw_range){at.split, at.to}, request->chunk_count, k - first);
}

/* The first level that has partial sums: a pair's even rank has them before the first exchange. */
static int first_level(const shape *s, int core) { return core < s->folded ? 0 : 1; }

static uint64_t buffers(const shape *s) { return s->windows > 1 ? 2 : 1; }

static size_t region_count(const gw_plan_request *request, const shape *s, int level) {
    span at = kept(request, s, 0, s->core, level);
    return at.to - at.from;
}

/* The offset in WORK of the region of a level for a window; for level levels + 1: the size of WORK. */
static size_t region(const gw_plan_request *request, const shape *s, int level, uint64_t window) {
    size_t offset = 0;
    for (int l = first_level(s, s->core); l < level; l++) offset += (size_t)buffers(s) * region_count(request, s, l);
    return level > s->levels ? offset : offset + (size_t)(window % buffers(s)) * region_count(request, s, level);
}

static void lay_out(gw_plan *plan) {
    shape s = shape_of(&plan->request);
    plan->streams = s.odd ? 2 : (uint32_t)(RS_SEND + LEVEL_ROLES * s.levels);
    if (!s.odd && plan->request.collective != GW_COLL_ALLGATHER)
        plan->work_count = region(&plan->request, &s, s.levels + 1, 0);
    GW_PLAN_KEEP(plan, &s);
}

static void stream(const gw_plan *plan, uint32_t index, gw_stream *out) {
    shape s;
    GW_PLAN_RECALL(plan, &s);
    int level;
    enum role role = role_of(index, &level);
    uint64_t last = s.windows - 1;
    uint64_t steps = steps_before(plan, &s, role, level, last) + steps_in(plan, &s, role, level, last);
    *out = (gw_stream){.kind = GW_STREAM_LOCAL, .peer = -1, .actions = steps};
    if (role == COPY || steps == 0) return;
    bool sends = role == RS_SEND || role == AG_SEND || (s.odd ? role == FOLD_IN : role == FOLD_OUT);
    out->kind = sends ? GW_STREAM_SEND : GW_STREAM_RECV;
    out->peer = role >= RS_SEND ? first_rank(&s, partner(&s, level)) : first_rank(&s, s.core) + !s.odd;
    out->channel = (uint32_t)(role >= AG_SEND   ? s.levels + level
                              : role >= RS_SEND ? level
                              : role == FOLD_IN ? 0
                                                : 2 * s.levels + 1);
}

/* Converts a range of the large buffer to a slot of IN or OUT, which may hold only this rank's part. */
static gw_slot slot(const gw_plan_request *request, gw_space space, gw_range at) {
    gw_collective small = space == GW_SPACE_IN ? GW_COLL_ALLGATHER : GW_COLL_REDUCE_SCATTER;
    size_t base = request->collective == small ? gw_plan_part(request, request->rank).from : 0;
    return gw_slot_at(space, at.from - base, at.to - at.from);
}

/* This rank's operand for a range before a level: IN, or partial sums of the level above, with the wait for them. */
static gw_slot operand(const gw_plan *plan, const shape *s, int level, uint64_t window, gw_range at, bool *wide,
                       gw_waits *ready) {
    *wide = level - 1 >= first_level(s, s->core);
    if (!*wide) return slot(&plan->request, GW_SPACE_IN, at);
    enum role role = level == 1 ? FOLD_IN : RS_RECV;
    size_t from = kept(&plan->request, s, window, s->core, level - 1).from;
    *ready = gw_post_op(stream_of(role, level - 1), steps_before(plan, s, role, level - 1, window) +
                                                        gw_ceil_div(at.to - from, plan->request.chunk_count));
    return gw_slot_at(GW_SPACE_WORK, region(&plan->request, s, level - 1, window) + (at.from - from), at.to - at.from);
}

static void rs_send(const gw_plan *plan, const shape *s, int level, uint64_t window, gw_range at, gw_action *out) {
    *out = (gw_action){.kind = GW_ACTION_SEND};
    out->src = operand(plan, s, level, window, at, &out->wide, &out->ready[0]);
}

/* Receives at a level (0: from the pair's odd rank) land in the level's region. */
static void rs_recv(const gw_plan *plan, const shape *s, int level, uint64_t window, gw_range at, gw_action *out) {
    const gw_plan_request *request = &plan->request;
    *out = (gw_action){.kind = GW_ACTION_RECV_REDUCE};
    size_t from = kept(request, s, window, s->core, level).from;
    out->land = gw_slot_at(GW_SPACE_WORK, region(request, s, level, window) + (at.from - from), at.to - at.from);
    out->dst = out->land;
    if (level == 0) {
        out->src = slot(request, GW_SPACE_IN, at);
    } else {
        out->src = operand(plan, s, level, window, at, &out->src_wide, &out->ready[0]);
        out->wide = level - 1 >= first_level(s, partner(s, level));
        out->landed_first = partner(s, level) < s->core;
    }
    bool waits = window >= buffers(s);
    if (level < s->levels && waits) {
        out->free[0] = after_window(plan, s, RS_SEND, level + 1, window - buffers(s));
        out->free[1] = after_window(plan, s, RS_RECV, level + 1, window - buffers(s));
    } else if (level == s->levels) {
        bool mine = request->collective == GW_COLL_ALLREDUCE || at.to <= gw_plan_part(request, request->rank).to;
        out->finish = true;
        if (mine) out->dst = slot(request, GW_SPACE_OUT, at);
        if (waits) out->free[0] = after_window(plan, s, RS_RECV, level, window - buffers(s));
    }
}

/* The waits before doubling at a level (0: before the result goes to the odd rank of a pair): the own block and
 * everything received at the levels below are complete. Receives complete in order, the last level first, so a wait
 * for one level covers all levels below it. A level that receives nothing in this window cannot be waited for. */
static void after_below(const gw_plan *plan, const shape *s, int level, uint64_t window, gw_action *out) {
    int below = level + 1;
    while (below <= s->levels && steps_in(plan, s, AG_RECV, below, window) == 0) below++;
    if (below <= s->levels) {
        out->ready[0] = after_window(plan, s, AG_RECV, below, window);
    } else if (plan->request.collective == GW_COLL_ALLREDUCE) {
        out->ready[0] = after_window(plan, s, RS_RECV, s->levels, window);
    } else {
        out->ready[0] = after_window(plan, s, COPY, 0, 0);
        out->ready[1] = after_window(plan, s, FOLD_IN, 0, 0);
    }
}

static void fold_in(const gw_plan *plan, const shape *s, uint64_t window, gw_range at, gw_action *out) {
    if (s->odd) {
        *out = (gw_action){.kind = GW_ACTION_SEND, .src = slot(&plan->request, GW_SPACE_IN, at)};
    } else if (plan->request.collective == GW_COLL_ALLGATHER) {
        gw_slot dst = slot(&plan->request, GW_SPACE_OUT, at);
        *out = (gw_action){.kind = GW_ACTION_RECV, .dst = dst, .land = dst};
    } else {
        rs_recv(plan, s, 0, window, at, out);
    }
}

static void fold_out(const gw_plan *plan, const shape *s, uint64_t window, uint64_t i, gw_range at, gw_action *out) {
    const gw_plan_request *request = &plan->request;
    if (s->odd) {
        gw_slot dst = slot(request, GW_SPACE_OUT, at);
        *out = (gw_action){.kind = GW_ACTION_RECV, .dst = dst, .land = dst};
        return;
    }
    *out = (gw_action){.kind = GW_ACTION_SEND, .src = gw_slot_at(GW_SPACE_OUT, at.from, at.to - at.from)};
    if (request->collective != GW_COLL_REDUCE_SCATTER) {
        after_below(plan, s, 0, window, out);
        return;
    }
    span block = kept(request, s, 0, s->core, s->levels);
    uint64_t own = gw_ceil_div(block.split - block.from, request->chunk_count);
    out->src = gw_slot_at(GW_SPACE_WORK, region(request, s, s->levels, 0) + (at.from - block.from), at.to - at.from);
    out->ready[0] = gw_post_op(stream_of(RS_RECV, s->levels), own + i + 1);
}

static void step(const gw_plan *plan, uint32_t index, uint64_t i, gw_action *out) {
    shape s;
    GW_PLAN_RECALL(plan, &s);
    int level;
    enum role role = role_of(index, &level);
    uint64_t full = s.windows > 1 ? steps_in(plan, &s, role, level, 0) : 0, window = s.windows - 1;
    if (full && i / full < window) window = i / full;
    span moved = span_of(&plan->request, &s, role, level, window);
    gw_range at = chunk_at(&plan->request, moved, i - window * full);
    switch (role) {
    case FOLD_IN: fold_in(plan, &s, window, at, out); break;
    case FOLD_OUT: fold_out(plan, &s, window, i, at, out); break;
    case COPY:
        *out = (gw_action){.kind = GW_ACTION_COPY,
                           .src = slot(&plan->request, GW_SPACE_IN, at),
                           .dst = slot(&plan->request, GW_SPACE_OUT, at)};
        break;
    case RS_SEND: rs_send(plan, &s, level, window, at, out); break;
    case RS_RECV: rs_recv(plan, &s, level, window, at, out); break;
    case AG_SEND:
        *out = (gw_action){.kind = GW_ACTION_SEND, .src = slot(&plan->request, GW_SPACE_OUT, at)};
        after_below(plan, &s, level, window, out);
        break;
    default:
        *out = (gw_action){.kind = GW_ACTION_RECV};
        out->land = out->dst = slot(&plan->request, GW_SPACE_OUT, at);
        after_below(plan, &s, level, window, out);
    }
}

/* Counts the messages of the halvings (or the doublings) of a window at levels 1 to `levels`: at each level every core
 * receives the range that it keeps. */
static uint64_t exchanged(const gw_plan_request *request, const shape *s, uint64_t window, int levels) {
    uint64_t messages = 0;
    for (int level = 1; level <= levels; level++) {
        int group = s->cores >> level;
        for (int core = 0; core < s->cores; core += group)
            messages += (uint64_t)group * chunks_of(request, kept(request, s, window, core, level));
    }
    return messages;
}

/* Counts the messages between the ranks of pairs. One way: all data. Back: the odd rank's part; in an all-reduce, all
 * data. */
static uint64_t folds(const gw_plan_request *request, const shape *s, uint64_t window) {
    uint64_t messages = 0;
    for (int core = 0; core < s->folded; core++) {
        uint64_t all = chunks_of(request, kept(request, s, window, core, 0));
        messages += all + (request->collective == GW_COLL_ALLREDUCE
                               ? all
                               : chunks_of(request, whole_part(request, first_rank(s, core) + 1)));
    }
    return messages;
}

/* Elements sent raw at the first halving: those of cores into which no rank folded. */
static uint64_t raw_first(const gw_plan_request *request, const shape *s, uint64_t window) {
    uint64_t elements = 0;
    int half = s->cores / 2;
    for (int core = s->folded; core < s->cores; core++) {
        span sent = kept(request, s, window, core ^ half, 1);
        elements += sent.to - sent.from;
    }
    return elements;
}

static uint64_t folded_elements(const gw_plan_request *request, const shape *s) {
    uint64_t n = gw_plan_total(request), elements = 0;
    if (request->collective == GW_COLL_ALLREDUCE) return 2 * (uint64_t)s->folded * n;
    for (int core = 0; core < s->folded; core++) {
        gw_range part = gw_plan_part(request, first_rank(s, core) + 1);
        elements += n + (part.to - part.from);
    }
    return elements;
}

/* The longest chain of messages leads from a core to the opposite core. In an all-reduce it then returns to the first
 * core, or, if the last exchange is merged, to the neighbour of the first core. With folded pairs it begins and ends at
 * the odd rank of a pair; in a reduce-scatter or all-gather it does both only if the opposite core has a pair too. */
static uint64_t start_ups(const gw_plan_request *request, const shape *s) {
    uint64_t levels = (uint64_t)s->levels;
    if (request->collective == GW_COLL_ALLREDUCE && s->merged)
        return 2 * levels - 1 + (uint64_t)(s->folded > 1 ? 2 : s->folded);
    if (request->collective == GW_COLL_ALLREDUCE) return 2 * levels + (s->folded ? 2 : 0);
    return levels + (2 * s->folded > s->cores ? 2 : s->folded ? 1 : 0);
}

static bool scatters(const gw_plan_request *request) { return request->collective != GW_COLL_ALLGATHER; }
static bool gathers(const gw_plan_request *request) { return request->collective != GW_COLL_REDUCE_SCATTER; }

static uint64_t messages_of(const gw_plan_request *request, const shape *s, uint64_t window) {
    return (scatters(request) ? exchanged(request, s, window, s->levels) : 0) +
           (gathers(request) ? exchanged(request, s, window, s->levels - s->merged) : 0) + folds(request, s, window);
}

static gw_cost cost(const gw_plan_request *request) {
    shape s = shape_of(request);
    uint64_t n = gw_plan_total(request), moved = n * (uint64_t)(s.cores - 1), both = s.merged ? n : 0, raw = 0;
    uint64_t full = s.windows - 1;
    gw_cost cost = {.messages = full * messages_of(request, &s, 0) + messages_of(request, &s, full),
                    .start_ups = n ? start_ups(request, &s) : 0};
    if (scatters(request)) raw = full * raw_first(request, &s, 0) + raw_first(request, &s, full);
    cost.elements = folded_elements(request, &s) + raw + (gathers(request) ? moved - both : 0);
    cost.wide_elements = scatters(request) ? moved + both - raw : 0;
    return cost;
}

/* The even rank of a pair receives all of the data once more. With little data the two rounds in the middle are one
 * exchange. */
static gw_cost_terms work(const gw_cost_inputs *s) {
    int levels = gw_floor_log2(s->ranks), cores = 1 << levels, folded = s->ranks - cores;
    double ways = gw_cost_directions(s);
    bool there_and_back = gw_cost_allreduces(s);
    bool merged = there_and_back && levels > 1 && 2 * s->bytes / cores <= GW_COST_CHUNK_BYTES;
    double rounds = ways * levels - merged, folds = 0;
    if (folded) folds = merged ? (folded > 1 ? 2 : 1) : there_and_back || 2 * folded > cores ? 2 : 1;
    return (gw_cost_terms){.rounds = rounds + folds,
                           .bytes = ways * (cores - 1) * s->bytes / cores + (folded ? s->bytes : 0),
                           .messages = rounds + (folded ? ways : 0),
                           .reduced = (cores - !merged) * s->bytes / cores + (folded ? s->bytes : 0),
                           .crowd = gw_cost_congestion(s, GW_CONGESTION_HALVING),
                           .preference = 2};
}

const gw_plan_builder gw_plan_halving = {
    .technique = {.name = "halving", .about = "recursive halving and doubling in 2 log n steps",
                  .params = GW_PARAMS(GW_PARAM_CHUNK)},
    .refuses = refuses,
    .lay_out = lay_out,
    .stream = stream,
    .action = step,
    .cost = cost,
    .work = work,
    .small = &gw_plan_doubling,
};
