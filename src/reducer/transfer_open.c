/* transfer_open.c - the route of each bucket, and what it needs: codec state of tensors, teams of hosts and lanes,
 * exchanges and their memory. */
#include <stdlib.h>
#include <string.h>

#include "base/dtype.h"
#include "ps/ps.h"
#include "reducer/step_engine_internal.h"

/* Ids of teams, from config.first_id on: two of the host, one for the factors of each tensor, and those of buckets. */
enum { HOST_TEAMS = 2 };

/* lane: the number of lanes for the team of the rack. */
static uint32_t bucket_team_id(const gw_step_engine *s, int bucket, int lane) {
    return s->config.first_id + HOST_TEAMS + (uint32_t)s->config.count +
           (uint32_t)bucket * ((uint32_t)s->lanes.lanes + 1) + (uint32_t)lane;
}

uint32_t gw_transfers_factor_team(const gw_step_engine_config *c, int tensor) {
    return c->first_id + HOST_TEAMS + (uint32_t)tensor;
}

static gw_route route_of(const gw_step_engine_config *c, gw_dtype dtype, bool factors) {
    bool codec = !c->codec.codec->identity && dtype == GW_F32;
    gw_route_request request = {.arch = c->arch, .topology = gw_team_topology(c->team), .codec = codec,
                                .splits = c->policy->splits, .sums_in_type = dtype == GW_F32 || dtype == GW_F64,
                                .servers = c->servers > 0, .factors = factors};
    return gw_route_of(&request);
}

/* Under arch=hierarchical values travel as they are when only ranks of one host are left. */
bool gw_transfers_may_pack(const gw_step_engine_config *c, const gw_reducer_tensor *tensor) {
    bool codec = !c->codec.codec->identity && tensor->dtype == GW_F32;
    return !c->servers && (!codec || strcmp(c->arch, "hierarchical") == 0);
}

bool gw_transfers_encode(const gw_step_engine_config *c, const gw_reducer_tensor *tensor) {
    if (c->servers) return !c->codec.codec->identity && tensor->dtype == GW_F32;
    return route_of(c, tensor->dtype, false).coded;
}

size_t gw_transfers_piece_bytes(const gw_step_engine_config *c, const gw_reducer_tensor *tensor) {
    gw_route route = route_of(c, tensor->dtype, false);
    return gw_route_piece_bytes(&route);
}

uint32_t gw_transfers_teams(const gw_step_engine_config *c, size_t buckets_most) {
    gw_lanes lanes = gw_lanes_of(gw_team_topology(c->team), gw_team_rank(c->team), false);
    return HOST_TEAMS + (uint32_t)c->count + (uint32_t)buckets_most * ((uint32_t)lanes.lanes + 1);
}

/* Teams. */

/* coll: gets the team's shm collective, which stays NULL if its ranks share nothing. NULL: the team sends messages. */
static gw_status open_team(const gw_step_engine_config *c, uint32_t id, const int *ranks, const int *hosts, int size,
                           struct gw_shm_coll **coll, gw_team **team, gw_error *error) {
    int self = 0, *members = malloc((size_t)size * sizeof *members);
    gw_status status = members ? GW_OK : gw_fail(error, GW_MEMORY, "out of memory for a team of %d ranks", size);
    for (int i = 0; !status && i < size; i++) {
        members[i] = gw_team_member(c->team, ranks[i]);
        if (ranks[i] == gw_team_rank(c->team)) self = i;
    }
    gw_topology topology = *gw_team_topology(c->team);
    topology.world = size;
    topology.host_of = hosts;
    topology.rack_of = NULL;
    topology.order = NULL;
    if (!status && coll && c->sharing)
        status = c->sharing->open_coll(c->sharing->ctx, id, members, size, self, coll, error);
    if (!status)
        status = gw_team_open(team, gw_core_engine(c->core), id, self, members, &topology, coll ? *coll : NULL, error);
    free(members);
    return status;
}

/* All ranks of a flat lane; else its rank on each host. */
static gw_status open_lane_team(gw_step_engine *s, bool flat, int bucket, int lane, gw_team **team, gw_error *error) {
    uint32_t id = bucket_team_id(s, bucket, lane);
    if (flat) return gw_team_open_same(team, s->config.team, id, error);
    const gw_topology *topology = gw_team_topology(s->config.team);
    int hosts = s->lanes.hosts, *ranks = malloc(2 * (size_t)hosts * sizeof *ranks);
    if (!ranks) return gw_fail(error, GW_MEMORY, "out of memory for a team of %d ranks", hosts);
    for (int h = 0; h < hosts; h++) {
        ranks[h] = gw_lane_rank(&s->lanes, topology, lane, h);
        ranks[hosts + h] = h;
    }
    gw_status status = open_team(&s->config, id, ranks, ranks + hosts, hosts, NULL, team, error);
    free(ranks);
    return status;
}

