/* test_shrink.c - gw_shrink: after a death the survivors go on with a communicator of their own; and again after the
 * next. Jobs of real processes. */
#include "job.h"

static bool reduces_right(gw_comm *comm, job_seat *seat) {
    enum { COUNT = 30000 };
    static float in[COUNT], out[COUNT];
    int size = gw_size(comm), rank = gw_rank(comm);
    for (int i = 0; i < COUNT; i++) in[i] = (float)(rank + 1 + i % 7);
    if (job_failed(seat, comm, gw_allreduce(comm, in, out, COUNT, GW_F32, GW_SUM))) return false;
    for (int i = 0; i < COUNT; i++) seat->wrong += out[i] != (float)(size * (size + 1) / 2 + size * (i % 7));
    atomic_fetch_add(&seat->rounds, 1);
    return true;
}

/* All stop in the same round. */
static bool all_may_stop(gw_comm *comm, const job *j, job_seat *seat, bool *stop) {
    int32_t mine = atomic_load(&j->shared->go) && gw_size(comm) == j->kind, all = 0;
    if (job_failed(seat, comm, gw_allreduce(comm, &mine, &all, 1, GW_I32, GW_MIN))) return false;
    *stop = all;
    return true;
}

/* Reduces until somebody dies, shrinks, and goes on, until the test gives the sign. */
static void goes_on(gw_comm *comm, const job *j, job_seat *seat) {
    gw_comm *comms[JOB_RANKS_MAX] = {comm};
    int shrunk = 0;
    for (bool stop = false; !stop;) {
        if (reduces_right(comms[shrunk], seat) && all_may_stop(comms[shrunk], j, seat, &stop)) continue;
        if (shrunk + 1 == JOB_RANKS_MAX) break;
        gw_status status = gw_shrink(comms[shrunk], &comms[shrunk + 1]);
        if (status) {
            snprintf(seat->text, sizeof seat->text, "shrink: %s", gw_last_error(NULL));
            seat->wrong++;
            break;
        }
        seat->shrunk = ++shrunk;
        seat->size = gw_size(comms[shrunk]);
        seat->rank = gw_rank(comms[shrunk]);
        atomic_store(&seat->rounds, 0);
        job_call_again(seat, comms[shrunk - 1]);
    }
    gw_status status = GW_OK;
    for (int i = 0; !status && i < 3; i++) status = gw_barrier(comms[shrunk]);
    seat->finalized = status;
    for (int i = shrunk; i >= 0; i--) gw_finalize(comms[i]);
}

static void kill_in_turn(const char *strategy, int world, const int *victims, int count) {
    job j = {.world = world, .strategy = strategy, .deadline_s = 4, .body = goes_on, .kind = world - count};
    bool dead[JOB_RANKS_MAX] = {false};
    job_start(&j);
    CHECK(job_all_reached(&j, 2, 10));
    for (int v = 0; v < count; v++) {
        kill(j.pid[victims[v]], SIGKILL);
        job_reap(&j, victims[v], 5);
        dead[victims[v]] = true;
        if (v + 1 == count) break;
        gw_time until = gw_clock_now() + TEST_PATIENCE_S * GW_SECOND; /* until all have gone on */
        for (int r = 0; r < world; r++)
            while (!dead[r] && (j.shared->seat[r].shrunk <= v || atomic_load(&j.shared->seat[r].rounds) < 3) &&
                   gw_clock_now() < until)
                job_nap();
    }
    atomic_store(&j.shared->go, 1);
    int place = 0;
    for (int r = 0; r < world; r++) {
        const job_seat *seat = &j.shared->seat[r];
        if (dead[r]) continue;
        CHECK(job_ended(&j, r, 12));
        CHECK_EQ(0, seat->wrong);
        CHECK_EQ(world - count, seat->size);
        CHECK_EQ(place, seat->rank);
        CHECK_EQ(GW_PEER_LOST, seat->later);
        CHECK_EQ(GW_OK, seat->finalized);
        if (seat->wrong || seat->finalized) printf("    %s, rank %d: %s\n", strategy, r, seat->text);
        place++;
    }
    job_close(&j);
}

