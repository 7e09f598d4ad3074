/* stepper_cost.c - what a step sends: by the plans' cost functions, the codecs' bounds, or the servers' shares. */
#include "arch/choose.h"
#include "base/dtype.h"
#include "engine/stepper_internal.h"
#include "engine/stepper_ps.h"

static size_t dense_bytes(const gw_stepper *s, const gw_run *run) {
    gw_plan_request request = {.collective = GW_COLL_ALLREDUCE, .topology = *gw_team_topology(s->config.team),
                               .rank = gw_team_rank(s->config.team), .count = run->count, .root = -1,
                               .chunk_count = 1, .pipeline = GW_PIPELINE};
    size_t element = gw_dtype_bytes(run->dtype), wide = gw_dtype_bytes(gw_accumulator(run->dtype, GW_SUM));
    gw_cost all = gw_plan_cost(gw_arch_choose(s->config.arch, &request, element), &request);
    return (size_t)((all.elements * element + all.wide_elements * wide) / (uint64_t)request.topology.world);
}

size_t gw_stepper_sent_bytes(const gw_stepper *s) {
    size_t bytes = 0;
    if (s->ps) return gw_ps_sent_bytes(s->ps);
    for (int p = 0; p < gw_schedule_pieces(s->schedule); p++) {
        const gw_run *run = &s->runs[p];
        bytes += run->exchange ? gw_exchange_sent_bytes(run->exchange) : dense_bytes(s, run);
    }
    return bytes;
}
