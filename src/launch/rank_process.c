/* rank_process.c - see rank_process.h. Errors between fork and exec return through a pipe that exec closes. */
#include "launch/rank_process.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "launch/cpu_bind.h"

typedef struct start_error {
    int step; /* gw_start_step */
    int number;
} start_error;

static void set_number(const char *name, int value) {
    char text[16];
    snprintf(text, sizeof text, "%d", value);
    setenv(name, text, 1);
}

/* In a later generation, ranks and rendezvous address come from its roster. */
static void set_roster(const gw_host_spec *spec, int member) {
    unsetenv("GRADWIRE_ROSTER");
    unsetenv("GRADWIRE_MEMBER");
    unsetenv("GRADWIRE_GENERATION");
    if (!spec->roster_path) return;
    setenv("GRADWIRE_ROSTER", spec->roster_path, 1);
    set_number("GRADWIRE_MEMBER", member);
    if (!spec->roster) return;
    set_number("GRADWIRE_GENERATION", spec->roster->generation);
    set_number("RANK", gw_roster_rank(spec->roster, member));
    set_number("WORLD_SIZE", spec->roster->world - gw_roster_servers(spec->roster));
    set_number("GRADWIRE_SERVERS", gw_roster_servers(spec->roster));
    setenv("MASTER_ADDR", spec->roster->address, 1);
    set_number("GRADWIRE_MASTER_PORT", spec->roster->port);
}

static void set_environment(const gw_host_spec *spec, int local) {
    int rank = spec->first_rank + local;
    for (char *const *entry = spec->env; *entry; entry++) putenv(*entry);
    setenv("PYTHONUNBUFFERED", "1", 0); /* a rank that dies loses what Python has buffered */
    set_number("RANK", rank);
    set_number("WORLD_SIZE", spec->world);
    set_number("LOCAL_RANK", local);
    set_number("LOCAL_WORLD_SIZE", spec->local_ranks);
    set_number("GROUP_RANK", spec->group);
    unsetenv("GRADWIRE_TOKEN_FILE"); /* drop the variables of an enclosing job */
    unsetenv("GRADWIRE_LISTEN_FD");
    if (rank == 0 && spec->listen_fd >= 0) set_number("GRADWIRE_LISTEN_FD", spec->listen_fd);
    set_roster(spec, rank);
}

static void reset_signals(void) {
    sigset_t none;
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    signal(SIGPIPE, SIG_DFL);
    signal(SIGXFSZ, SIG_DFL);
    signal(SIGCHLD, SIG_DFL);
}

/* Returns only if the program could not be started. */
static start_error become_rank(const gw_host_spec *spec, int local, const int output[2], pid_t parent) {
    /* No setsid: the kernel divides cores among sessions first (autogroup), so a rank in a session of its own could not
     * yield its core to another rank. */
    setpgid(0, 0);
    if (prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0) != 0 || getppid() != parent) _exit(1); /* the parent has died */
    int null = open("/dev/null", O_RDONLY | O_CLOEXEC);
    if (null < 0 || dup2(null, 0) < 0 || dup2(output[0], 1) < 0 || dup2(output[1], 2) < 0)
        return (start_error){GW_START_FORK, errno};
    if (chdir(spec->directory) != 0) return (start_error){GW_START_DIRECTORY, errno};
    if (spec->first_rank + local == 0 && spec->listen_fd >= 0) fcntl(spec->listen_fd, F_SETFD, 0);
    set_environment(spec, local);
    bool works = spec->first_rank < spec->world; /* servers are not bound */
    if (works) gw_bind_self(local, spec->local_ranks);
    reset_signals();
    execvp(spec->argv[0], spec->argv);
    return (start_error){GW_START_PROGRAM, errno};
}

static void close_pair(int pair[2]) {
    if (pair[0] >= 0) close(pair[0]);
    if (pair[1] >= 0) close(pair[1]);
}

int gw_rank_start(gw_rank_process *rank, const gw_host_spec *spec, int local, gw_start_step *step) {
    int out[2] = {-1, -1}, err[2] = {-1, -1}, report[2] = {-1, -1};
    start_error failure = {GW_START_FORK, 0};
    pid_t parent = getpid(), pid = -1;
    if (pipe2(out, O_CLOEXEC) != 0 || pipe2(err, O_CLOEXEC) != 0 || pipe2(report, O_CLOEXEC) != 0) goto fail;
    rank->started = gw_clock_now();
    pid = fork();
    if (pid < 0) goto fail;
    if (pid == 0) {
        failure = become_rank(spec, local, (int[2]){out[1], err[1]}, parent);
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