static void survivors_go_on(void) {
    kill_in_turn("transport=tcp", 4, (const int[]){2}, 1);
    kill_in_turn("transport=shm", 4, (const int[]){2}, 1);
    kill_in_turn("transport=tcp", 2, (const int[]){1}, 1);
}

static void twice_in_a_row_rank_0_included(void) {
    kill_in_turn("transport=tcp", 4, (const int[]){0, 2}, 2);
    kill_in_turn("transport=shm", 4, (const int[]){3, 0}, 2);
    kill_in_turn("transport=auto", 5, (const int[]){0, 1}, 2);
}

/* The second dies while the others agree about the first. */
static void two_at_once(void) {
    for (int t = 0; t < 2; t++) {
        job j = {.world = 6, .strategy = t ? "transport=shm" : "transport=tcp", .deadline_s = 3, .body = goes_on,
                 .kind = 4};
        job_start(&j);
        CHECK(job_all_reached(&j, 2, 10));
        kill(j.pid[0], SIGKILL);
        usleep(3000);
        kill(j.pid[4], SIGKILL);
        job_reap(&j, 0, 5);
        job_reap(&j, 4, 5);
        atomic_store(&j.shared->go, 1);
        for (int r = 1; r < 6; r++) {
            if (r == 4) continue;
            CHECK(job_ended(&j, r, 14));
            CHECK_EQ(0, j.shared->seat[r].wrong);
            CHECK_EQ(4, j.shared->seat[r].size);
            CHECK_EQ(GW_OK, j.shared->seat[r].finalized);
        }
        job_close(&j);
    }
}

/* Without these the links at distance 1, 2, 4, ... do not hold together: all that live must find each other. */
static void many_at_once(const char *strategy, int world, const int *victims, int count) {
    job j = {.world = world, .strategy = strategy, .deadline_s = 6, .body = goes_on, .kind = world - count};
    bool dead[JOB_RANKS_MAX] = {false};
    job_start(&j);
    CHECK(job_all_reached(&j, 2, 20));
    for (int v = 0; v < count; v++) kill(j.pid[victims[v]], SIGKILL);
    for (int v = 0; v < count; v++) {
        job_reap(&j, victims[v], 5);
        dead[victims[v]] = true;
    }
    atomic_store(&j.shared->go, 1);
    for (int r = 0, place = 0; r < world; r++) {
        const job_seat *seat = &j.shared->seat[r];
        if (dead[r]) continue;
        CHECK(job_ended(&j, r, 14));
        CHECK_EQ(0, seat->wrong);
        CHECK_EQ(world - count, seat->size);
        CHECK_EQ(place++, seat->rank);
        CHECK_EQ(GW_OK, seat->finalized);
        if (seat->wrong || seat->size != world - count) printf("    %d ranks, rank %d: %s\n", world, r, seat->text);
    }
    job_close(&j);
}

static void a_torn_graph_is_mended(void) {
    many_at_once("transport=tcp", 6, (const int[]){1, 4}, 2);
    many_at_once("transport=shm", 8, (const int[]){0, 3}, 2);
    many_at_once("transport=tcp", 8, (const int[]){2, 4, 7}, 3);
    many_at_once("transport=auto", 8, (const int[]){0, 1, 3, 5, 6}, 5);
    many_at_once("transport=tcp", 8, (const int[]){1, 2, 4, 6, 7}, 5);
}

/* Rank 0 waits in gw_shrink for rank 1, which never calls it, until another thread has had enough. */
static void *has_enough(void *comm) {
    usleep(100000);
    gw_abort(comm, "it takes too long");
    return NULL;
}

static void is_interrupted(gw_comm *comm, const job *j, job_seat *seat) {
    gw_comm *smaller = NULL;
    pthread_t thread;
    float in = 1, out;
    while (!job_failed(seat, comm, gw_allreduce(comm, &in, &out, 1, GW_F32, GW_SUM)))
        atomic_fetch_add(&seat->rounds, 1);
    if (j->me == 0) {
        pthread_create(&thread, NULL, has_enough, comm);
        seat->called_at = gw_clock_now();
        seat->later = gw_shrink(comm, &smaller);
        seat->failed_at = gw_clock_now();
        snprintf(seat->later_text, sizeof seat->later_text, "%s", gw_last_error(NULL));
        pthread_join(thread, NULL);
    } else {
        while (!atomic_load(&j->shared->go)) job_nap();
        seat->later = gw_shrink(comm, &smaller);
    }
    gw_finalize(comm);
}

