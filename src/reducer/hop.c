/* hop.c - one hop of a bucket's route: starts its operations, and knows when they are over. */
#include <string.h>

#include "arch/choose_plan.h"
#include "base/dtype.h"
#include "ps/ps.h"
#include "reducer/step_engine_internal.h"

enum host_team { REDUCES, GATHERS };

static const gw_hop *hop_of(const gw_transfer *transfer) { return &transfer->route.hops[transfer->hop]; }

/* Dense operations: on a buffer that every member of a team has, cut into a part for each. */

typedef struct buffer {
    gw_team *team;
    uint8_t *data;
    gw_dtype dtype;
    size_t count;               /* elements */
    const gw_transfer *by_lane; /* its members have parts of lanes first_lane .. + lanes - 1; NULL: parts are equal */
    int first_lane, lanes;
} buffer;

/* Where a lane begins in a bucket's elements by lanes. */
static size_t lane_at(const gw_step_engine *s, const gw_transfer *transfer, int lane) {
    size_t offset = transfer->count, length;
    if (transfer->by_lane) return (size_t)lane * transfer->lane_room;
    if (lane < s->lanes.lanes) gw_part(transfer->count, s->lanes.lanes, lane, &offset, &length);
    return offset;
}

/* Lanes first .. last - 1 of a bucket, for a team whose members have equal parts, or whole lanes. */
static buffer lanes_buffer(const gw_step_engine *s, const gw_transfer *transfer, gw_team *team, int first, int last) {
    size_t from = lane_at(s, transfer, first);
    buffer b = {.team = team, .data = transfer->data, .dtype = transfer->dtype,
                .count = lane_at(s, transfer, last) - from, .first_lane = first, .lanes = last - first};
    if (transfer->by_lane) {
        b.data = (uint8_t *)transfer->by_lane;
        b.dtype = GW_F32;
    }
    b.data += from * gw_dtype_bytes(b.dtype);
    return b;
}

/* Sets counts[r] for every member; returns the offset of the own part. */
static size_t cut(const gw_step_engine *s, const buffer *b) {
    int size = gw_team_size(b->team), rank = gw_team_rank(b->team), first, last;
    size_t own = 0, offset, begin = b->by_lane ? lane_at(s, b->by_lane, b->first_lane) : 0;
    for (int r = 0; r < size; r++) {
        gw_part(b->count, size, r, &offset, &s->counts[r]);
        if (b->by_lane) {
            gw_lanes_of_local(b->lanes, size, r, &first, &last);
            offset = lane_at(s, b->by_lane, b->first_lane + first) - begin;
            s->counts[r] = lane_at(s, b->by_lane, b->first_lane + last) - begin - offset;
        }
        if (r == rank) own = offset;
    }
    return own;
}

static gw_op_spec spec_of(const gw_step_engine *s, const buffer *b, gw_collective what) {
    bool rooted = what == GW_COLL_REDUCE || what == GW_COLL_BROADCAST;
    gw_op_spec spec = {.collective = what, .in = b->data, .out = b->data, .count = b->count, .dtype = b->dtype,
                       .redop = s->config.options.op, .root = rooted ? 0 : -1, .chunk_bytes = s->config.chunk_bytes};
    if (what == GW_COLL_REDUCE_SCATTER || what == GW_COLL_ALLGATHER) {
        uint8_t *part = b->data + cut(s, b) * gw_dtype_bytes(b->dtype);
        spec.counts = s->counts;
        spec.count = 0;
        if (what == GW_COLL_REDUCE_SCATTER) spec.out = part;
        else spec.in = part;
    }
    gw_plan_request request = {.collective = what, .topology = *gw_team_topology(b->team),
                               .rank = gw_team_rank(b->team), .count = spec.count, .counts = spec.counts,
                               .root = spec.root, .chunk_count = 1, .pipeline = GW_PIPELINE};
    const char *arch = b->team == s->config.team ? s->config.arch : "auto";
    spec.builder = gw_arch_choose(arch, &request, gw_dtype_bytes(b->dtype));
    return spec;
}

static gw_status start(gw_step_engine *s, int bucket, const buffer *b, gw_op_spec *spec, gw_op **op, gw_time now,
                       gw_error *error) {
    const gw_transfer *transfer = &s->transfers[bucket];
    spec->label = transfer->labels[transfer->hop];
    spec->urgency = gw_schedule_urgency(s->schedule, bucket, hop_of(transfer)->second);
    return gw_core_start(s->config.core, op, b->team, spec, now, error);
}

/* Among all ranks. */

static void start_all(gw_step_engine *s, int bucket, gw_time now, gw_error *error) {
    gw_transfer *transfer = &s->transfers[bucket];
    buffer b = {.team = s->config.team, .data = transfer->data, .dtype = transfer->dtype, .count = transfer->count};
    gw_op_spec spec = spec_of(s, &b, gw_hop_collective(hop_of(transfer)->kind));
    start(s, bucket, &b, &spec, &transfer->op, now, error);
}

