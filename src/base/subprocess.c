/* subprocess.c - see subprocess.h. */
#include "base/subprocess.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"

#define TICK (50 * GW_MILLISECOND)
#define GRACE (5 * GW_SECOND) /* between SIGTERM and SIGKILL */
#define SAID_BYTES 200

extern char **environ;

/* The file for the tool's output, which is read back after a failure. */
static int open_log(const gw_subprocess *tool) {
    if (tool->log) return open(tool->log, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
    return memfd_create("gradwire-tool", MFD_CLOEXEC);
}

static int spawn(const gw_subprocess *tool, int log, pid_t *process) {
    posix_spawn_file_actions_t actions;
    posix_spawnattr_t attributes;
    if (posix_spawn_file_actions_init(&actions) != 0) return ENOMEM;
    posix_spawnattr_init(&attributes); /* cannot fail: glibc only clears it */
    int cause = posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0);
    if (!cause) cause = posix_spawn_file_actions_adddup2(&actions, log, 1);
    if (!cause) cause = posix_spawn_file_actions_adddup2(&actions, log, 2);
    if (!cause && tool->directory) cause = posix_spawn_file_actions_addchdir_np(&actions, tool->directory);
    if (!cause && tool->apart) cause = posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETPGROUP);
    if (!cause)
        cause = posix_spawnp(process, tool->words[0], &actions, &attributes, (char *const *)(uintptr_t)tool->words,
                             environ);
    posix_spawnattr_destroy(&attributes);
    posix_spawn_file_actions_destroy(&actions);
    return cause;
}

/* True when the process is gone, with its wait status. */
static bool ended(pid_t process, int *status) {
    pid_t got = waitpid(process, status, WNOHANG);
    return got == process || (got < 0 && errno != EINTR);
}

/* The pidfd wakes poll when the process ends; without one, the tick bounds the delay. */
static bool wait_until(pid_t process, gw_time deadline, const gw_subprocess *tool, int *status) {
    bool gone;
    struct pollfd handle = {.fd = (int)syscall(SYS_pidfd_open, process, 0), .events = POLLIN};
    while (!(gone = ended(process, status)) && gw_clock_now() < deadline) {
        poll(&handle, 1, (int)(TICK / GW_MILLISECOND));
        if (tool->tick) tool->tick(tool->ctx);
    }
    if (handle.fd >= 0) close(handle.fd);
    return gone;
}

static void terminate(pid_t process, const gw_subprocess *tool) {
    int status;
    kill(process, SIGTERM);
    if (wait_until(process, gw_clock_now() + GRACE, tool, &status)) return;
    kill(process, SIGKILL);
    waitpid(process, &status, 0);
}

static bool is_error(const char *line) {
    static const char *const marks[] = {"E: ", "Error", "npm err", "RTNETLINK"};
    for (size_t i = 0; i < sizeof marks / sizeof marks[0]; i++)
        if (strncasecmp(line, marks[i], strlen(marks[i])) == 0) return true;
    return false;
}

/* The most informative line: the first one marked as an error, else the last that is not empty. */
static void pick_output_line(int log, char said[SAID_BYTES]) {
    char line[1024];
    bool marked = false;
    strcpy(said, "it said nothing");
    int again = lseek(log, 0, SEEK_SET) == 0 ? fcntl(log, F_DUPFD_CLOEXEC, 0) : -1;
    FILE *file = again >= 0 ? fdopen(again, "r") : NULL;
    while (file && !marked && fgets(line, sizeof line, file)) {
        line[strcspn(line, "\r\n")] = '\0';
        if (line[0] == '\0') continue;
        marked = is_error(line);
        snprintf(said, SAID_BYTES, "%.*s", SAID_BYTES - 1, line);
        for (char *letter = said; *letter; letter++)
            if (!isprint((unsigned char)*letter)) *letter = '?';
    }
    if (file) fclose(file);
    else if (again >= 0) close(again);
}

static gw_status fail_with_output(const gw_subprocess *tool, int log, gw_error *error) {
    char command[256] = "", said[SAID_BYTES];
    size_t used = 0;
    for (int i = 0; tool->words[i] && used < sizeof command - 1; i++)
        used += (size_t)snprintf(command + used, sizeof command - used, "%s%s", i ? " " : "", tool->words[i]);
    pick_output_line(log, said);
    return gw_fail(error, GW_SYSTEM, "\"%s\" failed: %s", command, said);
}

static gw_status run(const gw_subprocess *tool, int log, gw_error *error) {
    pid_t process;
    int result = -1, cause = spawn(tool, log, &process);
    if (cause == ENOENT) return gw_fail(error, GW_UNSUPPORTED, "there is no %s on this machine", tool->words[0]);
    if (cause) return gw_fail(error, GW_SYSTEM, "%s cannot be started: %s", tool->words[0], strerror(cause));
    if (!wait_until(process, gw_clock_now() + (gw_time)(tool->seconds * (double)GW_SECOND), tool, &result)) {
        terminate(process, tool);
        return gw_fail(error, GW_TIMEOUT, "%s was not done after %.0f s and has been ended", tool->words[0],
                       tool->seconds);
    }
    return result == 0 ? GW_OK : fail_with_output(tool, log, error);
}

gw_status gw_subprocess_run(const gw_subprocess *tool, gw_error *error) {
    int log = open_log(tool);
    if (log < 0) return gw_fail(error, GW_SYSTEM, "no file for what %s prints: %s", tool->words[0], strerror(errno));
    gw_status status = run(tool, log, error);
    close(log);
    return status;
}
