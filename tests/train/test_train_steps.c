/* test_train_steps.c - the steps that the trainer records have the length that the clock says, under every schedule,
 * and the waiting that the trainer counts itself.
 *
 * As a rank of a job (gradwire run --strategy schedule=p3 ...) it takes that job's strategy; tests/steps.sh runs it so
 * on two hosts. */
#include <math.h>
#include <sys/mman.h>

#include "gradwire/trace.h"
#include "insight/analyses.h"
#include "small_job.h"
#include "train/trainer.h"

enum { WORLD = 2, STEPS = 8, RANKS_MAX = 16 };
#define DATA_US 4000 /* between two steps the caller does something else, which belongs to the later one */

static char folder[] = "/tmp/gradwire-steps-XXXXXX";
static char capture[64];
static int port;
static const char *line;
static bool *near_enough; /* shared with the ranks: the last job's result */

/* What a rank measured itself, in ms, over all steps but the first. */
typedef struct measured {
    double step, waiting;
} measured;

static measured train(gw_comm *comm) {
    gw_error error = {0};
    gw_trainer *t = NULL;
    gw_train_settings settings = {.model = "mlp", .data = "synthetic:count=4096", .batch = 128, .accumulate = 1,
                                  .epochs = 1, .optimiser = &gw_sgd, .rate = 0.01, .seed = 5};
    measured found = {0};
    gw_time began = 0;
    uint64_t waited = 0;
    CHECK_EQ(GW_OK, gw_trainer_create(comm, &settings, &t, &error));
    for (int i = 0; i <= STEPS && t && !test_failures; i++) {
        usleep(DATA_US);
        CHECK_EQ(GW_OK, gw_trainer_step(t, &error));
        if (i) continue;
        began = gw_clock_now();
        waited = t->work.waiting;
    }
    found.step = (double)(gw_clock_now() - began) / STEPS / 1e6;
    if (t) found.waiting = (double)(t->work.waiting - waited) / STEPS / 1e6;
    gw_trainer_destroy(t);
    return found;
}

static bool agrees(const gw_view *view, int rank, const measured *found) {
    gw_step_part sum;
    uint64_t counted = gw_steps_sum(&view->steps, rank, &sum);
    double step = (double)sum.end / 1e6 / STEPS, waiting = (double)sum.waiting / 1e6 / STEPS;
    CHECK_EQ(STEPS, counted);
    CHECK_EQ(sum.end, sum.compute + sum.waiting + sum.other);
    CHECK_EQ(sum.waiting, sum.for_ranks + sum.exposed);
    bool near = fabs(step / found->step - 1) < 0.02 && fabs(waiting - found->waiting) < 0.02 * found->step;
    if (!near)
        printf("    rank %d: recorded %.3f ms, %.3f of it waiting; the clock had %.3f and %.3f\n", rank, step, waiting,
               found->step, found->waiting);
    return near;
}

/* All ranks have ended the recording. */
static bool compare(gw_comm *comm, const measured *all) {
    gw_error error = {.rank = -1};
    gw_view view = {0};
    char job[256];
    size_t changes;
    bool near = true;
    CHECK_EQ(GW_OK, gw_view_load(capture, &view, &error));
    if (error.status) return false;
    const char *recorded = gw_view_strategy(&view, &changes);
    snprintf(job, sizeof job, "%s", getenv("GRADWIRE_STRATEGY") ? getenv("GRADWIRE_STRATEGY") : line);
    CHECK(strstr(recorded, strstr(job, "schedule=")) != NULL);
    CHECK_EQ(STEPS + 1, view.steps.count);
    CHECK_EQ(STEPS, view.steps.whole); /* the first has no step before it */
    CHECK_EQ(gw_size(comm) / gw_local_size(comm), gw_insight_hosts(view.insight));
    for (int r = 0; r < gw_size(comm); r++) near = agrees(&view, r, &all[r]) && near;
    gw_view_free(&view);
    return near;
}

static bool record(gw_comm *comm) {
    measured all[RANKS_MAX];
    bool near = true;
    CHECK_EQ(GW_OK, gw_trace_start(comm, NULL, capture));
    measured mine = train(comm);
    CHECK_EQ(GW_OK, gw_trace_stop(comm));
    CHECK_EQ(GW_OK, gw_allgather(comm, &mine, all, sizeof mine, GW_U8));
    if (gw_rank(comm) == 0) near = compare(comm, all);
    return near;
}

static void forked_rank(int rank) {
    gw_comm *comm = NULL;
    gw_options options = job_options(rank, WORLD, port, line);
    CHECK_EQ(GW_OK, gw_init(&comm, &options));
    bool near = comm && record(comm);
    if (rank == 0) *near_enough = near;
    gw_finalize(comm);
}

static bool fork_job(void) {
    port = free_port();
    job_fork(WORLD, forked_rank);
    return *near_enough;
}

static void every_schedule(void) {
    static const char *const schedules[] = {"fifo", "wfbp", "mgwfbp", "p3", "bytescheduler", "tictac", "dear"};
    char text[64];
    if (getenv("RANK")) return;
    for (size_t i = 0; i < sizeof schedules / sizeof *schedules && !test_failures; i++) {
        snprintf(text, sizeof text, "schedule=%s", schedules[i]);
        line = text;
        CHECK_IN_SOME_TRY(fork_job());
    }
}

/* The ranks try again together. */
static void a_job_of_a_launcher(void) {
    gw_comm *comm = NULL;
    if (!getenv("RANK")) return;
    CHECK_EQ(GW_OK, gw_init(&comm, NULL));
    int32_t near = 0;
    for (int i = 0; comm && i < TEST_TRIES && !near && !test_failures; i++) {
        near = record(comm);
        CHECK_EQ(GW_OK, gw_allreduce(comm, &near, &near, 1, GW_I32, GW_MIN));
    }
    CHECK(near);
    gw_finalize(comm);
}

static void set_up(void) {
    near_enough = mmap(NULL, sizeof *near_enough, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (near_enough == MAP_FAILED) abort();
    const char *given = getenv("STEPS_CAPTURE"); /* the same for all ranks of a job */
    if (!given) CHECK(mkdtemp(folder) != NULL);
    snprintf(capture, sizeof capture, "%s", given ? given : "");
    if (!given) snprintf(capture, sizeof capture, "%s/c.gwt", folder);
}

static void clean_up(void) {
    if (getenv("STEPS_CAPTURE")) return;
    unlink(capture);
    CHECK(rmdir(folder) == 0);
}

TEST_MAIN(CASE(set_up), CASE(every_schedule), CASE(a_job_of_a_launcher), CASE(clean_up))
