/* train_rank.c - the course of one rank of gradwire train. */
#include <stdio.h>
#include <stdlib.h>

#include "base/status.h"
#include "cli/cli.h"
#include "cli/train.h"
#include "engine/recording.h"
#include "store/checkpoint.h"
#include "train/snapshot.h"

typedef struct course {
    const gw_train_request *request;
    gw_comm *comm;
    gw_trainer *trainer;
    gw_train_report report; /* rank 0 only */
    bool reports;
    bool agreed;  /* what happens now, every rank knows: no need to tell the others of a failure */
} course;

static bool enough(const course *c) {
    return c->trainer->epoch >= (uint64_t)c->request->settings.epochs ||
           (c->request->steps && c->trainer->updates >= (uint64_t)c->request->steps);
}

/* That, or the test was good enough. */
static bool is_enough(const course *c) {
    const gw_loss *test = &c->trainer->tested;
    double target = c->request->target, accuracy = test->counted ? (double)test->correct / (double)test->counted : 0;
    return enough(c) || (target > 0 && accuracy >= target);
}

static gw_status meet(course *c, gw_error *error) {
    gw_train_work work = {0};
    gw_status status = gw_trainer_meet(c->trainer, &work, error);
    bool repeated = work.counted == 0; /* a loss came between the meeting and the end of the point */
    if (status == GW_OK && c->reports && !repeated) gw_train_report_meeting(&c->report, &work);
    return status;
}

static gw_status test(course *c, gw_error *error) {
    gw_train_tick *tick = c->reports ? gw_train_report_testing : NULL;
    gw_status status = gw_trainer_evaluate(c->trainer, tick, &c->report, &c->trainer->tested, error);
    if (status == GW_OK && c->reports) gw_train_report_epoch(&c->report, &c->trainer->tested);
    return status;
}

/* All ranks meet after this update, and have not yet. */
static bool is_due(const course *c) {
    const gw_train_request *r = c->request;
    const gw_trainer *t = c->trainer;
    return t->point < t->updates &&
           (t->window == 0 || t->updates % (uint64_t)r->log_every == 0 || enough(c) ||
            (r->checkpoint && r->checkpoint_every && t->updates % (uint64_t)r->checkpoint_every == 0));
}

static gw_status save(course *c, gw_error *error) {
    c->agreed = true;
    gw_status status = gw_snapshot_save(c->trainer, c->request->checkpoint, error);
    c->agreed = status != GW_OK && !gw_status_of_loss(status);
    return status;
}

/* Of an elastic job the first rank may be another later. */
static void take_office(course *c) {
    if (c->trainer->rank == 0 && !c->reports) {
        gw_train_report_open(&c->report, c->request, c->trainer);
        c->report.updates_from = c->trainer->updates;
    }
    c->reports = c->trainer->rank == 0;
}

/* After a failed call. GW_OK: training goes on from the trainer's position. */
static gw_status recover(course *c, gw_status why, gw_error *error) {
    gw_status status = gw_trainer_recover(c->trainer, why, error);
    if (status == GW_OK) take_office(c);
    return status;
}

/* What is due after this update, for all ranks together. */
static gw_status make_point(course *c, gw_error *error) {
    const gw_train_request *r = c->request;
    gw_trainer *t = c->trainer;
    bool rests = t->window == 0 || enough(c), meets = rests || t->updates % (uint64_t)r->log_every == 0;
    bool saves = r->checkpoint && (rests || (r->checkpoint_every && t->updates % (uint64_t)r->checkpoint_every == 0));
    gw_status status = meets ? meet(c, error) : GW_OK;
    if (status == GW_OK && rests) status = test(c, error);
    if (status == GW_OK && saves) status = save(c, error);
    if (status == GW_OK) t->point = t->updates;
    return status;
}

static gw_status make_update(course *c, gw_error *error) {
    int64_t examples = gw_trainer_window_examples(c->trainer);
    gw_status status = gw_trainer_step(c->trainer, error);
    if (status == GW_OK && c->reports) gw_train_report_update(&c->report, examples);
    return status;
}

/* What comes next: a point, the next update, or nothing more. After a loss it may be another than before. */
static gw_status advance(course *c, bool *over, gw_error *error) {
    gw_trainer *t = c->trainer;
    bool at_point = is_due(c);
    *over = !at_point && is_enough(c);
    if (*over) return GW_OK;
    gw_status status = at_point ? make_point(c, error) : make_update(c, error);
    if (status != GW_OK && (at_point || !t->served)) status = recover(c, status, error);
    if (status == GW_OK && t->served) take_office(c); /* a step recovers by itself */
    return status;
}

static gw_status resume(course *c, gw_error *error) {
    const gw_train_request *r = c->request;
    gw_snapshot_found found = {0};
    c->agreed = true;
    gw_status status = gw_snapshot_load(c->trainer, r->checkpoint, &found, error);
    c->agreed = status != GW_OK && !gw_status_of_loss(status);
    if (status != GW_OK || !c->reports) return status;
    if (found.world == 0)
        gw_train_report_say(&c->report, "%s is not there yet: training begins at the beginning", r->checkpoint);
    else
        gw_train_report_say(&c->report, "going on from %s: epoch %llu, update %llu", r->checkpoint,
                            (unsigned long long)c->trainer->epoch + 1, (unsigned long long)c->trainer->updates);
    if (found.world && !found.continues)
        gw_train_report_say(&c->report, "what codecs and synchrony kept from step to step begins anew: it was of "
                                        "another strategy or number of workers");
    if (found.continues && found.world != c->trainer->world)
        gw_train_report_say(&c->report, "what codecs had still to send is shared out evenly");
    if (found.world && found.world != c->trainer->world)
        gw_train_report_say(&c->report,
                            "it was written by %d workers, now there are %d: each step takes the same examples, but "
                            "sums are rounded in another order and batch norms see other shares, so the bits differ",
                            found.world, c->trainer->world);
    return status;
}

