/* helper_elastic.c - for tests/elastic.sh: ranks that continue after any loss, and commands that watch them.
 *
 * helper_elastic work FILE                 a rank of an elastic job: all-reduces and checks every sum, regroups after a
 *                                          failure, until the end command
 * helper_elastic pid FILE MEMBER           prints the process of a member, once all members are at work
 * helper_elastic strike FILE dropped|back COMMAND MEMBER...
 *                                          runs the shell command, which removes these members for good, or until they
 *                                          are started again, and prints how many ms pass from its start until every
 *                                          other member has a right sum in a later generation
 * helper_elastic end FILE                  ends the ranks
 * helper_elastic abort FILE                lets one of them call gw_abort
 * helper_elastic hang FILE MEMBER          stops all calls of this one
 * helper_elastic compute FILE SECONDS      a rank that joins, calls nothing for so long, leaves, and lives on as long
 * helper_elastic hold FILE PID SECONDS     stops that process as a debugger does
 *
 * FILE is shared by all, on one machine. */
#include <dirent.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/ptrace.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "gradwire.h"

enum { MEMBERS = 16, COUNT = 20000, PATIENCE_S = 60 };

typedef struct shared {
    _Atomic int members; /* at the beginning */
    _Atomic int pid[MEMBERS], gone[MEMBERS];
    _Atomic uint64_t right_at[MEMBERS]; /* when it last had a right sum, ns */
    _Atomic int generation[MEMBERS];    /* in which that was */
    _Atomic int wrong;                  /* sums */
    _Atomic int end, abort;
    _Atomic int hang[MEMBERS];
} shared;

static shared *tally;

static void die(const char *what) {
    fprintf(stderr, "helper_elastic: %s: %s\n", what, gw_last_error(NULL));
    exit(1);
}

static uint64_t now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static void nap(void) { nanosleep(&(struct timespec){0, 1000000}, NULL); }

