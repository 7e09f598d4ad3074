/* tool.c - see tool.h. */
#include "data/tool.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"

#define TICK (50 * GW_MILLISECOND)
#define GRACE (5 * GW_SECOND) /* from asking a tool to end to making it */
#define SAID_BYTES 200

extern char **environ;

static gw_status start(const gw_tool *tool, pid_t *process, gw_error *error) {
    posix_spawn_file_actions_t actions;
    if (posix_spawn_file_actions_init(&actions) != 0) return gw_fail(error, GW_MEMORY, "no memory to run a tool");
    int cause = posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0);
    if (!cause) cause = posix_spawn_file_actions_addopen(&actions, 1, tool->log, O_WRONLY | O_CREAT | O_TRUNC, 0644);
    if (!cause) cause = posix_spawn_file_actions_adddup2(&actions, 1, 2);
    if (!cause) cause = posix_spawn_file_actions_addchdir_np(&actions, tool->directory);
    if (!cause)
        cause = posix_spawnp(process, tool->words[0], &actions, NULL, (char *const *)(uintptr_t)tool->words, environ);
    posix_spawn_file_actions_destroy(&actions);
    if (cause == ENOENT) return gw_fail(error, GW_UNSUPPORTED, "there is no %s on this machine", tool->words[0]);
    if (cause) return gw_fail(error, GW_SYSTEM, "%s cannot be started: %s", tool->words[0], strerror(cause));
    return GW_OK;
}

/* True when the process is gone, with its wait status. */
static bool ended(pid_t process, int *status) {
    pid_t got = waitpid(process, status, WNOHANG);
    return got == process || (got < 0 && errno != EINTR);
}

static bool wait_until(pid_t process, gw_time deadline, const gw_tool *tool, int *status) {
    while (!ended(process, status)) {
        if (gw_clock_now() >= deadline) return false;
        struct timespec pause = {.tv_nsec = TICK};
        nanosleep(&pause, NULL);
        if (tool->tick) tool->tick(tool->ctx);
    }
    return true;
}

static void end(pid_t process, const gw_tool *tool) {
    int status;
    kill(process, SIGTERM);
    if (wait_until(process, gw_clock_now() + GRACE, tool, &status)) return;
    kill(process, SIGKILL);
    waitpid(process, &status, 0);
}

/* The line that says most: the first that is marked as an error, else the last that is not empty. */
static void what_it_said(const char *log, char said[SAID_BYTES]) {
    char line[1024];
    bool marked = false;
    strcpy(said, "it said nothing");
    FILE *file = fopen(log, "re");
    while (file && !marked && fgets(line, sizeof line, file)) {
        line[strcspn(line, "\r\n")] = '\0';
        marked = strncmp(line, "E: ", 3) == 0 || strncasecmp(line, "npm err", 7) == 0;
        if (line[0] == '\0') continue;
        snprintf(said, SAID_BYTES, "%.*s", SAID_BYTES - 1, line);
        for (char *letter = said; *letter; letter++)
            if (!isprint((unsigned char)*letter)) *letter = '?';
    }
    if (file) fclose(file);
}

gw_status gw_data_tool_run(const gw_tool *tool, gw_error *error) {
    pid_t process;
    int result = -1;
    char said[SAID_BYTES];
    gw_time deadline = gw_clock_now() + (gw_time)(tool->seconds * (double)GW_SECOND);
    gw_status status = start(tool, &process, error);
    if (status != GW_OK) return status;
    if (!wait_until(process, deadline, tool, &result)) {
        end(process, tool);
        return gw_fail(error, GW_TIMEOUT, "%s was not done after %.0f s and has been ended", tool->words[0],
                       tool->seconds);
    }
    if (result == 0) return GW_OK;
    what_it_said(tool->log, said);
    return gw_fail(error, GW_SYSTEM, "%s %s failed: %s", tool->words[0], tool->words[1], said);
}
