/* train_rank.c - one rank of gradwire train, from joining the job to the final test. */
#include <stdio.h>
#include <stdlib.h>

#include "base/status.h"
#include "cli/cli.h"
#include "cli/train/train_request.h"
#include "runtime/recording.h"
#include "store/checkpoint.h"
#include "train/trainer_checkpoint.h"

typedef struct train_run {
    const gw_train_request *request;
    gw_comm *comm;
    gw_trainer *trainer;
    gw_train_report report; /* rank 0 only */
    bool reports;
    bool agreed; /* all ranks know of the failure, so no gw_abort is needed */
} train_run;

static bool is_over(const train_run *c) {
    return c->trainer->epoch >= (uint64_t)c->request->settings.epochs ||
           (c->request->steps && c->trainer->updates >= (uint64_t)c->request->steps);
}

/* All updates are done, or the last test has reached the target accuracy. */
static bool is_done(const train_run *c) {
    const gw_loss *test = &c->trainer->last_test;
    double target = c->request->target, accuracy = test->counted ? (double)test->correct / (double)test->counted : 0;
    return is_over(c) || (target > 0 && accuracy >= target);
}

static gw_status gather_work(train_run *c, gw_error *error) {
    gw_train_work work = {0};
    gw_status status = gw_trainer_gather_work(c->trainer, &work, error);
    bool repeated = work.counted == 0; /* a rank was lost after the same call, before the end of the sync point */
    if (status == GW_OK && c->reports && !repeated) gw_train_report_log(&c->report, &work);
    return status;
}

static gw_status test(train_run *c, gw_error *error) {
    gw_train_tick *tick = c->reports ? gw_train_report_testing : NULL;
    gw_status status = gw_trainer_evaluate(c->trainer, tick, &c->report, &c->trainer->last_test, error);
    if (status == GW_OK && c->reports) gw_train_report_epoch(&c->report, &c->trainer->last_test);
    return status;
}

/* Whether a sync point follows the last update, and this rank has not completed it yet. */
static bool is_due(const train_run *c) {
    const gw_train_request *r = c->request;
    const gw_trainer *t = c->trainer;
    return t->sync_point < t->updates &&
           (t->window == 0 || t->updates % (uint64_t)r->log_every == 0 || is_over(c) ||
            (r->checkpoint && r->checkpoint_every && t->updates % (uint64_t)r->checkpoint_every == 0));
}

static gw_status save(train_run *c, gw_error *error) {
    c->agreed = true;
    gw_status status = gw_trainer_checkpoint_save(c->trainer, c->request->checkpoint, error);
    c->agreed = status != GW_OK && !gw_status_is_loss(status);
    return status;
}

/* Rank 0 reports. In an elastic job another process may become rank 0. */
static void update_reporter(train_run *c) {
    if (c->trainer->rank == 0 && !c->reports) {
        gw_train_report_open(&c->report, c->request, c->trainer);
        c->report.updates_from = c->trainer->updates;
    }
    c->reports = c->trainer->rank == 0;
}

/* After a failed call. GW_OK: training continues from the trainer's position. */
static gw_status recover(train_run *c, gw_status why, gw_error *error) {
    gw_status status = gw_trainer_recover(c->trainer, why, error);
    if (status == GW_OK) update_reporter(c);
    return status;
}

/* The collective calls that are due after this update. */
static gw_status run_sync_point(train_run *c, gw_error *error) {
    const gw_train_request *r = c->request;
    gw_trainer *t = c->trainer;
    bool tests = t->window == 0 || is_over(c), gathers = tests || t->updates % (uint64_t)r->log_every == 0;
    bool saves = r->checkpoint && (tests || (r->checkpoint_every && t->updates % (uint64_t)r->checkpoint_every == 0));
    gw_status status = gathers ? gather_work(c, error) : GW_OK;
    if (status == GW_OK && tests) status = test(c, error);
    if (status == GW_OK && saves) status = save(c, error);
    if (status == GW_OK) t->sync_point = t->updates;
    return status;
}

static gw_status make_update(train_run *c, gw_error *error) {
    int64_t examples = gw_trainer_window_examples(c->trainer);
    gw_status status = gw_trainer_step(c->trainer, error);
    if (status == GW_OK && c->reports) gw_train_report_update(&c->report, examples);
    return status;
}

/* Runs the next sync point or update. *over: none is left. After a loss it may repeat one. */
static gw_status advance(train_run *c, bool *over, gw_error *error) {
    gw_trainer *t = c->trainer;
    bool at_sync_point = is_due(c);
    *over = !at_sync_point && is_done(c);
    if (*over) return GW_OK;
    gw_status status = at_sync_point ? run_sync_point(c, error) : make_update(c, error);
    if (status != GW_OK && (at_sync_point || !t->over_servers)) status = recover(c, status, error);
    if (status == GW_OK && t->over_servers) update_reporter(c); /* the step may have regrouped */
    return status;
}

