/* engine.c - engines and teams: set-up, transports, polling, failure. */
#include "engine/engine_internal.h"

#include <assert.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/engine_trace.h"

gw_status gw_engine_open(gw_engine **out, const gw_engine_config *config, gw_error *error) {
    gw_engine *engine = calloc(1, sizeof *engine);
    gw_peer *peers = calloc((size_t)config->world, sizeof *peers);
    int *awaited = calloc((size_t)config->world, sizeof *awaited);
    const void **sources = calloc((size_t)config->world, sizeof *sources);
    if (!engine || !peers || !awaited || !sources) {
        free(engine);
        free(peers);
        free(awaited);
        free(sources);
        return gw_fail(error, GW_MEMORY, "out of memory for %d peers", config->world);
    }
    engine->config = *config;
    engine->peers = peers;
    engine->awaited = awaited;
    engine->sources = sources;
    gw_flow_discard(engine);
    *out = engine;
    return GW_OK;
}

static void free_ops(gw_op *op) {
    while (op) {
        gw_op *next = op->next;
        free(op->counts);
        free(op->streams);
        free(op->work);
        free(op);
        op = next;
    }
}

void gw_engine_close(gw_engine *engine) {
    if (!engine) return;
    for (int r = 0; r < engine->config.world; r++) {
        for (int i = 0; i < GW_EAGER_SLOTS; i++) free(engine->peers[r].unexpected[i].bytes);
        free(engine->peers[r].early);
        free(engine->peers[r].requests);
    }
    free_ops(engine->active);
    free_ops(engine->spare);
    free(engine->peers);
    free(engine->awaited);
    free(engine->sources);
    free(engine);
}

void gw_engine_route(gw_engine *engine, int peer, gw_transport *transport) {
    engine->peers[peer].transport = transport;
    for (int t = 0; t < engine->transport_count; t++)
        if (engine->transports[t] == transport) return;
    engine->transports[engine->transport_count++] = transport;
}

bool gw_engine_poll(gw_engine *engine, gw_time now) {
    bool any = false;
    engine->now = now;
    engine->coll_moved = false;
    for (int t = 0; t < engine->transport_count; t++)
        any |= engine->transports[t]->ops->poll(engine->transports[t], now);
    for (gw_op *op = engine->active, *next; op && !engine->halted; op = next) {
        next = op->next;
        if (gw_op_needs_poll(op)) any |= gw_op_advance(op);
    }
    if (!engine->halted) gw_flow_settle(engine);
    if (!engine->halted) gw_op_check_deadlines(engine);
    return any || engine->coll_moved;
}

void gw_engine_report(gw_engine *engine, gw_status status, int rank, const char *format, ...) {
    if (engine->halted) return;
    gw_error error = {.status = status, .rank = rank};
    va_list args;
    va_start(args, format);
    vsnprintf(error.text, sizeof error.text, format, args);
    va_end(args);
    engine->halted = true;
    engine->config.events.failed(engine->config.events.ctx, &error);
}

void gw_engine_fail(gw_engine *engine, const gw_error *error) {
    engine->error = *error;
    engine->halted = true;
    while (engine->active) {
        gw_op *op = engine->active;
        engine->active = op->next;
        op->next = NULL;
        op->active = false;
        op->done = true;
        op->status = error->status;
        if (engine->trace) gw_engine_trace_ended(op);
        engine->pending--;
    }
    gw_flow_discard(engine);
    /* The driver resets the links. Later messages belong to the next generation, and may arrive before it begins
     * here. */
    engine->halted = false;
}

void gw_engine_peer_gone(gw_engine *engine, int rank, bool left, const char *detail) {
    gw_peer *peer = &engine->peers[rank];
    if (peer->transport && peer->transport->ops->gone) peer->transport->ops->gone(peer->transport, rank);
    if (engine->halted || !peer->transport) return;
    peer->left = left;
    peer->died = !left;
    peer->lost_status = GW_PEER_LOST;
    snprintf(peer->why_lost, sizeof peer->why_lost, "%s", detail);
    /* Receive the messages that it sent before it left. A link that hangs up reports its end after them; on other
     * transports they are here already, and polling delivers them. */
    if (left && peer->transport->ops->hangs_up) return;
    while (left && peer->transport->ops->poll(peer->transport, engine->now)) {}
    peer->lost = true;
    for (gw_op *op = engine->active; op; op = op->next) gw_op_mark(op);
}

void gw_engine_peer_returned(gw_engine *engine, int rank) {
    engine->peers[rank].lost = engine->peers[rank].died = false;
}

const gw_error *gw_engine_error(const gw_engine *engine) { return &engine->error; }

void gw_engine_explain(const gw_engine *engine, gw_status status, gw_error *error) {
    if (!status || error->status) return;
    if (engine->error.status) *error = engine->error;
    else
        gw_fail(error, status, "the operation belongs to a generation of the job that has failed: %s",
                gw_status_text(status));
}

