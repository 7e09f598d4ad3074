/* coded_parts_open.c - where the part of each rank lies, all memory, and saved state. See coded_parts.h. */
#include "reducer/coded_parts_internal.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

size_t gw_coded_parts_memory_bytes(const gw_coded_parts *x) { return x->memory; }

static size_t total_of(const size_t *counts, int world) {
    size_t total = 0;
    for (int r = 0; r < world; r++) total += counts[r];
    return total;
}

size_t gw_coded_parts_by_lane_bytes(const gw_coded_parts_config *c) {
    return total_of(c->counts, c->topology->world) * gw_dtype_bytes(c->dtype);
}

/* Places. */

/* The rank of a lane on a host if that lane is its first one, else -1. */
static int part_of(const gw_coded_parts_config *c, int lane, int host) {
    int rank = gw_lane_rank(&c->lanes, c->topology, lane, host);
    return lane && gw_lane_rank(&c->lanes, c->topology, lane - 1, host) == rank ? -1 : rank;
}

/* starts: where each lane begins, and at the end where the last one ends. */
static void place_parts(gw_coded_parts *x, size_t *starts) {
    const gw_coded_parts_config *c = &x->config;
    size_t at = 0;
    for (int lane = 0; lane < c->lanes.lanes; lane++) {
        starts[lane] = at;
        for (int h = 0; h < c->lanes.hosts; h++) {
            int rank = part_of(c, lane, h);
            if (rank < 0) continue;
            x->places[rank] = at;
            at += c->counts[rank];
        }
    }
    starts[c->lanes.lanes] = x->total = at;
}

static void place_host(gw_coded_parts *x, const size_t *starts) {
    int locals = gw_team_size(x->config.host_team), first, last;
    for (int i = 0; i < locals; i++) {
        gw_lanes_of_local(x->config.lanes.lanes, locals, i, &first, &last);
        x->host_counts[i] = starts[last] - starts[first];
    }
    x->host_place = starts[x->config.lanes.first];
}

static gw_status place(gw_coded_parts *x, gw_error *error) {
    const gw_coded_parts_config *c = &x->config;
    size_t *starts = calloc((size_t)c->lanes.lanes + 1, sizeof *starts);
    int locals = c->host_team ? gw_team_size(c->host_team) : 0;
    x->places = calloc((size_t)x->world, sizeof *x->places);
    x->host_counts = calloc((size_t)locals + 1, sizeof *x->host_counts);
    x->lanes = calloc((size_t)gw_parts_lane_count(x) + 1, sizeof *x->lanes);
    gw_status status = starts && x->places && x->host_counts && x->lanes
                           ? GW_OK
                           : gw_fail(error, GW_MEMORY, "out of memory for %s of %d ranks", c->name, x->world);
    if (!status) place_parts(x, starts);
    if (!status && c->host_team) place_host(x, starts);
    for (int l = 0; !status && l < gw_parts_lane_count(x); l++) x->lanes[l].place = starts[c->lanes.first + l];
    free(starts);
    return status;
}

/* Codec. */

static bool encodes(const gw_coded_parts *x, int rank) {
    return x->config.collective == GW_COLL_REDUCE_SCATTER || rank == x->config.rank;
}

static gw_status open_tensor(gw_coded_parts *x, int rank, gw_error *error) {
    const gw_coded_parts_config *c = &x->config;
    char name[256];
    gw_coded_tensor *t = &x->tensors[rank];
    size_t count = c->counts[rank], columns = c->columns ? c->columns : count;
    snprintf(name, sizeof name, "%.200s, part %d", c->name, rank);
    gw_codec_tensor given = gw_codec_tensor_make(name, columns ? count / columns : 0, columns);
    gw_status status = gw_coding_name(&x->coding, t, &given, false, error);
    if (!status && !t->exact && encodes(x, rank) && gw_codec_stateful(&c->setup))
        status = gw_codec_state_make(&t->state, &c->setup, gw_codec_whole(&t->what), error);
    x->memory += gw_coding_tensor_bytes(t);
    return status;
}

static size_t payload_bound(const gw_coded_parts *x, int rank) {
    if (rank < 0) return 0;
    const gw_coded_tensor *t = &x->tensors[rank];
    return gw_coding_bound(&x->coding, t, &x->coding.setup, gw_codec_whole(&t->what));
}