/* The rank with the own local number on each host of the rack. */
static gw_status open_rack_team(gw_step_engine *s, int bucket, gw_error *error) {
    const gw_topology *topology = gw_team_topology(s->config.team);
    int rack = s->lanes.host, size = gw_topology_rack_size(topology, rack);
    int *ranks = malloc(2 * (size_t)size * sizeof *ranks), local = s->lanes.first / s->lanes.per_host;
    if (!ranks) return gw_fail(error, GW_MEMORY, "out of memory for a team of %d ranks", size);
    for (int i = 0; i < size; i++) {
        ranks[i] = gw_topology_rank(topology, gw_topology_rack_host(topology, rack, i), local);
        ranks[size + i] = i;
    }
    gw_status status = open_team(&s->config, bucket_team_id(s, bucket, s->lanes.lanes), ranks, ranks + size, size, NULL,
                                 &s->transfers[bucket].rack_team, error);
    free(ranks);
    return status;
}

static gw_status open_host_teams(gw_step_engine *s, gw_error *error) {
    const gw_topology *topology = gw_team_topology(s->config.team);
    int host = gw_topology_host(topology, gw_team_rank(s->config.team)), size = gw_topology_local_size(topology, host);
    int *ranks = calloc(2 * (size_t)size, sizeof *ranks);
    gw_status status = ranks ? GW_OK : gw_fail(error, GW_MEMORY, "out of memory for a team of %d ranks", size);
    for (int i = 0; !status && i < size; i++) ranks[i] = gw_topology_rank(topology, host, i);
    for (int i = 0; !status && i < HOST_TEAMS; i++)
        status = open_team(&s->config, s->config.first_id + (uint32_t)i, ranks, ranks + size, size, &s->host_colls[i],
                           &s->host_teams[i], error);
    free(ranks);
    return status;
}

/* Tensors. */

static gw_status open_coded(gw_step_engine *s, gw_error *error) {
    const gw_step_engine_config *c = &s->config;
    gw_coded_form form = gw_coded_form_of(&c->codec, s->lanes.hosts, c->policy->splits);
    s->coded = calloc((size_t)c->count + 1, sizeof *s->coded);
    if (!s->coded) return gw_fail(error, GW_MEMORY, "out of memory for %d coded tensors", c->count);
    gw_status status =
        gw_coding_open(&s->coding, &c->codec, c->options.seed, gw_team_rank(c->team), s->lanes.hosts, error);
    for (int i = 0; !status && i < c->count; i++) {
        const gw_reducer_tensor *t = &s->tensors[i].what;
        size_t rows = t->rows ? t->rows : 1;
        gw_codec_tensor given = gw_codec_tensor_make(t->name, rows, t->count / rows);
        if (gw_transfers_encode(c, t) && t->count)
            status = gw_coding_tensor_open(&s->coding, &s->coded[i], &given, t->exact, &s->lanes,
                                           form == GW_FORM_TWO_PASS, error);
    }
    return status;
}

gw_status gw_transfers_prepare(gw_step_engine *s, gw_error *error) {
    const gw_step_engine_config *c = &s->config;
    s->turn = s->next_turn = 0; /* those of a former team may not have been used up */
    if (c->servers) return GW_OK;
    gw_route f32 = route_of(c, GW_F32, false);
    bool flat = !f32.in_lanes;
    s->lanes = gw_lanes_of(gw_team_topology(c->team), gw_team_rank(c->team), flat);
    gw_status status = f32.coded ? open_coded(s, error) : GW_OK;
    if (!status && !flat) status = open_host_teams(s, error);
    return status;
}

void gw_transfers_release(gw_step_engine *s) {
    for (int i = 0; s->coded && i < s->config.count; i++) gw_coding_tensor_free(&s->coded[i]);
    free(s->coded);
    s->coded = NULL;
    for (int i = 0; i < HOST_TEAMS; i++) {
        if (s->host_colls[i]) s->config.sharing->close_coll(s->host_colls[i]);
        gw_team_close(s->host_teams[i]);
        s->host_colls[i] = NULL;
        s->host_teams[i] = NULL;
    }
    gw_payload_pool_close(s->payloads);
    s->payloads = NULL;
}

/* Buckets. */

uint8_t *gw_transfers_range(const gw_step_engine *s, const gw_tensor_range *range) {
    const gw_step_engine_tensor *t = &s->tensors[range->tensor];
    return (uint8_t *)t->view.travels + range->first * gw_dtype_bytes(t->what.dtype);
}

