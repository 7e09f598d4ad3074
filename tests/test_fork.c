/* test_fork.c - ranks that have forked children: a kill is noticed although a child lives on, a child does no harm, and
 * the end of another process is not mistaken for the end of a rank. */
#include "fault_job.h"

#include <dirent.h>
#include <poll.h>
#include <sys/syscall.h>

#include "base/fork_descriptors.h"
#include "base/process.h"
#include "gradwire/reducer.h"
#include "gradwire/trace.h"

#define NOTICED_MS 2000 /* of a deadline of 10 s: connections that a child keeps would be noticed after that */

static double ms_between(gw_time from, gw_time to) { return ((double)to - (double)from) / 1e6; }

static bool reduce_fails(gw_comm *comm, job_member *member, size_t count) {
    float *in = calloc(2 * count, sizeof *in), *out = in + count;
    for (size_t i = 0; i < count; i++) in[i] = 1;
    bool failed = job_failed(member, comm, gw_allreduce(comm, in, out, count, GW_F32, GW_SUM));
    if (!failed) {
        member->wrong += out[0] != (float)gw_size(comm) || out[count - 1] != out[0];
        atomic_fetch_add(&member->rounds, 1);
    }
    free(in);
    return failed;
}

/* Children. */

enum { BY_FORK, BEHIND_OUR_BACK };

/* A bare clone system call runs no fork handlers, so the child has all descriptors. */
static pid_t make_child(int how) {
    return how == BY_FORK ? fork() : (pid_t)syscall(SYS_clone, SIGCHLD, NULL, NULL, NULL, NULL);
}

static void sleeper(job_member *member, int how) {
    pid_t child = make_child(how);
    if (child == 0) {
        alarm(40);
        for (;;) pause();
    }
    atomic_store(&member->child, child);
}

static void reduces_with_a_child(gw_comm *comm, const job *j, job_member *member) {
    bool failed = reduce_fails(comm, member, j->count);
    sleeper(member, j->kind);
    while (!failed) failed = reduce_fails(comm, member, j->count);
    kill(atomic_load(&member->child), SIGKILL);
    member->finalized = gw_finalize(comm);
}

static void kill_one(int world, const char *strategy, int how) {
    job j = {.world = world, .strategy = strategy, .deadline_s = 10, .body = reduces_with_a_child, .count = 100000,
             .victim = world / 2, .kind = how};
    char named[32];
    double worst = 0;
    snprintf(named, sizeof named, "rank %d on ", j.victim);
    job_start(&j);
    CHECK(job_all_reached(&j, 5, 20));
    gw_time killed = gw_clock_now();
    kill(j.pid[j.victim], SIGKILL);
    for (int r = 0; r < world; r++) {
        const job_member *member = &j.shared->member[r];
        if (r == j.victim) continue;
        CHECK(job_ended(&j, r, 15));
        CHECK_EQ(GW_PEER_LOST, member->status);
        CHECK(strstr(member->text, named) != NULL);
        CHECK_EQ(0, member->wrong);
        double took = ms_between(killed, member->failed_at);
        if (took > worst) worst = took;
    }
    printf("    %s, %d ranks, %s: %.1f ms\n", strategy, world, how ? "clone" : "fork", worst);
    CHECK(worst < NOTICED_MS * JOB_SLOWER);
    kill(atomic_load(&j.shared->member[j.victim].child), SIGKILL);
    job_reap(&j, j.victim, 5); /* not before: a zombie must count as ended, too */
    job_close(&j);
}

static void killed_while_its_child_lives(void) {
    for (int world = 2; world <= 8; world *= 2) {
        kill_one(world, "transport=tcp", BY_FORK);
        kill_one(world, "transport=shm", BY_FORK);
    }
}

static void killed_while_a_child_keeps_its_sockets(void) {
    kill_one(2, "transport=tcp", BEHIND_OUR_BACK);
    kill_one(8, "transport=tcp", BEHIND_OUR_BACK);
    kill_one(4, "transport=shm", BEHIND_OUR_BACK);
}

/* What a child may call. */

static int open_sockets(void) {
    int count = 0;
    char path[64], target[64] = "";
    DIR *folder = opendir("/proc/self/fd");
    for (struct dirent *entry; folder && (entry = readdir(folder));) {
        snprintf(path, sizeof path, "/proc/self/fd/%.20s", entry->d_name);
        ssize_t got = readlink(path, target, sizeof target - 1);
        target[got > 0 ? got : 0] = 0;
        count += strncmp(target, "socket:", 7) == 0 || strstr(target, "eventpoll") != NULL;
    }
    if (folder) closedir(folder);
    return count;
}

