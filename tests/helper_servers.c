/* helper_servers.c - for tests/servers.sh: a worker that counts its pushes, and a killer.
 *
 * helper_servers work FILE STEPS LINE   a rank of an elastic job: makes STEPS steps of two models through servers under
 *                                       that strategy line, and more until the kills are over; it continues after any
 *                                       loss
 * helper_servers kill FILE KILLS SEED HOW MEMBER...
 *                                       kills the processes of these members at random moments, so many times, each
 *                                       when all have made steps since the last; HOW: back, or dropped
 * helper_servers check FILE LOST        compares the servers' weights with the pushes that workers counted
 *
 * Every gradient is -1 and every update w -= scale * g with GW_SUM, so that each weight counts the pushes that were
 * used. All processes share FILE: a step counts as begun before it is pushed, as ended when it has been answered. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "gradwire/reducer.h"

enum { MEMBERS = 16, NETS = 2, TENSORS = 4, PATIENCE_S = 60 };

static const size_t counts[NETS][TENSORS] = {{300, 70001, 5, 20000}, {41, 6000, 20, 1}};
static const char *const names[TENSORS] = {"conv", "fc.weight", "fc.bias", "head"};

typedef struct shared {
    _Atomic uint64_t begun[MEMBERS], ended[MEMBERS], at[MEMBERS]; /* at: the number of the step it is in */
    _Atomic int pid[MEMBERS], kills;
    _Atomic int members;
    _Atomic uint64_t last; /* step, for all; 0: not known yet */
    float least, most;     /* of all weights at the end */
} shared;

static shared *tally;

static void die(const char *what) {
    fprintf(stderr, "helper_servers: %s: %s\n", what, gw_last_error(NULL));
    exit(1);
}