static void an_abort_ends_it(void) {
    job j = {.world = 3, .strategy = "transport=tcp", .deadline_s = 20, .body = is_interrupted};
    job_start(&j);
    CHECK(job_all_reached(&j, 2, 10));
    kill(j.pid[2], SIGKILL);
    job_reap(&j, 2, 5);
    CHECK(job_ended(&j, 0, 8));
    const job_seat *seat = &j.shared->seat[0];
    CHECK_EQ(GW_ABORTED, seat->later);
    CHECK(strstr(seat->later_text, "it takes too long") != NULL);
    CHECK(seat->failed_at - seat->called_at < 5 * GW_SECOND);
    atomic_store(&j.shared->go, 1);
    CHECK(job_ended(&j, 1, 8)); /* it was told, too */
    CHECK_EQ(GW_ABORTED, j.shared->seat[1].later);
    job_close(&j);
}

/* Half of the ranks are stopped and neither answer nor are dead. They hold the lowest rank: nobody may go on. */
static void shrinks_alone(gw_comm *comm, const job *j, job_seat *seat) {
    gw_comm *smaller = NULL;
    float in = 1, out;
    (void)j;
    while (!job_failed(seat, comm, gw_allreduce(comm, &in, &out, 1, GW_F32, GW_SUM)))
        atomic_fetch_add(&seat->rounds, 1);
    seat->called_at = gw_clock_now();
    seat->later = gw_shrink(comm, &smaller);
    seat->failed_at = gw_clock_now();
    snprintf(seat->later_text, sizeof seat->later_text, "%s", seat->later ? gw_last_error(NULL) : "");
    seat->size = smaller ? gw_size(smaller) : 0;
    gw_finalize(smaller);
    gw_finalize(comm);
}

static void half_without_the_lowest_rank(const char *quorum) {
    job j = {.world = 4, .strategy = "transport=tcp", .deadline_s = JOB_SLOWER > 1 ? 5 : 3, .body = shrinks_alone};
    setenv("GRADWIRE_QUORUM", quorum, 1);
    job_start(&j);
    CHECK(job_all_reached(&j, 2, 10));
    kill(j.pid[0], SIGSTOP);
    kill(j.pid[1], SIGSTOP);
    for (int r = 2; r < 4; r++) {
        const job_seat *seat = &j.shared->seat[r];
        bool off = quorum[1] == 'f';
        CHECK(job_ended(&j, r, 20));
        CHECK_EQ(off, seat->later == GW_OK);
        CHECK_EQ(off ? 2 : 0, seat->size);
        CHECK(off || strstr(seat->later_text, "ranks that are not proved dead have come together") != NULL);
        CHECK(off || strstr(seat->later_text, "GRADWIRE_QUORUM=off") != NULL);
        CHECK((double)(seat->failed_at - seat->called_at) < 1.5e9 * j.deadline_s);
        if (!off) printf("    rank %d: %s\n", r, seat->later_text);
    }
    for (int r = 0; r < 2; r++) {
        kill(j.pid[r], SIGKILL);
        job_reap(&j, r, 5);
    }
    job_close(&j);
    unsetenv("GRADWIRE_QUORUM");
}

static void too_few_are_told_why(void) { half_without_the_lowest_rank("on"); }
static void too_few_go_on_if_they_are_to(void) { half_without_the_lowest_rank("off"); }

TEST_MAIN(CASE(survivors_go_on), CASE(twice_in_a_row_rank_0_included), CASE(two_at_once), CASE(a_torn_graph_is_mended),
          CASE(an_abort_ends_it), CASE(too_few_are_told_why), CASE(too_few_go_on_if_they_are_to))