static int refused(gw_status status, const gw_comm *comm) {
    return status != GW_INVALID || !strstr(gw_last_error(comm), "was forked from rank ");
}

/* How many calls were not refused as they are to be. */
static int call_all(gw_comm *comm, gw_reducer *reducer, gw_request *request) {
    float x = 1, y = 0;
    bool done;
    gw_comm *other = NULL;
    gw_reducer *made = NULL;
    gw_reducer_tensor tensor = {.name = "t", .count = 1, .dtype = GW_F32, .gradient = &x};
    int wrong = 0;
    wrong += refused(gw_allreduce(comm, &x, &y, 1, GW_F32, GW_SUM), comm);
    wrong += refused(gw_broadcast(comm, &x, &y, 1, GW_F32, 0), comm);
    wrong += refused(gw_barrier(comm), comm);
    wrong += refused(gw_wait(request), comm);
    wrong += refused(gw_test(request, &done), comm);
    wrong += refused(gw_comm_split(comm, 0, 0, &other), comm);
    wrong += refused(gw_abort(comm, "a child says so"), comm);
    wrong += refused(gw_shrink(comm, &other), comm);
    wrong += refused(gw_regroup(comm, &other), comm);
    wrong += refused(gw_group_start(comm), comm);
    wrong += refused(gw_group_end(comm), comm);
    wrong += refused(gw_trace_start(comm, "/tmp/none", NULL), comm);
    wrong += refused(gw_trace_stop(comm), comm);
    wrong += refused(gw_reducer_ready(reducer, 0), comm);
    wrong += refused(gw_reducer_wait(reducer, 0), comm);
    wrong += refused(gw_reducer_end(reducer), comm);
    wrong += refused(gw_reducer_flush(reducer), comm);
    wrong += refused(gw_reducer_leave(reducer), comm);
    wrong += refused(gw_reducer_commit(&made, comm, &tensor, 1, NULL), comm);
    wrong += gw_alloc(comm, 100) != NULL;
    wrong += y != 0 || other || made;
    gw_reducer_close(reducer);
    wrong += refused(gw_finalize(comm), comm);
    return wrong + (getenv("TEST_STRATEGY") ? 0 : open_sockets()); /* libraries keep their own */
}

/* The leak sanitizer looks for the parent's threads, which do not run in a child, and calls their memory lost. */
static void end_child(int code) {
    if (JOB_SLOWER > 1) _exit(code);
    exit(code);
}

/* kind 1: the child calls everything; 0: it only exits, with all that runs at exit. */
static void goes_on_after_a_child(gw_comm *comm, const job *j, job_member *member) {
    float gradient = 1, in = 1, out = 0;
    int status = -1;
    gw_reducer *reducer = NULL;
    gw_request *request = NULL;
    gw_reducer_tensor tensor = {.name = "t", .count = 1, .dtype = GW_F32, .gradient = &gradient};
    float *shared = gw_alloc(comm, 4096);
    bool failed = job_failed(member, comm, gw_reducer_commit(&reducer, comm, &tensor, 1, NULL)) ||
                  job_failed(member, comm, gw_allreduce_start(comm, &in, &out, 1, GW_F32, GW_SUM, &request));
    fflush(NULL);
    pid_t child = fork();
    if (child == 0) {
        alarm(20);
        end_child(j->kind ? call_all(comm, reducer, request) : 0);
    }
    if (waitpid(child, &status, 0) != child || status != 0) member->wrong += 100 + status;
    failed = failed || job_failed(member, comm, gw_wait(request));
    for (int i = 0; i < 20 && !failed; i++) failed = reduce_fails(comm, member, j->count);
    gw_free(comm, shared);
    gw_reducer_close(reducer);
    member->finalized = gw_finalize(comm);
}

static void expect_all_well(job *j) {
    job_start(j);
    for (int r = 0; r < j->world; r++) {
        const job_member *member = &j->shared->member[r];
        CHECK(job_ended(j, r, 30));
        CHECK_STR("", member->text);
        CHECK_EQ(0, member->wrong);
        CHECK_EQ(GW_OK, member->finalized);
        CHECK(!strstr(job_errors(j, r), "is gone"));
    }
    job_close(j);
}

