/* dispatch.c - sends a bucket along its route, hop by hop. */
#include <string.h>

#include "base/dtype.h"
#include "compress/kernels.h"
#include "ps/ps.h"
#include "reducer/step_engine_internal.h"

static uint8_t *flat_data(const gw_step_engine *s, const gw_tensor_range *range) {
    const gw_step_engine_tensor *t = &s->tensors[range->tensor];
    return (uint8_t *)s->config.flat + t->offset + range->first * gw_dtype_bytes(t->what.dtype);
}

static void pack(gw_step_engine *s, int bucket, bool back) {
    const gw_tensor_range *ranges = gw_schedule_ranges(s->schedule, bucket);
    for (int i = 0; i < gw_schedule_bucket(s->schedule, bucket)->ranges; i++) {
        size_t bytes = ranges[i].count * gw_dtype_bytes(s->transfers[bucket].dtype);
        if (back) memcpy(gw_transfers_range(s, &ranges[i]), flat_data(s, &ranges[i]), bytes);
        else memcpy(flat_data(s, &ranges[i]), gw_transfers_range(s, &ranges[i]), bytes);
    }
}

/* What each lane has of a bucket, to its by_lane or back. */
static void copy_lanes(const gw_step_engine *s, int bucket, bool back) {
    const gw_transfer *transfer = &s->transfers[bucket];
    const gw_tensor_range *ranges = gw_schedule_ranges(s->schedule, bucket);
    for (int lane = 0; lane < s->lanes.lanes; lane++) {
        float *at = transfer->by_lane + (size_t)lane * transfer->lane_room;
        for (int i = 0; i < gw_schedule_bucket(s->schedule, bucket)->ranges; i++) {
            gw_stripes has = gw_owners_in_lanes(&s->coded[ranges[i].tensor].owners, lane, lane + 1);
            float *values = s->tensors[ranges[i].tensor].view.travels;
            uint64_t from = ranges[i].first, to = from + ranges[i].count, run;
            for (; gw_stripes_next(&has, &from, to, &run); from += run, at += run)
                memcpy(back ? values + from : at, back ? at : values + from, run * sizeof(float));
        }
    }
}

/* Once a step, before the ranks of a host add up: a codec that clips by a tensor's norm finds it only here. In a flat
 * route it clips as it encodes. */
static void clip_contributions(gw_step_engine *s, int bucket) {
    const gw_tensor_range *ranges = gw_schedule_ranges(s->schedule, bucket);
    gw_coding own = s->coding;
    own.call.step = gw_step_engine_step(s, gw_schedule_bucket(s->schedule, bucket)->readied - 1);
    own.call.world = (uint32_t)gw_team_size(s->config.team);
    own.call.mean = s->config.options.op == GW_AVG;
    for (int i = 0; i < gw_schedule_bucket(s->schedule, bucket)->ranges; i++) {
        gw_coded_tensor *t = &s->coded[ranges[i].tensor];
        float *gradient = s->tensors[ranges[i].tensor].view.travels;
        if (t->exact || t->prepared == own.call.step + 1) continue;
        gw_coding_prepare(&own, t, gradient);
        if (t->clip != 1) gw_kernel_scale(gradient, t->clip, t->what.count);
        t->clip = 1;
    }
}

/* Differences of weights (sync=periodic, and what goes to servers that cannot run an update) have had their rate. */
float gw_dispatch_rate_growth(const gw_step_engine *s, uint64_t step) {
    const gw_reducer_options *o = &s->config.options;
    if (!o->rate || step == 0 || s->config.sync->local || (s->ps && gw_ps_moves_weights(s->ps))) return 0;
    double before = o->rate(o->ctx, step - 1), now = o->rate(o->ctx, step);
    return before > 0 && now > 0 ? (float)(now / before - 1) : 0;
}

/* Gives an all-gather in the host its turn when the half that it ends is started: all ranks start halves in one
 * order. */
static void take_turn(gw_step_engine *s, gw_transfer *transfer, bool second) {
    const gw_hop *last = &transfer->route.hops[transfer->route.count - 1];
    if (last->group == GW_GROUP_HOST && last->second == second) transfer->turn = s->next_turn++;
}

/* All ranks ask in the order in which they start halves. */
static void ask_for_payload_memory(gw_step_engine *s, gw_transfer *transfer, bool second) {
    bool coded = false;
    for (int h = 0; h < transfer->route.count; h++) {
        const gw_hop *hop = &transfer->route.hops[h];
        coded |= transfer->route.coded && hop->group == GW_GROUP_LANE && hop->second == second;
    }
    if (coded) gw_payload_pool_ask(s->payloads, &transfer->lease, transfer->payload_bytes);
}

/* There are no peers, or it is the second half of a route that cannot be cut. */
static bool half_is_empty(const gw_transfer *transfer) {
    const gw_route *route = &transfer->route;
    return route->count == 0 || (transfer->second && !route->hops[route->count - 1].second);
}

void gw_dispatch_start(gw_step_engine *s, int bucket, bool second, gw_time now, gw_error *error) {
    gw_transfer *transfer = &s->transfers[bucket];
    if (!second) {
        transfer->hop = 0;
        gw_step_engine_trace_start(s, bucket);
        if (transfer->copies) pack(s, bucket, false);
        if (transfer->by_lane && gw_codec_has_need(&s->config.codec, GW_NEEDS_WHOLE_TENSOR))
            clip_contributions(s, bucket);
        if (transfer->by_lane) copy_lanes(s, bucket, false);
    }
    transfer->second = second;
    if (half_is_empty(transfer)) return;
    take_turn(s, transfer, second);
    ask_for_payload_memory(s, transfer, second);
    gw_hop_start(s, bucket, now, error);
}

bool gw_dispatch_over(gw_step_engine *s, int bucket, gw_time now, gw_error *error) {
    gw_transfer *transfer = &s->transfers[bucket];
    const gw_route *route = &transfer->route;
    if (half_is_empty(transfer)) return true;
    while (gw_hop_over(s, bucket, now, error)) {
        if (error->status || transfer->hop + 1 == route->count) return true;
        bool halfway = route->hops[transfer->hop + 1].second && !route->hops[transfer->hop].second;
        transfer->hop++;
        if (halfway) return true;
        gw_hop_start(s, bucket, now, error);
        if (error->status) return true;
    }
    return false;
}

void gw_dispatch_finish(gw_step_engine *s, int bucket) {
    if (s->transfers[bucket].copies) pack(s, bucket, true);
    if (s->transfers[bucket].by_lane) copy_lanes(s, bucket, true);
}
