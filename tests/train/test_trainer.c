/* test_trainer.c - a strategy changes no bit of the weights, and ranks whose weights differ are named. */
#include "train/trainer.h"

#include <math.h>
#include <sys/mman.h>

#include "small_job.h"

static int port;
static const char *line; /* the strategy; NULL: the default */
static const char *model = "mlp";

static gw_train_settings settings(int64_t batch) {
    return (gw_train_settings){.model = model,
                               .data = "synthetic:count=120,height=8,width=8",
                               .batch = batch,
                               .accumulate = 1,
                               .epochs = 1,
                               .optimiser = &gw_sgd,
                               .rate = 0.01,
                               .seed = 5};
}

static gw_trainer *open_trainer(gw_comm **comm, int rank, int world) {
    gw_error error = {0};
    gw_trainer *trainer = NULL;
    gw_options options = job_options(rank, world, port ? port : free_port(), line);
    gw_train_settings s = settings(24);
    CHECK_EQ(GW_OK, gw_init(comm, &options));
    CHECK_EQ(GW_OK, gw_trainer_create(*comm, &s, &trainer, &error));
    CHECK_STR("", error.text);
    return trainer;
}

static void close_trainer(gw_trainer *trainer, gw_comm *comm) {
    gw_trainer_destroy(trainer);
    gw_finalize(comm);
}

/* ---- the strategy changes no bit ---- */

static int ranks;
static uint64_t wanted, *found; /* shared with the ranks */

static void trains(int rank) {
    gw_comm *comm = NULL;
    gw_error error = {0};
    gw_trainer *t = open_trainer(&comm, rank, ranks);
    for (int i = 0; i < 7; i++) CHECK_EQ(GW_OK, gw_trainer_step(t, &error));
    CHECK_EQ(GW_OK, gw_trainer_flush(t, &error));
    CHECK_STR("", error.text);
    CHECK_EQ(1, t->epoch); /* 120 examples are 5 steps */
    CHECK_EQ(2, t->window);
    found[rank] = gw_trainer_hash(t);
    close_trainer(t, comm);
}

static uint64_t weights_by(const char *strategy, int world) {
    line = strategy;
    ranks = world;
    port = free_port();
    job_fork(world, trains);
    for (int r = 1; r < world; r++) CHECK(found[r] == found[0]);
    return found[0];
}

static void schedules_change_no_bit(void) {
    static const char *const schedules[] = {"wfbp:fuse=1K", "mgwfbp",      "p3:slice=16K", "bytescheduler:slice=16K",
                                            "tictac",       "dear:fuse=1K"};
    static const char *const archs[] = {"arch=direct", "arch=halving transport=tcp", "arch=ring transport=tcp"};
    char text[128];
    found = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    for (int a = 0; a < 3; a++) {
        int world = a == 2 ? 2 : 3; /* a ring of more ranks sums in an order that depends on the position in a bucket */
        snprintf(text, sizeof text, "%s schedule=fifo", archs[a]);
        wanted = weights_by(text, world);
        for (size_t i = 0; i < sizeof schedules / sizeof *schedules; i++) {
            snprintf(text, sizeof text, "%s schedule=%s", archs[a], schedules[i]);
            bool same = weights_by(text, world) == wanted;
            CHECK(same);
            if (!same) printf("    %s\n", text);
        }
    }
    munmap(found, 4096);
    line = NULL;
}

static void the_odd_ranks_are_named(void) {
    gw_error error = {0};
    CHECK_EQ(GW_OK, gw_train_compare((uint64_t[]){7, 7, 7}, 3, 1, 10, &error));
    CHECK_EQ(GW_MISMATCH, gw_train_compare((uint64_t[]){9, 7, 7}, 3, 1, 10, &error));
    CHECK_EQ(0, error.rank);
    CHECK(strstr(error.text, "after update 10 the weights of 1 of 3 ranks differ from the others': rank 0;"));
    error = (gw_error){0};
    CHECK_EQ(GW_MISMATCH, gw_train_compare((uint64_t[]){7, 1, 7, 2, 7}, 5, 1, 10, &error));
    CHECK(strstr(error.text, "2 of 5 ranks differ from the others': ranks 1, 3;"));
}

static void diverging_rank(int rank) {
    gw_comm *comm = NULL;
    gw_error error = {0};
    gw_train_work work;
    gw_trainer *t = open_trainer(&comm, rank, 3);
    for (int i = 0; i < 3; i++) CHECK_EQ(GW_OK, gw_trainer_step(t, &error));
    CHECK_EQ(GW_OK, gw_trainer_gather_work(t, &work, &error));
    CHECK_EQ(72, work.counted);
    CHECK_EQ(3 * (2 * 2 * t->model->count * sizeof(float) / 3), work.dense);
    if (rank == 1) t->model->weights[t->model->count / 2] = nextafterf(t->model->weights[t->model->count / 2], 2);
    CHECK_EQ(GW_OK, gw_trainer_step(t, &error));
    CHECK_EQ(GW_MISMATCH, gw_trainer_gather_work(t, &work, &error));
    CHECK_EQ(1, error.rank);
    close_trainer(t, comm);
}

static void a_single_bit_is_noticed(void) {
    port = free_port();
    job_fork(3, diverging_rank);
}

/* Rank 2 has just come back. */
static void averaging_rank(int rank) {
    gw_comm *comm = NULL;
    gw_error error = {0};
    gw_trainer *t = open_trainer(&comm, rank, 3);
    CHECK(t->model->buffer_count > 0);
    for (size_t i = 0; i < t->model->buffer_count; i++) t->model->buffers[i] = rank == 2 ? 99 : (float)rank + 1;
    t->lacks_statistics = rank == 2;
    CHECK_EQ(GW_OK, gw_trainer_average(t, 2, &error));
    int odd = 0;
    for (size_t i = 0; i < t->model->buffer_count; i++) odd += t->model->buffers[i] != 1.5f;
    CHECK_EQ(0, odd);
    close_trainer(t, comm);
}

static void statistics_are_those_of_ranks_that_have_any(void) {
    model = "resnet20";
    port = free_port();
    job_fork(3, averaging_rank);
    model = "mlp";
}

TEST_MAIN(CASE(schedules_change_no_bit), CASE(the_odd_ranks_are_named), CASE(a_single_bit_is_noticed),
          CASE(statistics_are_those_of_ranks_that_have_any))
