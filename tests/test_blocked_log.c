/* test_blocked_log.c - standard error that takes nothing, files that may not grow, threads and signals: what a program
 * around the library may do to it must not stop or kill its ranks. */
#include "small_job.h"

#include <dirent.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/log.h"
#include "base/thread.h"
#include "engine/flight_recorder.h"

static _Atomic bool warned; /* of descriptors */

static void look_for_descriptors(void *ctx, gw_log_level level, int rank, const char *text) {
    (void)ctx, (void)level, (void)rank;
    if (strstr(text, "no descriptor is left")) atomic_store(&warned, true);
}

static int world_port;
static char folder[64];

static void make_folder(void) {
    snprintf(folder, sizeof folder, "/tmp/gradwire-test-XXXXXX");
    if (!mkdtemp(folder)) abort();
    setenv("GRADWIRE_FLIGHT_DIR", folder, 1);
}

static void remove_folder(void) {
    char command[128];
    snprintf(command, sizeof command, "rm -rf %s", folder);
    CHECK_EQ(0, system(command));
}

/* Standard error becomes a pipe whose reader does not read; returns that end. */
static int block_stderr(void) {
    int ends[2];
    char much[4096] = {0};
    if (pipe(ends) != 0 || dup2(ends[1], STDERR_FILENO) < 0) abort();
    close(ends[1]);
    fcntl(ends[0], F_SETFL, O_NONBLOCK);
    fcntl(STDERR_FILENO, F_SETFL, O_NONBLOCK);
    while (write(STDERR_FILENO, much, sizeof much) > 0) continue;
    while (write(STDERR_FILENO, much, 1) > 0) continue;
    fcntl(STDERR_FILENO, F_SETFL, 0);
    return ends[0];
}

static void drain(int pipe) {
    char much[4096];
    while (read(pipe, much, sizeof much) > 0) continue;
}

/* One call fails by its deadline; before, warnings about the slow rank were written under the lock. */
static void call_beside_a_rank_that_is_late(int rank) {
    gw_comm *comm = NULL;
    gw_options options = job_options(rank, 2, world_port, "arch=auto");
    options.deadline_s = 0.6;
    float x = 1, y = 0;
    if (rank == 0) block_stderr();
    CHECK_EQ(GW_OK, gw_init(&comm, &options));
    CHECK_EQ(GW_OK, gw_allreduce(comm, &x, &y, 1, GW_F32, GW_SUM));
    if (rank == 0) {
        gw_time called = gw_clock_now();
        CHECK(gw_allreduce(comm, &x, &y, 1, GW_F32, GW_SUM) != GW_OK);
        double took = (double)(gw_clock_now() - called) / 1e9;
        if (took > 0.6 + TEST_SLACK_MS / 1e3) printf("    the call took %.1f s\n", took), test_failures++;
        CHECK(strstr(gw_last_error(comm), "rank 1") != NULL);
    } else {
        sleep(2);
    }
    gw_finalize(comm);
}

static void a_full_pipe_does_not_delay_a_call(void) {
    world_port = free_port();
    make_folder();
    job_fork(2, call_beside_a_rank_that_is_late);
    remove_folder();
}

static void write_lines(int rank) {
    char text[8192];
    int pipe = block_stderr();
    (void)rank;
    gw_time begun = gw_clock_now();
    for (int i = 0; i < 1000; i++) gw_log(GW_LOG_ERROR, 3, "line %d", i);
    CHECK(gw_clock_now() - begun < 5 * GW_SECOND);
    CHECK_EQ(0, fcntl(STDERR_FILENO, F_GETFL) & O_NONBLOCK); /* other processes have it, too */
    drain(pipe);
    gw_log(GW_LOG_ERROR, 3, "the last");
    ssize_t got = read(pipe, text, sizeof text - 1);
    text[got > 0 ? got : 0] = 0;
    CHECK_STR("gradwire warn: 1000 lines are missing here: standard error was full\n"
              "gradwire error: rank 3: the last\n",
              text);
    close(pipe); /* nobody reads any more: no signal, no error */
    gw_log(GW_LOG_ERROR, 3, "unread");
}

