/* process.c - see process.h. */
#include "base/process.h"

#include "base/fork_descriptors.h"

#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#ifndef SYS_pidfd_open
#define SYS_pidfd_open 434 /* on all architectures */
#endif

#define FIELDS_BEFORE 19 /* of stat, between the name (which may contain spaces) and the start time */

static ssize_t read_stat(int pid, char *text, size_t room) {
    char path[32];
    snprintf(path, sizeof path, "/proc/%d/stat", pid ? pid : (int)getpid());
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) return -1;
    ssize_t got = read(fd, text, room);
    gw_fd_close(fd);
    return got;
}

uint64_t gw_process_started(int pid) {
    char text[1024];
    uint64_t started = 0;
    ssize_t got = read_stat(pid, text, sizeof text - 1);
    if (got <= 0) return 0;
    text[got] = 0;
    char *at = strrchr(text, ')');
    for (int field = 0; at && field <= FIELDS_BEFORE; field++) at = strchr(at + 1, ' ');
    return at && sscanf(at, " %" SCNu64, &started) == 1 ? started : 0;
}

/* The start time is read after pidfd_open. If it matches, that process has had the pid ever since, so the descriptor is
 * its own. */
int gw_process_watch(int pid, uint64_t started) {
    if (!started) return -1;
    int fd = gw_fd_register((int)syscall(SYS_pidfd_open, pid, 0));
    if (fd < 0 || gw_process_started(pid) == started) return fd;
    gw_fd_close(fd);
    return -1;
}