void gw_engine_renew(gw_engine *engine) {
    engine->error = (gw_error){.rank = -1};
    engine->halted = false;
}

void gw_engine_forgive(gw_engine *engine, gw_time gap) {
    for (gw_op *op = engine->active; op; op = op->next) op->progress_at += gap;
}

void gw_engine_trace(gw_engine *engine, struct gw_trace *trace) {
    memset(engine->trace_names, 0, sizeof engine->trace_names);
    for (gw_op *op = engine->active; op; op = op->next) /* no send times are known of operations in progress */
        for (uint32_t s = 0; s < op->plan.streams; s++)
            memset(op->streams[s].handed_at, 0, sizeof op->streams[s].handed_at);
    engine->trace = trace;
}

struct gw_trace *gw_engine_tracing(const gw_engine *engine) {
    return engine->trace;
}

int gw_engine_pending(const gw_engine *engine) { return engine->pending; }
gw_engine_counters gw_engine_count(const gw_engine *engine) { return engine->counters; }

static void release(gw_team *team) {
    if (!team) return;
    if (team->table && --team->table->users == 0) free(team->table);
    free(team->sent_to);
    free(team->received_from);
    gw_tags_close(team->tags);
    free(team);
}

static gw_team_table *make_table(const int *members, const gw_topology *topology) {
    size_t n = (size_t)topology->world;
    gw_team_table *table = malloc(sizeof *table + 4 * n * sizeof(int));
    if (!table) return NULL;
    table->users = 0;
    memcpy(table->numbers, members, n * sizeof(int));
    memcpy(table->numbers + n, topology->host_of, n * sizeof(int));
    if (topology->order) memcpy(table->numbers + 2 * n, topology->order, n * sizeof(int));
    if (topology->rack_of) memcpy(table->numbers + 3 * n, topology->rack_of, n * sizeof(int));
    return table;
}

static void adopt_table(gw_team *team, gw_team_table *table, const gw_topology *topology) {
    size_t n = (size_t)topology->world;
    team->table = table;
    table->users++;
    team->members = table->numbers;
    team->host_of = table->numbers + n;
    team->topology = *topology;
    team->topology.host_of = team->host_of;
    team->topology.order = topology->order ? table->numbers + 2 * n : NULL;
    team->topology.rack_of = topology->rack_of ? table->numbers + 3 * n : NULL;
    team->topology.native = false;
}

static void join(gw_team *team, gw_engine *engine, uint32_t id, int rank) {
    team->engine = engine;
    team->id = id;
    team->rank = rank;
    team->size = team->topology.world;
    team->next = engine->teams;
    engine->teams = team;
    gw_pair_claim_early(team);
}

gw_status gw_team_open(gw_team **out, gw_engine *engine, uint32_t id, int rank, const int *members,
                       const gw_topology *topology, struct gw_shm_coll *coll, gw_error *error) {
    size_t n = (size_t)topology->world;
    gw_team *team = calloc(1, sizeof *team);
    gw_team_table *table = team ? make_table(members, topology) : NULL;
    if (!table) goto memory;
    adopt_table(team, table, topology);
    team->sent_to = calloc(n, sizeof *team->sent_to);
    team->received_from = calloc(n, sizeof *team->received_from);
    if (!team->sent_to || !team->received_from) goto memory;
    team->coll = coll;
    team->topology.coll = coll != NULL;
    join(team, engine, id, rank);
    *out = team;
    return GW_OK;
memory:
    release(team);
    return gw_fail(error, GW_MEMORY, "out of memory for a communicator of %d ranks", topology->world);
}

gw_status gw_team_open_same(gw_team **out, const gw_team *like, uint32_t id, gw_error *error) {
    gw_team *team = calloc(1, sizeof *team);
    if (!team) return gw_fail(error, GW_MEMORY, "out of memory for a communicator of %d ranks", like->size);
    adopt_table(team, like->table, &like->topology);
    team->topology.coll = false;
    join(team, like->engine, id, like->rank);
    *out = team;
    return GW_OK;
}

void gw_team_close(gw_team *team) {
    if (!team) return;
    gw_team **at = &team->engine->teams;
    while (*at != team) at = &(*at)->next;
    *at = team->next;
    release(team);
}

void gw_team_native(gw_team *team, gw_transport *transport) { team->native = transport; }

uint32_t gw_team_id(const gw_team *team) { return team->id; }
int gw_team_rank(const gw_team *team) { return team->rank; }
int gw_team_size(const gw_team *team) { return team->size; }
int gw_team_member(const gw_team *team, int rank) { return team->members[rank]; }

const gw_topology *gw_team_topology(const gw_team *team) { return &team->topology; }
