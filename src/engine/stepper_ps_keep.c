/* stepper_ps_keep.c - snapshots of a server, every so many steps of its workers: taken between two pushes, so that
 * weights, the optimiser's arrays and clocks belong together, and written by another thread (server/keeper.h). */
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/log.h"
#include "engine/stepper_ps_internal.h"

static const char *path_of(const gw_ps *ps, char path[PATH_MAX]) {
    snprintf(path, PATH_MAX, "%s/server-%d.gw", ps->stepper->config.snapshots, ps->own);
    return path;
}

static bool keeps(const gw_ps *ps) {
    return ps->own >= 0 && ps->weights_here && ps->stepper->config.snapshot_every && ps->stepper->config.snapshots;
}

static gw_status take(gw_ps *ps, gw_error *error) {
    size_t bytes = gw_ps_state_bytes(ps, &ps->shelf);
    if (!ps->snapshot && !(ps->snapshot = malloc(bytes)))
        return gw_fail(error, GW_MEMORY, "out of memory for a snapshot of %zu bytes", bytes);
    gw_ps_state_save(ps, &ps->shelf, ps->snapshot);
    return GW_OK;
}

/* The first is written at once: a server that is lost at any time finds one. */
gw_status gw_ps_keep_open(gw_ps *ps, gw_error *error) {
    char path[PATH_MAX];
    if (!keeps(ps)) return GW_OK;
    gw_status status = take(ps, error);
    if (!status) status = gw_keeper_write(path_of(ps, path), ps->snapshot, gw_ps_state_bytes(ps, &ps->shelf), error);
    if (!status) status = gw_keeper_open(&ps->keeper, path_of(ps, path), error);
    ps->used = 0;
    return status;
}

void gw_ps_keep_close(gw_ps *ps) {
    gw_keeper_close(ps->keeper);
    free(ps->snapshot);
    ps->keeper = NULL;
    ps->snapshot = NULL;
    ps->tells_lost = false;
}

/* A step of all workers uses each parcel once for each worker, or once by rounds. */
void gw_ps_keep_used(gw_ps *ps) {
    gw_error error = {.rank = -1};
    uint64_t step = (uint64_t)ps->own_parcels * (ps->rule.at_once ? (uint64_t)ps->workers : 1);
    if (!ps->keeper || ++ps->used < ps->stepper->config.snapshot_every * step) return;
    if (take(ps, &error)) return;
    if (gw_keeper_give(ps->keeper, ps->snapshot, gw_ps_state_bytes(ps, &ps->shelf))) ps->used = 0;
}

void gw_ps_keep_heard(gw_ps *ps) {
    if (!ps->tells_lost || gw_desk_heard(ps->shelf.desk) < ps->own_parcels * ps->known_workers) return;
    ps->tells_lost = false;
    for (int w = 0; w < ps->world; w++)
        if (!ps->placement.who[w].only && !ps->placement.who[w].fresh)
            gw_log(GW_LOG_WARN, ps->rank, "server %d has lost %llu step%s of seat %d since its snapshot", ps->own,
                   (unsigned long long)gw_desk_lost(ps->shelf.desk, w),
                   gw_desk_lost(ps->shelf.desk, w) == 1 ? "" : "s", ps->placement.who[w].seat);
}

gw_status gw_ps_load(gw_ps *ps, gw_error *error) {
    char path[PATH_MAX];
    void *bytes = NULL;
    size_t count = 0;
    if (!keeps(ps))
        return gw_fail(error, GW_PEER_LOST,
                       "server %d is lost with what it knew: arch=ps:snapshot=N writes it down every N steps, and "
                       "replicas=1 keeps it on another rank",
                       ps->own);
    gw_status status = gw_keeper_read(path_of(ps, path), &bytes, &count, error);
    if (!status) status = gw_ps_state_restore(ps, &ps->shelf, bytes, count, true, error);
    free(bytes);
    if (status) return status;
    ps->shelf.known = true;
    ps->known_workers = 0;
    for (int w = 0; w < ps->world; w++) ps->known_workers += !ps->placement.who[w].only && !ps->placement.who[w].fresh;
    ps->tells_lost = true;
    gw_log(GW_LOG_WARN, ps->rank, "server %d goes on from its snapshot %s; what was pushed since is lost", ps->own,
           path_of(ps, path));
    return GW_OK;
}
