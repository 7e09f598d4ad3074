/* bench_job.c - starts, measures and ends the jobs of a comparison: one for each library and configuration, gradwire
 * included. The driver sends them commands over a side channel, so that they take turns. See bench.h. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "cli/bench/bench.h"

static const gw_time start_budget = 60 * GW_SECOND; /* for all ranks of a job to report */
static const gw_time turn_budget = 300 * GW_SECOND; /* for one turn; jobs also have their own deadlines */
static const gw_time end_budget = 5 * GW_SECOND;    /* for a job to end after its side channel is closed */

static void title(const gw_bench_job *c, char text[64]) {
    bool ours = strcmp(c->library, "gradwire") == 0;
    snprintf(text, 64, "%s%s%s%s", c->library, ours ? " (" : "", ours ? c->arch : "", ours ? ")" : "");
}

/* ---- starting ---- */

static void become_job(const gw_spawn *spawn, const gw_bench_job *c, pid_t parent) {
    sigset_t none;
    sigemptyset(&none);
    setpgid(0, 0); /* only the driver gets Ctrl-C */
    sigprocmask(SIG_SETMASK, &none, NULL);
    for (int number = SIGHUP; number <= SIGTERM; number++) signal(number, SIG_DFL);
    if (prctl(PR_SET_PDEATHSIG, SIGTERM, 0, 0, 0) != 0 || getppid() != parent) _exit(1);
    int null = open("/dev/null", O_RDONLY);
    if (null < 0 || dup2(null, 0) < 0 || dup2(2, 1) < 0) _exit(1); /* standard output is for results */
    setenv(GW_BENCH_VARIABLE, c->directory, 1);
    if (strcmp(c->library, "bound") == 0) setenv(GW_BENCH_BOUND, "1", 1);
    else unsetenv(GW_BENCH_BOUND);
    if (c->codec[0]) setenv(GW_BENCH_COMPRESS, c->codec, 1);
    else unsetenv(GW_BENCH_COMPRESS);
    execvp(spawn->argv[0], spawn->argv);
    dprintf(2, "gradwire bench: cannot run %s: %s\n", spawn->argv[0], strerror(errno));
    _exit(127);
}

/* Polls the descriptors once, for at most 0.1 s. An error means that waiting longer is useless. */
static gw_status await(gw_bench_job *c, struct pollfd *polls, int count, gw_time until, gw_error *error) {
    char name[64];
    int status;
    title(c, name);
    if (gw_bench_interrupted()) return gw_fail(error, GW_ABORTED, "interrupted");
    if (poll(polls, (nfds_t)count, 100) > 0) return GW_OK;
    for (int i = 0; i < count; i++) polls[i].revents = 0;
    if (c->pid && waitpid(c->pid, &status, WNOHANG) == c->pid) {
        c->pid = 0;
        return gw_fail(error, GW_SYSTEM, "the job of %s ended before its benchmark did (exit code %d)", name,
                       WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status));
    }
    if (gw_clock_now() > until) return gw_fail(error, GW_TIMEOUT, "the ranks of %s did not answer in time", name);
    return GW_OK;
}

/* Reads from a rank whose descriptor is ready. *line is NULL until a line is complete. */
static gw_status read_line(const gw_bench_job *c, gw_lines *lines, int rank, char **line, gw_error *error) {
    char name[64];
    title(c, name);
    *line = NULL;
    if (!gw_lines_read(lines)) return gw_fail_rank(error, GW_PEER_LOST, rank, "rank %d of %s went away", rank, name);
    *line = gw_lines_next(lines);
    if (!*line || strncmp(*line, "error ", 6) != 0) return GW_OK;
    return gw_fail(error, GW_SYSTEM, "%s: %s", name, *line + 6);
}

/* Accepts the next rank that connects. */
static gw_status accept_rank(gw_bench_job *c, int world, gw_time until, gw_error *error) {
    struct pollfd door = {.fd = c->listener, .events = POLLIN};
    gw_lines lines = {.fd = -1};
    int rank = -1, size = 0;
    char *line = NULL;
    gw_status status = GW_OK;
    while (!status && !door.revents) status = await(c, &door, 1, until, error);
    if (status) return status;
    lines.fd = accept4(c->listener, NULL, NULL, SOCK_CLOEXEC);
    while (!status && !line) status = read_line(c, &lines, -1, &line, error);
    if (!status && (sscanf(line, "hello %d %d", &rank, &size) != 2 || size != world || rank < 0 || rank >= world ||
                    c->ranks[rank].fd >= 0))
        status = gw_fail(error, GW_PROTOCOL, "a rank of %s said \"%.60s\" in a benchmark of %d ranks", c->library, line,
                         world);
    if (!status) c->ranks[rank] = lines;
    else gw_lines_free(&lines);
    return status;
}

