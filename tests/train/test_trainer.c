/* test_trainer.c - how gradients are cut into buckets, what a step's gradient is, and ranks that no longer agree. */
#include "train/trainer.h"

#include <math.h>

#include "small_job.h"

static int port;

static gw_train_settings settings(int64_t batch, size_t bucket_bytes) {
    return (gw_train_settings){.model = "mlp",
                               .data = "synthetic:count=120,height=8,width=8",
                               .batch = batch,
                               .accumulate = 1,
                               .epochs = 1,
                               .optimiser = &gw_sgd,
                               .rate = 0.01,
                               .seed = 5,
                               .bucket_bytes = bucket_bytes};
}

static gw_trainer *open_trainer(gw_comm **comm, int rank, int world, size_t bucket_bytes) {
    gw_error error = {0};
    gw_trainer *trainer = NULL;
    gw_options options = job_options(rank, world, port ? port : job_port(), NULL);
    gw_train_settings s = settings(24, bucket_bytes);
    CHECK_EQ(GW_OK, gw_init(comm, &options));
    CHECK_EQ(GW_OK, gw_trainer_create(*comm, &s, &trainer, &error));
    CHECK_STR("", error.text);
    return trainer;
}

static void close_trainer(gw_trainer *trainer, gw_comm *comm) {
    gw_trainer_destroy(trainer);
    gw_finalize(comm);
}

static void buckets_cover_the_model(void) {
    static const size_t sizes[] = {1, 4096, 65536, 1 << 20, 1 << 30};
    for (size_t k = 0; k < sizeof sizes / sizeof sizes[0]; k++) {
        gw_comm *comm = NULL;
        gw_trainer *t = open_trainer(&comm, 0, 1, sizes[k]);
        size_t end = t->model->count;
        int parameters = t->model->parameters;
        for (int i = 0; i < t->buckets.count; i++) {
            const gw_bucket *b = &t->buckets.list[i];
            CHECK_EQ(end, b->offset + b->count);
            CHECK_EQ(parameters, b->first + b->parameters);
            if (i + 1 < t->buckets.count) CHECK(b->count * sizeof(float) >= sizes[k]);
            end = b->offset;
            parameters = b->first;
        }
        CHECK_EQ(0, end);
        CHECK_EQ(0, parameters);
        close_trainer(t, comm);
    }
}

/* The weights after a few updates do not depend on how the gradients are cut, to the bit. */
static void buckets_change_no_bit(void) {
    uint64_t hashes[2];
    for (int k = 0; k < 2; k++) {
        gw_comm *comm = NULL;
        gw_error error = {0};
        gw_trainer *t = open_trainer(&comm, 0, 1, k ? 1 : 1 << 30);
        for (int i = 0; i < 7; i++) CHECK_EQ(GW_OK, gw_trainer_step(t, &error));
        CHECK_EQ(1, t->epoch); /* 120 examples are 5 steps */
        CHECK_EQ(2, t->window);
        hashes[k] = gw_trainer_hash(t);
        close_trainer(t, comm);
    }
    CHECK(hashes[0] == hashes[1]);
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
    gw_trainer *t = open_trainer(&comm, rank, 3, 4096);
    for (int i = 0; i < 3; i++) CHECK_EQ(GW_OK, gw_trainer_step(t, &error));
    CHECK_EQ(GW_OK, gw_trainer_meet(t, &work, &error));
    CHECK_EQ(72, work.counted);
    CHECK_EQ(3 * (2 * 2 * t->model->count * sizeof(float) / 3), work.bytes);
    if (rank == 1) t->model->weights[t->model->count / 2] = nextafterf(t->model->weights[t->model->count / 2], 2);
    CHECK_EQ(GW_OK, gw_trainer_step(t, &error));
    CHECK_EQ(GW_MISMATCH, gw_trainer_meet(t, &work, &error));
    CHECK_EQ(1, error.rank);
    close_trainer(t, comm);
}

static void a_single_bit_is_noticed(void) {
    port = job_port();
    job_fork(3, diverging_rank);
}

TEST_MAIN(CASE(buckets_cover_the_model), CASE(buckets_change_no_bit), CASE(the_odd_ranks_are_named),
          CASE(a_single_bit_is_noticed))
