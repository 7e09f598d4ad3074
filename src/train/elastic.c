/* elastic.c - see elastic.h. */
#include "train/elastic.h"

#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "train/trainer.h"

bool gw_trainer_elastic(void) {
    const char *roll = getenv("GRADWIRE_ROLL");
    return roll && *roll;
}

/* ---- the others ---- */

static gw_status make_room(gw_trainer *t, gw_error *error) {
    size_t world = (size_t)t->world;
    char *gathered = realloc(t->gathered, world * (sizeof(gw_train_work) + sizeof(uint64_t)));
    if (gathered) t->gathered = gathered;
    uint64_t *hashes = realloc(t->hashes, world * sizeof *hashes);
    if (hashes) t->hashes = hashes;
    gw_train_worker *workers = realloc(t->workers, world * sizeof *workers);
    if (workers) t->workers = workers;
    gw_step_worker *at_servers = realloc(t->at_servers, world * sizeof *at_servers);
    if (at_servers) t->at_servers = at_servers;
    if (!gathered || !hashes || !workers || !at_servers)
        return gw_fail(error, GW_MEMORY, "no memory for the reports of %d ranks", t->world);
    memset(workers, 0, world * sizeof *workers); /* ranks have other numbers now */
    return GW_OK;
}

/* What depends on rank and world. The sampler follows with the next step: one may be under way. */
static gw_status take_place(gw_trainer *t, gw_error *error) {
    t->rank = t->replica = gw_rank(t->comm);
    t->world = t->replicas = gw_size(t->comm);
    t->shares_change = true;
    return make_room(t, error);
}

/* *old stays open until the step has left it. */
static gw_status regroup(gw_trainer *t, gw_comm **old, gw_status why, gw_error *error) {
    gw_comm *next = NULL;
    if (!gw_status_of_loss(why) || gw_regroup(t->comm, &next) != GW_OK) return why; /* says more than why that failed */
    *old = t->comm;
    t->comm = t->peers = next;
    *error = (gw_error){.rank = -1};
    return take_place(t, error);
}

gw_status gw_trainer_regroup(gw_trainer *t, gw_status why, gw_error *error) {
    gw_comm *old = NULL;
    gw_status status = regroup(t, &old, why, error);
    if (!old) return status;
    gw_step_close(t->step);
    t->step = NULL;
    t->counted = (gw_step_counters){0};
    gw_finalize(old);
    return status;
}

gw_status gw_trainer_under_way(gw_trainer *t, bool *under_way, gw_error *error) {
    int32_t began = t->began, any = 0;
    gw_status status = gw_trainer_told(t, gw_allreduce(t->comm, &began, &any, 1, GW_I32, GW_MAX), error);
    *under_way = any;
    return status;
}

/* ---- where all stand ---- */

/* What a rank knows, as it goes over the wire. */
typedef struct standing {
    uint64_t point;
    gw_loss test;
    uint64_t lacks_statistics;
} standing;

/* The same entry on all ranks. */
static const standing *newest(const standing *all, int world) {
    const standing *best = all;
    for (int i = 1; i < world; i++)
        if (all[i].point > best->point || (all[i].point == best->point && all[i].test.counted > best->test.counted))
            best = &all[i];
    return best;
}

/* A rank that has just come has seen no examples: its running statistics are the mean of the others'. */
static gw_status share_statistics(gw_trainer *t, const standing *all, gw_error *error) {
    int have = 0;
    for (int i = 0; i < t->world; i++) have += !all[i].lacks_statistics;
    gw_status status = have > 0 && have < t->world ? gw_trainer_average(t, have, error) : GW_OK;
    if (status == GW_OK) t->lacks_statistics = false;
    return status;
}

/* A point that is behind somebody is behind all. */
static gw_status agree_on_point(gw_trainer *t, gw_error *error) {
    standing own = {.point = t->point, .test = t->tested, .lacks_statistics = t->lacks_statistics};
    standing *all = calloc((size_t)t->world, sizeof *all);
    if (!all) return gw_fail(error, GW_MEMORY, "no memory for where %d ranks stand", t->world);
    gw_status status = gw_trainer_told(t, gw_allgather(t->comm, &own, all, sizeof own, GW_U8), error);
    if (status == GW_OK) {
        const standing *last = newest(all, t->world);
        t->point = last->point;
        t->tested = last->test;
        status = share_statistics(t, all, error);
    }
    free(all);
    return status;
}

static void go_to(gw_trainer *t, uint64_t updates) {
    uint64_t windows = (uint64_t)gw_trainer_windows(t);
    t->updates = updates;
    t->epoch = updates / windows;
    t->window = (int64_t)(updates % windows);
    gw_sampler_epoch(&t->sampler, t->epoch);
}

/* ---- going on ---- */

/* Over servers every rank keeps its position. */
static gw_status move(gw_trainer *t, gw_error *error) {
    bool under_way;
    gw_status status = gw_trainer_under_way(t, &under_way, error);
    if (status != GW_OK) return status;
    status = gw_step_move(t->step, t->comm);
    if (status != GW_OK) return gw_fail(error, status, "%s", gw_last_error(NULL));
    if (!t->served) go_to(t, gw_step_count(t->step).step);
    return agree_on_point(t, error);
}

gw_status gw_trainer_recover(gw_trainer *t, gw_status why, gw_error *error) {
    gw_status status = why;
    if (!t->elastic || !t->began) return why;
    while (gw_status_of_loss(status)) {
        gw_comm *old = NULL;
        status = regroup(t, &old, status, error);
        if (status == GW_OK) status = move(t, error);
        gw_finalize(old);
        if (!old) break;
    }
    return status;
}

gw_status gw_trainer_come_back(gw_trainer *t, gw_error *error) {
    gw_status status = gw_trainer_commit(t, error);
    if (status != GW_OK) return status;
    go_to(t, gw_step_count(t->step).first_step);
    t->began = t->lacks_statistics = true;
    status = agree_on_point(t, error);
    if (status != GW_OK) status = gw_trainer_recover(t, status, error);
    if (status == GW_OK)
        gw_log(GW_LOG_WARN, t->rank, "takes part as rank %d of %d, from update %llu", t->rank, t->world,
               (unsigned long long)t->updates);
    return status;
}

static gw_status leave(gw_trainer *t, gw_error *error) {
    gw_status status = gw_step_leave(t->step);
    if (status != GW_OK) return gw_fail(error, status, "%s", gw_last_error(NULL));
    return t->served ? GW_OK : gw_trainer_told(t, gw_barrier(t->comm), error);
}

gw_status gw_trainer_leave(gw_trainer *t, gw_error *error) {
    gw_status status = GW_OK;
    if (!t->elastic || !t->step) return GW_OK;
    while ((status = leave(t, error)) != GW_OK) {
        status = gw_trainer_recover(t, status, error);
        if (status != GW_OK) return status;
    }
    return GW_OK;
}
