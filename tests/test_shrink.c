/* test_shrink.c - gw_shrink: after a death the survivors continue with a smaller communicator; and again after the
 * next. Jobs of real processes. */
#include "fault_job.h"

static bool reduces_right(gw_comm *comm, job_member *member) {
    enum { COUNT = 30000 };
    static float in[COUNT], out[COUNT];
    int size = gw_size(comm), rank = gw_rank(comm);
    for (int i = 0; i < COUNT; i++) in[i] = (float)(rank + 1 + i % 7);
    if (job_failed(member, comm, gw_allreduce(comm, in, out, COUNT, GW_F32, GW_SUM))) return false;
    for (int i = 0; i < COUNT; i++) member->wrong += out[i] != (float)(size * (size + 1) / 2 + size * (i % 7));
    atomic_fetch_add(&member->rounds, 1);
    return true;
}

/* All stop in the same round. */
static bool all_may_stop(gw_comm *comm, const job *j, job_member *member, bool *stop) {
    int32_t mine = atomic_load(&j->shared->go) && gw_size(comm) == j->kind, all = 0;
    if (job_failed(member, comm, gw_allreduce(comm, &mine, &all, 1, GW_I32, GW_MIN))) return false;
    *stop = all;
    return true;
}

/* Reduces until a rank dies, shrinks, and continues until the test stops it. */
static void goes_on(gw_comm *comm, const job *j, job_member *member) {
    gw_comm *comms[JOB_RANKS_MAX] = {comm};
    int shrunk = 0;
    for (bool stop = false; !stop;) {
        if (reduces_right(comms[shrunk], member) && all_may_stop(comms[shrunk], j, member, &stop)) continue;
        if (shrunk + 1 == JOB_RANKS_MAX) break;
        gw_status status = gw_shrink(comms[shrunk], &comms[shrunk + 1]);
        if (status) {
            snprintf(member->text, sizeof member->text, "shrink: %s", gw_last_error(NULL));
            member->wrong++;
            break;
        }
        member->shrunk = ++shrunk;
        member->size = gw_size(comms[shrunk]);
        member->rank = gw_rank(comms[shrunk]);
        atomic_store(&member->rounds, 0);
        job_call_again(member, comms[shrunk - 1]);
    }
    gw_status status = GW_OK;
    for (int i = 0; !status && i < 3; i++) status = gw_barrier(comms[shrunk]);
    member->finalized = status;
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
            while (!dead[r] && (j.shared->member[r].shrunk <= v || atomic_load(&j.shared->member[r].rounds) < 3) &&
                   gw_clock_now() < until)
                job_nap();
    }
    atomic_store(&j.shared->go, 1);
    int place = 0;
    for (int r = 0; r < world; r++) {
        const job_member *member = &j.shared->member[r];
        if (dead[r]) continue;
        CHECK(job_ended(&j, r, 12));
        CHECK_EQ(0, member->wrong);
        CHECK_EQ(world - count, member->size);
        CHECK_EQ(place, member->rank);
        CHECK_EQ(GW_PEER_LOST, member->later);
        CHECK_EQ(GW_OK, member->finalized);
        if (member->wrong || member->finalized) printf("    %s, rank %d: %s\n", strategy, r, member->text);
        place++;
    }
    job_close(&j);
}

static void survivors_continue(void) {
    kill_in_turn("transport=tcp", 4, (const int[]){2}, 1);
    kill_in_turn("transport=shm", 4, (const int[]){2}, 1);
    kill_in_turn("transport=tcp", 2, (const int[]){1}, 1);
}

static void twice_in_a_row_including_rank_0(void) {
    kill_in_turn("transport=tcp", 4, (const int[]){0, 2}, 2);
    kill_in_turn("transport=shm", 4, (const int[]){3, 0}, 2);
    kill_in_turn("transport=auto", 5, (const int[]){0, 1}, 2);
}

/* The second dies while the others agree about the first. */
static void two_deaths_at_once(void) {
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
            CHECK_EQ(0, j.shared->member[r].wrong);
            CHECK_EQ(4, j.shared->member[r].size);
            CHECK_EQ(GW_OK, j.shared->member[r].finalized);
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
        const job_member *member = &j.shared->member[r];
        if (dead[r]) continue;
        CHECK(job_ended(&j, r, 14));
        CHECK_EQ(0, member->wrong);
        CHECK_EQ(world - count, member->size);
        CHECK_EQ(place++, member->rank);
        CHECK_EQ(GW_OK, member->finalized);
        if (member->wrong || member->size != world - count)
            printf("    %d ranks, rank %d: %s\n", world, r, member->text);
    }
    job_close(&j);
}