gw_status gw_bench_job_start(gw_comparison *comparison, gw_bench_job *c, gw_error *error) {
    gw_spawn spawn = {.count = 0};
    gw_status status = gw_bench_job_command(comparison, c, &spawn, error);
    if (status) return status;
    snprintf(c->directory, sizeof c->directory, "%s/%d", comparison->directory, (int)(c - comparison->jobs));
    c->ranks = calloc((size_t)comparison->world, sizeof *c->ranks);
    if (!c->ranks) return gw_fail(error, GW_MEMORY, "no memory for %d ranks", comparison->world);
    for (int r = 0; r < comparison->world; r++) c->ranks[r].fd = -1;
    c->listener = mkdir(c->directory, 0700) == 0 ? gw_side_channel_open(c->directory) : -1;
    if (c->listener < 0) return gw_fail(error, GW_SYSTEM, "no side channel in %s: %s", c->directory, strerror(errno));
    pid_t parent = getpid();
    c->pid = fork();
    if (c->pid == 0) become_job(&spawn, c, parent);
    if (c->pid < 0) return gw_fail(error, GW_SYSTEM, "cannot start a process: %s", strerror(errno));
    c->group = c->pid;
    gw_time until = gw_clock_now() + start_budget;
    for (int r = 0; r < comparison->world && !status; r++) status = accept_rank(c, comparison->world, until, error);
    return status;
}

/* ---- ending ---- */

static bool ended(pid_t pid, gw_time budget) {
    gw_time until = gw_clock_now() + budget;
    for (;;) {
        if (waitpid(pid, NULL, WNOHANG) != 0) return true;
        if (gw_clock_now() > until) return false;
        poll(NULL, 0, 2);
    }
}

/* Removes the side channel, and files that a library has left in its directory. */
static void remove_directory(const char *path) {
    DIR *directory = opendir(path);
    for (struct dirent *entry; directory && (entry = readdir(directory));)
        if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0)
            unlinkat(dirfd(directory), entry->d_name, 0);
    if (directory) closedir(directory);
    rmdir(path);
}

void gw_bench_job_end(gw_bench_job *c, int world) {
    for (int r = 0; c->ranks && r < world; r++)
        if (c->ranks[r].fd >= 0) gw_lines_free(&c->ranks[r]);
    free(c->ranks);
    c->ranks = NULL;
    if (c->listener >= 0) close(c->listener);
    c->listener = -1;
    /* A job ends when its side channel is closed; the signals are for one that hangs. */
    if (c->pid > 0 && !ended(c->pid, gw_bench_interrupted() ? 0 : end_budget)) {
        kill(c->pid, SIGTERM);
        if (!ended(c->pid, end_budget)) {
            kill(c->pid, SIGKILL);
            waitpid(c->pid, NULL, 0);
        }
    }
    if (c->group) kill(-c->group, SIGKILL); /* a launcher may leave processes behind */
    c->pid = c->group = 0;
    if (c->directory[0]) remove_directory(c->directory);
}

/* ---- measuring ---- */

/* Parses "done WRONG CPU N ns ns ...", adds to the tally, and keeps for each call the time of the slowest rank. */
static bool merge(const char *line, int calls, uint64_t *times, gw_bench_tally *tally) {
    unsigned long long value, cpu;
    int count, used;
    if (sscanf(line, "done %llu %llu %d%n", &value, &cpu, &count, &used) != 3 || count != calls) return false;
    tally->wrong += value;
    tally->cpu_ns += cpu;
    for (int i = 0; i < calls; i++) {
        char *end;
        line += used;
        value = strtoull(line, &end, 10);
        used = (int)(end - line);
        if (!used) return false;
        if (value > times[i]) times[i] = value;
    }
    return true;
}

/* Reads the answers in the order of their arrival: an error names the first rank that went away. */
static gw_status gather(gw_bench_job *c, int world, int calls, uint64_t *times, gw_bench_tally *tally,
                        struct pollfd *polls, gw_error *error) {
    gw_time until = gw_clock_now() + turn_budget;
    gw_status status = GW_OK;
    for (int r = 0; r < world; r++) polls[r] = (struct pollfd){.fd = c->ranks[r].fd, .events = POLLIN};
    for (int left = world; left && !status;) {
        status = await(c, polls, world, until, error);
        for (int r = 0; r < world && !status; r++) {
            char *line = NULL;
            if (polls[r].revents) status = read_line(c, &c->ranks[r], r, &line, error);
            if (!line || status) continue;
            if (!merge(line, calls, times, tally))
                status = gw_fail(error, GW_PROTOCOL, "rank %d of %s said \"%.60s\"", r, c->library, line);
            polls[r].fd = -1;
            left--;
        }
    }
    return status;
}

gw_status gw_bench_job_measure(gw_bench_job *c, int world, const gw_bench_case *the_case, uint64_t *times,
                               gw_bench_tally *tally, gw_error *error) {
    char line[GW_BENCH_LINE_BYTES + 1];
    struct pollfd *polls = calloc((size_t)world, sizeof *polls);
    if (!polls) return gw_fail(error, GW_MEMORY, "no memory for %d ranks", world);
    gw_bench_case_print(the_case, line);
    strcat(line, "\n");
    memset(times, 0, (size_t)the_case->calls * sizeof *times);
    gw_status status = GW_OK;
    for (int r = 0; r < world && !status; r++)
        if (send(c->ranks[r].fd, line, strlen(line), MSG_NOSIGNAL) < 0)
            status = gw_fail_rank(error, GW_PEER_LOST, r, "rank %d of %s went away", r, c->library);
    if (!status) status = gather(c, world, the_case->calls, times, tally, polls, error);
    free(polls);
    return status;
}
