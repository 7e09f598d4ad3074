/* fault_job.h - for tests of faults: a job of real processes, each a rank that joins by gw_init and runs a body; what
 * each saw is kept in memory that the test shares with them. Every wait here has a limit. TEST_STRATEGY=LINE: all jobs
 * run with that strategy instead of their own. TEST_LAUNCHER=WORDS: that starts the ranks. */
#ifndef GW_TEST_FAULT_JOB_H
#define GW_TEST_FAULT_JOB_H

#include "base/clock.h"
#include "free_port.h"
#include "gradwire.h"
#include "test.h"
#include "transport/transport_registry.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>

/* Sanitizers make everything slower, and linger at the end of a process. */
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
#define JOB_SLOWER 10
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer) || __has_feature(address_sanitizer)
#define JOB_SLOWER 10
#endif
#endif
#ifndef JOB_SLOWER
#define JOB_SLOWER 1
#endif

/* Limits of waits here are those of an idle machine; on a busy one everything may take that many times as long. */
#define JOB_BUSY 8

#define JOB_RANKS_MAX 8
#define JOB_TOKEN "a token of the tests, 0123456789"

/* What one rank saw. Written by the rank, read by the test. */
typedef struct job_member {
    _Atomic int pid;           /* of a rank that a launcher started */
    _Atomic int child;         /* a process that it forked, for the test to kill */
    _Atomic int joined, ended; /* 1: gw_init returned; the body is over */
    _Atomic uint64_t rounds;   /* collectives that succeeded */
    gw_status status;          /* of the first call that failed */
    gw_time failed_at, called_at;
    char text[512]; /* its sentence */
    gw_status later, finalized;
    char later_text[512];
    int wrong;      /* results that were not right */
    int size, rank; /* of the last communicator */
    int shrunk;
} job_member;

typedef struct job_shared job_shared;
typedef struct job job;
typedef void job_body(gw_comm *comm, const job *job, job_member *member);

struct job {
    int world;
    const char *strategy;
    double deadline_s;
    job_body *body;
    size_t count;                     /* elements, for the body */
    int victim;                       /* for the body */
    int kind;                         /* for the body */
    int absent;                       /* 1 + a rank that never comes; 0: none */
    const char *space[JOB_RANKS_MAX]; /* network namespaces to enter, NULL: none */
    const char *master_addr;
    int me; /* in a rank: its number */
    int port;
    char folder[64]; /* of flight records and the ranks' standard error */
    pid_t pid[JOB_RANKS_MAX];
    pid_t launcher; /* 0: the ranks are children of the test */
    int file;       /* of the shared memory */
    job_shared *shared;
};

struct job_shared {
    _Atomic int go; /* the test's sign to the ranks */
    job_member member[JOB_RANKS_MAX];
    job job;          /* for ranks that a launcher starts */
    intptr_t body_at; /* where its body is, counted from job_run_rank */
};

/* Notes the first failure; true if there was one. */
static bool job_failed(job_member *member, gw_comm *comm, gw_status status) {
    if (status == GW_OK) return false;
    member->failed_at = gw_clock_now();
    member->status = status;
    snprintf(member->text, sizeof member->text, "%s", gw_last_error(comm));
    return true;
}

/* After a failure: the error of a later call. */
__attribute__((unused)) static void job_call_again(job_member *member, gw_comm *comm) {
    float x = 1, y;
    member->later = gw_allreduce(comm, &x, &y, 1, GW_F32, GW_SUM);
    snprintf(member->later_text, sizeof member->later_text, "%s", gw_last_error(comm));
}

static void job_enter_space(const char *name) {
    char path[128];
    snprintf(path, sizeof path, "/run/netns/%s", name);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0 || setns(fd, CLONE_NEWNET) != 0) abort();
    close(fd);
}

/* Variables that gradwire run sets are kept. */
static gw_options job_options(const job *j) {
    gw_options options = GW_OPTIONS_DEFAULT;
    options.strategy = getenv("TEST_STRATEGY") ? getenv("TEST_STRATEGY") : j->strategy;
    options.deadline_s = j->deadline_s;
    if (getenv("GRADWIRE_MASTER_PORT")) return options;
    options.rank = j->me;
    options.world = j->world;
    options.master_port = j->port;
    options.master_addr = j->master_addr;
    options.token = JOB_TOKEN;
    return options;
}

static void job_run_rank(job *j) {
    char path[128];
    job_member *member = &j->shared->member[j->me];
    if (!j->launcher) prctl(PR_SET_PDEATHSIG, SIGKILL);
    alarm(600);
    snprintf(path, sizeof path, "%s/err.%d", j->folder, j->me);
    int err = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    if (err >= 0) dup2(err, STDERR_FILENO);
    if (j->space[j->me]) job_enter_space(j->space[j->me]);
    gw_options options = job_options(j);
    gw_comm *comm = NULL;
    member->called_at = gw_clock_now();
    if (!job_failed(member, NULL, gw_init(&comm, &options))) {
        atomic_store(&member->joined, 1);
        j->body(comm, j, member);
    }
    atomic_store(&member->ended, 1);
    exit(0);
}

/* Loading a library such as libfabric takes most of a second, while a test waits: once here instead of in every rank.
 * Not one that belongs to a launcher. */