/* In the host, and in the rack. Sums are not divided there: the lanes do that. */

static buffer host_buffer(const gw_step_engine *s, const gw_transfer *transfer, gw_hop_kind kind) {
    gw_team *team = s->host_teams[kind == GW_HOP_ALLGATHER ? GATHERS : REDUCES];
    buffer b = lanes_buffer(s, transfer, team, 0, s->lanes.lanes);
    b.by_lane = transfer;
    return b;
}

static buffer rack_buffer(const gw_step_engine *s, const gw_transfer *transfer) {
    int first = s->lanes.first / s->lanes.per_host * s->lanes.per_host;
    buffer b = lanes_buffer(s, transfer, transfer->rack_team, first, first + s->lanes.per_host);
    b.by_lane = transfer;
    return b;
}

static void start_rack(gw_step_engine *s, int bucket, gw_time now, gw_error *error) {
    gw_transfer *transfer = &s->transfers[bucket];
    buffer b = rack_buffer(s, transfer);
    gw_op_spec spec = spec_of(s, &b, gw_hop_collective(hop_of(transfer)->kind));
    spec.redop = GW_SUM;
    start(s, bucket, &b, &spec, &transfer->op, now, error);
}

static void start_host(gw_step_engine *s, int bucket, gw_time now, gw_error *error) {
    gw_transfer *transfer = &s->transfers[bucket];
    gw_hop_kind kind = hop_of(transfer)->kind;
    if (kind == GW_HOP_ALLGATHER) {
        transfer->waits = transfer->turn != s->turn;
        if (transfer->waits) return;
        s->turn++;
    }
    buffer b = host_buffer(s, transfer, kind);
    gw_op_spec spec = spec_of(s, &b, gw_hop_collective(kind));
    spec.redop = GW_SUM;
    start(s, bucket, &b, &spec, &transfer->op, now, error);
}

/* In the lanes. */

static buffer lane_buffer(const gw_step_engine *s, const gw_transfer *transfer, int l) {
    int lane = s->lanes.first + l;
    return lanes_buffer(s, transfer, transfer->lanes[l].team, lane, lane + 1);
}

static gw_op_spec lane_spec(const gw_step_engine *s, const buffer *b, gw_hop_kind kind) {
    gw_op_spec spec = spec_of(s, b, gw_hop_collective(kind));
    if (kind != GW_HOP_ALLGATHER && s->config.options.op == GW_AVG)
        spec.scale = gw_scale_of(1, 1.0 / gw_team_size(s->config.team));
    spec.redop = GW_SUM;
    return spec;
}

static void start_coded(gw_step_engine *s, int bucket, const gw_hop *hop, gw_transfer_lane *lane, uint8_t *memory) {
    gw_coded_exchange *exchange = lane->exchange;
    uint64_t step = gw_step_engine_step(s, gw_schedule_bucket(s->schedule, bucket)->readied - 1);
    gw_coded_exchange_lend(exchange, memory);
    gw_coded_exchange_label(exchange, s->transfers[bucket].labels[s->transfers[bucket].hop]);
    gw_coded_exchange_urgency(exchange, gw_schedule_urgency(s->schedule, bucket, hop->second));
    if (hop->kind == GW_HOP_CODED_SECOND) {
        gw_coded_exchange_go_on(exchange);
        return;
    }
    gw_coded_exchange_rate_growth(exchange, gw_dispatch_rate_growth(s, step));
    gw_coded_exchange_begin(exchange, step, (const float *const *)lane->values, lane->values,
                            s->config.options.op == GW_AVG);
}

static void start_lanes(gw_step_engine *s, int bucket, gw_time now, gw_error *error) {
    gw_transfer *transfer = &s->transfers[bucket];
    const gw_hop *hop = hop_of(transfer);
    uint8_t *memory = transfer->route.coded ? gw_payload_pool_memory(s->payloads, &transfer->lease) : NULL;
    transfer->waits = transfer->route.coded && !memory;
    for (int l = 0; l < transfer->lane_count && !transfer->waits && !error->status; l++) {
        gw_transfer_lane *lane = &transfer->lanes[l];
        lane->over = false;
        if (lane->exchange) {
            start_coded(s, bucket, hop, lane, memory);
            memory += gw_coded_exchange_payload_bytes(lane->exchange);
            continue;
        }
        buffer b = lane_buffer(s, transfer, l);
        gw_op_spec spec = lane_spec(s, &b, hop->kind);
        start(s, bucket, &b, &spec, &lane->op, now, error);
    }
}

