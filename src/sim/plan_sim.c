/* plan_sim.c - see plan_sim.h: prepares operations for all ranks, matches their streams, starts and frees them. */
#include <stdlib.h>
#include <string.h>

#include "sim/plan_sim_internal.h"

#define SLAB_BYTES ((size_t)1 << 20)

typedef struct slab {
    struct slab *next;
    char bytes[SLAB_BYTES];
} slab;

void *gw_plan_sim_memory(gw_plan_sim *sim, size_t bytes) {
    bytes = (bytes + 15) / 16 * 16;
    if (sim->slab_left < bytes) {
        slab *made = malloc(sizeof *made);
        if (!made) {
            sim->events.failed = true;
            return NULL;
        }
        made->next = sim->slabs;
        sim->slabs = made;
        sim->slab_left = SLAB_BYTES;
    }
    sim->slab_left -= bytes;
    return sim->slabs->bytes + sim->slab_left;
}

/* Open and close. */

static gw_status open_net(gw_plan_sim *sim, gw_error *error) {
    const gw_fabric *fabric = sim->config.fabric;
    double *rates = calloc((size_t)fabric->links + 1, sizeof *rates);
    if (!rates) return gw_fail(error, GW_MEMORY, "out of memory for %d links", fabric->links);
    for (int i = 0; i < fabric->links; i++) rates[i] = gw_fabric_link_rate(fabric, i);
    gw_status status = gw_flow_net_open(&sim->net, &sim->events, rates, fabric->links, error);
    for (int i = 0; !status && i < fabric->links; i++) gw_flow_net_burst(sim->net, i, gw_fabric_link_burst(fabric, i));
    free(rates);
    return status;
}

gw_status gw_plan_sim_open(gw_plan_sim **out, const gw_plan_sim_config *config, gw_error *error) {
    gw_plan_sim *sim = calloc(1, sizeof *sim);
    if (!sim) return gw_fail(error, GW_MEMORY, "out of memory for a run");
    sim->config = *config;
    sim->events.ctx = sim;
    const gw_topology *t = &config->topology;
    bool folded = config->fabric->folded;
    sim->hosts = folded ? 1 : gw_topology_hosts(t);
    sim->ranks = folded ? gw_topology_local_size(t, 0) : t->world;
    sim->rank = calloc((size_t)sim->ranks, sizeof *sim->rank);
    gw_status status = sim->rank ? open_net(sim, error) : gw_fail(error, GW_MEMORY, "out of memory for a run");
    if (!status) status = gw_plan_sim_open_colls(sim, error);
    if (status) gw_plan_sim_close(sim);
    else *out = sim;
    return status;
}

void gw_plan_sim_close(gw_plan_sim *sim) {
    if (!sim) return;
    while (sim->ops) {
        gw_plan_sim_op *next = sim->ops->next;
        free(sim->ops->streams);
        free(sim->ops->parts);
        free(sim->ops);
        sim->ops = next;
    }
    while (sim->slabs) {
        slab *next = sim->slabs->next;
        free(sim->slabs);
        sim->slabs = next;
    }
    gw_flow_net_close(sim->net);
    gw_events_free(&sim->events);
    free(sim->connections);
    free(sim->coll_streams);
    free(sim->colls);
    free(sim->rank);
    free(sim);
}

int gw_plan_sim_ranks(const gw_plan_sim *sim) { return sim->ranks; }
double gw_plan_sim_now(const gw_plan_sim *sim) { return sim->events.now; }
const gw_time_breakdown *gw_plan_sim_path(const gw_plan_sim *sim) { return &sim->path; }
uint64_t gw_plan_sim_messages(const gw_plan_sim *sim) { return sim->messages; }
double gw_plan_sim_bytes(const gw_plan_sim *sim) { return sim->bytes; }

/* A team inside a host is one of as many alike. */
bool gw_plan_sim_folds(const gw_plan_sim_spec *spec, const gw_topology *all) {
    const gw_topology *t = spec->team ? &spec->team->topology : all;
    int hosts = gw_topology_hosts(t), locals = t->world / hosts;
    if (spec->team && hosts == 1) return true;
    if (hosts == 1 || locals * hosts != t->world || spec->root >= 0) return false;
    for (int rank = 0; rank < t->world; rank++)
        if (gw_topology_host(t, rank) != rank / locals) return false;
    return spec->builder->symmetric;
}

