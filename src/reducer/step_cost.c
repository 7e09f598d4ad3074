/* step_cost.c - bytes that a step sends: by the plans' cost functions, the codecs' bounds, or the servers' shards. */
#include "arch/choose_plan.h"
#include "base/dtype.h"
#include "ps/ps.h"
#include "reducer/step_engine_internal.h"

static size_t dense_bytes(const gw_step_engine *s, const gw_transfer *transfer) {
    gw_plan_request request = {.collective = GW_COLL_ALLREDUCE, .topology = *gw_team_topology(s->config.team),
                               .rank = gw_team_rank(s->config.team), .count = transfer->count, .root = -1,
                               .chunk_count = 1, .pipeline = GW_PIPELINE};
    size_t element = gw_dtype_bytes(transfer->dtype), wide = gw_dtype_bytes(gw_accumulator(transfer->dtype, GW_SUM));
    gw_cost all = gw_plan_cost(gw_arch_choose(s->config.arch, &request, element), &request);
    return (size_t)((all.elements * element + all.wide_elements * wide) / (uint64_t)request.topology.world);
}

size_t gw_step_engine_sent_bytes(const gw_step_engine *s) {
    size_t bytes = s->ps ? gw_ps_sent_bytes(s->ps) : 0;
    for (int p = 0; p < gw_schedule_buckets(s->schedule); p++) {
        const gw_transfer *transfer = &s->transfers[p];
        if (transfer->factored) bytes += gw_factors_sent_bytes(transfer->factored->factors);
        else if (!s->ps)
            bytes += transfer->exchange ? gw_coded_exchange_sent_bytes(transfer->exchange) : dense_bytes(s, transfer);
    }
    return bytes;
}