static void child_is_refused(void) {
    expect_all_well(&(job){.world = 3, .strategy = "transport=tcp", .deadline_s = 10, .body = goes_on_after_a_child,
                           .count = 5000, .kind = 1});
    expect_all_well(&(job){.world = 3, .strategy = "transport=shm", .deadline_s = 10, .body = goes_on_after_a_child,
                           .count = 5000, .kind = 1});
}

static void child_that_exits_does_no_harm(void) {
    expect_all_well(&(job){.world = 4, .strategy = "transport=auto", .deadline_s = 10, .body = goes_on_after_a_child,
                           .count = 100000});
    expect_all_well(&(job){.world = 2, .strategy = "transport=tcp", .deadline_s = 10, .body = goes_on_after_a_child,
                           .count = 100000});
}

/* The end of a process. */

static void leaves_before_the_others(gw_comm *comm, const job *j, job_member *member) {
    reduce_fails(comm, member, j->count);
    if (j->me % 2) usleep(1500000); /* longer than the grace for last messages of an ended process */
    member->finalized = gw_finalize(comm);
}

/* Eight, so that some are no neighbours of each other in the control plane. */
static void a_rank_that_left_is_not_dead(void) {
    expect_all_well(&(job){.world = 8, .strategy = "transport=tcp", .deadline_s = 10, .body = leaves_before_the_others,
                           .count = 100});
}

static void aborts_and_dies(gw_comm *comm, const job *j, job_member *member) {
    reduce_fails(comm, member, j->count);
    if (j->me == j->victim) {
        while (!atomic_load(&j->shared->go)) usleep(500);
        gw_abort(comm, "the loss is not a number");
        raise(SIGKILL);
    }
    while (!reduce_fails(comm, member, j->count)) {}
    member->finalized = gw_finalize(comm);
}

static void signal_neighbours(const job *j, int number) {
    for (int r = 0; r < j->world; r++) {
        int distance = abs(r - j->victim);
        if (distance != 0 && distance != 3 && distance != 5) kill(j->pid[r], number);
    }
}

/* Of eight ranks those at distance 3 get an abort through others, which are stopped until its sender is dead. */
static void last_messages_are_read_first(void) {
    for (int round = 0; round < 4; round++) {
        job j = {.world = 8, .strategy = "transport=tcp", .deadline_s = 10, .body = aborts_and_dies, .count = 100,
                 .victim = round};
        job_start(&j);
        CHECK(job_all_reached(&j, 1, 20));
        if (round % 2) signal_neighbours(&j, SIGSTOP);
        atomic_store(&j.shared->go, 1);
        job_reap(&j, j.victim, 10);
        usleep(100000);
        if (round % 2) signal_neighbours(&j, SIGCONT);
        for (int r = 0; r < j.world; r++) {
            if (r == j.victim) continue;
            CHECK(job_ended(&j, r, 15));
            CHECK_EQ(GW_ABORTED, j.shared->member[r].status);
            CHECK(strstr(j.shared->member[r].text, "the loss is not a number") != NULL);
        }
        job_close(&j);
    }
}

static bool is_readable(int fd, int wait_ms) {
    return poll(&(struct pollfd){.fd = fd, .events = POLLIN}, 1, wait_ms) > 0;
}

static void only_the_right_process_is_watched(void) {
    pid_t child = fork();
    if (child == 0)
        for (;;) pause();
    uint64_t started = gw_process_started(child);
    CHECK(started >= gw_process_started(0) && gw_process_started(0) > 0);
    CHECK_EQ(-1, gw_process_watch(child, 0));
    CHECK_EQ(-1, gw_process_watch(child, started + 1)); /* another process has its number */
    int fd = gw_process_watch(child, started);
    if (fd < 0) printf("    this kernel has no pidfds\n");
    if (fd >= 0) CHECK(!is_readable(fd, 20));
    kill(child, SIGKILL);
    if (fd >= 0) CHECK(is_readable(fd, 10000)); /* it is still a zombie */
    waitpid(child, NULL, 0);
    if (fd >= 0) CHECK(is_readable(fd, 0));
    CHECK_EQ(-1, gw_process_watch(child, started));
    gw_fd_close(fd);
}

TEST_MAIN(CASE(only_the_right_process_is_watched), CASE(killed_while_its_child_lives),
          CASE(killed_while_a_child_keeps_its_sockets), CASE(child_is_refused), CASE(child_that_exits_does_no_harm),
          CASE(a_rank_that_left_is_not_dead), CASE(last_messages_are_read_first))
