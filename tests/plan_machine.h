/* plan_machine.h - runs the plans of all ranks in one process, in any order that their waits allow.
 *
 * A raw element has 32 bits; a wide one 64, of which half are a mark, so that mixing them up shows. Finishing changes
 * the value, so that doing it twice or never shows. Orders are adversarial: kinds of events have priorities drawn from
 * the seed (receive buffers granted as early as allowed and used as late as possible, and the other way round), a
 * stream reads what it sends either at once or at the last moment, sources must not change in between, and receive
 * buffers in WORK are overwritten with garbage when they are granted. */
#ifndef GW_TEST_PLAN_MACHINE_H
#define GW_TEST_PLAN_MACHINE_H

#include "plan_memory.h"

/* --- waits --- */

static const gw_action *step_at(machine *m, cursor *c, int which, uint64_t index) {
    if (c->cached[which] != index + 1) {
        gw_plan_action(&m->members[c->rank].plan, c->number, index, &c->step[which]);
        c->cached[which] = index + 1;
    }
    return &c->step[which];
}

static bool hold(machine *m, int rank, const gw_waits waits[GW_ACTION_WAITS]) {
    bool all = true;
    for (int w = 0; w < GW_ACTION_WAITS; w++) {
        ENSURE(m, waits[w].first + waits[w].streams <= m->members[rank].plan.streams);
        for (uint32_t s = 0; s < waits[w].streams; s++) {
            const cursor *c = &m->members[rank].cursors[waits[w].first + s];
            ENSURE(m, waits[w].actions <= c->stream.actions);
            all &= c->done >= waits[w].actions;
        }
    }
    return all;
}

static uint16_t depth_through(const cursor *c, uint64_t steps) { return steps ? c->depth[steps - 1] : 0; }

static uint16_t ready_depth(machine *m, int rank, const gw_action *step) {
    uint16_t depth = 0;
    for (int w = 0; w < GW_ACTION_WAITS; w++)
        for (uint32_t s = 0; s < step->ready[w].streams; s++) {
            uint16_t d = depth_through(&m->members[rank].cursors[step->ready[w].first + s], step->ready[w].actions);
            if (d > depth) depth = d;
        }
    return depth;
}

/* Counts a step: its own depth, and never less than those before it in the stream have when all are one message. */
static void complete(machine *m, cursor *c, const gw_action *step, uint16_t arrived) {
    if (m->depths) {
        uint16_t depth = ready_depth(m, c->rank, step);
        if (c->stream.kind == GW_STREAM_SEND) depth++;
        if (arrived > depth) depth = arrived;
        if (depth_through(c, c->done) > depth) depth = depth_through(c, c->done);
        c->depth[c->done] = depth;
        if (depth > m->spent.start_ups) m->spent.start_ups = depth;
    }
    c->done++;
}

/* --- events; each returns whether it happened --- */

static bool post(machine *m, cursor *c) {
    if (c->stream.kind != GW_STREAM_RECV || c->posted == c->stream.actions) return false;
    const gw_action *step = step_at(m, c, 0, c->posted);
    if (!hold(m, c->rank, step->free)) return false;
    ENSURE(m, step->kind == GW_ACTION_RECV || step->kind == GW_ACTION_RECV_REDUCE);
    ENSURE(m, step->kind == GW_ACTION_RECV || step->land.space == GW_SPACE_WORK);
    unsigned char *at = place(m, c->rank, step->land);
    if (step->land.space == GW_SPACE_WORK) memset(at, 0xEE, 8 * step->land.count);
    else if (!m->in_place) memset(at, 0xEE, 4 * step->land.count);
    c->posted++;
    return true;
}

