/* step_cost.c - bytes that a step sends: by the plans' cost functions, the codecs' bounds, or the servers' shards. */
#include "ps/ps.h"
#include "reducer/step_engine_internal.h"

size_t gw_step_engine_hop_bytes(const gw_step_engine *s, int bucket, int hop) {
    const gw_transfer *transfer = &s->transfers[bucket];
    return gw_hop_sent_bytes(s, transfer, &transfer->route.hops[hop]);
}

size_t gw_step_engine_sent_bytes(const gw_step_engine *s) {
    size_t bytes = s->ps ? gw_ps_sent_bytes(s->ps) : 0;
    for (int p = 0; p < gw_schedule_buckets(s->schedule); p++) {
        for (int h = 0; h < s->transfers[p].route.count; h++) bytes += gw_step_engine_hop_bytes(s, p, h);
    }
    return bytes;
}
