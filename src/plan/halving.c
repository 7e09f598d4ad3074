/* halving.c - recursive halving, then recursive doubling (Rabenseifner 2004), for any number of ranks.
 *
 * With q the largest power of two <= p, the first 2(p-q) ranks pair up: the odd one folds its data into the even one
 * and gets its result from it at the end. The q "cores" that remain halve the data log2 q times, beginning with the
 * core q/2 away: at level l a core exchanges with core ^ (q >> l) and keeps the half that holds its own block. Doubling
 * goes back the same way.
 *
 * Little data in an all-reduce: at the last level two cores would exchange halves of a block to sum, and then the sums.
 * They exchange all of it once instead and both sum it: the same bytes, a message and a round less.
 *
 * Every element is combined by the same tree of ranks with the lower core's operand first, whatever its position, so
 * the bits do not depend on how data is cut into calls, segments or messages.
 *
 * An all-reduce works through segments of 2 * pipeline chunks, one behind the other, so WORK is bounded; reduce-scatter
 * is one segment, and its WORK grows with the data. Level l's partial sums have a region of their own (two, where
 * segments follow each other), free again when level l+1 has used them.
 *
 * In place: a rank reads each element of IN once, and a finished element arrives only after that.
 *
 * Cost of an all-reduce of n elements: each core sends 2 (q-1)/q n in 2 log2 q rounds, little data in one less; with
 * p > q two rounds and 2 (p-q) n more. */
#include "plan/build.h"

/* Streams of a core, by role and level 1..levels (FOLD_IN, FOLD_OUT and COPY have no level). A pair's odd rank has
 * FOLD_IN and FOLD_OUT only. */
enum role { FOLD_IN, FOLD_OUT, COPY, RS_SEND, RS_RECV, AG_SEND, AG_RECV };
#define LEVEL_ROLES 4

typedef struct shape {
    uint64_t segments;
    size_t segment;            /* elements of a full segment */
    int cores, levels, folded; /* q, log2 q, p - q */
    int core;                  /* this rank's, or its partner's if it is a pair's odd one */
    bool odd;
    bool merged; /* the last halving and the first doubling are one exchange */
} shape;

/* What a stream moves in one segment: [from, split) and [split, to), each cut into chunks on its own. */
typedef struct span {
    size_t from, split, to;
} span;

static const char *refuses(const gw_plan_request *request) {
    bool carries = request->collective == GW_COLL_ALLREDUCE || request->collective == GW_COLL_REDUCE_SCATTER ||
                   request->collective == GW_COLL_ALLGATHER;
    return carries ? NULL : "carries only allreduce, reduce_scatter and allgather";
}

static shape shape_of(const gw_plan_request *request) {
    int world = request->topology.world, rank = request->rank;
    shape s = {.segments = 1, .levels = 31 - __builtin_clz((unsigned)world), .segment = gw_plan_total(request)};
    s.cores = 1 << s.levels;
    s.folded = world - s.cores;
    s.core = rank < 2 * s.folded ? rank / 2 : rank - s.folded;
    s.odd = rank < 2 * s.folded && rank % 2 == 1;
    size_t wanted;
    if (request->collective == GW_COLL_ALLREDUCE &&
        !__builtin_mul_overflow(request->chunk_count, 2 * (size_t)request->pipeline, &wanted) && wanted < s.segment) {
        s.segments = gw_ceil_div(s.segment, wanted);
        s.segment = wanted;
    }
    /* Of two cores the first exchange would be merged, and IN overwritten while it leaves: doubling.c is for those. */
    s.merged = request->collective == GW_COLL_ALLREDUCE && s.levels > 1 &&
               gw_ceil_div(s.segment, (uint64_t)s.cores / 2) <= request->chunk_count;
    return s;
}

static int first_rank(const shape *s, int core) { return core < s->folded ? 2 * core : core + s->folded; }

