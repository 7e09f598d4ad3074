/* rank.c - see rank.h. What goes wrong between fork and exec comes back through a pipe that exec closes. */
#include "launch/rank.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "launch/bind.h"

typedef struct start_error {
    int step; /* gw_start_step */
    int number;
} start_error;

static void set_number(const char *name, int value) {
    char text[16];
    snprintf(text, sizeof text, "%d", value);
    setenv(name, text, 1);
}

/* The ranks and the meeting point of a later round are those of its roll. */
static void set_roll(const gw_order *order, int seat) {
    unsetenv("GRADWIRE_ROLL");
    unsetenv("GRADWIRE_SEAT");
    unsetenv("GRADWIRE_ROUND");
    if (!order->roll_path) return;
    setenv("GRADWIRE_ROLL", order->roll_path, 1);
    set_number("GRADWIRE_SEAT", seat);
    if (!order->roll) return;
    set_number("GRADWIRE_ROUND", order->roll->round);
    set_number("RANK", gw_roll_rank(order->roll, seat));
    set_number("WORLD_SIZE", order->roll->world - gw_roll_servers(order->roll));
    set_number("GRADWIRE_SERVERS", gw_roll_servers(order->roll));
    setenv("MASTER_ADDR", order->roll->address, 1);
    set_number("GRADWIRE_MASTER_PORT", order->roll->port);
}

static void set_environment(const gw_order *order, int local) {
    int rank = order->first_rank + local;
    for (char *const *entry = order->env; *entry; entry++) putenv(*entry);
    setenv("PYTHONUNBUFFERED", "1", 0); /* a pipe would hold back what a rank printed before it died */
    set_number("RANK", rank);
    set_number("WORLD_SIZE", order->world);
    set_number("LOCAL_RANK", local);
    set_number("LOCAL_WORLD_SIZE", order->local_ranks);
    set_number("GROUP_RANK", order->group);
    unsetenv("GRADWIRE_TOKEN_FILE"); /* those of a job around this one do not count */
    unsetenv("GRADWIRE_LISTEN_FD");
    if (rank == 0 && order->listen_fd >= 0) set_number("GRADWIRE_LISTEN_FD", order->listen_fd);
    set_roll(order, rank);
}

static void reset_signals(void) {
    sigset_t none;
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    signal(SIGPIPE, SIG_DFL);
    signal(SIGCHLD, SIG_DFL);
}

/* Only returns if the program could not be started. */
static start_error become_rank(const gw_order *order, int local, const int output[2], pid_t parent) {
    /* Not a session: the kernel shares cores out among sessions first (autogroup), and a rank that calls sched_yield in
     * one of its own hands its core to nobody. */
    setpgid(0, 0);
    if (prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0) != 0 || getppid() != parent) _exit(1); /* it died before the call */
    int null = open("/dev/null", O_RDONLY | O_CLOEXEC);
    if (null < 0 || dup2(null, 0) < 0 || dup2(output[0], 1) < 0 || dup2(output[1], 2) < 0)
        return (start_error){GW_START_FORK, errno};
    if (chdir(order->directory) != 0) return (start_error){GW_START_DIRECTORY, errno};
    if (order->first_rank + local == 0 && order->listen_fd >= 0) fcntl(order->listen_fd, F_SETFD, 0);
    set_environment(order, local);
    bool works = order->first_rank < order->world; /* servers have no cores to themselves */
    if (works) gw_bind_self(local, order->local_ranks);
    reset_signals();
    execvp(order->argv[0], order->argv);
    return (start_error){GW_START_PROGRAM, errno};
}

static void close_pair(int pair[2]) {
    if (pair[0] >= 0) close(pair[0]);
    if (pair[1] >= 0) close(pair[1]);
}

int gw_rank_start(gw_rank_process *rank, const gw_order *order, int local, gw_start_step *step) {
    int out[2] = {-1, -1}, err[2] = {-1, -1}, report[2] = {-1, -1};
    start_error failure = {GW_START_FORK, 0};
    pid_t parent = getpid(), pid = -1;
    if (pipe2(out, O_CLOEXEC) != 0 || pipe2(err, O_CLOEXEC) != 0 || pipe2(report, O_CLOEXEC) != 0) goto fail;
    rank->started = gw_clock_now();
    pid = fork();
    if (pid < 0) goto fail;
    if (pid == 0) {
        failure = become_rank(order, local, (int[2]){out[1], err[1]}, parent);
        if (write(report[1], &failure, sizeof failure) < 0) _exit(126);
        _exit(127);
    }
    close(report[1]);
    report[1] = -1;
    if (read(report[0], &failure, sizeof failure) == (ssize_t)sizeof failure) goto fail;
    close(report[0]);
    close(out[1]);
    close(err[1]);
    fcntl(out[0], F_SETFL, O_NONBLOCK);
    fcntl(err[0], F_SETFL, O_NONBLOCK);
    rank->pid = pid;
    rank->stream[0] = out[0];
    rank->stream[1] = err[0];
    return 0;

fail:
    if (failure.number == 0) failure.number = errno;
    if (pid > 0) waitpid(pid, NULL, 0);
    close_pair(report);
    close_pair(err);
    close_pair(out);
    *step = (gw_start_step)failure.step;
    return failure.number;
}
