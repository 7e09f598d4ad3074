/* test_faults.c - no hangs, no wrong errors: jobs of real processes, one of which is killed, stopped, late, leaves, or
 * calls something else. The others return the right error in time, and it names that rank. */
#include "fault_job.h"

/* From kill -9 to the error on every survivor; a second where a library is the transport. */
static double kill_ms(void) { return (getenv("TEST_STRATEGY") ? 1000 : 200) * JOB_SLOWER * test_slowdown(); }

/* Input, followed by space for the result. */
static float *buffer(gw_comm *comm, const job *j) {
    float *data = gw_alloc(comm, 2 * (j->count + 1) * sizeof *data);
    if (!data) abort();
    for (size_t i = 0; i < j->count; i++) data[i] = (float)(j->me + 1);
    return data;
}

static double ms_between(gw_time from, gw_time to) { return ((double)to - (double)from) / 1e6; }

static bool sum_is_right(const job *j, const float *in) {
    const float *data = in + j->count;
    float right = (float)(j->world * (j->world + 1) / 2);
    return data[0] == right && data[j->count / 2] == right && data[j->count - 1] == right;
}

/* One all-reduce, checked. */
static bool reduce_fails(gw_comm *comm, const job *j, job_member *member, float *data) {
    if (job_failed(member, comm, gw_allreduce(comm, data, data + j->count, j->count, GW_F32, GW_SUM))) return true;
    member->wrong += !sum_is_right(j, data);
    atomic_fetch_add(&member->rounds, 1);
    return false;
}

static void wind_up(gw_comm *comm, job_member *member, float *data) {
    job_call_again(member, comm);
    gw_free(comm, data);
    member->finalized = gw_finalize(comm);
}

/* Bodies of the kill tests. */

static void reduces_for_ever(gw_comm *comm, const job *j, job_member *member) {
    float *data = buffer(comm, j);
    while (!reduce_fails(comm, j, member, data)) {}
    wind_up(comm, member, data);
}

static void reduces_and_computes(gw_comm *comm, const job *j, job_member *member) {
    float *data = buffer(comm, j);
    while (!reduce_fails(comm, j, member, data))
        for (gw_time until = gw_clock_now() + 20 * GW_MILLISECOND; gw_clock_now() < until;) {}
    wind_up(comm, member, data);
}

static void starts_and_computes(gw_comm *comm, const job *j, job_member *member) {
    float *data = buffer(comm, j);
    gw_status status = GW_OK;
    do {
        gw_request *request = NULL;
        bool done = false;
        status = gw_allreduce_start(comm, data, data + j->count, j->count, GW_F32, GW_SUM, &request);
        while (!status && !done) {
            usleep(100);
            status = gw_test(request, &done);
        }
        if (!status) atomic_fetch_add(&member->rounds, 1);
    } while (!status);
    job_failed(member, comm, status);
    wind_up(comm, member, data);
}

static void idles(gw_comm *comm, const job *j, job_member *member) {
    float *data = buffer(comm, j);
    bool failed = reduce_fails(comm, j, member, data);
    while (!failed && !atomic_load(&j->shared->go)) usleep(1000);
    member->called_at = gw_clock_now();
    if (!failed) reduce_fails(comm, j, member, data);
    wind_up(comm, member, data);
}

/* The error that every survivor must get. */
static void check_reported(const job *j, int rank, gw_status status, const char *named) {
    const job_member *member = &j->shared->member[rank];
    CHECK_EQ(status, member->status);
    CHECK_EQ(status, member->later);
    CHECK_STR(member->text, member->later_text);
    CHECK_EQ(0, member->wrong);
    if (!strstr(member->text, named)) {
        test_failures++;
        printf("    rank %d was told \"%s\", which does not name \"%s\"\n", rank, member->text, named);
    }
}

static void check_flight(const job *j, int rank) {
    char path[256] = "", line[512] = "", all[16384] = "";
    CHECK_EQ(1, job_flights(j, rank, path, sizeof path));
    FILE *file = fopen(path, "r");
    CHECK(file != NULL);
    while (file && fgets(line, sizeof line, file) && strlen(all) + sizeof line < sizeof all) strcat(all, line);
    if (file) fclose(file);
    CHECK(strstr(all, j->shared->member[rank].text) != NULL);
    CHECK(strstr(all, "last operations") != NULL);
    CHECK(strstr(all, "allreduce of") != NULL);
    CHECK(strstr(job_errors(j, rank), path) != NULL);
}

