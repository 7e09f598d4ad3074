/* tool.c - see tool.h. */
#include "lab/tool.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

/* The first line of what the program said. */
static void read_complaint(int fd, char *text, size_t size) {
    size_t used = 0;
    char rest[512];
    ssize_t got;
    while (used + 1 < size && (got = read(fd, text + used, size - 1 - used)) > 0) used += (size_t)got;
    while (read(fd, rest, sizeof rest) > 0) continue;
    text[used] = 0;
    text[strcspn(text, "\n")] = 0;
}

/* Signals for this process are not for the tool, which must finish what it began. */
static int spawn(const char *const *argv, int output, pid_t *pid) {
    posix_spawn_file_actions_t actions;
    posix_spawnattr_t attributes;
    posix_spawn_file_actions_init(&actions);
    posix_spawnattr_init(&attributes);
    posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0);
    posix_spawn_file_actions_adddup2(&actions, output, 1);
    posix_spawn_file_actions_adddup2(&actions, output, 2);
    posix_spawnattr_setpgroup(&attributes, 0);
    posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETPGROUP);
    int number = posix_spawnp(pid, argv[0], &actions, &attributes, (char *const *)(uintptr_t)argv, environ);
    posix_spawnattr_destroy(&attributes);
    posix_spawn_file_actions_destroy(&actions);
    return number;
}

static gw_status complain(const char *const *argv, const char *said, gw_error *error) {
    char command[256] = "";
    size_t used = 0;
    for (int i = 0; argv[i] && used < sizeof command - 1; i++) {
        int length = snprintf(command + used, sizeof command - used, "%s%s", i ? " " : "", argv[i]);
        used += (size_t)length;
    }
    return gw_fail(error, GW_SYSTEM, "\"%s\" failed: %s", command, said[0] ? said : "it did not say why");
}

gw_status gw_tool_run(const char *const *argv, gw_error *error) {
    int ends[2], wait_status = 0;
    char said[200];
    pid_t pid;
    if (pipe2(ends, O_CLOEXEC) != 0) return gw_fail(error, GW_SYSTEM, "no pipe for %s: %s", argv[0], strerror(errno));
    int number = spawn(argv, ends[1], &pid);
    close(ends[1]);
    if (number) {
        close(ends[0]);
        return complain(argv, strerror(number), error);
    }
    read_complaint(ends[0], said, sizeof said);
    close(ends[0]);
    while (waitpid(pid, &wait_status, 0) < 0 && errno == EINTR) continue;
    return wait_status == 0 ? GW_OK : complain(argv, said, error);
}
