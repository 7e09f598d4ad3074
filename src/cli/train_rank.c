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
    gw_loss test; /* the last; counted 0: none */
} course;

static bool enough(const course *c) {
    return c->trainer->epoch >= (uint64_t)c->request->settings.epochs ||
           (c->request->steps && c->trainer->updates >= (uint64_t)c->request->steps);
}

static double accuracy(const gw_loss *test) {
    return test->counted ? (double)test->correct / (double)test->counted : 0;
}

static gw_status meet(course *c, gw_error *error) {
    gw_train_work work;
    gw_status status = gw_trainer_meet(c->trainer, &work, error);
    if (status == GW_OK && c->reports) gw_train_report_meeting(&c->report, &work);
    return status;
}

static gw_status test(course *c, gw_error *error) {
    gw_train_tick *tick = c->reports ? gw_train_report_testing : NULL;
    gw_status status = gw_trainer_evaluate(c->trainer, tick, &c->report, &c->test, error);
    if (status == GW_OK && c->reports) gw_train_report_epoch(&c->report, &c->test);
    return status;
}

/* Whether all ranks meet after that update. */
static bool is_point(const gw_train_request *r, const gw_trainer *t, uint64_t updates) {
    return updates && (t->window == 0 || updates % (uint64_t)r->log_every == 0 ||
                       (r->steps && updates >= (uint64_t)r->steps) ||
                       (r->checkpoint && r->checkpoint_every && updates % (uint64_t)r->checkpoint_every == 0));
}

static gw_status save(course *c, gw_error *error) {
    c->agreed = true;
    gw_status status = gw_snapshot_save(c->trainer, c->request->checkpoint, error);
    c->agreed = status != GW_OK;
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

/* What is due after an update, for all ranks together. */
static gw_status make_point(course *c, bool rests, bool meets, bool saves, gw_error *error) {
    gw_status status = meets ? meet(c, error) : GW_OK;
    if (status == GW_OK && rests) status = test(c, error);
    if (status == GW_OK && saves) status = save(c, error);
    return status;
}

/* One update and what is due after it. */
static gw_status advance(course *c, bool *over, gw_error *error) {
    const gw_train_request *r = c->request;
    gw_trainer *t = c->trainer;
    bool came_back = t->point < t->updates && t->elastic && is_point(r, t, t->updates);
    int64_t examples = gw_trainer_window_examples(t);
    gw_status status = came_back ? GW_OK : gw_trainer_step(t, error);
    if (status == GW_OK && t->elastic) take_office(c);
    if (status == GW_OK && c->reports && !came_back) gw_train_report_update(&c->report, examples);
    bool rests = t->window == 0 || enough(c), meets = rests || t->updates % (uint64_t)r->log_every == 0;
    bool saves = r->checkpoint && (rests || (r->checkpoint_every && t->updates % (uint64_t)r->checkpoint_every == 0));
    while (status == GW_OK && (rests || meets || saves) && !(t->elastic && t->point >= t->updates)) {
        status = make_point(c, rests, meets, saves, error);
        if (status == GW_OK) t->point = t->updates;
        else status = gw_trainer_recover(t, status, error);
        if (!t->elastic) break;
        if (status == GW_OK) take_office(c);
    }
    *over = enough(c) || (rests && r->target > 0 && accuracy(&c->test) >= r->target);
    return status;
}

static gw_status resume(course *c, gw_error *error) {
    const gw_train_request *r = c->request;
    gw_snapshot_found found = {0};
    c->agreed = true;
    gw_status status = gw_snapshot_load(c->trainer, r->checkpoint, &found, error);
    c->agreed = status != GW_OK;
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

/* This process was started in the place of one that died: the others are in the middle of it. */
static gw_status come_back(course *c, gw_error *error) {
    gw_status status = gw_trainer_create(c->comm, &c->request->settings, &c->trainer, error);
    return status == GW_OK ? gw_trainer_come_back(c->trainer, error) : status;
}

/* All that comes before the first update. Whoever was lost meanwhile never took part: those left come together. */
static gw_status prepare(course *c, gw_error *error) {
    if (gw_round(c->comm) > 0) return come_back(c, error);
    gw_status status = begin(c, error);
    if (!c->trainer || c->agreed) return status;
    if (status == GW_OK) take_office(c);
    if (status == GW_OK && c->request->resume) status = resume(c, error);
    if (status == GW_OK && !c->trainer->step) status = commit(c, error);
    if (status == GW_OK || c->agreed || !c->trainer->elastic || c->trainer->step) return status;
    *error = (gw_error){.rank = -1};
    return gw_trainer_come_back(c->trainer, error);
}

static gw_status train(course *c, gw_error *error) {
    gw_train_end end = {0};
    gw_status status = prepare(c, error);
    if (status != GW_OK) return status;
    take_office(c);
    if (c->reports) c->report.updates_from = c->trainer->updates;
    for (bool over = enough(c); status == GW_OK && !over;) status = advance(c, &over, error);
    if (status == GW_OK && c->test.counted == 0) status = test(c, error);
    c->comm = c->trainer->comm; /* another, where ranks have died */
    if (gw_comm_trace(c->comm)) gw_trace_stop(c->comm); /* what follows is no training */
    if (status == GW_OK && c->trainer->elastic) {
        status = gw_trainer_leave(c->trainer, error);
        end.weights = gw_trainer_hash(c->trainer);
        take_office(c);
    } else {
        if (status == GW_OK) status = gw_trainer_time_exchange(c->trainer, &end.exchange, error);
        if (status == GW_OK) status = gw_trainer_hash_whole(c->trainer, &end.weights, error);
    }
    end.test = c->test;
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