/* Where core's block begins. */
static size_t bound(const gw_plan_request *request, const shape *s, uint64_t segment, int core) {
    size_t total = gw_plan_total(request);
    if (request->collective != GW_COLL_ALLREDUCE)
        return core == s->cores ? total : gw_plan_part(request, first_rank(s, core)).from;
    size_t from = (size_t)segment * s->segment, length = gw_min_size(s->segment, total - from), offset, part;
    if (core == s->cores) return from + length;
    gw_part(length, s->cores, core, &offset, &part);
    return from + offset;
}

/* What core keeps at a level: everything at level 0, its own block at the last, or that and its partner's where both
 * sum both. The blocks of a pair in a reduce-scatter belong to two ranks and are cut apart. */
static span kept(const gw_plan_request *request, const shape *s, uint64_t segment, int core, int level) {
    int below = s->levels - level + (s->merged && level == s->levels), first = core >> below << below;
    span kept = {.from = bound(request, s, segment, first), .to = bound(request, s, segment, first + (1 << below))};
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

static span span_of(const gw_plan_request *request, const shape *s, enum role role, int level, uint64_t segment) {
    bool scatters = request->collective == GW_COLL_REDUCE_SCATTER, gathers = request->collective == GW_COLL_ALLGATHER;
    bool pair = s->core < s->folded, gathered = scatters || (s->merged && level == s->levels);
    int odd_rank = first_rank(s, s->core) + 1;
    switch (role) {
    case FOLD_IN:
        if (!pair) return (span){0};
        return gathers ? whole_part(request, odd_rank) : kept(request, s, segment, s->core, 0);
    case FOLD_OUT:
        if (!pair) return (span){0};
        return scatters ? whole_part(request, odd_rank) : kept(request, s, segment, s->core, 0);
    case COPY:
        return gathers ? whole_part(request, first_rank(s, s->core)) : (span){0};
    case RS_SEND:
        return gathers ? (span){0} : kept(request, s, segment, partner(s, level), level);
    case RS_RECV:
        return gathers ? (span){0} : kept(request, s, segment, s->core, level);
    case AG_SEND:
        return gathered ? (span){0} : kept(request, s, segment, s->core, level);
    default:
        return gathered ? (span){0} : kept(request, s, segment, partner(s, level), level);
    }
}

static uint64_t chunks_of(const gw_plan_request *request, span at) {
    return gw_ceil_div(at.split - at.from, request->chunk_count) + gw_ceil_div(at.to - at.split, request->chunk_count);
}

static uint64_t steps_in(const gw_plan *plan, const shape *s, enum role role, int level, uint64_t segment) {
    return chunks_of(&plan->request, span_of(&plan->request, s, role, level, segment));
}

/* Steps before a segment: all segments but the last are alike. */
static uint64_t steps_before(const gw_plan *plan, const shape *s, enum role role, int level, uint64_t segment) {
    return segment ? segment * steps_in(plan, s, role, level, 0) : 0;
}

static gw_waits after_segment(const gw_plan *plan, const shape *s, enum role role, int level, uint64_t segment) {
    uint64_t steps = steps_before(plan, s, role, level, segment) + steps_in(plan, s, role, level, segment);
    return gw_after(stream_of(role, level), steps);
}

static gw_range chunk_at(const gw_plan_request *request, span at, uint64_t k) {
    uint64_t first = gw_ceil_div(at.split - at.from, request->chunk_count);
    return k < first ? gw_chunk_of((gw_range){at.from, at.split}, request->chunk_count, k)
                     : gw_chunk_of((gw_range){at.split, at.to}, request->chunk_count, k - first);
}

/* The first level that has partial sums: a pair's even rank has them before the first exchange. */
static int first_level(const shape *s, int core) { return core < s->folded ? 0 : 1; }

static uint64_t buffers(const shape *s) { return s->segments > 1 ? 2 : 1; }

static size_t region_count(const gw_plan_request *request, const shape *s, int level) {
    span at = kept(request, s, 0, s->core, level);
    return at.to - at.from;
}

/* Where the region of a level begins for a segment; of levels + 1: the size of WORK. */
static size_t region(const gw_plan_request *request, const shape *s, int level, uint64_t segment) {
    size_t offset = 0;
    for (int l = first_level(s, s->core); l < level; l++) offset += (size_t)buffers(s) * region_count(request, s, l);
    return level > s->levels ? offset : offset + (size_t)(segment % buffers(s)) * region_count(request, s, level);
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
    uint64_t last = s.segments - 1;
    uint64_t steps = steps_before(plan, &s, role, level, last) + steps_in(plan, &s, role, level, last);
    *out = (gw_stream){.flow = GW_FLOW_LOCAL, .peer = -1, .steps = steps};
    if (role == COPY || steps == 0) return;
    bool sends = role == RS_SEND || role == AG_SEND || (s.odd ? role == FOLD_IN : role == FOLD_OUT);
    out->flow = sends ? GW_FLOW_SEND : GW_FLOW_RECV;
    out->peer = role >= RS_SEND ? first_rank(&s, partner(&s, level)) : first_rank(&s, s.core) + !s.odd;
    out->channel = (uint32_t)(role >= AG_SEND   ? s.levels + level
                              : role >= RS_SEND ? level
                              : role == FOLD_IN ? 0
                                                : 2 * s.levels + 1);
}

/* A range of the large buffer as a slot of IN or OUT, which may be only this rank's part of it. */
static gw_slot slot(const gw_plan_request *request, gw_space space, gw_range at) {
    gw_collective small = space == GW_SPACE_IN ? GW_COLL_ALLGATHER : GW_COLL_REDUCE_SCATTER;
    size_t base = request->collective == small ? gw_plan_part(request, request->rank).from : 0;
    return gw_slot_at(space, at.from - base, at.to - at.from);
}

/* What this rank has of a range before a level: partial sums of the level above, once they are there, or IN. */
static gw_slot operand(const gw_plan *plan, const shape *s, int level, uint64_t segment, gw_range at, bool *wide,
                       gw_waits *ready) {
    *wide = level - 1 >= first_level(s, s->core);
    if (!*wide) return slot(&plan->request, GW_SPACE_IN, at);
    enum role role = level == 1 ? FOLD_IN : RS_RECV;
    size_t from = kept(&plan->request, s, segment, s->core, level - 1).from;
    *ready = gw_after(stream_of(role, level - 1), steps_before(plan, s, role, level - 1, segment) +
                                                      gw_ceil_div(at.to - from, plan->request.chunk_count));
    return gw_slot_at(GW_SPACE_WORK, region(&plan->request, s, level - 1, segment) + (at.from - from), at.to - at.from);
}

static void rs_send(const gw_plan *plan, const shape *s, int level, uint64_t segment, gw_range at, gw_action *out) {
    *out = (gw_action){.kind = GW_STEP_SEND};
    out->src = operand(plan, s, level, segment, at, &out->wide, &out->ready[0]);
}

/* Receives at a level (0: from the pair's odd rank) land in the level's region. */
static void rs_recv(const gw_plan *plan, const shape *s, int level, uint64_t segment, gw_range at, gw_action *out) {
    const gw_plan_request *request = &plan->request;
    *out = (gw_action){.kind = GW_STEP_RECV_REDUCE};
    size_t from = kept(request, s, segment, s->core, level).from;
    out->land = gw_slot_at(GW_SPACE_WORK, region(request, s, level, segment) + (at.from - from), at.to - at.from);
    out->dst = out->land;
    if (level == 0) {
        out->src = slot(request, GW_SPACE_IN, at);
    } else {
        out->src = operand(plan, s, level, segment, at, &out->src_wide, &out->ready[0]);
        out->wide = level - 1 >= first_level(s, partner(s, level));
        out->landed_first = partner(s, level) < s->core;
    }
    bool waits = segment >= buffers(s);
    if (level < s->levels && waits) {
        out->free[0] = after_segment(plan, s, RS_SEND, level + 1, segment - buffers(s));
        out->free[1] = after_segment(plan, s, RS_RECV, level + 1, segment - buffers(s));
    } else if (level == s->levels) {
        bool mine = request->collective == GW_COLL_ALLREDUCE || at.to <= gw_plan_part(request, request->rank).to;
        out->finish = true;
        if (mine) out->dst = slot(request, GW_SPACE_OUT, at);
        if (waits) out->free[0] = after_segment(plan, s, RS_RECV, level, segment - buffers(s));
    }
}

/* Before doubling at a level (0: before the result goes to the pair's odd rank): own block is there, and everything
 * that came at the levels below. Receives count only in this order, so that the wait for one level stands for all below
 * it; levels at which nothing came in this segment cannot stand for anything. */
static void after_below(const gw_plan *plan, const shape *s, int level, uint64_t segment, gw_action *out) {
    int below = level + 1;
    while (below <= s->levels && steps_in(plan, s, AG_RECV, below, segment) == 0) below++;
    if (below <= s->levels) {
        out->ready[0] = after_segment(plan, s, AG_RECV, below, segment);
    } else if (plan->request.collective == GW_COLL_ALLREDUCE) {
        out->ready[0] = after_segment(plan, s, RS_RECV, s->levels, segment);
    } else {
        out->ready[0] = after_segment(plan, s, COPY, 0, 0);
        out->ready[1] = after_segment(plan, s, FOLD_IN, 0, 0);
    }
}

static void fold_in(const gw_plan *plan, const shape *s, uint64_t segment, gw_range at, gw_action *out) {
    if (s->odd) {
        *out = (gw_action){.kind = GW_STEP_SEND, .src = slot(&plan->request, GW_SPACE_IN, at)};
    } else if (plan->request.collective == GW_COLL_ALLGATHER) {
        gw_slot dst = slot(&plan->request, GW_SPACE_OUT, at);
        *out = (gw_action){.kind = GW_STEP_RECV, .dst = dst, .land = dst};
    } else {
        rs_recv(plan, s, 0, segment, at, out);
    }
}

static void fold_out(const gw_plan *plan, const shape *s, uint64_t segment, uint64_t i, gw_range at, gw_action *out) {
    const gw_plan_request *request = &plan->request;
    if (s->odd) {
        gw_slot dst = slot(request, GW_SPACE_OUT, at);
        *out = (gw_action){.kind = GW_STEP_RECV, .dst = dst, .land = dst};
        return;
    }
    *out = (gw_action){.kind = GW_STEP_SEND, .src = gw_slot_at(GW_SPACE_OUT, at.from, at.to - at.from)};
    if (request->collective != GW_COLL_REDUCE_SCATTER) {
        after_below(plan, s, 0, segment, out);
        return;
    }
    span block = kept(request, s, 0, s->core, s->levels);
    uint64_t own = gw_ceil_div(block.split - block.from, request->chunk_count);
    out->src = gw_slot_at(GW_SPACE_WORK, region(request, s, s->levels, 0) + (at.from - block.from), at.to - at.from);
    out->ready[0] = gw_after(stream_of(RS_RECV, s->levels), own + i + 1);
}

static void step(const gw_plan *plan, uint32_t index, uint64_t i, gw_action *out) {
    shape s;
    GW_PLAN_RECALL(plan, &s);
    int level;
    enum role role = role_of(index, &level);
    uint64_t full = s.segments > 1 ? steps_in(plan, &s, role, level, 0) : 0, segment = s.segments - 1;
    if (full && i / full < segment) segment = i / full;
    span moved = span_of(&plan->request, &s, role, level, segment);
    gw_range at = chunk_at(&plan->request, moved, i - segment * full);
    switch (role) {
    case FOLD_IN:
        fold_in(plan, &s, segment, at, out);
        break;
    case FOLD_OUT:
        fold_out(plan, &s, segment, i, at, out);
        break;
    case COPY:
        *out = (gw_action){.kind = GW_STEP_COPY,
                         .src = slot(&plan->request, GW_SPACE_IN, at),
                         .dst = slot(&plan->request, GW_SPACE_OUT, at)};
        break;
    case RS_SEND:
        rs_send(plan, &s, level, segment, at, out);
        break;
    case RS_RECV:
        rs_recv(plan, &s, level, segment, at, out);
        break;
    case AG_SEND:
        *out = (gw_action){.kind = GW_STEP_SEND, .src = slot(&plan->request, GW_SPACE_OUT, at)};
        after_below(plan, &s, level, segment, out);
        break;
    default:
        *out = (gw_action){.kind = GW_STEP_RECV};
        out->land = out->dst = slot(&plan->request, GW_SPACE_OUT, at);
        after_below(plan, &s, level, segment, out);
    }
}

/* Messages of the halvings (or the doublings) of a segment down to a level: at each every core gets what it keeps. */
static uint64_t exchanged(const gw_plan_request *request, const shape *s, uint64_t segment, int levels) {
    uint64_t messages = 0;
    for (int level = 1; level <= levels; level++) {
        int group = s->cores >> level;
        for (int core = 0; core < s->cores; core += group)
            messages += (uint64_t)group * chunks_of(request, kept(request, s, segment, core, level));
    }
    return messages;
}

/* Messages between the ranks of pairs: one way everything, the other way (all-reduce: also everything) the odd one's
 * part. */
static uint64_t folds(const gw_plan_request *request, const shape *s, uint64_t segment) {
    uint64_t messages = 0;
    for (int core = 0; core < s->folded; core++) {
        uint64_t all = chunks_of(request, kept(request, s, segment, core, 0));
        messages += all + (request->collective == GW_COLL_ALLREDUCE
                               ? all
                               : chunks_of(request, whole_part(request, first_rank(s, core) + 1)));
    }
    return messages;
}

/* Elements that travel raw at the first halving: those from cores into which nobody folded. */
static uint64_t raw_first(const gw_plan_request *request, const shape *s, uint64_t segment) {
    uint64_t elements = 0;
    int half = s->cores / 2;
    for (int core = s->folded; core < s->cores; core++) {
        span sent = kept(request, s, segment, core ^ half, 1);
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

/* The longest way of a message leads from a core to its opposite, and back again in an all-reduce, or next to where it
 * began if the last exchange is merged. It begins and ends with a pair's odd rank if there are such cores, whose
 * opposite is one too where only one way is gone. */
static uint64_t start_ups(const gw_plan_request *request, const shape *s) {
    uint64_t levels = (uint64_t)s->levels;
    if (request->collective == GW_COLL_ALLREDUCE && s->merged)
        return 2 * levels - 1 + (uint64_t)(s->folded > 1 ? 2 : s->folded);
    if (request->collective == GW_COLL_ALLREDUCE) return 2 * levels + (s->folded ? 2 : 0);
    return levels + (2 * s->folded > s->cores ? 2 : s->folded ? 1 : 0);
}

static bool scatters(const gw_plan_request *request) { return request->collective != GW_COLL_ALLGATHER; }
static bool gathers(const gw_plan_request *request) { return request->collective != GW_COLL_REDUCE_SCATTER; }

static uint64_t messages_of(const gw_plan_request *request, const shape *s, uint64_t segment) {
    return (scatters(request) ? exchanged(request, s, segment, s->levels) : 0) +
           (gathers(request) ? exchanged(request, s, segment, s->levels - s->merged) : 0) + folds(request, s, segment);
}

static gw_cost cost(const gw_plan_request *request) {
    shape s = shape_of(request);
    uint64_t n = gw_plan_total(request), moved = n * (uint64_t)(s.cores - 1), both = s.merged ? n : 0, raw = 0;
    uint64_t full = s.segments - 1;
    gw_cost cost = {.messages = full * messages_of(request, &s, 0) + messages_of(request, &s, full),
                    .start_ups = n ? start_ups(request, &s) : 0};
    if (scatters(request)) raw = full * raw_first(request, &s, 0) + raw_first(request, &s, full);
    cost.elements = folded_elements(request, &s) + raw + (gathers(request) ? moved - both : 0);
    cost.wide_elements = scatters(request) ? moved + both - raw : 0;
    return cost;
}

const gw_plan_builder gw_plan_halving = {
    .name = "halving",
    .about = "recursive halving and doubling: log2 p rounds, the same bits however data is cut",
    .refuses = refuses,
    .lay_out = lay_out,
    .stream = stream,
    .step = step,
    .cost = cost,
};