void gw_hop_start(gw_step_engine *s, int bucket, gw_time now, gw_error *error) {
    gw_transfer *transfer = &s->transfers[bucket];
    switch (hop_of(transfer)->group) {
    case GW_GROUP_ALL:
        if (transfer->factored) gw_factors_start(transfer->factored->factors, transfer->labels[0], now, error);
        else start_all(s, bucket, now, error);
        if (s->ps) gw_schedule_sent(s->schedule, bucket); /* the others may start in another order */
        break;
    case GW_GROUP_HOST: start_host(s, bucket, now, error); break;
    case GW_GROUP_RACK: start_rack(s, bucket, now, error); break;
    case GW_GROUP_LANE: start_lanes(s, bucket, now, error); break;
    case GW_GROUP_SERVERS:
        gw_ps_start(s->ps, bucket, gw_step_engine_step(s, gw_schedule_bucket(s->schedule, bucket)->readied - 1), now,
                    error);
        break;
    }
}

/* The end of a hop. */

static bool op_over(const gw_step_engine *s, gw_op **op, gw_error *error) {
    if (!gw_op_done(*op)) return false;
    gw_status status = gw_op_status(*op);
    gw_op_release(*op);
    *op = NULL;
    gw_engine_explain(gw_core_engine(s->config.core), status, error);
    return true;
}

static bool lanes_over(gw_step_engine *s, int bucket, gw_time now, gw_error *error) {
    gw_transfer *transfer = &s->transfers[bucket];
    bool all = true;
    if (transfer->waits) start_lanes(s, bucket, now, error);
    if (transfer->waits) return false;
    for (int l = 0; l < transfer->lane_count && !error->status; l++) {
        gw_transfer_lane *lane = &transfer->lanes[l];
        gw_op *awaited = NULL;
        gw_status status = GW_OK;
        if (!lane->over)
            lane->over = lane->exchange ? gw_coded_exchange_next(lane->exchange, now, &awaited, &status, error)
                                        : op_over(s, &lane->op, error);
        all &= lane->over;
    }
    if (all && !error->status && transfer->route.coded) gw_payload_pool_give_back(s->payloads, &transfer->lease);
    return all || error->status;
}

static bool host_over(gw_step_engine *s, int bucket, gw_time now, gw_error *error) {
    gw_transfer *transfer = &s->transfers[bucket];
    if (transfer->waits) start_host(s, bucket, now, error);
    if (error->status) return true;
    if (transfer->waits || !op_over(s, &transfer->op, error)) return false;
    return true;
}

bool gw_hop_over(gw_step_engine *s, int bucket, gw_time now, gw_error *error) {
    gw_transfer *transfer = &s->transfers[bucket];
    switch (hop_of(transfer)->group) {
    case GW_GROUP_SERVERS: return gw_ps_over(s->ps, bucket);
    case GW_GROUP_LANE: return lanes_over(s, bucket, now, error);
    case GW_GROUP_HOST: return host_over(s, bucket, now, error);
    case GW_GROUP_RACK:
    case GW_GROUP_ALL: break;
    }
    if (transfer->factored)
        return gw_factors_over(transfer->factored->factors, transfer->factored->view.travels, now, error);
    return op_over(s, &transfer->op, error);
}

/* Cost. */

static size_t plan_bytes(const buffer *b, const gw_op_spec *spec) {
    gw_plan_request request = {.collective = spec->collective, .topology = *gw_team_topology(b->team),
                               .rank = gw_team_rank(b->team), .count = spec->count, .counts = spec->counts,
                               .root = spec->root, .chunk_count = 1, .pipeline = GW_PIPELINE};
    size_t element = gw_dtype_bytes(b->dtype), wide = gw_dtype_bytes(gw_accumulator(b->dtype, GW_SUM));
    gw_cost all = gw_plan_cost(spec->builder, &request);
    return (size_t)((all.elements * element + all.wide_elements * wide) / (uint64_t)request.topology.world);
}

size_t gw_hop_sent_bytes(const gw_step_engine *s, const gw_transfer *transfer, const gw_hop *hop) {
    size_t bytes = 0;
    if (hop->kind == GW_HOP_FACTORS) return gw_factors_sent_bytes(transfer->factored->factors);
    if (hop->kind == GW_HOP_PUSH_PULL || hop->kind == GW_HOP_CODED_SECOND) return 0; /* counted with the first half */
    if (hop->group == GW_GROUP_LANE) {
        for (int l = 0; l < transfer->lane_count; l++) {
            if (transfer->lanes[l].exchange) {
                bytes += gw_coded_exchange_sent_bytes(transfer->lanes[l].exchange);
                continue;
            }
            buffer b = lane_buffer(s, transfer, l);
            gw_op_spec spec = lane_spec(s, &b, hop->kind);
            bytes += plan_bytes(&b, &spec);
        }
        return bytes;
    }
    buffer b = {.team = s->config.team, .data = transfer->data, .dtype = transfer->dtype, .count = transfer->count};
    if (hop->group == GW_GROUP_HOST) b = host_buffer(s, transfer, hop->kind);
    if (hop->group == GW_GROUP_RACK) b = rack_buffer(s, transfer);
    gw_op_spec spec = spec_of(s, &b, gw_hop_collective(hop->kind));
    return plan_bytes(&b, &spec);
}
