/* train_elastic.c - see train_elastic.h. */
#include "train/train_elastic.h"

#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "train/trainer.h"

bool gw_trainer_elastic(void) {
    const char *roster = getenv("GRADWIRE_ROSTER");
    return roster && *roster;
}

/* ---- regrouping ---- */

static gw_status grow_reports(gw_trainer *t, gw_error *error) {
    size_t world = (size_t)t->world;
    char *reports = realloc(t->reports, world * (sizeof(gw_train_work) + sizeof(uint64_t)));
    if (reports) t->reports = reports;
    uint64_t *hashes = realloc(t->hashes, world * sizeof *hashes);
    if (hashes) t->hashes = hashes;
    gw_train_worker *workers = realloc(t->workers, world * sizeof *workers);
    if (workers) t->workers = workers;
    gw_reducer_worker_stats *server_counts = realloc(t->server_counts, world * sizeof *server_counts);
    if (server_counts) t->server_counts = server_counts;
    if (!reports || !hashes || !workers || !server_counts)
        return gw_fail(error, GW_MEMORY, "no memory for the reports of %d ranks", t->world);
    memset(workers, 0, world * sizeof *workers); /* the ranks are renumbered */
    return GW_OK;
}

/* Sets the fields that depend on rank and world. The next step makes the new sampler, because the current step may
 * still use the old one. */
static gw_status adopt_comm(gw_trainer *t, gw_error *error) {
    t->rank = t->replica = gw_rank(t->comm);
    t->world = t->replicas = gw_size(t->comm);
    t->reshard = true;
    return grow_reports(t, error);
}

/* *old stays open until the reducer no longer uses it. */
static gw_status regroup(gw_trainer *t, gw_comm **old, gw_status why, gw_error *error) {
    gw_comm *next = NULL;
    /* If gw_regroup fails too, the first error says more. */
    if (!gw_status_is_loss(why) || gw_regroup(t->comm, &next) != GW_OK) return why;
    *old = t->comm;
    t->comm = t->peers = next;
    *error = (gw_error){.rank = -1};
    return adopt_comm(t, error);
}

gw_status gw_trainer_regroup(gw_trainer *t, gw_status why, gw_error *error) {
    gw_comm *old = NULL;
    gw_status status = regroup(t, &old, why, error);
    if (!old) return status;
    gw_reducer_close(t->reducer);
    t->reducer = NULL;
    t->counted = (gw_reducer_counters){0};
    gw_finalize(old);
    return status;
}

gw_status gw_trainer_under_way(gw_trainer *t, bool *under_way, gw_error *error) {
    int32_t joined = t->joined, any = 0;
    gw_status status = gw_trainer_check(t, gw_allreduce(t->comm, &joined, &any, 1, GW_I32, GW_MAX), error);
    *under_way = any;
    return status;
}

/* ---- agreeing on the last sync point ---- */

/* What a rank sends to the others. */
typedef struct sync_state {
    uint64_t sync_point;
    gw_loss test;
    uint64_t lacks_statistics;
} sync_state;

/* Picks the same entry on all ranks. */
static const sync_state *newest(const sync_state *all, int world) {
    const sync_state *best = all;
    for (int i = 1; i < world; i++) {
        const sync_state *s = &all[i];
        bool tested = s->sync_point == best->sync_point && s->test.counted > best->test.counted;
        if (s->sync_point > best->sync_point || tested) best = s;
    }
    return best;
}

/* A rank that has just joined has seen no examples: it takes the mean of the others' running statistics. */
static gw_status share_statistics(gw_trainer *t, const sync_state *all, gw_error *error) {
    int have = 0;
    for (int i = 0; i < t->world; i++) have += !all[i].lacks_statistics;
    gw_status status = have > 0 && have < t->world ? gw_trainer_average(t, have, error) : GW_OK;
    if (status == GW_OK) t->lacks_statistics = false;
    return status;
}

/* A sync point that one rank has completed counts as completed for all. */
static gw_status agree_on_point(gw_trainer *t, gw_error *error) {
    sync_state own = {.sync_point = t->sync_point, .test = t->last_test, .lacks_statistics = t->lacks_statistics};
    sync_state *all = calloc((size_t)t->world, sizeof *all);
    if (!all) return gw_fail(error, GW_MEMORY, "no memory for where %d ranks stand", t->world);
    gw_status status = gw_trainer_check(t, gw_allgather(t->comm, &own, all, sizeof own, GW_U8), error);
    if (status == GW_OK) {
        const sync_state *last = newest(all, t->world);
        t->sync_point = last->sync_point;
        t->last_test = last->test;
        status = share_statistics(t, all, error);
    }
    free(all);
    return status;
}

static void set_position(gw_trainer *t, uint64_t updates) {
    uint64_t windows = (uint64_t)gw_trainer_windows(t);
    t->updates = updates;
    t->epoch = updates / windows;
    t->window = (int64_t)(updates % windows);
    gw_sampler_epoch(&t->sampler, t->epoch);
}

/* ---- recovery ---- */

/* With servers every rank keeps its position. */
static gw_status resume_reducer(gw_trainer *t, gw_error *error) {
    bool under_way;
    gw_status status = gw_trainer_under_way(t, &under_way, error);
    if (status != GW_OK) return status;
    status = gw_reducer_resume(t->reducer, t->comm);
    if (status != GW_OK) return gw_fail(error, status, "%s", gw_last_error(NULL));
    if (!t->over_servers) set_position(t, gw_reducer_read_counters(t->reducer).step);
    return agree_on_point(t, error);
}

gw_status gw_trainer_recover(gw_trainer *t, gw_status why, gw_error *error) {
    gw_status status = why;
    if (!t->elastic || !t->joined) return why;
    while (gw_status_is_loss(status)) {
        gw_comm *old = NULL;
        status = regroup(t, &old, status, error);
        if (status == GW_OK) status = resume_reducer(t, error);
        gw_finalize(old);
        if (!old) break;
    }
    return status;
}

gw_status gw_trainer_rejoin(gw_trainer *t, gw_error *error) {
    gw_status status = gw_trainer_commit(t, error);
    if (status != GW_OK) return status;
    set_position(t, gw_reducer_read_counters(t->reducer).first_step);
    t->joined = t->lacks_statistics = true;
    status = agree_on_point(t, error);
    if (status != GW_OK) status = gw_trainer_recover(t, status, error);
    if (status == GW_OK)
        gw_log(GW_LOG_WARN, t->rank, "takes part as rank %d of %d, from update %llu", t->rank, t->world,
               (unsigned long long)t->updates);
    return status;
}

static gw_status leave(gw_trainer *t, gw_error *error) {
    gw_status status = gw_reducer_leave(t->reducer);
    if (status != GW_OK) return gw_fail(error, status, "%s", gw_last_error(NULL));
    return t->over_servers ? GW_OK : gw_trainer_check(t, gw_barrier(t->comm), error);
}

gw_status gw_trainer_leave(gw_trainer *t, gw_error *error) {
    gw_status status = GW_OK;
    if (!t->elastic || !t->reducer) return GW_OK;
    while ((status = leave(t, error)) != GW_OK) {
        status = gw_trainer_recover(t, status, error);
        if (status != GW_OK) return status;
    }
    return GW_OK;
}