static bool start(machine *m, cursor *c) {
    if (c->stream.kind != GW_STREAM_SEND || c->posted == c->stream.actions) return false;
    if (!c->eager && c->posted > c->landed) return false;
    const gw_action *step = step_at(m, c, 0, c->posted);
    if (!hold(m, c->rank, step->ready)) return false;
    ENSURE(m, step->kind == GW_ACTION_SEND);
    m->spent.messages++;
    if (step->wide) m->spent.wide_elements += step->src.count;
    else m->spent.elements += step->src.count;
    c->posted++;
    if (!c->eager) {
        c->snapshot = source_sum(m, c->rank, step);
        return true;
    }
    size_t bytes = message_bytes(step, step->src.count);
    packet *p = malloc(sizeof *p + bytes);
    p->next = NULL;
    p->step = *step;
    memcpy(p->data, place(m, c->rank, step->src), bytes);
    *c->tail = p;
    c->tail = &p->next;
    complete(m, c, step, 0);
    return true;
}

static void land(machine *m, cursor *to, const gw_action *sent, const unsigned char *data) {
    gw_action step;
    gw_plan_action(&m->members[to->rank].plan, to->number, to->landed, &step);
    ENSURE(m, step.wide == sent->wide);
    ENSURE(m, step.land.count == sent->src.count);
    if (step.land.count == sent->src.count && step.wide == sent->wide)
        memcpy(recv_buffer(m, to->rank, &step), data, message_bytes(sent, sent->src.count));
    to->landed++;
}

static bool move(machine *m, cursor *c) {
    if (c->stream.kind != GW_STREAM_SEND || c->landed == c->posted || c->other->posted <= c->other->landed)
        return false;
    if (c->eager) {
        packet *p = c->head;
        land(m, c->other, &p->step, p->data);
        c->head = p->next;
        if (!c->head) c->tail = &c->head;
        free(p);
        c->landed++;
        return true;
    }
    gw_action step = *step_at(m, c, 1, c->landed);
    ENSURE(m, source_sum(m, c->rank, &step) == c->snapshot);
    land(m, c->other, &step, place(m, c->rank, step.src));
    c->landed++;
    complete(m, c, &step, 0);
    return true;
}

static void reduce(machine *m, int rank, const gw_action *s) {
    const unsigned char *src = place(m, rank, s->src), *landed = recv_buffer(m, rank, s);
    unsigned char *dst = place(m, rank, s->dst);
    ENSURE(m, s->src.count == s->land.count && s->dst.count == s->land.count);
    for (size_t i = 0; i < s->land.count; i++) {
        uint32_t a = load(m, src, s->src_wide, i), b = load(m, landed, s->wide, i);
        uint32_t value = s->landed_first ? combined(m->op, b, a) : combined(m->op, a, b);
        store(dst, !s->finish, i, s->finish ? finished(value) : value);
    }
}

static bool act(machine *m, cursor *c) {
    if (c->stream.kind != GW_STREAM_RECV || c->done == c->landed) return false;
    const gw_action *step = step_at(m, c, 1, c->done);
    if (!hold(m, c->rank, step->ready)) return false;
    if (step->kind == GW_ACTION_RECV_REDUCE) reduce(m, c->rank, step);
    complete(m, c, step, m->depths ? c->other->depth[c->done] : 0);
    return true;
}

static void fold(machine *m, int rank, const gw_action *s) {
    ENSURE(m, s->src.count == s->dst.count);
    for (size_t i = 0; i < s->src.count; i++) {
        uint32_t value = 0;
        for (int q = 0; q < m->world; q++) {
            size_t index = (size_t)(q < rank ? q : q - 1);
            gw_slot slot = {GW_SPACE_WORK, s->fold_base + index * s->fold_stride, s->src.count};
            uint32_t theirs = load(m, place(m, rank, q == rank ? s->src : slot), false, i);
            value = q ? combined(m->op, value, theirs) : theirs;
        }
        store(place(m, rank, s->dst), false, i, finished(value));
    }
}

/* --- the host-local collective: when all ranks of a host have reached it --- */

typedef struct party {
    int size, host;
    cursor **at;
    const gw_action **step;
} party;

static void coll_reduce(machine *m, const party *p, size_t from, size_t length, int to, bool all) {
    const gw_action *own = p->step[to];
    for (size_t i = 0; i < length; i++) {
        uint32_t value = 0;
        for (int l = 0; l < p->size; l++) {
            uint32_t theirs = load(m, place(m, p->at[l]->rank, p->step[l]->src), false, from + i);
            value = l ? combined(m->op, value, theirs) : theirs;
        }
        if (!all) store(place(m, p->at[to]->rank, own->dst), own->dst_wide, i, own->dst_wide ? value : finished(value));
        for (int l = 0; all && l < p->size; l++)
            store(place(m, p->at[l]->rank, p->step[l]->dst), false, from + i, finished(value));
    }
    uint64_t size = (uint64_t)p->size;
    m->spent.coll_elements += length * (size + (all ? size : 1));
}

