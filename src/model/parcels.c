/* parcels.c - pieces through parameter servers: which server gets how much of a piece (server/shares.h), in parcels of
 * the size that the engine cuts (engine/stepper_ps_bind.c). */
#include <stdlib.h>

#include "engine/stepper_ps.h"
#include "model/carry.h"
#include "server/shares.h"

static gw_status open_shares(const gw_carry_tensors *tensors, int servers, gw_shares *shares, gw_error *error) {
    gw_share_tensor *described = calloc((size_t)tensors->count + 1, sizeof *described);
    if (!described) return gw_fail(error, GW_MEMORY, "out of memory for shares");
    for (int t = 0; t < tensors->count; t++)
        described[t] = (gw_share_tensor){.count = tensors->what[t].count, .element = tensors->what[t].element,
                                         .grain = GW_PS_GRAIN};
    gw_status status = gw_shares_open(shares, described, tensors->count, servers, error);
    free(described);
    return status;
}

/* Elements that a span and a share have in common. */
static size_t common(const gw_span *span, const gw_share *share) {
    size_t first = span->first > share->first ? span->first : share->first;
    size_t end = span->first + span->count, share_end = share->first + share->count;
    if (share_end < end) end = share_end;
    return first < end ? end - first : 0;
}

static void weigh(const gw_shares *shares, const gw_schedule *schedule, int piece, size_t *bytes) {
    const gw_span *spans = gw_schedule_spans(schedule, piece);
    for (int s = 0; s < shares->servers; s++) bytes[s] = 0;
    for (int i = 0; i < gw_schedule_piece(schedule, piece)->spans; i++)
        for (int k = shares->first_of[spans[i].tensor]; k < shares->first_of[spans[i].tensor + 1]; k++)
            bytes[shares->list[k].server] += common(&spans[i], &shares->list[k]) * sizeof(float);
}

/* Parcels of all servers in turns, as they stand beside each other in a tensor. */
static gw_status cut(const gw_carrier *c, int servers, size_t *bytes, gw_carry *carry, gw_error *error) {
    size_t chunk = (size_t)gw_strategy_integer(c->strategy, GW_AXIS_ARCH, "chunk");
    size_t most = chunk ? chunk : GW_PARCEL_BYTES, count = 0;
    for (int s = 0; s < servers; s++) count += (bytes[s] + most - 1) / most;
    carry->parcels = calloc(count + 1, sizeof *carry->parcels);
    if (!carry->parcels) return gw_fail(error, GW_MEMORY, "out of memory for %zu parcels", count);
    while ((size_t)carry->parcel_count < count)
        for (int s = 0; s < servers; s++) {
            size_t part = bytes[s] < most ? bytes[s] : most;
            if (!part) continue;
            carry->parcels[carry->parcel_count++] =
                (gw_carry_parcel){.server = gw_server_rank(s, servers, c->topology.world), .bytes = part};
            bytes[s] -= part;
        }
    return GW_OK;
}

gw_status gw_carrier_parcels(const gw_carrier *c, const gw_carry_tensors *tensors, const gw_schedule *schedule,
                             gw_carry *carries, gw_error *error) {
    int servers = (int)gw_strategy_integer(c->strategy, GW_AXIS_ARCH, "servers");
    if (c->setup.codec != &gw_codec_none)
        return gw_fail(error, GW_UNSUPPORTED, "compressed pushes to servers are not predicted: use compress=none");
    size_t *bytes = calloc((size_t)servers, sizeof *bytes);
    gw_shares shares = {.servers = 0};
    gw_status status = bytes ? open_shares(tensors, servers, &shares, error)
                             : gw_fail(error, GW_MEMORY, "out of memory for %d servers", servers);
    for (int p = 0; !status && p < gw_schedule_pieces(schedule); p++) {
        weigh(&shares, schedule, p, bytes);
        status = cut(c, servers, bytes, &carries[p], error);
    }
    gw_shares_close(&shares);
    free(bytes);
    return status;
}
