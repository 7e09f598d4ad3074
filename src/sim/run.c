/* run.c - operations of a run: laid out for all ranks, their streams matched, started, freed. See run.h. */
#include <stdlib.h>
#include <string.h>

#include "sim/run_internal.h"

#define SLAB_BYTES ((size_t)1 << 20)

typedef struct slab {
    struct slab *next;
    char bytes[SLAB_BYTES];
} slab;

void *gw_run_memory(gw_run *run, size_t bytes) {
    bytes = (bytes + 15) / 16 * 16;
    if (run->slab_left < bytes) {
        slab *made = malloc(sizeof *made);
        if (!made) {
            run->events.failed = true;
            return NULL;
        }
        made->next = run->slabs;
        run->slabs = made;
        run->slab_left = SLAB_BYTES;
    }
    run->slab_left -= bytes;
    return run->slabs->bytes + run->slab_left;
}

/* The run itself. */

static gw_status open_net(gw_run *run, gw_error *error) {
    const gw_fabric *fabric = run->config.fabric;
    double *rates = calloc((size_t)fabric->links + 1, sizeof *rates);
    if (!rates) return gw_fail(error, GW_MEMORY, "out of memory for %d links", fabric->links);
    for (int i = 0; i < fabric->links; i++) rates[i] = gw_fabric_link_rate(fabric, i);
    gw_status status = gw_flow_net_open(&run->net, &run->events, rates, fabric->links, error);
    for (int i = 0; !status && i < fabric->links; i++) gw_flow_net_burst(run->net, i, gw_fabric_link_burst(fabric, i));
    free(rates);
    return status;
}

gw_status gw_run_open(gw_run **out, const gw_run_config *config, gw_error *error) {
    gw_run *run = calloc(1, sizeof *run);
    if (!run) return gw_fail(error, GW_MEMORY, "out of memory for a run");
    run->config = *config;
    run->events.ctx = run;
    const gw_topology *t = &config->topology;
    bool folded = config->fabric->folded;
    run->hosts = folded ? 1 : gw_topology_hosts(t);
    run->ranks = folded ? gw_topology_local_size(t, 0) : t->world;
    run->rank = calloc((size_t)run->ranks, sizeof *run->rank);
    gw_status status = run->rank ? open_net(run, error) : gw_fail(error, GW_MEMORY, "out of memory for a run");
    if (!status) status = gw_run_open_boards(run, error);
    if (status) gw_run_close(run);
    else *out = run;
    return status;
}

void gw_run_close(gw_run *run) {
    if (!run) return;
    while (run->ops) {
        gw_run_op *next = run->ops->next;
        free(run->ops->lanes);
        free(run->ops->parts);
        free(run->ops);
        run->ops = next;
    }
    while (run->slabs) {
        slab *next = run->slabs->next;
        free(run->slabs);
        run->slabs = next;
    }
    gw_flow_net_close(run->net);
    gw_events_free(&run->events);
    free(run->connections);
    free(run->board_lanes);
    free(run->boards);
    free(run->rank);
    free(run);
}

int gw_run_ranks(const gw_run *run) { return run->ranks; }
double gw_run_now(const gw_run *run) { return run->events.now; }
const gw_path *gw_run_path(const gw_run *run) { return &run->path; }
uint64_t gw_run_messages(const gw_run *run) { return run->messages; }
double gw_run_bytes(const gw_run *run) { return run->bytes; }

bool gw_run_folds(const gw_run_spec *spec, const gw_topology *t) {
    int hosts = gw_topology_hosts(t), locals = t->world / hosts;
    if (hosts == 1 || locals * hosts != t->world || spec->root >= 0) return false;
    for (int rank = 0; rank < t->world; rank++)
        if (gw_topology_host(t, rank) != rank / locals) return false;
    const gw_plan_builder *b = spec->builder;
    return b == &gw_plan_ring || b == &gw_plan_exchange || b == &gw_plan_oneshot || b == &gw_plan_hierarchical;
}

/* Laying out. */

static gw_status make_plan(const gw_run *run, const gw_run_spec *spec, int rank, gw_plan *plan, gw_error *error) {
    gw_plan_request request = {.collective = spec->collective,
                               .topology = run->config.topology,
                               .rank = rank,
                               .count = spec->count,
                               .root = spec->root,
                               .pipeline = GW_PIPELINE,
                               .apart = spec->collective == GW_COLL_ALLTOALL};
    request.chunk_count = gw_chunk_count(spec->chunk_bytes, spec->unit_bytes);
    return gw_plan_make(plan, spec->builder, &request, error);
}

static uint64_t count_board_steps(const part *p, const lane *l) {
    uint64_t count = 0;
    for (uint64_t i = 0; i < l->steps; i++) {
        gw_action step;
        gw_plan_step(&p->plan, l->index, i, &step);
        count += step.kind == GW_STEP_BOARD;
    }
    return count;
}