static void coll_copy(machine *m, const party *p, int to, size_t at, int from, size_t begin, size_t length) {
    if (length == 0) return;
    memmove(place(m, p->at[to]->rank, p->step[to]->dst) + 4 * at,
            place(m, p->at[from]->rank, p->step[from]->src) + 4 * begin, 4 * length);
}

/* An all-to-all, which may be in place. */
static void coll_swap(machine *m, const party *p) {
    size_t size = (size_t)p->size, count = p->step[0]->src.count, part = count / size;
    unsigned char *all = malloc(4 * count * size + 1);
    for (int l = 0; l < p->size; l++)
        memcpy(all + 4 * count * (size_t)l, place(m, p->at[l]->rank, p->step[l]->src), 4 * count);
    for (size_t to = 0; to < size; to++)
        for (size_t from = 0; from < size; from++)
            memcpy(place(m, p->at[to]->rank, p->step[to]->dst) + 4 * from * part, all + 4 * (from * count + to * part),
                   4 * part);
    m->spent.coll_elements += 2 * count * size;
    free(all);
}

static void coll_part(machine *m, const party *p, int lane) {
    const gw_action *own = p->step[lane];
    size_t from, length, size = (size_t)p->size;
    const size_t *counts = m->members[p->at[lane]->rank].plan.request.counts;
    bool cuts_src = own->task == GW_SHM_TASK_REDUCE_SCATTER || own->task == GW_SHM_TASK_SCATTER;
    gw_part(cuts_src ? own->src.count : own->dst.count, own->lanes, lane, &from, &length);
    if (own->by_counts) {
        length = counts[lane];
        from = 0;
        for (int l = 0; l < lane; l++) from += counts[l];
    }
    switch (own->task) {
    case GW_SHM_TASK_ALLREDUCE: coll_reduce(m, p, from, length, lane, true); break;
    case GW_SHM_TASK_REDUCE_SCATTER:
        ENSURE(m, own->dst.count == length);
        coll_reduce(m, p, from, length, lane, false);
        break;
    case GW_SHM_TASK_ALLGATHER: {
        bool part = own->src.space == GW_SPACE_IN; /* else the part lies in its place in OUT */
        for (int l = 0; l < p->size; l++)
            if (part || l != lane) coll_copy(m, p, l, from, lane, part ? 0 : from, length);
        m->spent.coll_elements += (size + part) * length;
        break;
    }
    case GW_SHM_TASK_GATHER:
        ENSURE(m, own->src.count == length);
        coll_copy(m, p, own->coll_root, from, lane, 0, length);
        m->spent.coll_elements += 2 * length;
        break;
    case GW_SHM_TASK_SCATTER:
        ENSURE(m, own->dst.count == length);
        coll_copy(m, p, lane, 0, own->coll_root, from, length);
        m->spent.coll_elements += 2 * length;
        break;
    default: break;
    }
}

static void coll_run(machine *m, const party *p) {
    const gw_action *first = p->step[0];
    for (int l = 0; l < p->size; l++)
        ENSURE(m, p->step[l]->kind == GW_ACTION_SHM && p->step[l]->task == first->task &&
                      p->step[l]->lanes == first->lanes && p->step[l]->coll_root == first->coll_root);
    ENSURE(m, first->lanes <= p->size);
    if (first->task == GW_SHM_TASK_BROADCAST) {
        int root = first->coll_root;
        size_t count = p->step[root]->src.count;
        for (int l = 0; l < p->size; l++)
            memmove(place(m, p->at[l]->rank, p->step[l]->dst), place(m, p->at[root]->rank, p->step[root]->src),
                    4 * count);
        m->spent.coll_elements += count * (uint64_t)(p->size + 1);
        return;
    }
    if (first->task == GW_SHM_TASK_REDUCE) {
        coll_reduce(m, p, 0, first->src.count, first->coll_root, false);
        return;
    }
    if (first->task == GW_SHM_TASK_ALLTOALL) {
        coll_swap(m, p);
        return;
    }
    for (int lane = 0; lane < first->lanes; lane++) coll_part(m, p, lane);
}