/* Whether a checkpoint can be written is better known before the first epoch than after it. */
static gw_status try_checkpoint(const char *path, gw_error *error) {
    gw_checkpoint_writer *writer = NULL;
    gw_status status = gw_checkpoint_begin(path, &writer, error);
    gw_checkpoint_abandon(writer);
    return status;
}

/* All ranks begin or none; what fails is mostly the same everywhere, so the first rank's sentence is enough. */
static gw_status begin(course *c, gw_error *error) {
    int32_t rank = gw_rank(c->comm), first = INT32_MAX;
    gw_status status = gw_trainer_create(c->comm, &c->request->settings, &c->trainer, error), told;
    if (status == GW_OK && rank == 0 && c->request->checkpoint) status = try_checkpoint(c->request->checkpoint, error);
    if (status != GW_OK && error->text[0]) first = rank; /* else it stopped because another one did */
    told = gw_allreduce(c->comm, &first, &first, 1, GW_I32, GW_MIN);
    if (told != GW_OK) return gw_fail(error, told, "%s", gw_last_error(c->comm));
    if (first == INT32_MAX) return GW_OK;
    c->agreed = true;
    if (first != rank) *error = (gw_error){0};
    return status != GW_OK ? status : GW_ABORTED;
}

/* Whether the strategy can be, every rank finds alike: the first one's sentence is enough. */
static gw_status commit(course *c, gw_error *error) {
    gw_status status = gw_trainer_commit(c->trainer, error);
    c->agreed = status == GW_UNSUPPORTED || status == GW_INVALID;
    if (c->agreed && c->trainer->rank != 0) *error = (gw_error){0};
    return status;
}

/* Training begins, or goes on where the others are. */
static gw_status enter(course *c, gw_error *error) {
    bool under_way = false;
    gw_status status = GW_OK;
    if (gw_round(c->trainer->comm) > 0) status = gw_trainer_under_way(c->trainer, &under_way, error);
    if (status != GW_OK) return status;
    if (under_way) return gw_trainer_come_back(c->trainer, error);
    take_office(c);
    if (c->request->resume) status = resume(c, error);
    if (status == GW_OK && !c->trainer->step) status = commit(c, error);
    c->trainer->began = status == GW_OK;
    return status;
}

/* All that comes before the first update. When a rank is lost meanwhile, those left begin again. */
static gw_status prepare(course *c, gw_error *error) {
    bool first = gw_round(c->comm) == 0;
    gw_status status = first ? begin(c, error)
                             : gw_trainer_create(c->comm, &c->request->settings, &c->trainer, error);
    if (!c->trainer || c->agreed) return status;
    if (status == GW_OK) status = enter(c, error);
    while (status != GW_OK && !c->agreed && c->trainer->elastic && !c->trainer->began) {
        status = gw_trainer_regroup(c->trainer, status, error);
        if (status != GW_OK) break;
        status = enter(c, error);
    }
    return status;
}

/* Of a training that was over already when it was resumed there is no test yet. */
static gw_status test_at_the_end(course *c, gw_error *error) {
    gw_status status = GW_OK;
    while (status == GW_OK && c->trainer->tested.counted == 0) {
        status = test(c, error);
        if (status != GW_OK) status = recover(c, status, error);
    }
    return status;
}

static gw_status finish(course *c, gw_train_end *end, gw_error *error) {
    gw_trainer *t = c->trainer;
    gw_status status = test_at_the_end(c, error);
    if (gw_comm_trace(t->comm)) gw_trace_stop(t->comm); /* what follows is no training */
    if (status == GW_OK && t->elastic) {
        status = gw_trainer_leave(t, error);
        end->weights = gw_trainer_hash(t);
        take_office(c);
    } else {
        if (status == GW_OK) status = gw_trainer_time_exchange(t, &end->exchange, error);
        if (status == GW_OK) status = gw_trainer_hash_whole(t, &end->weights, error);
    }
    end->test = t->tested;
    return status;
}

static gw_status train(course *c, gw_error *error) {
    gw_train_end end = {0};
    gw_status status = prepare(c, error);
    if (status != GW_OK) return status;
    take_office(c);
    if (c->reports) c->report.updates_from = c->trainer->updates;
    for (bool over = false; status == GW_OK && !over;) status = advance(c, &over, error);
    if (status == GW_OK) status = finish(c, &end, error);
    if (status == GW_OK && c->reports) gw_train_report_close(&c->report, &end);
    return status;
}

int gw_train_rank(const gw_train_request *request) {
    course c = {.request = request};
    gw_options options = GW_OPTIONS_DEFAULT;
    gw_error error = {0};
    options.strategy = request->strategy;
    if (gw_init(&c.comm, &options) != GW_OK) {
        fprintf(stderr, "gradwire train: %s\n", gw_last_error(NULL));
        return GW_EXIT_FAILED;
    }
    gw_status status = train(&c, &error);
    if (c.trainer) c.comm = c.trainer->comm;
    if (status != GW_OK) {
        if (c.report.drawn) fputc('\n', stdout);
        fflush(stdout);
        if (error.text[0]) fprintf(stderr, "gradwire train: rank %d: %s\n", gw_rank(c.comm), error.text);
        if (!c.agreed) gw_abort(c.comm, error.text);
    }
    gw_trainer_destroy(c.trainer);
    gw_finalize(c.comm);
    if (status == GW_OK) return 0;
    return status == GW_INVALID ? GW_EXIT_USAGE : GW_EXIT_FAILED;
}
