/* helper_kills.c - helper_kills NAME KILLS SEED STRATEGY [LAUNCHER...]: jobs of 2 to 8 ranks, each with a forked child
 * that sleeps, in each of which one rank is killed at a random moment of a random collective; one line says how long it
 * took until the call of every survivor had returned with an error that names the dead rank. Without a launcher the
 * ranks are children of this program. tests/kills.sh runs it. Exit code 1: a survivor did not get the report, or the
 * 99th percentile is over LIMIT_MS. */
#include "fault_job.h"

#include <poll.h>

#include "base/fork_descriptors.h"
#include "base/process.h"
#include "base/rng.h"

#define LIMIT_MS 200.0
#define SAMPLES_MAX 16384
#define ANSWER_SECONDS 12 /* longer than the deadline: a late report is distinguished from none */
#define PAUSE_MAX_US 30000

static void reduces_with_a_child(gw_comm *comm, const job *j, job_member *member) {
    float *data = gw_alloc(comm, 2 * (j->count + 1) * sizeof *data);
    pid_t child = fork();
    if (child == 0) {
        alarm(60);
        for (;;) pause();
    }
    atomic_store(&member->child, child);
    memset(data, 0, (j->count + 1) * sizeof *data);
    gw_status status;
    while (!(status = gw_allreduce(comm, data, data + j->count, j->count, GW_F32, GW_SUM)))
        atomic_fetch_add(&member->rounds, 1);
    job_failed(member, comm, status);
    gw_free(comm, data);
    member->finalized = gw_finalize(comm);
}

typedef struct tally {
    int kills, survivors, unnamed, broken; /* broken: jobs that did not start */
    int samples;
    double ms[SAMPLES_MAX];
} tally;

static double ms_since(gw_time from, gw_time to) { return ((double)to - (double)from) / 1e6; }

/* ended: when the end of the dead process was first seen. */
static void note_survivor(tally *t, const job *j, int rank, gw_time killed, gw_time ended) {
    const job_member *member = &j->shared->member[rank];
    char named[32];
    snprintf(named, sizeof named, "rank %d on ", j->victim);
    bool reported = job_ended(j, rank, ANSWER_SECONDS) && member->status != GW_OK && strstr(member->text, named);
    t->survivors++;
    double ms = ms_since(killed, member->failed_at);
    if (reported && t->samples < SAMPLES_MAX) t->ms[t->samples++] = ms;
    if (reported && ms > LIMIT_MS)
        fprintf(stderr, "rank %d of %d, %zu elements: %.0f ms, of which the kernel took %.0f to end the process: %s\n",
                rank, j->world, j->count, ms, ms_since(killed, ended), member->text);
    if (reported) return;
    t->unnamed++;
    fprintf(stderr, "rank %d of %d, of which %d was killed, got %d \"%s\"\n", rank, j->world, j->victim, member->status,
            member->text);
}

/* Processes that a launcher started are its own to wait for. */
static void clean_up(job *j) {
    for (int r = 0; r < j->world; r++) {
        int child = atomic_load(&j->shared->member[r].child);
        if (child > 0) kill(child, SIGKILL);
    }
    for (int r = 0; r < j->world; r++) job_reap(j, r, 10);
    if (j->launcher) job_launcher_ended(j->launcher, 10);
    j->launcher = 0;
    job_close(j);
}

static void kill_one(tally *t, gw_rng *rng) {
    static const size_t counts[] = {1, 1000, 50000, 1000000};
    job j = {.world = 2 + (int)(gw_rng_u32(rng) % 7), .deadline_s = 10,
             .body = reduces_with_a_child, .count = counts[gw_rng_u32(rng) % 4]};
    j.victim = (int)(gw_rng_u32(rng) % (unsigned)j.world);
    job_start(&j);
    if (job_all_reached(&j, 2, 30)) {
        usleep(gw_rng_u32(rng) % PAUSE_MAX_US);
        struct pollfd process = {.fd = gw_process_watch(j.pid[j.victim], gw_process_started(j.pid[j.victim]))};
        process.events = POLLIN;
        gw_time killed = gw_clock_now();
        kill(j.pid[j.victim], SIGKILL);
        if (process.fd >= 0) poll(&process, 1, ANSWER_SECONDS * 1000);
        gw_time ended = gw_clock_now();
        gw_fd_close(process.fd);
        t->kills++;
        for (int r = 0; r < j.world; r++)
            if (r != j.victim) note_survivor(t, &j, r, killed, ended);
    } else {
        t->broken++;
        for (int r = 0; r < j.world; r++) fprintf(stderr, "rank %d: %s\n", r, j.shared->member[r].text);
    }
    clean_up(&j);
}

static int by_value(const void *left, const void *right) {
    const double *a = left, *b = right;
    return *a < *b ? -1 : *a > *b;
}

/* The smallest value that so large a part of all do not exceed. */
static double quantile(const tally *t, double part) {
    int at = (int)((double)t->samples * part);
    return t->samples ? t->ms[at < t->samples ? at : t->samples - 1] : 0;
}

int main(int argc, char **argv) {
    static tally t;
    if (argc < 5) {
        fprintf(stderr, "usage: helper_kills NAME KILLS SEED STRATEGY [LAUNCHER...]\n");
        return 2;
    }
    char launcher[256] = "";
    for (int i = 5; i < argc; i++)
        snprintf(launcher + strlen(launcher), sizeof launcher - strlen(launcher), "%s ", argv[i]);
    if (launcher[0]) setenv("TEST_LAUNCHER", launcher, 1);
    setenv("TEST_STRATEGY", argv[4], 1); /* a launched rank has another memory */
    gw_rng rng = gw_rng_make((uint64_t)atoll(argv[3]), 20);
    for (int i = 0; i < atoi(argv[2]); i++) kill_one(&t, &rng);
    qsort(t.ms, (size_t)t.samples, sizeof t.ms[0], by_value);
    printf("%-32s %6d %10d %10d %8.1f %8.1f %8.1f\n", argv[1], t.kills, t.survivors, t.unnamed, quantile(&t, 0.5),
           quantile(&t, 0.99), quantile(&t, 1));
    return t.unnamed || t.broken || quantile(&t, 0.99) > LIMIT_MS;
}