static void a_torn_graph_is_repaired(void) {
    many_at_once("transport=tcp", 6, (const int[]){1, 4}, 2);
    many_at_once("transport=shm", 8, (const int[]){0, 3}, 2);
    many_at_once("transport=tcp", 8, (const int[]){2, 4, 7}, 3);
    many_at_once("transport=auto", 8, (const int[]){0, 1, 3, 5, 6}, 5);
    many_at_once("transport=tcp", 8, (const int[]){1, 2, 4, 6, 7}, 5);
}

/* Rank 0 waits in gw_shrink for rank 1, which never calls it, until another thread aborts. */
static void *has_enough(void *comm) {
    usleep(100000);
    gw_abort(comm, "it takes too long");
    return NULL;
}

static void is_interrupted(gw_comm *comm, const job *j, job_member *member) {
    gw_comm *smaller = NULL;
    pthread_t thread;
    float in = 1, out;
    while (!job_failed(member, comm, gw_allreduce(comm, &in, &out, 1, GW_F32, GW_SUM)))
        atomic_fetch_add(&member->rounds, 1);
    if (j->me == 0) {
        pthread_create(&thread, NULL, has_enough, comm);
        member->called_at = gw_clock_now();
        member->later = gw_shrink(comm, &smaller);
        member->failed_at = gw_clock_now();
        snprintf(member->later_text, sizeof member->later_text, "%s", gw_last_error(NULL));
        pthread_join(thread, NULL);
    } else {
        while (!atomic_load(&j->shared->go)) job_nap();
        member->later = gw_shrink(comm, &smaller);
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
    const job_member *member = &j.shared->member[0];
    CHECK_EQ(GW_ABORTED, member->later);
    CHECK(strstr(member->later_text, "it takes too long") != NULL);
    CHECK(member->failed_at - member->called_at < 5 * GW_SECOND);
    atomic_store(&j.shared->go, 1);
    CHECK(job_ended(&j, 1, 8)); /* it got the report, too */
    CHECK_EQ(GW_ABORTED, j.shared->member[1].later);
    job_close(&j);
}

/* Half of the ranks, with the lowest, are stopped: they neither answer nor are dead. No rank may continue. */
static void shrinks_alone(gw_comm *comm, const job *j, job_member *member) {
    gw_comm *smaller = NULL;
    float in = 1, out;
    (void)j;
    while (!job_failed(member, comm, gw_allreduce(comm, &in, &out, 1, GW_F32, GW_SUM)))
        atomic_fetch_add(&member->rounds, 1);
    member->called_at = gw_clock_now();
    member->later = gw_shrink(comm, &smaller);
    member->failed_at = gw_clock_now();
    snprintf(member->later_text, sizeof member->later_text, "%s", member->later ? gw_last_error(NULL) : "");
    member->size = smaller ? gw_size(smaller) : 0;
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
        const job_member *member = &j.shared->member[r];
        bool off = quorum[1] == 'f';
        CHECK(job_ended(&j, r, 20));
        CHECK_EQ(off, member->later == GW_OK);
        CHECK_EQ(off ? 2 : 0, member->size);
        CHECK(off || strstr(member->later_text, "ranks that are not proved dead have come together") != NULL);
        CHECK(off || strstr(member->later_text, "GRADWIRE_QUORUM=off") != NULL);
        CHECK((double)(member->failed_at - member->called_at) < 1.5e9 * j.deadline_s);
        if (!off) printf("    rank %d: %s\n", r, member->later_text);
    }
    for (int r = 0; r < 2; r++) {
        kill(j.pid[r], SIGKILL);
        job_reap(&j, r, 5);
    }
    job_close(&j);
    unsetenv("GRADWIRE_QUORUM");
}

static void too_few_survivors_get_the_reason(void) { half_without_the_lowest_rank("on"); }
static void too_few_continue_without_a_quorum(void) { half_without_the_lowest_rank("off"); }

TEST_MAIN(CASE(survivors_continue), CASE(twice_in_a_row_including_rank_0), CASE(two_deaths_at_once),
          CASE(a_torn_graph_is_repaired), CASE(an_abort_ends_it), CASE(too_few_survivors_get_the_reason),
          CASE(too_few_continue_without_a_quorum))