static gw_status check_payload(const gw_coded_parts *x, int rank, gw_error *error) {
    if (rank < 0) return GW_OK;
    const gw_coded_tensor *t = &x->tensors[rank];
    return gw_coding_check_bound(&x->coding, t, &x->coding.setup, gw_codec_whole(&t->what), error);
}

static gw_status take_payloads(gw_coded_parts *x, gw_parts_lane *lane, gw_error *error) {
    size_t hosts = (size_t)x->config.lanes.hosts;
    for (size_t h = 0; h < hosts; h++) {
        gw_status status = check_payload(x, lane->ranks[h], error);
        if (status) return status;
        if (payload_bound(x, lane->ranks[h]) > lane->room) lane->room = payload_bound(x, lane->ranks[h]);
    }
    size_t in = hosts * lane->room, out = x->config.collective == GW_COLL_REDUCE_SCATTER ? in : lane->room;
    lane->out = malloc(out + 4);
    lane->in = malloc(in + 4);
    lane->out_lengths = calloc(hosts, sizeof *lane->out_lengths);
    lane->in_lengths = calloc(hosts, sizeof *lane->in_lengths);
    x->memory += in + out;
    if (lane->out && lane->in && lane->out_lengths && lane->in_lengths) return GW_OK;
    return gw_fail(error, GW_MEMORY, "%s: out of memory for %zu bytes of payloads", x->config.name, in + out);
}

/* Opening. */

static gw_status open_lane(gw_coded_parts *x, int lane, gw_error *error) {
    const gw_coded_parts_config *c = &x->config;
    gw_parts_lane *to = &x->lanes[lane - c->lanes.first];
    gw_status status = GW_OK;
    to->team = c->lane_teams[lane - c->lanes.first];
    to->ranks = calloc((size_t)c->lanes.hosts, sizeof *to->ranks);
    to->counts = calloc((size_t)c->lanes.hosts, sizeof *to->counts);
    if (!to->ranks || !to->counts) return gw_fail(error, GW_MEMORY, "%s: out of memory for a lane", c->name);
    for (int h = 0; !status && h < c->lanes.hosts; h++) {
        int rank = to->ranks[h] = part_of(c, lane, h);
        to->counts[h] = rank < 0 ? 0 : c->counts[rank];
        if (c->coded && rank >= 0) status = open_tensor(x, rank, error);
    }
    return !status && c->coded ? take_payloads(x, to, error) : status;
}

static gw_status open_codec(gw_coded_parts *x, gw_error *error) {
    const gw_coded_parts_config *c = &x->config;
    int added = c->collective == GW_COLL_REDUCE_SCATTER ? c->lanes.hosts : 1;
    x->tensors = calloc((size_t)x->world, sizeof *x->tensors);
    if (!x->tensors) return gw_fail(error, GW_MEMORY, "out of memory for %s of %d ranks", c->name, x->world);
    return gw_coding_open(&x->coding, &c->setup, c->seed, c->rank, added, error);
}

static gw_status copy_config(gw_coded_parts *x, const gw_coded_parts_config *given, gw_error *error) {
    size_t bytes = (size_t)x->world * sizeof *given->counts, *counts = malloc(bytes);
    x->config.counts = counts;
    x->config.name = strdup(given->name);
    if (!counts || !x->config.name) return gw_fail(error, GW_MEMORY, "out of memory for %s", given->name);
    memcpy(counts, given->counts, bytes);
    return GW_OK;
}

gw_status gw_coded_parts_open(gw_coded_parts **out, const gw_coded_parts_config *config, gw_error *error) {
    gw_coded_parts *x = calloc(1, sizeof *x);
    if (!x) return gw_fail(error, GW_MEMORY, "out of memory for %s", config->name);
    x->config = *config;
    x->world = config->topology->world;
    x->element = gw_dtype_bytes(config->dtype);
    x->memory = config->host_team ? gw_coded_parts_by_lane_bytes(config) : 0;
    x->phase = PARTS_OVER;
    gw_status status = copy_config(x, config, error);
    if (!status) status = place(x, error);
    if (!status && config->coded) status = open_codec(x, error);
    for (int lane = config->lanes.first; !status && x->world > 1 && lane < config->lanes.last; lane++)
        status = open_lane(x, lane, error);
    x->config.topology = NULL; /* the caller's */
    x->config.lane_teams = NULL;
    if (status) gw_coded_parts_close(x);
    else *out = x;
    return status;
}

