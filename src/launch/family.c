/* family.c - see family.h. Children are found in /proc, since adopted ones were never seen to start. */
#include "launch/family.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

void gw_family_adopt(void) { prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); }

/* -1: there is no such process. */
static pid_t parent_of(const char *pid) {
    char path[64], text[512];
    snprintf(path, sizeof path, "/proc/%.20s/stat", pid);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) return -1;
    ssize_t bytes = read(fd, text, sizeof text - 1);
    close(fd);
    text[bytes > 0 ? bytes : 0] = 0;
    const char *name_end = strrchr(text, ')'); /* the name may hold anything */
    int parent;
    return name_end && sscanf(name_end + 1, " %*c %d", &parent) == 1 ? parent : -1;
}

static int kill_children(void) {
    DIR *proc = opendir("/proc");
    if (!proc) return 0;
    int count = 0;
    for (struct dirent *entry; (entry = readdir(proc));) {
        if (!isdigit((unsigned char)entry->d_name[0]) || parent_of(entry->d_name) != getpid()) continue;
        kill((pid_t)atol(entry->d_name), SIGKILL);
        count++;
    }
    closedir(proc);
    return count;
}

int gw_family_end(gw_time budget) {
    gw_time deadline = gw_clock_now() + budget;
    for (;;) {
        pid_t pid;
        while ((pid = waitpid(-1, NULL, WNOHANG)) > 0) continue;
        if (pid < 0 && errno == ECHILD) return 0;
        int count = kill_children();
        if (gw_clock_now() >= deadline) return count;
        poll(NULL, 0, 2);
    }
}