/* Kills the victim when all have done some rounds; prints and returns how long the slowest survivor took, ms. */
static double kill_once(job *j, const char *what) {
    char named[32];
    double worst = 0;
    job_start(j);
    CHECK(job_all_reached(j, 3, 15));
    usleep(7000);
    gw_time killed = gw_clock_now();
    kill(j->pid[j->victim], SIGKILL);
    job_reap(j, j->victim, 5);
    if (j->body == idles) {
        usleep(150000);
        atomic_store(&j->shared->go, 1);
    }
    snprintf(named, sizeof named, "rank %d on ", j->victim);
    for (int r = 0; r < j->world; r++) {
        if (r == j->victim) continue;
        CHECK(job_ended(j, r, 8));
        check_reported(j, r, GW_PEER_LOST, named);
        CHECK_EQ(GW_PEER_LOST, j->shared->member[r].finalized);
        gw_time from = j->body == idles ? j->shared->member[r].called_at : killed;
        double took = ms_between(from, j->shared->member[r].failed_at);
        if (took > worst) worst = took;
        check_flight(j, r);
    }
    printf("    %s, %d ranks, %s: %.1f ms\n", j->strategy, j->world, what, worst);
    job_close(j);
    return worst;
}

static void kill_one(job *j, const char *what) { CHECK_IN_SOME_TRY(kill_once(j, what) <= kill_ms()); }

static const char *const transports[] = {"transport=tcp", "transport=shm", "transport=auto"};

static void killed_in_mid_reduce(void) {
    for (int t = 0; t < 3; t++) {
        kill_one(&(job){.world = 4, .strategy = transports[t], .deadline_s = 10, .body = reduces_for_ever,
                        .count = 4000000, .victim = 2}, "kill of rank 2 in a large reduce");
        kill_one(&(job){.world = 4, .strategy = transports[t], .deadline_s = 10, .body = reduces_for_ever,
                        .count = 1000, .victim = 0}, "kill of rank 0 in a small reduce");
    }
    kill_one(&(job){.world = 2, .strategy = "transport=tcp", .deadline_s = 10, .body = reduces_for_ever,
                    .count = 1000000, .victim = 1}, "kill of rank 1");
    for (int t = 0; t < 2; t++)
        kill_one(&(job){.world = 8, .strategy = transports[t], .deadline_s = 10, .body = reduces_for_ever,
                        .count = 300000, .victim = 5}, "kill of rank 5");
}

static void killed_while_others_compute(void) {
    for (int t = 0; t < 2; t++) {
        kill_one(&(job){.world = 4, .strategy = transports[t], .deadline_s = 10, .body = reduces_and_computes,
                        .count = 100000, .victim = 1}, "kill while computing");
        kill_one(&(job){.world = 4, .strategy = transports[t], .deadline_s = 10, .body = starts_and_computes,
                        .count = 500000, .victim = 3}, "kill under asynchronous calls");
    }
}

/* How long the next call of the slowest survivor took, ms. */
static double kill_in_a_pause(const char *transport) {
    job j = {.world = 4, .strategy = transport, .deadline_s = 10, .body = idles, .count = 1000, .victim = 3};
    double worst = 0;
    job_start(&j);
    CHECK(job_all_reached(&j, 1, 15));
    kill(j.pid[3], SIGKILL);
    job_reap(&j, 3, 5);
    usleep(150000);
    atomic_store(&j.shared->go, 1);
    for (int r = 0; r < 3; r++) {
        CHECK(job_ended(&j, r, 8));
        check_reported(&j, r, GW_PEER_LOST, "rank 3 on ");
        double took = ms_between(j.shared->member[r].called_at, j.shared->member[r].failed_at);
        if (took > worst) worst = took;
    }
    job_close(&j);
    return worst;
}

static void killed_while_idle(void) {
    for (int t = 0; t < 2; t++) CHECK_IN_SOME_TRY(kill_in_a_pause(transports[t]) < 50 * JOB_SLOWER * test_slowdown());
}

/* Stopped, and late. */

