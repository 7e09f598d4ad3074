/* helper_elastic.c - for tests/elastic.sh: ranks that go on whatever happens, and one who watches them.
 *
 * helper_elastic work FILE                 a rank of an elastic job: all-reduces and checks every sum, regroups after a
 *                                          failure, until it is told to end
 * helper_elastic pid FILE SEAT             prints the process of a seat, once all seats are at work
 * helper_elastic strike FILE dropped|back COMMAND SEAT...
 *                                          runs the shell command, which takes these seats away for good, or until they
 *                                          are started again, and prints how many ms pass from its start until every
 *                                          other has a right sum in a later round
 * helper_elastic end FILE                  tells the ranks to end
 * helper_elastic abort FILE                has one of them call gw_abort
 * helper_elastic hang FILE SEAT            has one of them call nothing any more
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

enum { SEATS = 16, COUNT = 20000, PATIENCE_S = 60 };

typedef struct shared {
    _Atomic int seats; /* at the beginning */
    _Atomic int pid[SEATS], gone[SEATS];
    _Atomic uint64_t right_at[SEATS]; /* when it last had a right sum, ns */
    _Atomic int round[SEATS];         /* in which that was */
    _Atomic int wrong;                /* sums */
    _Atomic int end, abort;
    _Atomic int hang[SEATS];
} shared;

static shared *board;

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

static void open_board(const char *path) {
    int file = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (file < 0 || ftruncate(file, sizeof *board)) die(path);
    board = mmap(NULL, sizeof *board, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    if (board == MAP_FAILED) die(path);
    close(file);
}

/* The rank. The last value is how many want to end. */

static float values[COUNT + 1];

static void fill(const gw_comm *comm) {
    for (int i = 0; i < COUNT; i++) values[i] = (float)((gw_rank(comm) + 1) * (i % 7 + 1));
    values[COUNT] = atomic_load(&board->end) ? 1 : 0;
}

static bool is_right(const gw_comm *comm) {
    int n = gw_size(comm), wrong = 0;
    for (int i = 0; i < COUNT; i++) wrong += values[i] != (float)(n * (n + 1) / 2 * (i % 7 + 1));
    if (!wrong) return true;
    fprintf(stderr, "helper_elastic: %d values are wrong in round %d\n", wrong, gw_round(comm));
    atomic_fetch_add(&board->wrong, 1);
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
    int seat = gw_seat(comm);
    if (gw_size(comm) > atomic_load(&board->seats)) atomic_store(&board->seats, gw_size(comm));
    atomic_store(&board->pid[seat], (int)getpid());
    for (values[COUNT] = 0; values[COUNT] == 0;) {
        while (atomic_load(&board->hang[seat])) pause();
        if (atomic_exchange(&board->abort, 0)) gw_abort(comm, "for a test");
        fill(comm);
        if (gw_allreduce(comm, values, values, COUNT + 1, GW_F32, GW_SUM)) {
            comm = regroup(comm);
            values[COUNT] = 0;
            continue;
        }
        if (!is_right(comm)) return 1;
        atomic_store(&board->round[seat], gw_round(comm));
        atomic_store(&board->right_at[seat], now());
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

/* All who are not gone have a right sum, later than that, in a round of at least that number. */
static bool all_right(uint64_t since, int round) {
    for (int seat = 0; seat < atomic_load(&board->seats); seat++)
        if (!atomic_load(&board->gone[seat]) &&
            (atomic_load(&board->right_at[seat]) <= since || atomic_load(&board->round[seat]) < round))
            return false;
    return atomic_load(&board->seats) > 0;
}

static int newest_round(void) {
    int newest = 0;
    for (int seat = 0; seat < SEATS; seat++)
        if (atomic_load(&board->round[seat]) > newest) newest = atomic_load(&board->round[seat]);
    return newest;
}

/* Exits where it does not come about. */
static void await(uint64_t since, int round, const char *what) {
    uint64_t until = now() + PATIENCE_S * 1000000000ull;
    while (!all_right(since, round)) {
        if (now() > until) {
            printf("%s: not within %d s\n", what, PATIENCE_S);
            exit(1);
        }
        nap();
    }
}

static int strike(bool back, const char *command, char **seats, int count) {
    await(now(), newest_round(), "all ranks at work");
    int round = newest_round();
    for (int i = 0; i < count; i++) atomic_store(&board->gone[atoi(seats[i])], 1);
    uint64_t begun = now(), last = begun;
    if (system(command)) die(command);
    await(begun, round + 1, "the others going on");
    for (int seat = 0; seat < atomic_load(&board->seats); seat++)
        if (!atomic_load(&board->gone[seat]) && atomic_load(&board->right_at[seat]) > last)
            last = atomic_load(&board->right_at[seat]);
    for (int i = 0; back && i < count; i++) atomic_store(&board->gone[atoi(seats[i])], 0);
    printf("%llu\n", (unsigned long long)((last - begun) / 1000000));
    return atomic_load(&board->wrong) != 0;
}

static int print_pid(int seat) {
    await(now(), newest_round(), "all ranks at work");
    printf("%d\n", atomic_load(&board->pid[seat]));
    return 0;
}

int main(int argc, char **argv) {
    const char *what = argc > 2 ? argv[1] : "";
    if (argc > 2) open_board(argv[2]);
    if (strcmp(what, "work") == 0) return work();
    if (strcmp(what, "pid") == 0 && argc == 4) return print_pid(atoi(argv[3]));
    if (strcmp(what, "strike") == 0 && argc > 5)
        return strike(strcmp(argv[3], "back") == 0, argv[4], argv + 5, argc - 5);
    if (strcmp(what, "compute") == 0 && argc == 4) return compute((unsigned)atoi(argv[3]));
    if (strcmp(what, "hold") == 0 && argc == 5) return hold(argv[3], (unsigned)atoi(argv[4]));
    if (strcmp(what, "abort") == 0) return atomic_store(&board->abort, 1), 0;
    if (strcmp(what, "hang") == 0 && argc == 4) return atomic_store(&board->hang[atoi(argv[3]) % SEATS], 1), 0;
    if (strcmp(what, "end") == 0) return atomic_store(&board->end, 1), 0;
    fprintf(stderr, "helper_elastic work|pid|strike|end|abort|hang|compute|hold FILE ...: see the top of its source\n");
    return 2;
}