static void close_lane(gw_parts_lane *lane) {
    if (lane->op) gw_op_release(lane->op); /* the engine has failed */
    free(lane->ranks);
    free(lane->counts);
    free(lane->out);
    free(lane->in);
    free(lane->out_lengths);
    free(lane->in_lengths);
}

void gw_coded_parts_close(gw_coded_parts *x) {
    if (!x) return;
    if (x->op) gw_op_release(x->op);
    for (int l = 0; x->lanes && l < gw_parts_lane_count(x); l++) close_lane(&x->lanes[l]);
    for (int r = 0; x->tensors && r < x->world; r++) gw_coding_tensor_free(&x->tensors[r]);
    free(x->lanes);
    free(x->tensors);
    free(x->places);
    free(x->host_counts);
    free((size_t *)(uintptr_t)x->config.counts);
    free((char *)(uintptr_t)x->config.name);
    free(x);
}

/* Sizes. */

/* Of a plan, the mean over its ranks. */
static size_t plan_bytes(const gw_op_spec *spec, gw_team *team, size_t element) {
    gw_plan_request request = {.collective = spec->collective, .topology = *gw_team_topology(team),
                               .rank = gw_team_rank(team), .counts = spec->counts, .root = -1, .chunk_count = 1,
                               .pipeline = GW_PIPELINE};
    return (size_t)(gw_plan_cost(spec->builder, &request).elements * element / (uint64_t)request.topology.world);
}

static size_t lane_bytes(const gw_coded_parts *x, const gw_parts_lane *lane) {
    int hosts = x->config.lanes.hosts, own = x->config.lanes.host;
    if (!x->config.coded) {
        gw_op_spec spec = gw_parts_lane_spec(x, lane, NULL, NULL);
        return plan_bytes(&spec, lane->team, x->element);
    }
    size_t bytes = 0;
    for (int h = 0; h < hosts; h++)
        if (h != own) bytes += payload_bound(x, lane->ranks[h]);
    return x->config.collective == GW_COLL_REDUCE_SCATTER ? bytes : (size_t)(hosts - 1) * lane->room;
}

size_t gw_coded_parts_sent_bytes(const gw_coded_parts *x) {
    size_t bytes = 0;
    if (x->world == 1) return 0;
    for (int l = 0; l < gw_parts_lane_count(x); l++) bytes += lane_bytes(x, &x->lanes[l]);
    if (!x->config.host_team) return bytes;
    gw_op_spec spec = gw_parts_host_spec(x);
    return bytes + plan_bytes(&spec, x->config.host_team, x->element);
}

int gw_coded_parts_encoded(const gw_coded_parts *x, int *exact) {
    int count = *exact = 0;
    for (int r = 0; x->tensors && r < x->world; r++) {
        if (!x->tensors[r].what.name || !encodes(x, r)) continue;
        count++;
        *exact += x->tensors[r].exact;
    }
    return count;
}

/* State. */

static gw_codec_state *next_state(const gw_coded_parts *x, int *rank) {
    while (x->tensors && *rank < x->world) {
        gw_codec_state *state = &x->tensors[(*rank)++].state;
        if (state->tensor.name) return state;
    }
    return NULL;
}

size_t gw_coded_parts_state_bytes(const gw_coded_parts *x) {
    size_t bytes = 0;
    int rank = 0;
    for (const gw_codec_state *state; (state = next_state(x, &rank));) bytes += gw_codec_state_saved_bytes(state);
    return bytes;
}

void gw_coded_parts_state_save(const gw_coded_parts *x, void *memory) {
    uint8_t *at = memory;
    int rank = 0;
    for (const gw_codec_state *state; (state = next_state(x, &rank)); at += gw_codec_state_saved_bytes(state))
        gw_codec_state_save(state, at);
}

gw_status gw_coded_parts_state_restore(gw_coded_parts *x, const void *memory, size_t bytes, gw_error *error) {
    const uint8_t *at = memory;
    gw_status status = GW_OK;
    int rank = 0;
    if (bytes != gw_coded_parts_state_bytes(x))
        return gw_fail(error, GW_MISMATCH, "%s: the saved state has %zu bytes instead of %zu", x->config.name, bytes,
                       gw_coded_parts_state_bytes(x));
    for (gw_codec_state *state; !status && (state = next_state(x, &rank)); at += gw_codec_state_saved_bytes(state))
        status = gw_codec_state_restore(state, at, gw_codec_state_saved_bytes(state), error);
    for (int r = 0; x->tensors && r < x->world; r++) x->tensors[r].prepared = 0; /* the next run may be the same one */
    return status;
}