static void stopped_until_the_deadline(void) {
    for (int t = 0; t < 2; t++) {
        job j = {.world = 4, .strategy = transports[t], .deadline_s = 2, .body = reduces_for_ever, .count = 200000,
                 .victim = 1};
        double worst = 0, best = 1e9;
        job_start(&j);
        CHECK(job_all_reached(&j, 3, 15));
        gw_time stopped = gw_clock_now();
        kill(j.pid[1], SIGSTOP);
        for (int r = 0; r < 4; r++) {
            if (r == 1) continue;
            CHECK(job_ended(&j, r, 6));
            gw_status status = j.shared->member[r].status;
            CHECK(status == GW_TIMEOUT || status == GW_PEER_LOST);
            check_reported(&j, r, status, "rank 1 on ");
            double took = ms_between(stopped, j.shared->member[r].failed_at);
            if (took > worst) worst = took;
            if (took < best) best = took;
        }
        kill(j.pid[1], SIGCONT);
        CHECK(job_ended(&j, 1, 8));
        CHECK(j.shared->member[1].status != GW_OK);
        CHECK(j.shared->member[1].text[0] != 0);
        printf("    %s, stop of rank 1, deadline 2 s: %.0f to %.0f ms; it was told \"%s\"\n", j.strategy, best, worst,
               j.shared->member[1].text);
        CHECK(worst < 2000 + TEST_SLACK_MS && best > 1000); /* it counts since the last heartbeat */
        job_close(&j);
    }
}

static void is_late_once(gw_comm *comm, const job *j, job_member *member) {
    float *data = buffer(comm, j);
    reduce_fails(comm, j, member, data);
    if (j->me == j->victim) usleep((useconds_t)(j->deadline_s * 0.65e6));
    reduce_fails(comm, j, member, data);
    gw_free(comm, data);
    member->finalized = gw_finalize(comm);
}

static void late_is_not_dead(void) {
    for (int t = 0; t < 2; t++) {
        job j = {.world = 4, .strategy = transports[t], .deadline_s = 5, .body = is_late_once, .count = 5000,
                 .victim = 2};
        job_start(&j);
        int said = 0;
        for (int r = 0; r < 4; r++) {
            CHECK(job_ended(&j, r, 10));
            CHECK_EQ(GW_OK, j.shared->member[r].status);
            CHECK_EQ(2, j.shared->member[r].rounds);
            CHECK_EQ(0, j.shared->member[r].wrong);
            CHECK_EQ(GW_OK, j.shared->member[r].finalized);
            said += strstr(job_errors(&j, r), "rank 2 on ") && strstr(job_errors(&j, r), "is slow");
        }
        CHECK(said >= 1);
        CHECK_EQ(0, job_flights(&j, -1, NULL, 0));
        job_close(&j);
    }
}

/* Ranks that disagree. */

enum { OTHER_COUNT, OTHER_TYPE, OTHER_OP, OTHER_ROOT, OTHER_COLLECTIVE, DISAGREEMENTS };

static gw_status one_call(gw_comm *comm, const job *j, void *in, void *out, bool odd) {
    size_t n = j->count;
    switch (j->kind) {
    case OTHER_COUNT: return gw_allreduce(comm, in, out, n - (odd ? 1 : 0), GW_F32, GW_SUM);
    case OTHER_TYPE: return gw_allreduce(comm, in, out, n, odd ? GW_I32 : GW_F32, GW_SUM);
    case OTHER_OP: return gw_allreduce(comm, in, out, n, GW_F32, odd ? GW_MAX : GW_SUM);
    case OTHER_ROOT: return gw_broadcast(comm, in, out, n, GW_F32, odd ? 1 : 0);
    default: return odd ? gw_broadcast(comm, in, out, n, GW_F32, 0) : gw_allreduce(comm, in, out, n, GW_F32, GW_SUM);
    }
}

static void disagrees(gw_comm *comm, const job *j, job_member *member) {
    float *in = buffer(comm, j), *out = buffer(comm, j);
    gw_status status = GW_OK;
    if (!reduce_fails(comm, j, member, in)) {
        status = one_call(comm, j, in, out, j->me == j->victim);
        if (!status) status = gw_barrier(comm); /* a rank that only sends learns of it with its next call */
        job_failed(member, comm, status);
    }
    gw_free(comm, in);
    wind_up(comm, member, out);
}

static void disagreement(const char *strategy, int kind, size_t count, int world) {
    static const char *const odd[] = {"", " x i32", ", max", "root 1", "broadcast"};
    job j = {.world = world, .strategy = strategy, .deadline_s = 5, .body = disagrees, .count = count, .kind = kind,
             .victim = world - 1};
    char counted[32];
    snprintf(counted, sizeof counted, "of %zu x", count - 1);
    job_start(&j);
    for (int r = 0; r < world; r++) {
        CHECK(job_ended(&j, r, 10));
        int before = test_failures;
        check_reported(&j, r, GW_MISMATCH, kind == OTHER_COUNT ? counted : odd[kind]);
        CHECK(strstr(j.shared->member[r].text, kind == OTHER_ROOT ? "root 0" : ", sum") || kind == OTHER_TYPE ||
              kind == OTHER_COUNT);
        if (test_failures > before)
            printf("    %s, kind %d, %zu elements, rank %d of %d: %s\n", strategy, kind, count, r, world,
                   j.shared->member[r].text);
    }
    job_close(&j);
}

