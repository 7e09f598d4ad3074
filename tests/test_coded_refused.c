/* test_coded_refused.c - the calls of gradwire/coded.h when something is wrong: arguments, options that differ between
 * ranks, states of something else, a forked child, and a rank that dies. Real processes. */
#include "coded_job.h"

/* Wrong arguments. The others learn the reason, and the communicator goes on. */

#define SAYS(status, words, call)                                                                                      \
    do {                                                                                                               \
        CHECK_EQ(status, call);                                                                                        \
        CHECK(strstr(gw_last_error(NULL), words) != NULL);                                                             \
        if (!strstr(gw_last_error(NULL), words)) printf("    \"%s\"\n", gw_last_error(NULL));                          \
    } while (0)

static void refuse(gw_comm *comm, gw_coded_options options, gw_status status, const char *words) {
    gw_coded *coded = NULL;
    SAYS(status, words, gw_coded_open(&coded, comm, &options));
    CHECK(coded == NULL);
}

static void refuse_line(gw_comm *comm, gw_collective what, const char *strategy, gw_status status, const char *words) {
    refuse(comm, make_options(what, strategy, COUNT), status, words);
}

static void refuse_options(gw_comm *comm, int rank) {
    gw_coded_options o = make_options(GW_COLL_BROADCAST, NULL, COUNT);
    refuse(comm, o, GW_INVALID, "only all-reduce, reduce-scatter and all-gather take a codec");
    o = make_options(GW_COLL_ALLREDUCE, NULL, COUNT);
    o.name = "";
    refuse(comm, o, GW_INVALID, "no name");
    o = make_options(GW_COLL_ALLREDUCE, NULL, COUNT);
    o.op = GW_MAX;
    refuse(comm, o, GW_INVALID, "GW_AVG or GW_SUM");
    o = make_options(GW_COLL_ALLREDUCE, "compress=int8", COUNT);
    o.dtype = GW_F16;
    refuse(comm, o, GW_UNSUPPORTED, "compress=int8 encodes f32");
    o = make_options(GW_COLL_REDUCE_SCATTER, "compress=int8", COUNT);
    o.columns = 7;
    refuse(comm, o, GW_INVALID, "not a multiple of 7 columns");
    o = make_options(GW_COLL_ALLGATHER, NULL, SIZE_MAX / 2);
    refuse(comm, o, GW_INVALID, "do not fit in memory");
    o = make_options(GW_COLL_ALLREDUCE, rank == 1 ? "compress=nonesuch" : "compress=int8", COUNT);
    refuse(comm, o, GW_INVALID, "nonesuch"); /* on the other ranks too */
    o = make_options(GW_COLL_REDUCE_SCATTER, rank == 1 ? "compress=fp16" : "compress=int8", COUNT);
    refuse(comm, o, GW_MISMATCH, "rank 0 opens reduce_scatter of layer, 12000 x f32, avg, arch=auto compress=int8");
    o = make_options(rank ? GW_COLL_ALLGATHER : GW_COLL_REDUCE_SCATTER, "compress=fp16", COUNT);
    refuse(comm, o, GW_MISMATCH, "this rank allgather");
    o = make_options(GW_COLL_ALLREDUCE, "compress=qsgd", COUNT);
    o.seed = (uint64_t)rank;
    refuse(comm, o, GW_MISMATCH, "with another seed, columns or counts");
}

static void refuse_strategies(gw_comm *comm) {
    gw_collective r = GW_COLL_REDUCE_SCATTER, g = GW_COLL_ALLGATHER;
    refuse_line(comm, GW_COLL_ALLREDUCE, "sync=bsp compress=fp16", GW_INVALID, "sets sync");
    refuse_line(comm, r, "schedule=p3", GW_INVALID, "sets schedule");
    refuse_line(comm, g, "transport=tcp", GW_INVALID, "sets transport");
    refuse_line(comm, GW_COLL_ALLREDUCE, "arch=ps", GW_UNSUPPORTED, "arch=ps is for training steps");
    refuse_line(comm, g, "arch=sfb", GW_UNSUPPORTED, "arch=sfb is for training steps");
    refuse_line(comm, r, "compress=dgc:clip=1", GW_UNSUPPORTED, "use clip=0");
    refuse_line(comm, r, "compress=terngrad:shared", GW_UNSUPPORTED, "leave shared out");
    refuse_line(comm, g, "compress=dgc:momentum=0.9", GW_UNSUPPORTED, "use momentum=0");
    refuse_line(comm, GW_COLL_ALLREDUCE, "compress=fp16:feedback=both", GW_UNSUPPORTED, "feedback");
}

