/* elastic.c - see elastic.h. */
#include "train/elastic.h"

#include <stdlib.h>

#include "base/log.h"
#include "train/trainer.h"

bool gw_trainer_elastic(void) {
    const char *roll = getenv("GRADWIRE_ROLL");
    return roll && *roll;
}

/* Which point is behind somebody is behind all. */
static gw_status agree_on_point(gw_trainer *t, gw_error *error) {
    int64_t point = (int64_t)t->point, last = point;
    gw_status status = gw_trainer_told(t, gw_allreduce(t->comm, &point, &last, 1, GW_I64, GW_MAX), error);
    if (status == GW_OK) t->point = (uint64_t)last;
    return status;
}

/* What depends on rank and world. The sampler follows with the next step: one may be under way. */
static gw_status take_place(gw_trainer *t, gw_error *error) {
    t->rank = t->replica = gw_rank(t->comm);
    t->world = t->replicas = gw_size(t->comm);
    t->shares_change = true;
    char *gathered = realloc(t->gathered, (size_t)t->world * (sizeof(gw_train_work) + sizeof(uint64_t)));
    if (gathered) t->gathered = gathered;
    uint64_t *hashes = realloc(t->hashes, (size_t)t->world * sizeof *hashes);
    if (hashes) t->hashes = hashes;
    return gathered && hashes ? GW_OK : gw_fail(error, GW_MEMORY, "no memory for the reports of %d ranks", t->world);
}

gw_status gw_trainer_recover(gw_trainer *t, gw_status why, gw_error *error) {
    gw_status status = why;
    if (!t->elastic || !t->step) return why;
    while (gw_status_of_loss(status)) {
        gw_comm *next = NULL, *old = t->comm;
        if (gw_regroup(old, &next) != GW_OK) return status; /* why it was needed says more than why it failed */
        t->comm = t->peers = next;
        *error = (gw_error){.rank = -1};
        status = gw_step_move(t->step, next);
        if (status != GW_OK) gw_fail(error, status, "%s", gw_last_error(NULL));
        gw_finalize(old);
        if (status == GW_OK) status = take_place(t, error);
        if (status == GW_OK) status = agree_on_point(t, error);
    }
    return status;
}

/* The position in the data is that of the slowest. */
static void go_to(gw_trainer *t, uint64_t updates) {
    uint64_t windows = (uint64_t)gw_trainer_windows(t);
    t->updates = updates;
    t->epoch = updates / windows;
    t->window = (int64_t)(updates % windows);
    gw_sampler_epoch(&t->sampler, t->epoch);
}

gw_status gw_trainer_come_back(gw_trainer *t, gw_error *error) {
    gw_status status = gw_trainer_commit(t, error);
    while (status != GW_OK && gw_status_of_loss(status) && !t->step) { /* others were lost meanwhile */
        gw_comm *next = NULL, *old = t->comm;
        if (gw_regroup(old, &next) != GW_OK) return gw_fail(error, status, "%s", gw_last_error(NULL));
        t->comm = t->peers = next;
        gw_finalize(old);
        *error = (gw_error){.rank = -1};
        status = take_place(t, error);
        if (status == GW_OK) status = gw_trainer_commit(t, error);
    }
    if (status != GW_OK) return status;
    go_to(t, gw_step_count(t->step).first_step);
    status = agree_on_point(t, error);
    if (status != GW_OK) status = gw_trainer_recover(t, status, error);
    if (status == GW_OK)
        gw_log(GW_LOG_WARN, t->rank, "takes part as rank %d of %d, from update %llu", t->rank, t->world,
               (unsigned long long)t->updates);
    return status;
}

gw_status gw_trainer_leave(gw_trainer *t, gw_error *error) {
    gw_status status = GW_OK;
    if (!t->elastic || !t->step) return GW_OK;
    while ((status = gw_step_leave(t->step)) != GW_OK) {
        gw_fail(error, status, "%s", gw_last_error(NULL));
        status = gw_trainer_recover(t, status, error);
        if (status != GW_OK) return status;
    }
    return GW_OK;
}