static uint64_t find_last_large(const part *p, const lane *l) {
    size_t unit = p->op->spec.unit_bytes;
    if (p->plan.request.chunk_count * unit <= GW_EAGER_BYTES) return 0;
    for (uint64_t i = l->steps; i > 0; i--) {
        gw_action step;
        gw_plan_step(&p->plan, l->index, i - 1, &step);
        if (step.land.count * unit > GW_EAGER_BYTES) return i;
    }
    return 0;
}

static gw_status fill_part(gw_run *run, part *p, gw_stream *streams, gw_error *error) {
    for (uint32_t s = 0; s < p->plan.streams; s++) {
        lane *l = &p->lanes[s];
        gw_plan_stream(&p->plan, s, &streams[s]);
        *l = (lane){.of = p, .index = s, .steps = streams[s].steps, .flow = (uint8_t)streams[s].flow};
        p->left += l->steps;
        if (l->flow == GW_FLOW_LOCAL && run->config.topology.board) p->board_left += count_board_steps(p, l);
        if (l->flow == GW_FLOW_RECV) l->large_to = find_last_large(p, l);
        if (!l->steps || (l->flow != GW_FLOW_SEND && !l->large_to)) continue;
        l->connection = gw_run_connect(run, p->rank, streams[s].peer, error);
        if (!l->connection) return GW_MEMORY;
    }
    p->has_board = p->board_left > 0;
    return GW_OK;
}

/* Matching. Sends are put into a table by (from, to, channel) and receives look there. */

typedef struct end {
    int from, to;
    uint32_t channel;
    lane *sender; /* NULL: this place is free */
} end;

static end *end_of(end *table, size_t room, int from, int to, uint32_t channel) {
    uint64_t key = ((uint64_t)(uint32_t)from << 32 | (uint32_t)to) * UINT64_C(0x9e3779b97f4a7c15) + channel;
    size_t at = (size_t)((key ^ key >> 29) * UINT64_C(0xbf58476d1ce4e5b9) >> 24) & (room - 1);
    while (table[at].sender && (table[at].from != from || table[at].to != to || table[at].channel != channel))
        at = (at + 1) & (room - 1);
    return &table[at];
}

static bool tie(lane *receiver, lane *sender) {
    if (!sender || sender->other || sender->steps != receiver->steps) return false;
    receiver->other = sender;
    sender->other = receiver;
    return true;
}

static bool match_all(gw_run *run, gw_run_op *op, const gw_stream *streams, end *table, size_t room) {
    for (int turn = 0; turn < 2; turn++) {
        const gw_stream *stream = streams;
        for (int rank = 0; rank < run->ranks; rank++) {
            part *p = &op->parts[rank];
            for (uint32_t s = 0; s < p->plan.streams; s++, stream++) {
                if (!stream->steps || stream->flow != (turn ? GW_FLOW_RECV : GW_FLOW_SEND)) continue;
                int from = turn ? stream->peer : rank, to = turn ? rank : stream->peer;
                end *at = end_of(table, room, from, to, stream->channel);
                if (turn && !tie(&p->lanes[s], at->sender)) return false;
                if (!turn) *at = (end){from, to, stream->channel, &p->lanes[s]};
            }
        }
    }
    return true;
}

/* Folded: the sender is the stream of a rank of this host that the real sender's own stream looks like. */
static bool match_folded(gw_run *run, gw_run_op *op, int rank, uint32_t index, const gw_stream *in) {
    gw_plan plan;
    if (make_plan(run, &op->spec, in->peer, &plan, NULL)) return false;
    for (uint32_t s = 0; s < plan.streams; s++) {
        gw_stream out;
        gw_plan_stream(&plan, s, &out);
        if (out.flow != GW_FLOW_SEND || out.peer != rank || out.channel != in->channel || !out.steps) continue;
        part *p = &op->parts[in->peer % run->ranks];
        return s < p->plan.streams && tie(&op->parts[rank].lanes[index], &p->lanes[s]);
    }
    return false;
}

static bool match_fold(gw_run *run, gw_run_op *op, const gw_stream *stream) {
    for (int rank = 0; rank < run->ranks; rank++)
        for (uint32_t s = 0; s < op->parts[rank].plan.streams; s++, stream++)
            if (stream->flow == GW_FLOW_RECV && stream->steps && !match_folded(run, op, rank, s, stream)) return false;
    return true;
}