static bool coll(machine *m, cursor *c) {
    const gw_topology *topology = &m->members[c->rank].plan.request.topology;
    party p = {.host = gw_topology_host(topology, c->rank)};
    p.size = gw_topology_local_size(topology, p.host);
    p.at = calloc((size_t)p.size, sizeof *p.at);
    p.step = calloc((size_t)p.size, sizeof *p.step);
    bool here = true;
    for (int l = 0; l < p.size && here; l++) {
        cursor *other = &m->members[gw_topology_rank(topology, p.host, l)].cursors[c->number];
        here = other->stream.kind == GW_STREAM_LOCAL && other->done == c->done && other->done < other->stream.actions;
        if (!here) break;
        p.at[l] = other;
        p.step[l] = step_at(m, other, 1, other->done);
        here = hold(m, other->rank, p.step[l]->ready);
    }
    if (here) coll_run(m, &p);
    for (int l = 0; here && l < p.size; l++) complete(m, p.at[l], p.step[l], 0);
    free(p.step);
    free(p.at);
    return here;
}

static bool local(machine *m, cursor *c) {
    if (c->stream.kind != GW_STREAM_LOCAL || c->done == c->stream.actions) return false;
    const gw_action *step = step_at(m, c, 1, c->done);
    if (!hold(m, c->rank, step->ready)) return false;
    switch (step->kind) {
    case GW_ACTION_SHM: return coll(m, c);
    case GW_ACTION_FOLD: fold(m, c->rank, step); break;
    case GW_ACTION_COPY:
        ENSURE(m, step->src.count == step->dst.count);
        memmove(place(m, c->rank, step->dst), place(m, c->rank, step->src), 4 * step->src.count);
        break;
    default: ENSURE(m, !"a local stream has only copies, folds and board steps");
    }
    complete(m, c, step, 0);
    return true;
}

/* --- running --- */

static int by_link(const void *a, const void *b) {
    const cursor *x = *(cursor *const *)a, *y = *(cursor *const *)b;
    bool sx = x->stream.kind == GW_STREAM_SEND, sy = y->stream.kind == GW_STREAM_SEND;
    int fx = sx ? x->rank : x->stream.peer, fy = sy ? y->rank : y->stream.peer;
    int tx = sx ? x->stream.peer : x->rank, ty = sy ? y->stream.peer : y->rank;
    if (fx != fy) return fx < fy ? -1 : 1;
    if (tx != ty) return tx < ty ? -1 : 1;
    if (x->stream.channel != y->stream.channel) return x->stream.channel < y->stream.channel ? -1 : 1;
    return (int)sy - (int)sx;
}

/* Every send stream that has steps must meet exactly one receive stream with as many. */
static void link_streams(machine *m) {
    cursor **links = calloc(m->cursor_count + 1, sizeof *links);
    size_t count = 0;
    for (size_t i = 0; i < m->cursor_count; i++)
        if (m->cursors[i].stream.kind != GW_STREAM_LOCAL && m->cursors[i].stream.actions)
            links[count++] = &m->cursors[i];
    qsort(links, count, sizeof *links, by_link);
    ENSURE(m, count % 2 == 0);
    for (size_t i = 0; i + 1 < count && !m->failures; i += 2) {
        cursor *send = links[i], *recv = links[i + 1];
        ENSURE(m, send->stream.kind == GW_STREAM_SEND && recv->stream.kind == GW_STREAM_RECV);
        ENSURE(m, send->stream.peer == recv->rank && recv->stream.peer == send->rank);
        ENSURE(m, send->stream.channel == recv->stream.channel && send->stream.actions == recv->stream.actions);
        send->other = recv;
        recv->other = send;
    }
    free(links);
}