static void mismatch_on_all_ranks(void) {
    static const size_t counts[] = {5, 1000000};
    for (int t = 0; t < 2; t++)
        for (int kind = 0; kind < DISAGREEMENTS; kind++)
            for (int c = 0; c < 2; c++) disagreement(transports[t], kind, counts[c], 4);
    disagreement("transport=shm arch=ring", OTHER_COUNT, 1000000, 4);
    disagreement("transport=tcp arch=halving", OTHER_TYPE, 100, 2);
    disagreement("transport=auto", OTHER_OP, 100, 8);
}

/* Leaving early, not coming, leaving without a word. */

static void leaves_early(gw_comm *comm, const job *j, job_member *member) {
    float *data = buffer(comm, j);
    while (!(j->me == j->victim && atomic_load(&member->rounds) == 3) && !reduce_fails(comm, j, member, data)) {}
    if (j->me == j->victim) member->called_at = gw_clock_now();
    if (j->me == j->victim && j->kind) exit(0); /* without gw_finalize */
    if (j->me != j->victim) job_call_again(member, comm);
    gw_free(comm, data);
    member->finalized = gw_finalize(comm);
}

static double leave_once(const char *transport, int victim, int kind) {
    job j = {.world = 4, .strategy = transport, .deadline_s = 8, .body = leaves_early, .count = 50000,
             .victim = victim, .kind = kind};
    char named[32];
    double worst = 0;
    snprintf(named, sizeof named, "rank %d on ", victim);
    job_start(&j);
    for (int r = 0; r < 4; r++) {
        if (r == victim) continue;
        CHECK(job_ended(&j, r, 10));
        check_reported(&j, r, GW_PEER_LOST, named);
        CHECK(j.shared->member[r].rounds <= 3); /* the quickest to notice ends the job for all */
        double took = ms_between(j.shared->member[victim].called_at, j.shared->member[r].failed_at);
        if (took > worst) worst = took;
    }
    printf("    %s, rank %d %s: %.1f ms: %s\n", j.strategy, victim, kind ? "exits" : "finalises", worst,
           j.shared->member[1].text);
    job_close(&j);
    return worst;
}

static void leave(int kind) {
    for (int t = 0; t < 2; t++)
        for (int victim = 0; victim < 4; victim += 3)
            CHECK_IN_SOME_TRY(leave_once(transports[t], victim, kind) < 500 * JOB_SLOWER * test_slowdown());
}

static void one_leaves_early(void) { leave(0); }
static void one_exits_early(void) { leave(1); }

static void one_never_comes(void) {
    for (int absent = 0; absent < 2; absent++) {
        job j = {.world = 4, .strategy = "transport=tcp", .deadline_s = 1.5, .body = reduces_for_ever, .count = 10,
                 .absent = 1 + 2 * absent};
        char named[16];
        snprintf(named, sizeof named, "rank %d", 2 * absent);
        job_start(&j);
        for (int r = 0; r < 4; r++) {
            if (r == 2 * absent) continue;
            const job_member *member = &j.shared->member[r];
            CHECK(job_ended(&j, r, 6));
            CHECK(member->status != GW_OK && !atomic_load(&member->joined));
            if (!strstr(member->text, named)) {
                test_failures++;
                printf("    rank %d was told \"%s\"\n", r, member->text);
            }
            double took = ms_between(member->called_at, member->failed_at);
            CHECK(took > 1000 && took < 1500 + TEST_SLACK_MS);
        }
        job_close(&j);
    }
}

static void ends_at_once(gw_comm *comm, const job *j, job_member *member) {
    float *data = buffer(comm, j);
    reduce_fails(comm, j, member, data);
    reduce_fails(comm, j, member, data);
    if (j->kind) return; /* no gw_finalize */
    gw_free(comm, data);
    member->finalized = gw_finalize(comm);
}