static gw_status match(gw_run *run, gw_run_op *op, const gw_stream *streams, size_t lanes, gw_error *error) {
    bool matched;
    if (run->config.fabric->folded) {
        matched = match_fold(run, op, streams);
    } else {
        size_t room = 16;
        while (room < 2 * lanes) room *= 2;
        end *table = calloc(room, sizeof *table);
        if (!table) return gw_fail(error, GW_MEMORY, "out of memory for %d ranks", run->ranks);
        matched = match_all(run, op, streams, table, room);
        free(table);
    }
    if (matched) return GW_OK;
    return gw_fail(error, GW_UNSUPPORTED, "%s by %s does not look the same from every host",
                   gw_collective_name(op->spec.collective), op->spec.builder->name);
}

static gw_status lay_out(gw_run *run, gw_run_op *op, gw_error *error) {
    size_t lanes = 0;
    gw_status status = GW_OK;
    for (int rank = 0; rank < run->ranks && !status; rank++) {
        op->parts[rank] = (part){.op = op, .rank = rank};
        status = make_plan(run, &op->spec, rank, &op->parts[rank].plan, error);
        lanes += op->parts[rank].plan.streams;
    }
    if (status) return status;
    op->lanes = calloc(lanes + 1, sizeof *op->lanes);
    gw_stream *streams = calloc(lanes + 1, sizeof *streams), *at = streams;
    if (!op->lanes || !streams) status = gw_fail(error, GW_MEMORY, "out of memory for %zu streams", lanes);
    lane *next = op->lanes;
    for (int rank = 0; rank < run->ranks && !status; rank++) {
        part *p = &op->parts[rank];
        p->lanes = next;
        status = fill_part(run, p, at, error);
        next += p->plan.streams;
        at += p->plan.streams;
    }
    if (!status) status = match(run, op, streams, lanes, error);
    free(streams);
    return status;
}

gw_status gw_run_prepare(gw_run *run, const gw_run_spec *spec, gw_run_op **out, gw_error *error) {
    gw_run_op *op = calloc(1, sizeof *op);
    part *parts = calloc((size_t)run->ranks, sizeof *parts);
    gw_status status = op && parts ? GW_OK : gw_fail(error, GW_MEMORY, "out of memory for %d ranks", run->ranks);
    if (!status) {
        op->spec = *spec;
        size_t world = (size_t)run->config.topology.world;
        bool dealt = spec->collective == GW_COLL_ALLREDUCE; /* count is that of all parts together */
        if (run->config.fabric->folded && dealt && spec->count < world) op->spec.count = world;
        op->parts = parts;
        op->unfinished = run->ranks;
        status = lay_out(run, op, error);
    }
    if (status) {
        if (op) free(op->lanes);
        free(parts);
        free(op);
        return status;
    }
    op->next = run->ops;
    if (op->next) op->next->previous = op;
    run->ops = op;
    *out = op;
    return GW_OK;
}

void gw_run_start(gw_run *run, gw_run_op *op, int rank) {
    part *p = &op->parts[rank];
    rank_state *state = &run->rank[rank];
    p->started = true;
    if (p->has_board) {
        if (state->board_last) state->board_last->next = p;
        else state->board_first = p;
        state->board_last = p;
    }
    for (int sends = 0; sends < 2; sends++) /* grants leave before data, as in the engine */
        for (uint32_t s = 0; s < p->plan.streams; s++) {
            lane *l = &p->lanes[s];
            if ((l->flow == GW_FLOW_SEND) != sends || !l->steps) continue; /* a part without steps is over at once */
            if (op->spec.announced && sends) gw_run_announce(run, l);
            gw_run_queue(run, l);
        }
    if (p->left > 0) return;
    p->next = run->finished;
    run->finished = p;
}

/* Time. */

static void timer_over(gw_event *event, void *ctx) {
    gw_run *run = ctx;
    gw_run_timer *timer = (gw_run_timer *)event;
    run->path = timer->path;
    timer->act(timer, run->config.ctx);
    gw_run_drain(run);
}

void gw_run_after(gw_run *run, gw_run_timer *timer, double seconds, gw_path_part kind) {
    timer->event.act = timer_over;
    timer->path = gw_path_plus(run->path, kind, seconds);
    gw_event_set(&run->events, &timer->event, run->events.now + seconds);
}

void gw_run_busy(gw_run *run, int rank, gw_run_timer *timer, double seconds, gw_path_part kind) {
    rank_state *state = &run->rank[rank];
    double now = run->events.now, begin = state->busy_until > now ? state->busy_until : now;
    state->busy_until = begin + seconds;
    gw_run_after(run, timer, state->busy_until - now, kind);
}

bool gw_run_moment(gw_run *run, gw_error *error) {
    gw_run_drain(run);
    gw_flow_net_settle(run->net);
    double next = gw_events_next(&run->events), last = next * (1 + 1e-13);
    bool moved = next >= 0;
    while (next >= 0 && next <= last && gw_events_step(&run->events)) next = gw_events_next(&run->events);
    if (!run->events.failed) return moved;
    gw_fail(error, GW_MEMORY, "out of memory after %llu messages", (unsigned long long)run->messages);
    return false;
}