static void set_up_cursor(machine *m, cursor *c, int rank, uint32_t number) {
    c->rank = rank;
    c->number = number;
    gw_plan_stream(&m->members[rank].plan, number, &c->stream);
    c->eager = machine_random(&m->random) % 2;
    c->tail = &c->head;
    if (m->depths) c->depth = calloc(c->stream.actions + 1, sizeof *c->depth);
}

typedef bool event(machine *, cursor *);
#define FIRST_ONLY 8

/* Offers an event to all cursors but `lazy` of eight, or to each until one takes it. */
static bool sweep(machine *m, event *happen, uint64_t lazy) {
    bool moved = false;
    size_t offset = machine_random(&m->random) % m->cursor_count;
    for (size_t i = 0; i < m->cursor_count; i++) {
        if (lazy == FIRST_ONLY ? moved : lazy && machine_random(&m->random) % 8 < lazy) continue;
        cursor *c = &m->cursors[(i + offset) % m->cursor_count];
        if (&m->members[c->rank] != m->absent) moved |= happen(m, c);
    }
    return moved;
}

/* True if every stream is complete. */
static bool machine_run(machine *m) {
    static event *const events[] = {post, start, move, act, local};
    enum { EVENTS = sizeof events / sizeof events[0] };
    int order[EVENTS];
    for (int i = 0; i < EVENTS; i++) {
        int j = (int)(machine_random(&m->random) % (uint64_t)(i + 1));
        order[i] = order[j];
        order[j] = i;
    }
    uint64_t lazy = m->cursor_count > 4000
                        ? 0
                        : machine_random(&m->random) % 3 * 3; /* of 8 cursors, how many are passed over in a sweep */
    for (int kind = 0; kind < EVENTS && !m->failures;) {
        bool moved = sweep(m, events[order[kind]], lazy) || (lazy && sweep(m, events[order[kind]], FIRST_ONLY));
        kind = moved ? 0 : kind + 1;
    }
    bool ended = true;
    for (size_t i = 0; i < m->cursor_count; i++) ended &= m->cursors[i].done == m->cursors[i].stream.actions;
    return ended && !m->failures;
}

static void machine_free(machine *m) {
    for (size_t i = 0; i < m->cursor_count; i++) {
        for (packet *p = m->cursors[i].head, *next; p; p = next) next = p->next, free(p);
        free(m->cursors[i].depth);
    }
    for (int r = 0; r < m->world; r++) free(m->members[r].work);
    free(m->cursors);
    free(m->members);
}

/* Lays out the plans of all ranks (send: rank 0 sends to rank 1); the caller then gives each member its buffers. False:
 * the builder refuses. */
static bool machine_make(machine *m, const gw_plan_builder *builder, gw_plan_request request, uint64_t seed) {
    m->random = seed;
    m->world = request.topology.world;
    m->members = calloc((size_t)m->world, sizeof *m->members);
    const size_t *counts = request.counts;
    for (int r = 0; r < m->world; r++) {
        member *own = &m->members[r];
        gw_error error = {0};
        request.rank = r;
        if (request.collective == GW_COLL_ALLTOALLV) /* each rank has arrays of its own */
            request.counts = counts + (size_t)r * gw_counts_entries(request.collective, m->world);
        if (request.collective == GW_COLL_SEND) request.root = 1;
        if (request.collective == GW_COLL_SEND && r == 1) request.collective = GW_COLL_RECV, request.root = 0;
        if (gw_plan_make(&own->plan, builder, &request, &error) != GW_OK) {
            machine_free(m);
            return false;
        }
        m->cursor_count += own->plan.streams;
        own->in_count = gw_plan_in_count(&request);
        own->out_count = gw_plan_out_count(&request);
        own->work = malloc(8 * own->plan.work_count + 8);
        memset(own->work, 0xDD, 8 * own->plan.work_count + 8);
    }
    m->cursors = calloc(m->cursor_count, sizeof *m->cursors);
    cursor *next = m->cursors;
    for (int r = 0; r < m->world; r++) {
        m->members[r].cursors = next;
        for (uint32_t s = 0; s < m->members[r].plan.streams; s++) set_up_cursor(m, next++, r, s);
    }
    link_streams(m);
    return true;
}

#endif