static bool lies_together(const gw_step_engine *s, int bucket) {
    const gw_tensor_range *ranges = gw_schedule_ranges(s->schedule, bucket);
    for (int i = 1; i < gw_schedule_bucket(s->schedule, bucket)->ranges; i++) {
        size_t element = gw_dtype_bytes(s->tensors[ranges[i - 1].tensor].what.dtype);
        if (gw_transfers_range(s, &ranges[i - 1]) + ranges[i - 1].count * element != gw_transfers_range(s, &ranges[i]))
            return false;
    }
    return true;
}

static void bind_dense(gw_step_engine *s, int bucket) {
    const gw_tensor_range *ranges = gw_schedule_ranges(s->schedule, bucket);
    const gw_step_engine_tensor *first = &s->tensors[ranges[0].tensor];
    gw_transfer *transfer = &s->transfers[bucket];
    transfer->count = gw_schedule_bucket(s->schedule, bucket)->bytes / gw_dtype_bytes(transfer->dtype);
    transfer->copies = !lies_together(s, bucket);
    transfer->data = transfer->copies
                         ? (uint8_t *)s->config.flat + first->offset + ranges[0].first * gw_dtype_bytes(transfer->dtype)
                         : gw_transfers_range(s, &ranges[0]);
}

static gw_status open_lanes(gw_step_engine *s, int bucket, gw_error *error) {
    gw_transfer *transfer = &s->transfers[bucket];
    gw_status status = GW_OK;
    transfer->lane_count = s->lanes.last - s->lanes.first;
    transfer->lanes = calloc((size_t)transfer->lane_count + 1, sizeof *transfer->lanes);
    if (!transfer->lanes) return gw_fail(error, GW_MEMORY, "out of memory for lanes");
    for (int l = 0; !status && l < transfer->lane_count; l++)
        status = open_lane_team(s, transfer->route.flat, bucket, s->lanes.first + l, &transfer->lanes[l].team, error);
    return status;
}

/* The most elements that any lane has of a bucket. */
static size_t largest_lane(const gw_step_engine *s, int bucket) {
    const gw_tensor_range *ranges = gw_schedule_ranges(s->schedule, bucket);
    size_t largest = 0;
    for (int lane = 0; lane < s->lanes.lanes; lane++) {
        size_t count = 0;
        for (int i = 0; i < gw_schedule_bucket(s->schedule, bucket)->ranges; i++) {
            gw_stripes has = gw_owners_in_lanes(&s->coded[ranges[i].tensor].owners, lane, lane + 1);
            count +=
                gw_stripes_place(&has, ranges[i].first + ranges[i].count) - gw_stripes_place(&has, ranges[i].first);
        }
        if (count > largest) largest = count;
    }
    return largest;
}

/* Where the values of each range are: in the tensors, or one after the other in the lane's part of by_lane. */
static void find_values(gw_step_engine *s, int bucket, int lane, float **values) {
    const gw_tensor_range *ranges = gw_schedule_ranges(s->schedule, bucket);
    const gw_transfer *transfer = &s->transfers[bucket];
    float *at = transfer->by_lane ? transfer->by_lane + (size_t)lane * transfer->lane_room : NULL;
    for (int i = 0; i < gw_schedule_bucket(s->schedule, bucket)->ranges; i++) {
        gw_stripes has = gw_owners_in_lanes(&s->coded[ranges[i].tensor].owners, lane, lane + 1);
        values[i] = at ? at : (float *)(void *)gw_transfers_range(s, &ranges[i]);
        if (at)
            at += gw_stripes_place(&has, ranges[i].first + ranges[i].count) - gw_stripes_place(&has, ranges[i].first);
    }
}

static gw_status open_exchange(gw_step_engine *s, int bucket, int lane, gw_error *error) {
    const gw_bucket *p = gw_schedule_bucket(s->schedule, bucket);
    const gw_tensor_range *ranges = gw_schedule_ranges(s->schedule, bucket);
    gw_transfer_lane *part = &s->transfers[bucket].lanes[lane - s->lanes.first];
    gw_coded_part *parts = calloc((size_t)p->ranges + 1, sizeof *parts);
    part->values = calloc((size_t)p->ranges + 1, sizeof *part->values);
    gw_status status = parts && part->values ? GW_OK : gw_fail(error, GW_MEMORY, "out of memory for a bucket");
    for (int i = 0; !status && i < p->ranges; i++)
        parts[i] = (gw_coded_part){&s->coded[ranges[i].tensor], ranges[i].first, ranges[i].count};
    gw_coded_exchange_config config = {.setup = s->config.codec, .parts = parts, .count = p->ranges, .lane = lane,
                                       .ranks = gw_team_size(s->config.team), .arch = s->config.arch,
                                       .seed = s->config.options.seed, .halves = s->config.policy->splits,
                                       .watched = s->config.watch_accuracy ? &s->watched : NULL, .lent = true};
    if (!status) status = gw_coded_exchange_open(&part->exchange, s->config.core, part->team, &config, error);
    if (!status) find_values(s, bucket, lane, part->values);
    if (!status) s->transfers[bucket].payload_bytes += gw_coded_exchange_payload_bytes(part->exchange);
    free(parts);
    return status;
}