/* The quickest leaves while others still finish the last collective: that is no error. */
static void leaving_after_the_last_call_is_fine(void) {
    for (int round = 0; round < 6; round++)
        for (int t = 0; t < 2; t++) {
            job j = {.world = round % 2 ? 8 : 3, .strategy = transports[t], .deadline_s = 8, .body = ends_at_once,
                     .count = round < 3 ? 700000 : 3000, .kind = round == 2};
            job_start(&j);
            for (int r = 0; r < j.world; r++) {
                CHECK(job_ended(&j, r, 15));
                CHECK_EQ(0, j.shared->member[r].wrong);
                if (j.kind) continue; /* an exit without gw_finalize looks like a kill */
                CHECK_EQ(GW_OK, j.shared->member[r].finalized);
                CHECK_STR("", j.shared->member[r].text);
            }
            if (!j.kind) CHECK_EQ(0, job_flights(&j, -1, NULL, 0));
            job_close(&j);
        }
}

/* gw_finalize completes started operations, although no call waits for them. */

static void starts_and_finalizes(gw_comm *comm, const job *j, job_member *member) {
    static gw_request *requests[3]; /* the caller's to wait for: never freed */
    float *data = malloc(2 * (j->count + 1) * sizeof *data);
    for (size_t i = 0; i < j->count; i++) data[i] = (float)(j->me + 1);
    for (int i = 0; i < 3; i++)
        if (gw_allreduce_start(comm, data, data + j->count, j->count, GW_F32, GW_SUM, &requests[i])) member->wrong++;
    member->finalized = gw_finalize(comm);
    member->wrong += !sum_is_right(j, data);
    free(data);
}

static void finalize_waits_for_started_operations(void) {
    for (int t = 0; t < 2; t++) {
        job j = {.world = 4, .strategy = transports[t], .deadline_s = 8, .body = starts_and_finalizes, .count = 400000};
        job_start(&j);
        for (int r = 0; r < 4; r++) {
            CHECK(job_ended(&j, r, 10));
            CHECK_EQ(0, j.shared->member[r].wrong);
            CHECK_EQ(GW_OK, j.shared->member[r].finalized);
        }
        job_close(&j);
    }
}

/* gw_abort from another thread. */

typedef struct voice {
    gw_comm *comm;
    job_member *member;
} voice;

static void *abort_soon(void *argument) {
    voice *v = argument;
    usleep(100000);
    v->member->called_at = gw_clock_now();
    gw_abort(v->comm, "the loss is not a number");
    return NULL;
}

static void aborts_while_waiting(gw_comm *comm, const job *j, job_member *member) {
    float *data = buffer(comm, j);
    pthread_t thread;
    voice v = {comm, member};
    reduce_fails(comm, j, member, data);
    if (j->me == j->victim) { /* does not call the collective; its other thread aborts */
        pthread_create(&thread, NULL, abort_soon, &v);
        pthread_join(thread, NULL);
    } else if (j->me == (j->victim + 1) % j->world) {
        pthread_create(&thread, NULL, abort_soon, &v); /* a second voice, from a rank that itself waits */
    }
    reduce_fails(comm, j, member, data);
    if (j->me == (j->victim + 1) % j->world) pthread_join(thread, NULL);
    wind_up(comm, member, data);
}

static double abort_once(const char *transport) {
    job j = {.world = 4, .strategy = transport, .deadline_s = 8, .body = aborts_while_waiting, .count = 100000,
             .victim = 2};
    double worst = 0;
    job_start(&j);
    const job_member *members = j.shared->member;
    for (int r = 0; r < 4; r++) CHECK(job_ended(&j, r, 10)); /* all, before their times are compared */
    for (int r = 0; r < 4; r++) {
        check_reported(&j, r, GW_ABORTED, "the loss is not a number");
        gw_time first = members[2].called_at < members[3].called_at ? members[2].called_at : members[3].called_at;
        double took = ms_between(first, members[r].failed_at);
        if (took > worst) worst = took;
    }
    printf("    %s: %.1f ms\n", j.strategy, worst);
    job_close(&j);
    return worst;
}

static void abort_from_another_thread(void) {
    for (int t = 0; t < 2; t++) CHECK_IN_SOME_TRY(abort_once(transports[t]) < kill_ms());
}

TEST_MAIN(CASE(killed_in_mid_reduce), CASE(killed_while_others_compute), CASE(killed_while_idle),
          CASE(stopped_until_the_deadline), CASE(late_is_not_dead), CASE(mismatch_on_all_ranks), CASE(one_leaves_early),
          CASE(one_exits_early), CASE(one_never_comes), CASE(leaving_after_the_last_call_is_fine),
          CASE(finalize_waits_for_started_operations), CASE(abort_from_another_thread))