/* Preparation. */

static const gw_topology *topology_of(const gw_plan_sim *sim, const gw_plan_sim_spec *spec) {
    return spec->team ? &spec->team->topology : &sim->config.topology;
}

static int rank_of(const gw_plan_sim_spec *spec, int member) { return spec->team ? spec->team->ranks[member] : member; }

/* Members whose rank is simulated: in a folded run those on the first host, which come first. */
static int count_members(const gw_plan_sim *sim, const gw_plan_sim_spec *spec) {
    int count = 0, world = topology_of(sim, spec)->world;
    while (count < world && rank_of(spec, count) < sim->ranks) count++;
    return count;
}

static gw_status make_plan(const gw_plan_sim *sim, const gw_plan_sim_spec *spec, int member, gw_plan *plan,
                           gw_error *error) {
    gw_plan_request request = {.collective = spec->collective,
                               .topology = *topology_of(sim, spec),
                               .rank = member,
                               .count = spec->count,
                               .root = spec->root,
                               .pipeline = GW_PIPELINE,
                               .apart = spec->collective == GW_COLL_ALLTOALL};
    request.chunk_count = gw_chunk_count(spec->chunk_bytes, spec->unit_bytes);
    return gw_plan_make(plan, spec->builder, &request, error);
}

static uint64_t count_coll_steps(const part *p, const sim_stream *l) {
    uint64_t count = 0;
    for (uint64_t i = 0; i < l->steps; i++) {
        gw_action step;
        gw_plan_action(&p->plan, l->index, i, &step);
        count += step.kind == GW_ACTION_SHM;
    }
    return count;
}

static uint64_t find_last_large(const part *p, const sim_stream *l) {
    size_t unit = p->op->spec.unit_bytes;
    if (p->plan.request.chunk_count * unit <= GW_EAGER_BYTES) return 0;
    for (uint64_t i = l->steps; i > 0; i--) {
        gw_action step;
        gw_plan_action(&p->plan, l->index, i - 1, &step);
        if (step.land.count * unit > GW_EAGER_BYTES) return i;
    }
    return 0;
}

static gw_status fill_part(gw_plan_sim *sim, part *p, gw_stream *streams, gw_error *error) {
    for (uint32_t s = 0; s < p->plan.streams; s++) {
        sim_stream *l = &p->streams[s];
        gw_plan_stream(&p->plan, s, &streams[s]);
        *l = (sim_stream){.of = p, .index = s, .steps = streams[s].actions, .flow = (uint8_t)streams[s].kind};
        p->left += l->steps;
        if (l->flow == GW_STREAM_LOCAL && p->plan.request.topology.coll) p->coll_left += count_coll_steps(p, l);
        if (l->flow == GW_STREAM_RECV) l->large_to = find_last_large(p, l);
        if (!l->steps || (l->flow != GW_STREAM_SEND && !l->large_to)) continue;
        l->connection = gw_plan_sim_connect(sim, p->rank, rank_of(&p->op->spec, streams[s].peer), error);
        if (!l->connection) return GW_MEMORY;
    }
    p->has_coll = p->coll_left > 0;
    return GW_OK;
}

/* Matching. Send streams enter a table by (from, to, channel), where receive streams look them up. */

typedef struct end {
    int from, to;
    uint32_t channel;
    sim_stream *sender; /* NULL: a free entry */
} end;

static end *end_of(end *table, size_t room, int from, int to, uint32_t channel) {
    uint64_t key = ((uint64_t)(uint32_t)from << 32 | (uint32_t)to) * UINT64_C(0x9e3779b97f4a7c15) + channel;
    size_t at = (size_t)((key ^ key >> 29) * UINT64_C(0xbf58476d1ce4e5b9) >> 24) & (room - 1);
    while (table[at].sender && (table[at].from != from || table[at].to != to || table[at].channel != channel))
        at = (at + 1) & (room - 1);
    return &table[at];
}