static gw_status bind_coded(gw_step_engine *s, int bucket, gw_error *error) {
    gw_status status = GW_OK;
    for (int lane = s->lanes.first; !status && lane < s->lanes.last; lane++)
        status = open_exchange(s, bucket, lane, error);
    return status;
}

static void find_route(gw_step_engine *s, int bucket) {
    gw_transfer *transfer = &s->transfers[bucket];
    gw_step_engine_tensor *t = &s->tensors[gw_schedule_ranges(s->schedule, bucket)[0].tensor];
    transfer->dtype = t->what.dtype;
    transfer->factored = t->factors ? t : NULL;
    transfer->route = route_of(&s->config, t->what.dtype, t->factors != NULL);
    if (transfer->route.coded && !transfer->route.flat) transfer->lane_room = largest_lane(s, bucket);
}

/* One allocation for all buckets: each that ranks of a host share is mapped by all of them. */
static gw_status make_lane_memory(gw_step_engine *s, gw_error *error) {
    const gw_host_sharing *sharing = s->config.sharing;
    size_t count = 0, lanes = (size_t)s->lanes.lanes;
    for (int p = 0; p < gw_schedule_buckets(s->schedule); p++) count += lanes * s->transfers[p].lane_room;
    if (!count) return GW_OK;
    s->lane_memory =
        sharing ? sharing->alloc(sharing->ctx, count * sizeof(float), error) : calloc(count, sizeof(float));
    if (!s->lane_memory) return gw_fail(error, GW_MEMORY, "out of memory for %zu elements by lanes", count);
    float *at = s->lane_memory;
    for (int p = 0; p < gw_schedule_buckets(s->schedule); p++) {
        if (!s->transfers[p].lane_room) continue;
        s->transfers[p].by_lane = at;
        at += lanes * s->transfers[p].lane_room;
    }
    return GW_OK;
}

static gw_status bind(gw_step_engine *s, int bucket, gw_error *error) {
    gw_transfer *transfer = &s->transfers[bucket];
    gw_status status = GW_OK;
    if (transfer->factored || s->config.servers || transfer->route.count == 0) return GW_OK;
    if (transfer->route.coded || transfer->route.in_lanes) status = open_lanes(s, bucket, error);
    if (!status && transfer->route.in_lanes && gw_team_topology(s->config.team)->rack_of)
        status = open_rack_team(s, bucket, error);
    if (status) return status;
    if (transfer->route.coded) return bind_coded(s, bucket, error);
    bind_dense(s, bucket);
    return GW_OK;
}

gw_status gw_transfers_bind(gw_step_engine *s, gw_error *error) {
    for (int p = 0; p < gw_schedule_buckets(s->schedule); p++) find_route(s, p);
    gw_status status = make_lane_memory(s, error);
    for (int p = 0; !status && p < gw_schedule_buckets(s->schedule); p++) status = bind(s, p, error);
    if (!status) status = gw_payload_memory_open(s, error);
    if (status || !s->config.servers) return status;
    return s->ps ? gw_ps_bind(s->ps, error) : gw_ps_open(&s->ps, s, error);
}

void gw_transfers_move(gw_step_engine *s) {
    for (int p = 0; p < gw_schedule_buckets(s->schedule); p++) {
        const gw_transfer *transfer = &s->transfers[p];
        if (transfer->route.count && !transfer->route.coded) bind_dense(s, p);
        for (int l = 0; transfer->route.coded && l < transfer->lane_count; l++)
            find_values(s, p, s->lanes.first + l, transfer->lanes[l].values);
    }
}

static void free_lane_memory(gw_step_engine *s) {
    const gw_host_sharing *sharing = s->config.sharing;
    if (sharing && s->lane_memory) sharing->release(sharing->ctx, s->lane_memory);
    if (!sharing) free(s->lane_memory);
    s->lane_memory = NULL;
}

void gw_transfers_unbind(gw_step_engine *s, gw_transfer *transfers, int count) {
    for (int p = 0; transfers && p < count; p++) {
        gw_transfer *transfer = &transfers[p];
        if (transfer->op) gw_op_release(transfer->op); /* the engine has failed */
        for (int l = 0; l < transfer->lane_count; l++) {
            if (transfer->lanes[l].op) gw_op_release(transfer->lanes[l].op);
            gw_coded_exchange_close(transfer->lanes[l].exchange);
            gw_team_close(transfer->lanes[l].team);
            free(transfer->lanes[l].values);
        }
        gw_team_close(transfer->rack_team);
        free(transfer->lanes);
        *transfer = (gw_transfer){0};
    }
    free_lane_memory(s);
}