static void open_tally(const char *path) {
    int file = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (file < 0 || ftruncate(file, sizeof *tally)) die(path);
    tally = mmap(NULL, sizeof *tally, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    if (tally == MAP_FAILED) die(path);
    close(file);
}

/* The rank. The last value is how many want to end. */

static float values[COUNT + 1];

static void fill(const gw_comm *comm) {
    for (int i = 0; i < COUNT; i++) values[i] = (float)((gw_rank(comm) + 1) * (i % 7 + 1));
    values[COUNT] = atomic_load(&tally->end) ? 1 : 0;
}

static bool is_right(const gw_comm *comm) {
    int n = gw_size(comm), wrong = 0;
    for (int i = 0; i < COUNT; i++) wrong += values[i] != (float)(n * (n + 1) / 2 * (i % 7 + 1));
    if (!wrong) return true;
    fprintf(stderr, "helper_elastic: %d values are wrong in generation %d\n", wrong, gw_generation(comm));
    atomic_fetch_add(&tally->wrong, 1);
    return false;
}

static gw_comm *regroup(gw_comm *comm) {
    gw_comm *next = NULL;
    if (gw_regroup(comm, &next)) die("gw_regroup");
    gw_finalize(comm);
    return next;
}

static int work(void) {
    gw_comm *comm;
    if (gw_init(&comm, NULL)) die("gw_init");
    int member = gw_member_id(comm);
    if (gw_size(comm) > atomic_load(&tally->members)) atomic_store(&tally->members, gw_size(comm));
    atomic_store(&tally->pid[member], (int)getpid());
    for (values[COUNT] = 0; values[COUNT] == 0;) {
        while (atomic_load(&tally->hang[member])) pause();
        if (atomic_exchange(&tally->abort, 0)) gw_abort(comm, "for a test");
        fill(comm);
        if (gw_allreduce(comm, values, values, COUNT + 1, GW_F32, GW_SUM)) {
            comm = regroup(comm);
            values[COUNT] = 0;
            continue;
        }
        if (!is_right(comm)) return 1;
        atomic_store(&tally->generation[member], gw_generation(comm));
        atomic_store(&tally->right_at[member], now());
        nap();
    }
    gw_finalize(comm);
    return 0;
}

static int compute(unsigned seconds) {
    gw_comm *comm;
    if (gw_init(&comm, NULL)) die("gw_init");
    sleep(seconds);
    if (gw_barrier(comm)) die("gw_barrier");
    gw_finalize(comm);
    sleep(seconds);
    return 0;
}

/* All its threads. They are let go when this process ends. */
static int hold(const char *pid, unsigned seconds) {
    char path[64];
    int status;
    snprintf(path, sizeof path, "/proc/%s/task", pid);
    DIR *threads = opendir(path);
    if (!threads) die(path);
    for (struct dirent *entry; (entry = readdir(threads));) {
        pid_t thread = atoi(entry->d_name);
        if (thread > 0 && (ptrace(PTRACE_ATTACH, thread, NULL, NULL) || waitpid(thread, &status, __WALL) != thread))
            die("ptrace");
    }
    closedir(threads);
    sleep(seconds);
    return 0;
}

/* The watcher. */

/* All present members have a right sum, later than `since`, in at least this generation. */
static bool all_right(uint64_t since, int generation) {
    for (int member = 0; member < atomic_load(&tally->members); member++)
        if (!atomic_load(&tally->gone[member]) &&
            (atomic_load(&tally->right_at[member]) <= since || atomic_load(&tally->generation[member]) < generation))
            return false;
    return atomic_load(&tally->members) > 0;
}

static int newest_generation(void) {
    int newest = 0;
    for (int member = 0; member < MEMBERS; member++)
        if (atomic_load(&tally->generation[member]) > newest) newest = atomic_load(&tally->generation[member]);
    return newest;
}

/* Exits where it does not come about. */
static void await(uint64_t since, int generation, const char *what) {
    uint64_t until = now() + PATIENCE_S * 1000000000ull;
    while (!all_right(since, generation)) {
        if (now() > until) {
            printf("%s: not within %d s\n", what, PATIENCE_S);
            exit(1);
        }
        nap();
    }
}

static int strike(bool back, const char *command, char **members, int count) {
    await(now(), newest_generation(), "all ranks at work");
    int generation = newest_generation();
    for (int i = 0; i < count; i++) atomic_store(&tally->gone[atoi(members[i])], 1);
    uint64_t begun = now(), last = begun;
    if (system(command)) die(command);
    await(begun, generation + 1, "the others going on");
    for (int member = 0; member < atomic_load(&tally->members); member++)
        if (!atomic_load(&tally->gone[member]) && atomic_load(&tally->right_at[member]) > last)
            last = atomic_load(&tally->right_at[member]);
    for (int i = 0; back && i < count; i++) atomic_store(&tally->gone[atoi(members[i])], 0);
    printf("%llu\n", (unsigned long long)((last - begun) / 1000000));
    return atomic_load(&tally->wrong) != 0;
}

static int print_pid(int member) {
    await(now(), newest_generation(), "all ranks at work");
    printf("%d\n", atomic_load(&tally->pid[member]));
    return 0;
}

int main(int argc, char **argv) {
    const char *what = argc > 2 ? argv[1] : "";
    if (argc > 2) open_tally(argv[2]);
    if (strcmp(what, "work") == 0) return work();
    if (strcmp(what, "pid") == 0 && argc == 4) return print_pid(atoi(argv[3]));
    if (strcmp(what, "strike") == 0 && argc > 5)
        return strike(strcmp(argv[3], "back") == 0, argv[4], argv + 5, argc - 5);
    if (strcmp(what, "compute") == 0 && argc == 4) return compute((unsigned)atoi(argv[3]));
    if (strcmp(what, "hold") == 0 && argc == 5) return hold(argv[3], (unsigned)atoi(argv[4]));
    if (strcmp(what, "abort") == 0) return atomic_store(&tally->abort, 1), 0;
    if (strcmp(what, "hang") == 0 && argc == 4) return atomic_store(&tally->hang[atoi(argv[3]) % MEMBERS], 1), 0;
    if (strcmp(what, "end") == 0) return atomic_store(&tally->end, 1), 0;
    fprintf(stderr, "helper_elastic work|pid|strike|end|abort|hang|compute|hold FILE ...: see the top of its source\n");
    return 2;
}