static bool tie(sim_stream *receiver, sim_stream *sender) {
    if (!sender || sender->other || sender->steps != receiver->steps) return false;
    receiver->other = sender;
    sender->other = receiver;
    return true;
}

static bool match_all(gw_plan_sim_op *op, const gw_stream *streams, end *table, size_t room) {
    for (int turn = 0; turn < 2; turn++) {
        const gw_stream *stream = streams;
        for (int member = 0; member < op->members; member++) {
            part *p = &op->parts[member];
            for (uint32_t s = 0; s < p->plan.streams; s++, stream++) {
                if (!stream->actions || stream->kind != (turn ? GW_STREAM_RECV : GW_STREAM_SEND)) continue;
                int from = turn ? stream->peer : member, to = turn ? member : stream->peer;
                end *at = end_of(table, room, from, to, stream->channel);
                if (turn && !tie(&p->streams[s], at->sender)) return false;
                if (!turn) *at = (end){from, to, stream->channel, &p->streams[s]};
            }
        }
    }
    return true;
}

/* In a folded run, a stream of this host replaces the real sender's stream. It has the same index and the same local
 * rank as the real one. */
static bool match_folded(gw_plan_sim *sim, gw_plan_sim_op *op, int member, uint32_t index, const gw_stream *in) {
    gw_plan plan;
    if (make_plan(sim, &op->spec, in->peer, &plan, NULL)) return false;
    for (uint32_t s = 0; s < plan.streams; s++) {
        gw_stream out;
        gw_plan_stream(&plan, s, &out);
        if (out.kind != GW_STREAM_SEND || out.peer != member || out.channel != in->channel || !out.actions) continue;
        part *p = &op->parts[in->peer % op->members];
        return s < p->plan.streams && tie(&op->parts[member].streams[index], &p->streams[s]);
    }
    return false;
}

static bool match_fold(gw_plan_sim *sim, gw_plan_sim_op *op, const gw_stream *stream) {
    for (int member = 0; member < op->members; member++)
        for (uint32_t s = 0; s < op->parts[member].plan.streams; s++, stream++)
            if (stream->kind == GW_STREAM_RECV && stream->actions && !match_folded(sim, op, member, s, stream))
                return false;
    return true;
}

static gw_status match(gw_plan_sim *sim, gw_plan_sim_op *op, const gw_stream *streams, size_t stream_count,
                       gw_error *error) {
    bool matched;
    if (sim->config.fabric->folded) {
        matched = match_fold(sim, op, streams);
    } else {
        size_t room = 16;
        while (room < 2 * stream_count) room *= 2;
        end *table = calloc(room, sizeof *table);
        if (!table) return gw_fail(error, GW_MEMORY, "out of memory for %d ranks", op->members);
        matched = match_all(op, streams, table, room);
        free(table);
    }
    if (matched) return GW_OK;
    return gw_fail(error, GW_UNSUPPORTED, "%s by %s does not look the same from every host",
                   gw_collective_name(op->spec.collective), op->spec.builder->technique.name);
}

static gw_status lay_out(gw_plan_sim *sim, gw_plan_sim_op *op, gw_error *error) {
    size_t stream_count = 0;
    gw_status status = GW_OK;
    for (int member = 0; member < op->members && !status; member++) {
        op->parts[member] = (part){.op = op, .rank = rank_of(&op->spec, member)};
        status = make_plan(sim, &op->spec, member, &op->parts[member].plan, error);
        stream_count += op->parts[member].plan.streams;
    }
    if (status) return status;
    op->streams = calloc(stream_count + 1, sizeof *op->streams);
    gw_stream *streams = calloc(stream_count + 1, sizeof *streams), *at = streams;
    if (!op->streams || !streams) status = gw_fail(error, GW_MEMORY, "out of memory for %zu streams", stream_count);
    sim_stream *next = op->streams;
    for (int member = 0; member < op->members && !status; member++) {
        part *p = &op->parts[member];
        p->streams = next;
        status = fill_part(sim, p, at, error);
        next += p->plan.streams;
        at += p->plan.streams;
    }
    if (!status) status = match(sim, op, streams, stream_count, error);
    free(streams);
    return status;
}