static gw_status resume(train_run *c, gw_error *error) {
    const gw_train_request *r = c->request;
    gw_trainer_checkpoint_info found = {0};
    c->agreed = true;
    gw_status status = gw_trainer_checkpoint_load(c->trainer, r->checkpoint, &found, error);
    c->agreed = status != GW_OK && !gw_status_is_loss(status);
    if (status != GW_OK || !c->reports) return status;
    if (found.world == 0)
        gw_train_report_print(&c->report, "%s does not exist yet: training starts from scratch", r->checkpoint);
    else
        gw_train_report_print(&c->report, "resuming from %s: epoch %llu, update %llu", r->checkpoint,
                              (unsigned long long)c->trainer->epoch + 1, (unsigned long long)c->trainer->updates);
    if (found.world && !found.continues)
        gw_train_report_print(&c->report, "the state of codecs and synchronization is reset: it belongs to another "
                                          "strategy or number of workers");
    if (found.continues && found.world != c->trainer->world)
        gw_train_report_print(&c->report, "the residuals of codecs are spread evenly over the workers");
    if (found.world && found.world != c->trainer->world)
        gw_train_report_print(&c->report,
                              "%d workers wrote it, now there are %d: each step takes the same examples, but sums are "
                              "rounded in another order and batch norms see other shards, so the bits differ",
                              found.world, c->trainer->world);
    return status;
}

/* Finds out before the first epoch whether a checkpoint can be written. */
static gw_status try_checkpoint(const char *path, gw_error *error) {
    gw_checkpoint_writer *writer = NULL;
    gw_status status = gw_checkpoint_begin(path, &writer, error);
    gw_checkpoint_abandon(writer);
    return status;
}

/* All ranks begin or none. Ranks mostly fail for the same reason, so only the first failing rank prints it. */
static gw_status begin(train_run *c, gw_error *error) {
    int32_t rank = gw_rank(c->comm), first = INT32_MAX;
    gw_status status = gw_trainer_create(c->comm, &c->request->settings, &c->trainer, error), reduced;
    if (status == GW_OK && rank == 0 && c->request->checkpoint) status = try_checkpoint(c->request->checkpoint, error);
    if (status != GW_OK && error->text[0]) first = rank; /* no text: it stopped because another rank failed */
    reduced = gw_allreduce(c->comm, &first, &first, 1, GW_I32, GW_MIN);
    if (reduced != GW_OK) return gw_fail(error, reduced, "%s", gw_last_error(c->comm));
    if (first == INT32_MAX) return GW_OK;
    c->agreed = true;
    if (first != rank) *error = (gw_error){0};
    return status != GW_OK ? status : GW_ABORTED;
}

/* All ranks agree on whether the strategy is possible, so only rank 0 prints the sentence. */
static gw_status commit(train_run *c, gw_error *error) {
    gw_status status = gw_trainer_commit(c->trainer, error);
    c->agreed = status == GW_UNSUPPORTED || status == GW_INVALID;
    if (c->agreed && c->trainer->rank != 0) *error = (gw_error){0};
    return status;
}

/* Starts training, or joins the others at their current update. */
static gw_status enter(train_run *c, gw_error *error) {
    bool under_way = false;
    gw_status status = GW_OK;
    if (gw_generation(c->trainer->comm) > 0) status = gw_trainer_under_way(c->trainer, &under_way, error);
    if (status != GW_OK) return status;
    if (under_way) return gw_trainer_rejoin(c->trainer, error);
    update_reporter(c);
    if (c->request->resume) status = resume(c, error);
    if (status == GW_OK && !c->trainer->reducer) status = commit(c, error);
    c->trainer->joined = status == GW_OK;
    return status;
}

/* Everything before the first update. If a rank is lost meanwhile, the others start again. */
static gw_status prepare(train_run *c, gw_error *error) {
    bool first = gw_generation(c->comm) == 0;
    gw_status status = first ? begin(c, error) : gw_trainer_create(c->comm, &c->request->settings, &c->trainer, error);
    if (!c->trainer || c->agreed) return status;
    if (status == GW_OK) status = enter(c, error);
    while (status != GW_OK && !c->agreed && c->trainer->elastic && !c->trainer->joined) {
        status = gw_trainer_regroup(c->trainer, status, error);
        if (status != GW_OK) break;
        status = enter(c, error);
    }
    return status;
}

/* A training that was already complete when it was resumed has no test yet. */
static gw_status final_test(train_run *c, gw_error *error) {
    gw_status status = GW_OK;
    while (status == GW_OK && c->trainer->last_test.counted == 0) {
        status = test(c, error);
        if (status != GW_OK) status = recover(c, status, error);
    }
    return status;
}

static gw_status finish(train_run *c, gw_train_end *end, gw_error *error) {
    gw_trainer *t = c->trainer;
    gw_status status = final_test(c, error);
    if (gw_comm_trace(t->comm)) gw_trace_stop(t->comm); /* the rest is not training */
    if (status == GW_OK && t->elastic) {
        status = gw_trainer_leave(t, error);
        end->weights = gw_trainer_hash(t);
        update_reporter(c);
    } else {
        if (status == GW_OK) status = gw_trainer_time_exchange(t, &end->exchange, error);
        if (status == GW_OK) status = gw_trainer_hash_whole(t, &end->weights, error);
    }
    end->test = t->last_test;
    return status;
}

static gw_status train(train_run *c, gw_error *error) {
    gw_train_end end = {0};
    gw_status status = prepare(c, error);
    if (status != GW_OK) return status;
    update_reporter(c);
    if (c->reports) c->report.updates_from = c->trainer->updates;
    for (bool over = false; status == GW_OK && !over;) status = advance(c, &over, error);
    if (status == GW_OK) status = finish(c, &end, error);
    if (status == GW_OK && c->reports) gw_train_report_close(&c->report, &end);
    return status;
}

int gw_train_rank(const gw_train_request *request) {
    train_run c = {.request = request};
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
