/* partition_model.c - exchanges over parameter servers: the bytes of a bucket that each server gets (ps/shards.h), in
 * partitions of the production size (ps/ps_bind.c). */
#include <stdlib.h>

#include "predict/dispatch_model.h"
#include "ps/ps.h"
#include "ps/shards.h"

static gw_status open_shares(const gw_dispatch_tensors *tensors, int servers, gw_shards *shares, gw_error *error) {
    gw_shard_tensor *described = calloc((size_t)tensors->count + 1, sizeof *described);
    if (!described) return gw_fail(error, GW_MEMORY, "out of memory for shards");
    for (int t = 0; t < tensors->count; t++)
        described[t] = (gw_shard_tensor){.count = tensors->what[t].count, .element = tensors->what[t].element,
                                         .grain = GW_PS_GRAIN};
    gw_status status = gw_shards_open(shares, described, tensors->count, servers, error);
    free(described);
    return status;
}

/* Elements that a range and a shard have in common. */
static size_t common(const gw_tensor_range *range, const gw_shard *share) {
    const gw_stripes *covers = &share->covers;
    return gw_stripes_place(covers, range->first + range->count) - gw_stripes_place(covers, range->first);
}

static void weigh(const gw_shards *shares, const gw_schedule *schedule, int bucket, size_t *bytes) {
    const gw_tensor_range *ranges = gw_schedule_ranges(schedule, bucket);
    for (int s = 0; s < shares->servers; s++) bytes[s] = 0;
    for (int i = 0; i < gw_schedule_bucket(schedule, bucket)->ranges; i++)
        for (int k = shares->first_of[ranges[i].tensor]; k < shares->first_of[ranges[i].tensor + 1]; k++)
            bytes[shares->list[k].server] += common(&ranges[i], &shares->list[k]) * sizeof(float);
}

/* Cuts each server's bytes into partitions. Lists the partitions of all servers in turn, because their stripes lie side
 * by side in a tensor. */
static gw_status cut(const gw_dispatch_model *c, int servers, size_t *bytes, gw_dispatch *dispatch, gw_error *error) {
    size_t chunk = (size_t)gw_strategy_integer(c->strategy, GW_AXIS_ARCH, "chunk");
    size_t most = chunk ? chunk : GW_PARTITION_BYTES, count = 0;
    for (int s = 0; s < servers; s++) count += (bytes[s] + most - 1) / most;
    dispatch->partitions = calloc(count + 1, sizeof *dispatch->partitions);
    if (!dispatch->partitions) return gw_fail(error, GW_MEMORY, "out of memory for %zu partitions", count);
    while ((size_t)dispatch->partition_count < count)
        for (int s = 0; s < servers; s++) {
            size_t part = bytes[s] < most ? bytes[s] : most;
            if (!part) continue;
            dispatch->partitions[dispatch->partition_count++] =
                (gw_dispatch_partition){.server = gw_server_rank(s, servers, c->topology.world), .bytes = part};
            bytes[s] -= part;
        }
    return GW_OK;
}

gw_status gw_dispatch_model_partitions(const gw_dispatch_model *c, const gw_dispatch_tensors *tensors,
                                       const gw_schedule *schedule, gw_dispatch *dispatches, gw_error *error) {
    int servers = (int)gw_strategy_integer(c->strategy, GW_AXIS_ARCH, "servers");
    if (!c->setup.codec->identity)
        return gw_fail(error, GW_UNSUPPORTED, "compressed pushes to servers are not predicted: use compress=none");
    size_t *bytes = calloc((size_t)servers, sizeof *bytes);
    gw_shards shares = {.servers = 0};
    gw_status status = bytes ? open_shares(tensors, servers, &shares, error)
                             : gw_fail(error, GW_MEMORY, "out of memory for %d servers", servers);
    for (int p = 0; !status && p < gw_schedule_buckets(schedule); p++) {
        weigh(&shares, schedule, p, bytes);
        status = cut(c, servers, bytes, &dispatches[p], error);
    }
    gw_shards_close(&shares);
    free(bytes);
    return status;
}
