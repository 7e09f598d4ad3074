/* ps_snapshot.c - snapshots of a server, every N steps of its workers. They are taken between two pushes, so that
 * weights, the optimiser's arrays and clocks are consistent, and written by another thread (ps/snapshot_writer.h). */
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/log.h"
#include "ps/ps_internal.h"

static const char *path_of(const gw_ps *ps, char path[PATH_MAX]) {
    const gw_step_engine_config *c = &ps->step_engine->config;
    snprintf(path, PATH_MAX, "%s/reducer-%u-server-%d.gw", c->snapshots, c->serial, ps->own);
    return path;
}

static bool writes_snapshots(const gw_ps *ps) {
    return ps->own >= 0 && ps->weights_here && ps->step_engine->config.snapshot_every &&
           ps->step_engine->config.snapshots;
}

static gw_status take(gw_ps *ps, gw_error *error) {
    size_t bytes = gw_ps_state_bytes(ps, &ps->store);
    if (!ps->snapshot && !(ps->snapshot = malloc(bytes)))
        return gw_fail(error, GW_MEMORY, "out of memory for a snapshot of %zu bytes", bytes);
    gw_ps_state_save(ps, &ps->store, ps->snapshot);
    return GW_OK;
}

/* The first snapshot is written at once, so that there is one whenever the server is lost. */
gw_status gw_ps_snapshot_open(gw_ps *ps, gw_error *error) {
    char path[PATH_MAX];
    if (!writes_snapshots(ps)) return GW_OK;
    gw_status status = take(ps, error);
    if (!status)
        status = gw_snapshot_writer_write(path_of(ps, path), ps->snapshot, gw_ps_state_bytes(ps, &ps->store), error);
    if (!status) status = gw_snapshot_writer_open(&ps->writer, path_of(ps, path), error);
    ps->used = 0;
    return status;
}

void gw_ps_snapshot_close(gw_ps *ps) {
    gw_snapshot_writer_close(ps->writer);
    free(ps->snapshot);
    ps->writer = NULL;
    ps->snapshot = NULL;
    ps->tells_lost = false;
}

/* A step of all workers uses each partition once for each worker; by rounds, once in all. */
void gw_ps_snapshot_count_used(gw_ps *ps) {
    gw_error error = {.rank = -1};
    uint64_t step = (uint64_t)ps->own_partitions * (ps->rule.at_once ? (uint64_t)ps->workers : 1);
    if (!ps->writer || ++ps->used < ps->step_engine->config.snapshot_every * step) return;
    if (take(ps, &error)) return;
    if (gw_snapshot_writer_submit(ps->writer, ps->snapshot, gw_ps_state_bytes(ps, &ps->store))) ps->used = 0;
}

void gw_ps_snapshot_log_lost(gw_ps *ps) {
    if (!ps->tells_lost ||
        gw_clock_table_pushed_since_restore(ps->store.clocks) < ps->own_partitions * ps->known_workers)
        return;
    ps->tells_lost = false;
    for (int w = 0; w < ps->world; w++)
        if (!ps->placement.members[w].serves_only && !ps->placement.members[w].fresh)
            gw_log(GW_LOG_WARN, ps->rank, "server %d has lost %llu step%s of member %d since its snapshot", ps->own,
                   (unsigned long long)gw_clock_table_lost(ps->store.clocks, w),
                   gw_clock_table_lost(ps->store.clocks, w) == 1 ? "" : "s", ps->placement.members[w].member);
}

gw_status gw_ps_load_snapshot(gw_ps *ps, gw_error *error) {
    char path[PATH_MAX];
    void *bytes = NULL;
    size_t count = 0;
    if (!writes_snapshots(ps))
        return gw_fail(error, GW_PEER_LOST,
                       "server %d is lost with what it knew: arch=ps:snapshot=N writes it down every N steps, and "
                       "replicas=1 keeps it on another rank",
                       ps->own);
    gw_status status = gw_snapshot_writer_read(path_of(ps, path), &bytes, &count, error);
    if (!status) status = gw_ps_state_restore(ps, &ps->store, bytes, count, true, error);
    free(bytes);
    if (status) return status;
    ps->store.known = true;
    ps->known_workers = 0;
    for (int w = 0; w < ps->world; w++)
        ps->known_workers += !ps->placement.members[w].serves_only && !ps->placement.members[w].fresh;
    ps->tells_lost = true;
    gw_log(GW_LOG_WARN, ps->rank, "server %d goes on from its snapshot %s; what was pushed since is lost", ps->own,
           path_of(ps, path));
    return GW_OK;
}