static void open_tally(const char *path) {
    int file = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (file < 0 || ftruncate(file, sizeof *tally)) die(path);
    tally = mmap(NULL, sizeof *tally, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    if (tally == MAP_FAILED) die(path);
    close(file);
}

static void nap(unsigned us) { nanosleep(&(struct timespec){us / 1000000, us % 1000000 * 1000}, NULL); }

/* The worker. */

typedef struct net {
    gw_reducer *reducer; /* NULL: not committed yet */
    gw_reducer_tensor tensors[TENSORS];
} net;

static net nets[NETS];
static gw_comm *comm;

static void make_models(void) {
    for (int k = 0; k < NETS; k++)
        for (int t = 0; t < TENSORS; t++)
            nets[k].tensors[t] = (gw_reducer_tensor){.name = names[t], .count = counts[k][t], .dtype = GW_F32,
                                                     .gradient = calloc(counts[k][t], sizeof(float)),
                                                     .weights = calloc(counts[k][t], sizeof(float))};
}

static void descend(void *ctx, const gw_reducer_update *u) {
    float *w = u->weights;
    const float *g = u->gradient;
    (void)ctx;
    for (size_t i = 0; i < u->count; i++) w[i] -= (float)(u->rate_scale * u->scale) * g[i];
}

static bool is_loss(gw_status status) { return status == GW_PEER_LOST || status == GW_TIMEOUT || status == GW_ABORTED; }

static gw_reducer_options options = GW_REDUCER_OPTIONS_DEFAULT;

/* Commits the models that this process does not have yet, and resumes the others on the present communicator. */
static gw_status join_all(void) {
    gw_status status = GW_OK;
    for (int k = 0; k < NETS && !status; k++)
        status = nets[k].reducer ? gw_reducer_resume(nets[k].reducer, comm)
                                 : gw_reducer_commit(&nets[k].reducer, comm, nets[k].tensors, TENSORS, &options);
    return status;
}

/* After a loss: regroups with the present members. */
static void recover(void) {
    for (;;) {
        gw_comm *next = NULL, *old = comm;
        if (gw_regroup(comm, &next)) die("gw_regroup");
        comm = next;
        gw_status status = join_all();
        gw_finalize(old);
        if (status == GW_OK) return;
        if (!is_loss(status)) die("gw_reducer_resume");
        fprintf(stderr, "helper_servers: again: %s\n", gw_last_error(NULL));
    }
}

/* Both are in flight at the same time. */
static void make_step(float value) {
    for (net *n = nets; n < nets + NETS; n++) {
        for (int t = 0; t < TENSORS; t++)
            while (gw_reducer_wait(n->reducer, t)) recover();
        for (int t = TENSORS - 1; t >= 0; t--) {
            float *g = n->tensors[t].gradient;
            for (size_t i = 0; i < n->tensors[t].count; i++) g[i] = value;
            while (gw_reducer_ready(n->reducer, t)) recover();
        }
        while (gw_reducer_end(n->reducer)) recover();
    }
    for (net *n = nets; n < nets + NETS; n++)
        while (gw_reducer_flush(n->reducer)) recover();
}

static void report_weights(void) {
    const float *first = nets[0].tensors[0].weights;
    float least = *first, most = *first;
    for (net *n = nets; n < nets + NETS; n++)
        for (int t = 0; t < TENSORS; t++)
            for (size_t i = 0; i < n->tensors[t].count; i++) {
                float weight = ((const float *)n->tensors[t].weights)[i];
                if (weight < least) least = weight;
                if (weight > most) most = weight;
            }
    if (gw_rank(comm) == 0) tally->least = least, tally->most = most;
}

static void work(uint64_t steps, const char *line) {
    options.strategy = line;
    options.op = GW_SUM;
    options.update = descend;
    make_models();
    if (gw_init(&comm, NULL)) die("gw_init");
    int member = gw_member_id(comm);
    atomic_store(&tally->pid[member], (int)getpid());
    if (gw_size(comm) > atomic_load(&tally->members)) atomic_store(&tally->members, gw_size(comm));
    gw_status joined = join_all();
    if (joined && !is_loss(joined)) die("gw_reducer_commit");
    if (joined) recover();
    for (uint64_t number = gw_reducer_read_counters(nets[0].reducer).first_step;; number++) {
        uint64_t last = atomic_load(&tally->last);
        if (number >= steps && last && number >= last) break;
        atomic_store(&tally->at[member], number);
        atomic_fetch_add(&tally->begun[member], 1);
        make_step(-1);
        atomic_fetch_add(&tally->ended[member], 1);
        nap(1000 + (unsigned)(rand() % 2000));
    }
    atomic_store(&tally->pid[member], 0);
    while (gw_barrier(comm)) recover(); /* all have been answered: one more push, of nothing, brings all of it */
    make_step(0);
    for (net *n = nets; n < nets + NETS; n++)
        while (gw_reducer_leave(n->reducer)) recover();
    report_weights();
    for (net *n = nets; n < nets + NETS; n++) gw_reducer_close(n->reducer);
    gw_finalize(comm);
}

/* The killer. */

/* Whether a process has been started with that variable. */
static bool has_variable(const char *environment, size_t bytes, const char *wanted) {
    for (const char *at = environment; at < environment + bytes; at += strlen(at) + 1)
        if (strcmp(at, wanted) == 0) return true;
    return false;
}

/* The server process of that member in the job that writes beside this file; 0: none at present. */
static int find_server(const char *path, int member) {
    char snapshots[512], number[64], name[288], text[32768];
    int folder = (int)(strlen(path) - strlen("tally"));
    snprintf(snapshots, sizeof snapshots, "GRADWIRE_SNAPSHOTS=%.*ssnapshots", folder, path);
    snprintf(number, sizeof number, "GRADWIRE_MEMBER=%d", member);
    DIR *processes = opendir("/proc");
    int found = 0;
    for (struct dirent *entry; processes && !found && (entry = readdir(processes));) {
        snprintf(name, sizeof name, "/proc/%s/environ", entry->d_name);
        int file = atoi(entry->d_name) > 0 ? open(name, O_RDONLY | O_CLOEXEC) : -1;
        ssize_t bytes = file < 0 ? -1 : read(file, text, sizeof text - 1);
        if (file >= 0) close(file);
        if (bytes <= 0) continue;
        text[bytes] = 0;
        if (has_variable(text, (size_t)bytes, snapshots) && has_variable(text, (size_t)bytes, number))
            found = atoi(entry->d_name);
    }
    if (processes) closedir(processes);
    return found;
}

static bool gone_for_good, killed[MEMBERS];

/* One that will not come back counts no longer. */
static bool lives(int s) { return s < atomic_load(&tally->members) && !(gone_for_good && killed[s]); }

static uint64_t least_progress(const uint64_t *since) {
    uint64_t least = UINT64_MAX;
    for (int s = 0; s < MEMBERS; s++) {
        if (!lives(s)) continue;
        uint64_t made = atomic_load(&tally->ended[s]) - since[s];
        if (made < least) least = made;
    }
    return least == UINT64_MAX ? 0 : least;
}

static void kill_some(const char *path, int kills, int members, char **member) {
    uint64_t since[MEMBERS] = {0};
    for (int k = 0; k < kills; k++) {
        for (int waited = 0; least_progress(since) < 3; waited++) {
            if (waited > PATIENCE_S * 1000) die("nobody makes progress any more");
            nap(1000);
        }
        nap((unsigned)(rand() % 60000));
        int victim = atoi(member[rand() % members]);
        int pid = victim < atomic_load(&tally->members) ? atomic_load(&tally->pid[victim]) : find_server(path, victim);
        for (int s = 0; s < MEMBERS; s++) since[s] = atomic_load(&tally->ended[s]);
        if (pid && !(gone_for_good && killed[victim]) && kill(pid, SIGKILL) == 0) atomic_fetch_add(&tally->kills, 1);
        killed[victim] = true;
    }
    while (least_progress(since) < 3) nap(1000);
    uint64_t last = 0;
    for (int s = 0; s < MEMBERS; s++)
        if (atomic_load(&tally->at[s]) > last) last = atomic_load(&tally->at[s]);
    atomic_store(&tally->last, last + 50);
}

/* Steps used are at least those answered less those lost, and at most those begun. */
static int check(uint64_t lost) {
    uint64_t begun = 0, ended = 0;
    for (int s = 0; s < MEMBERS; s++) begun += tally->begun[s], ended += tally->ended[s];
    printf("%d killed; %" PRIu64 " steps pushed, %" PRIu64 " answered, %" PRIu64 " may be lost; weights count %g "
           "to %g\n",
           tally->kills, begun, ended, lost, (double)tally->least, (double)tally->most);
    return tally->last && (double)tally->least + (double)lost >= (double)ended && (double)tally->most <= (double)begun
               ? 0
               : 1;
}

int main(int argc, char **argv) {
    if (argc < 4) return 2;
    open_tally(argv[2]);
    srand((unsigned)getpid());
    if (strcmp(argv[1], "work") == 0 && argc == 5) work(strtoull(argv[3], NULL, 10), argv[4]);
    else if (strcmp(argv[1], "kill") == 0 && argc > 6) {
        srand((unsigned)atoi(argv[4]));
        gone_for_good = strcmp(argv[5], "dropped") == 0;
        kill_some(argv[2], atoi(argv[3]), argc - 6, argv + 6);
    } else if (strcmp(argv[1], "check") == 0) return check(strtoull(argv[3], NULL, 10));
    else return 2;
    return 0;
}