static void lines_without_room_are_counted(void) { job_fork(1, write_lines); }

static void *sleep_forever(void *runs) {
    atomic_store((_Atomic bool *)runs, true);
    for (;;) pause();
    return NULL;
}

/* Threads of this process, except the calling one, that take a signal of the process. */
static int threads_with_signals(int *threads) {
    int open = 0;
    DIR *tasks = opendir("/proc/self/task");
    *threads = 0;
    for (struct dirent *task; (task = readdir(tasks));) {
        char path[300], line[256];
        unsigned long long blocked = 0;
        if (task->d_name[0] == '.' || atoi(task->d_name) == (int)getpid()) continue;
        snprintf(path, sizeof path, "/proc/self/task/%s/status", task->d_name);
        FILE *status = fopen(path, "r");
        while (status && fgets(line, sizeof line, status)) sscanf(line, "SigBlk: %llx", &blocked);
        if (status) fclose(status);
        ++*threads;
        open += (blocked >> (SIGALRM - 1) & 1) == 0 || (blocked >> (SIGINT - 1) & 1) == 0;
    }
    closedir(tasks);
    return open;
}

static void look_at_threads(int rank) {
    gw_comm *comm = NULL;
    gw_options options = job_options(rank, 2, world_port, "arch=auto");
    _Atomic bool runs = false;
    int threads;
    pthread_t mine;
    CHECK_EQ(GW_OK, gw_init(&comm, &options));
    CHECK_EQ(0, threads_with_signals(&threads));
    CHECK(threads >= 1);
    pthread_create(&mine, NULL, sleep_forever, &runs);
    while (!atomic_load(&runs)) usleep(1000);
    CHECK_EQ(1, threads_with_signals(&threads)); /* the program's own threads are as they were */
    gw_finalize(comm);
}

static void threads_of_the_library_take_no_signals(void) {
    world_port = free_port();
    job_fork(2, look_at_threads);
}

static void print_much(const void *ctx, FILE *out) {
    (void)ctx;
    for (int i = 0; i < 5000; i++) fputs("a line of a file that grows\n", out);
}

static void fill_files(int rank) {
    const struct rlimit limit = {8192, RLIM_INFINITY};
    struct sigaction action;
    sigset_t blocked;
    gw_comm *comm = NULL;
    gw_options options = job_options(rank, 2, world_port, "arch=auto");
    gw_error error = {.rank = -1};
    char path[128];
    float x = 1, y = 0;
    setrlimit(RLIMIT_FSIZE, &limit);
    snprintf(path, sizeof path, "%s/file.%d", folder, rank);
    CHECK_EQ(GW_SYSTEM, gw_file_replace(path, print_much, NULL, &error));
    CHECK(strstr(error.text, "File too large") != NULL);
    CHECK(access(path, F_OK) != 0);
    CHECK_EQ(GW_OK, gw_init(&comm, &options)); /* memory files have the same limit */
    CHECK_EQ(GW_OK, gw_allreduce(comm, &x, &y, 1, GW_F32, GW_SUM));
    CHECK(y == 2);
    CHECK_EQ(0, sigaction(SIGXFSZ, NULL, &action));
    CHECK(action.sa_handler == SIG_DFL);
    pthread_sigmask(SIG_BLOCK, NULL, &blocked);
    CHECK_EQ(0, sigismember(&blocked, SIGXFSZ));
    gw_finalize(comm);
}

static void a_limit_of_file_sizes_kills_nobody(void) {
    world_port = free_port();
    make_folder();
    job_fork(2, fill_files);
    remove_folder();
}

/* Rank 0 may open few descriptors. Wherever it runs out of them, it says so. */
static int descriptors;