static void refuse_calls(gw_comm *comm, int rank) {
    static float in[COUNT], out[2 * COUNT];
    gw_coded *coded = NULL, *other = NULL;
    bool done;
    SAYS(GW_INVALID, "is NULL", gw_coded_open(&coded, NULL, NULL));
    SAYS(GW_INVALID, "options are NULL", gw_coded_open(&coded, comm, NULL));
    SAYS(GW_INVALID, "is NULL", gw_coded_run(NULL, in, out));
    gw_coded_options options = make_options(GW_COLL_ALLGATHER, "compress=topk", COUNT);
    coded = open_one(comm, &options);
    SAYS(GW_INVALID, "input buffer", gw_coded_run(coded, NULL, out));
    SAYS(GW_INVALID, "output buffer", gw_coded_run(coded, in, NULL));
    SAYS(GW_INVALID, "is NULL", gw_coded_test(coded, NULL));
    CHECK_EQ(GW_OK, gw_coded_test(coded, &done));
    CHECK(done);
    CHECK_EQ(GW_OK, gw_coded_wait(coded));
    CHECK_EQ(GW_OK, gw_coded_start(coded, in, out));
    SAYS(GW_INVALID, "gw_coded_wait first", gw_coded_state_save(coded, out));
    CHECK_EQ(GW_OK, gw_coded_wait(coded));
    size_t bytes = gw_coded_state_bytes(coded);
    uint8_t *saved = calloc(1, bytes);
    SAYS(GW_MISMATCH, "not saved by gw_coded_state_save", gw_coded_state_restore(coded, saved, bytes));
    CHECK_EQ(GW_OK, gw_coded_state_save(coded, saved));
    SAYS(GW_MISMATCH, "another size", gw_coded_state_restore(coded, saved, bytes - (rank == 1))); /* of rank 1 only */
    options.seed++;
    other = open_one(comm, &options);
    SAYS(GW_MISMATCH, "other options", gw_coded_state_restore(other, saved, bytes));
    CHECK_EQ(GW_OK, gw_coded_run(coded, in, out));
    if (rank == 1) CHECK_EQ(GW_OK, gw_coded_state_save(coded, saved));
    SAYS(GW_MISMATCH, "before run 2, that of rank 0 before run 1", gw_coded_state_restore(coded, saved, bytes));
    gw_coded_close(coded);
    gw_coded_close(other);
    gw_coded_close(NULL);
    free(saved);
}

static void with_wrong_arguments(int rank) {
    gw_comm *comm = join(rank);
    refuse_options(comm, rank);
    refuse_strategies(comm);
    refuse_calls(comm, rank);
    CHECK_EQ(GW_OK, gw_barrier(comm));
    CHECK_EQ(GW_OK, gw_finalize(comm));
}

static void wrong_and_different_options_are_refused(void) { run_job(2, "", with_wrong_arguments); }

/* A forked child is no rank. */

static void with_a_child(int rank) {
    gw_comm *comm = join(rank);
    static float in[COUNT], out[2 * COUNT];
    gw_coded *coded[3], *made;
    for (int i = 0; i < 3; i++) {
        gw_coded_options options = make_options((gw_collective)i, "compress=topk", COUNT / 2);
        coded[i] = open_one(comm, &options);
    }
    pid_t child = fork();
    if (child == 0) {
        int wrong = gw_coded_open(&made, comm, NULL) != GW_INVALID;
        for (int i = 0; i < 3; i++) {
            wrong += gw_coded_run(coded[i], in, out) != GW_INVALID || gw_coded_wait(coded[i]) != GW_INVALID;
            wrong += gw_coded_state_save(coded[i], out) != GW_INVALID || gw_coded_sent_bytes(coded[i]) != 0;
            gw_coded_close(coded[i]);
        }
        _exit(wrong);
    }
    int result = -1;
    CHECK(waitpid(child, &result, 0) == child);
    CHECK_EQ(0, result);
    for (int i = 0; i < 3; i++) {
        CHECK_EQ(GW_OK, gw_coded_run(coded[i], in, out));
        gw_coded_close(coded[i]);
    }
    CHECK_EQ(GW_OK, gw_finalize(comm));
}

static void calls_of_a_forked_child_are_refused(void) { run_job(2, "", with_a_child); }

/* A rank dies in a run. */

static void losing_a_rank(int rank) {
    gw_comm *comm = join(rank);
    static float in[COUNT], out[3 * COUNT];
    gw_coded *coded[3];
    for (int i = 0; i < 3; i++) {
        gw_coded_options options = make_options((gw_collective)i, "compress=topk", COUNT / 3);
        coded[i] = open_one(comm, &options);
        CHECK_EQ(GW_OK, gw_coded_run(coded[i], in, out));
    }
    if (rank == 2) usleep(200000), _exit(0); /* when the others have all that it sent */
    for (int i = 0; i < 3; i++) CHECK_EQ(GW_PEER_LOST, gw_coded_run(coded[i], in, out));
    CHECK(strstr(gw_last_error(comm), "rank 2") != NULL);
    CHECK_EQ(GW_PEER_LOST, gw_coded_start(coded[1], in, out));
    for (int i = 0; i < 3; i++) gw_coded_close(coded[i]);
    gw_finalize(comm);
}

static void a_rank_that_dies_ends_the_run_of_the_others(void) { run_job(3, "", losing_a_rank); }

TEST_MAIN(CASE(wrong_and_different_options_are_refused), CASE(calls_of_a_forked_child_are_refused),
          CASE(a_rank_that_dies_ends_the_run_of_the_others))