static void job_prepare(void) {
    const char *word = getenv("TEST_STRATEGY"), *name = word ? strstr(word, "transport=") : NULL;
    const gw_transport_type *type = name ? gw_transport_type_find(name + strlen("transport=")) : NULL;
    gw_transport_probe found[GW_TRANSPORT_PROBES_MAX];
    if (type && type->probe && !type->launcher) type->probe(found, GW_TRANSPORT_PROBES_MAX);
}

#include "job_launched.h"

static void job_start(job *j) {
    const char *launcher = getenv("TEST_LAUNCHER");
    job_prepare();
    j->file = memfd_create("job", MFD_CLOEXEC);
    if (j->file < 0 || ftruncate(j->file, sizeof *j->shared) != 0) abort();
    j->shared = mmap(NULL, sizeof *j->shared, PROT_READ | PROT_WRITE, MAP_SHARED, j->file, 0);
    if (j->shared == MAP_FAILED) abort();
    j->port = free_port();
    snprintf(j->folder, sizeof j->folder, "/tmp/gradwire-test.XXXXXX");
    if (!mkdtemp(j->folder)) abort();
    setenv("GRADWIRE_FLIGHT_DIR", j->folder, 1);
    fflush(stdout);
    if (launcher) job_launch(j, launcher);
    for (int r = 0; r < j->world && !launcher; r++) {
        if (j->absent == r + 1) continue;
        j->pid[r] = fork();
        if (j->pid[r] < 0) abort();
        j->me = r;
        if (j->pid[r] == 0) job_run_rank(j);
    }
}

static void job_nap(void) { usleep(500); }

/* Waits until the rank has done so many rounds, or has failed; false if that takes longer than the limit. */
__attribute__((unused)) static bool job_reached(const job *j, int rank, uint64_t rounds, double seconds) {
    gw_time until = gw_clock_now() + (gw_time)(seconds * JOB_BUSY * 1e9);
    const job_member *member = &j->shared->member[rank];
    while (atomic_load(&member->rounds) < rounds || !atomic_load(&member->joined)) {
        if (gw_clock_now() > until || atomic_load(&member->ended)) return false;
        job_nap();
    }
    return true;
}

__attribute__((unused)) static bool job_all_reached(const job *j, uint64_t rounds, double seconds) {
    bool all = true;
    for (int r = 0; r < j->world; r++)
        if (j->pid[r]) all = job_reached(j, r, rounds, seconds) && all;
    return all;
}

/* A body ends within the limit, or that is a failure of the test. */
__attribute__((unused)) static bool job_ended(const job *j, int rank, double seconds) {
    gw_time until = gw_clock_now() + (gw_time)(seconds * JOB_BUSY * 1e9);
    while (!atomic_load(&j->shared->member[rank].ended)) {
        if (gw_clock_now() > until) return false;
        job_nap();
    }
    return true;
}

/* Waits for the process; returns its wait status, or -1 if it had to be killed. */
static int job_reap(job *j, int rank, double seconds) {
    gw_time until = gw_clock_now() + (gw_time)(seconds * JOB_BUSY * 1e9);
    int status = 0;
    if (!j->pid[rank]) return 0;
    if (j->launcher) return job_gone(j, rank, seconds);
    pid_t got;
    while ((got = waitpid(j->pid[rank], &status, WNOHANG)) == 0 && gw_clock_now() < until) job_nap();
    if (got == 0) {
        kill(j->pid[rank], SIGKILL);
        waitpid(j->pid[rank], &status, 0);
        status = -1;
    }
    j->pid[rank] = 0;
    return status;
}

/* The standard error of a rank. */
static const char *job_errors(const job *j, int rank) {
    static char text[8192];
    char path[128];
    snprintf(path, sizeof path, "%s/err.%d", j->folder, rank);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t got = fd >= 0 ? read(fd, text, sizeof text - 1) : 0;
    text[got > 0 ? got : 0] = 0;
    if (fd >= 0) close(fd);
    return text;
}

/* How many flight records there are; -1 for rank: of any. */
__attribute__((unused)) static int job_flights(const job *j, int rank, char *found, size_t size) {
    char command[256], line[256];
    int count = 0;
    if (rank < 0) snprintf(command, sizeof command, "ls %s/gradwire-flight-* 2>/dev/null", j->folder);
    else snprintf(command, sizeof command, "ls %s/gradwire-flight-%d-* 2>/dev/null", j->folder, rank);
    FILE *list = popen(command, "r");
    while (list && fgets(line, sizeof line, list)) {
        line[strcspn(line, "\n")] = 0;
        if (found) snprintf(found, size, "%s", line);
        count++;
    }
    if (list) pclose(list);
    return count;
}

static void job_close(job *j) {
    char command[128];
    for (int r = 0; r < j->world; r++) {
        int status = job_reap(j, r, 5);
        if (status != 0 && test_failures <= 10) {
            test_failures++;
            printf("    rank %d ended with wait status %d: %s\n", r, status, job_errors(j, r));
        }
    }
    if (j->launcher && !job_launcher_ended(j->launcher, 5)) {
        test_failures++;
        printf("    the launcher did not end\n");
    }
    munmap(j->shared, sizeof *j->shared);
    close(j->file);
    snprintf(command, sizeof command, "rm -rf %s", j->folder);
    if (system(command) != 0) test_failures++;
}

#endif