static void join_with_few_descriptors(int rank) {
    const struct rlimit few = {(rlim_t)descriptors, (rlim_t)descriptors};
    gw_comm *comm = NULL;
    gw_options options = job_options(rank, 2, world_port, "transport=tcp");
    options.deadline_s = 0.4;
    gw_set_log(look_for_descriptors, NULL);
    if (rank == 0) CHECK_EQ(0, setrlimit(RLIMIT_NOFILE, &few));
    gw_status status = gw_init(&comm, &options);
    const char *text = gw_last_error(NULL);
    bool named = warned || strstr(text, "descriptor") || strstr(text, "Too many open files");
    if (rank == 0 && status && (!named || strstr(text, "strangers") || strstr(text, "no route"))) {
        printf("    with %d descriptors: %s\n", descriptors, text);
        test_failures++;
    }
    if (status == GW_OK) gw_finalize(comm);
}

static void descriptors_that_are_used_up_are_named(void) {
    for (descriptors = 4; descriptors <= 16; descriptors++) {
        world_port = free_port();
        job_fork(2, join_with_few_descriptors);
    }
}

/* Flight records. */

static int count_files(int *others) {
    int count = 0;
    DIR *all = opendir(folder);
    for (struct dirent *entry; (entry = readdir(all));) {
        bool record = strncmp(entry->d_name, "gradwire-flight-", 16) == 0;
        count += record;
        *others += !record && entry->d_name[0] != '.';
    }
    closedir(all);
    return count;
}

static void records_are_private_and_bounded(void) {
    gw_flight flight = {.count = 0};
    gw_error error = {.status = GW_TIMEOUT, .rank = 1, .text = "nothing moved"};
    struct stat about;
    char path[GW_FLIGHT_PATH], victim[128], link[256];
    int others = 0;
    make_folder();
    snprintf(victim, sizeof victim, "%s/victim", folder);
    snprintf(link, sizeof link, "%s/gradwire-flight-0-%d.txt", folder, (int)getpid());
    CHECK_EQ(0, close(open(victim, O_WRONLY | O_CREAT | O_EXCL, 0666)));
    CHECK_EQ(0, symlink(victim, link));
    CHECK(gw_flight_write(&flight, 0, &error, path)); /* in the place of the link, not through it */
    CHECK_STR(link, path);
    CHECK(lstat(path, &about) == 0 && S_ISREG(about.st_mode) && (about.st_mode & 0777) == 0600);
    CHECK(stat(victim, &about) == 0 && about.st_size == 0);
    for (int rank = 0; rank < GW_FLIGHT_RECORDS + 20; rank++) CHECK(gw_flight_write(&flight, rank, &error, path));
    CHECK_EQ(GW_FLIGHT_RECORDS, count_files(&others));
    CHECK_EQ(1, others);
    CHECK(access(path, R_OK) == 0 && access(link, R_OK) != 0); /* the newest is there, the oldest is not */
    remove_folder();
}

static void records_go_to_the_users_folder(void) {
    gw_flight flight = {.count = 0};
    gw_error error = {.status = GW_TIMEOUT, .rank = 1, .text = "nothing moved"};
    char path[GW_FLIGHT_PATH], expected[256];
    make_folder();
    unsetenv("GRADWIRE_FLIGHT_DIR");
    unsetenv("XDG_STATE_HOME");
    setenv("HOME", folder, 1);
    snprintf(expected, sizeof expected, "%s/.local/state/gradwire/gradwire-flight-5-%d.txt", folder, (int)getpid());
    CHECK(gw_flight_write(&flight, 5, &error, path));
    CHECK_STR(expected, path);
    setenv("XDG_STATE_HOME", folder, 1);
    snprintf(expected, sizeof expected, "%s/gradwire/gradwire-flight-5-%d.txt", folder, (int)getpid());
    CHECK(gw_flight_write(&flight, 5, &error, path));
    CHECK_STR(expected, path);
    setenv("GRADWIRE_FLIGHT_DIR", "/proc/none", 1); /* asked for, so it is not replaced by another */
    CHECK(!gw_flight_write(&flight, 5, &error, path));
    remove_folder();
}

TEST_MAIN(CASE(a_full_pipe_does_not_delay_a_call), CASE(lines_without_room_are_counted),
          CASE(threads_of_the_library_take_no_signals), CASE(a_limit_of_file_sizes_kills_nobody),
          CASE(descriptors_that_are_used_up_are_named), CASE(records_are_private_and_bounded),
          CASE(records_go_to_the_users_folder))