gw_status gw_plan_sim_prepare(gw_plan_sim *sim, const gw_plan_sim_spec *spec, gw_plan_sim_op **out, gw_error *error) {
    int members = count_members(sim, spec);
    gw_plan_sim_op *op = calloc(1, sizeof *op);
    part *parts = calloc((size_t)members, sizeof *parts);
    gw_status status = op && parts ? GW_OK : gw_fail(error, GW_MEMORY, "out of memory for %d ranks", members);
    if (!status) {
        op->spec = *spec;
        size_t world = (size_t)topology_of(sim, spec)->world;
        bool dealt = spec->collective == GW_COLL_ALLREDUCE; /* count covers all parts */
        if (sim->config.fabric->folded && dealt && spec->count < world) op->spec.count = world;
        op->parts = parts;
        op->members = op->unfinished = members;
        status = lay_out(sim, op, error);
    }
    if (status) {
        if (op) free(op->streams);
        free(parts);
        free(op);
        return status;
    }
    op->next = sim->ops;
    if (op->next) op->next->previous = op;
    sim->ops = op;
    *out = op;
    return GW_OK;
}

void gw_plan_sim_start(gw_plan_sim *sim, gw_plan_sim_op *op, int member) {
    part *p = &op->parts[member];
    rank_state *state = &sim->rank[p->rank];
    p->started = true;
    if (p->has_coll) {
        if (state->coll_last) state->coll_last->next = p;
        else state->coll_first = p;
        state->coll_last = p;
    }
    for (int sends = 0; sends < 2; sends++) /* grants are sent before data, as in the engine */
        for (uint32_t s = 0; s < p->plan.streams; s++) {
            sim_stream *l = &p->streams[s];
            if ((l->flow == GW_STREAM_SEND) != sends || !l->steps) continue; /* no steps: already complete */
            if (op->spec.announced && sends) gw_plan_sim_announce(sim, l);
            gw_plan_sim_queue(sim, l);
        }
    if (p->left > 0) return;
    p->next = sim->finished;
    sim->finished = p;
}

/* Time. */

static void timer_over(gw_event *event, void *ctx) {
    gw_plan_sim *sim = ctx;
    gw_plan_sim_timer *timer = (gw_plan_sim_timer *)event;
    sim->path = timer->path;
    timer->act(timer, sim->config.ctx);
    gw_plan_sim_drain(sim);
}

void gw_plan_sim_after(gw_plan_sim *sim, gw_plan_sim_timer *timer, double seconds, gw_time_part kind) {
    timer->event.act = timer_over;
    timer->path = gw_time_breakdown_plus(sim->path, kind, seconds);
    gw_event_set(&sim->events, &timer->event, sim->events.now + seconds);
}

void gw_plan_sim_delay(gw_plan_sim *sim, gw_plan_sim_timer *timer, double seconds, gw_time_part kind) {
    if (!timer->event.place) return;
    timer->path = gw_time_breakdown_plus(timer->path, kind, seconds);
    gw_event_set(&sim->events, &timer->event, timer->event.at + seconds);
}

double gw_plan_sim_occupy(gw_plan_sim *sim, int rank, double seconds) {
    rank_state *state = &sim->rank[rank];
    double now = sim->events.now, begin = state->busy_until > now ? state->busy_until : now;
    return state->busy_until = begin + seconds;
}

void gw_plan_sim_busy(gw_plan_sim *sim, int rank, gw_plan_sim_timer *timer, double seconds, gw_time_part kind) {
    gw_plan_sim_after(sim, timer, gw_plan_sim_occupy(sim, rank, seconds) - sim->events.now, kind);
}

bool gw_plan_sim_run_next(gw_plan_sim *sim, gw_error *error) {
    gw_plan_sim_drain(sim);
    gw_flow_net_settle(sim->net);
    double next = gw_events_next(&sim->events), last = next * (1 + 1e-13);
    bool moved = next >= 0;
    while (next >= 0 && next <= last && gw_events_step(&sim->events)) next = gw_events_next(&sim->events);
    if (!sim->events.failed) return moved;
    gw_fail(error, GW_MEMORY, "out of memory after %llu messages", (unsigned long long)sim->messages);
    return false;
}
