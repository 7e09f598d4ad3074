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

#include "launch/buffer.h"

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

static bool is_child(const char *pid, const char *const *unused) {
    (void)unused;
    return parent_of(pid) == getpid();
}

/* Whether the text, of strings that end with zero bytes, holds that one. */
static bool holds(const gw_buffer *text, const char *wanted) {
    const char *end = gw_buffer_head(text) + gw_buffer_size(text);
    for (const char *at = gw_buffer_head(text); at < end; at += strlen(at) + 1)
        if (strcmp(at, wanted) == 0) return true;
    return false;
}

/* A process that is dead but not reaped has no environment any more. */
static bool is_marked(const char *pid, const char *const *marks) {
    char path[64];
    gw_buffer text = {0};
    snprintf(path, sizeof path, "/proc/%.20s/environ", pid);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) return false;
    while (gw_buffer_read(&text, fd) > 0) continue;
    close(fd);
    gw_buffer_add(&text, "", 1);
    while (*marks && holds(&text, *marks)) marks++;
    gw_buffer_free(&text);
    return *marks == NULL;
}

static int kill_all(bool (*chosen)(const char *pid, const char *const *marks), const char *const *marks) {
    DIR *proc = opendir("/proc");
    if (!proc) return 0;
    int count = 0;
    for (struct dirent *entry; (entry = readdir(proc));) {
        if (!isdigit((unsigned char)entry->d_name[0]) || !chosen(entry->d_name, marks)) continue;
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
        int count = kill_all(is_child, NULL);
        if (gw_clock_now() >= deadline) return count;
        poll(NULL, 0, 2);
    }
}

int gw_family_end_marked(const char *const *marks, gw_time budget) {
    gw_time deadline = gw_clock_now() + budget;
    for (;;) {
        int count = kill_all(is_marked, marks);
        if (count == 0 || gw_clock_now() >= deadline) return count;
        poll(NULL, 0, 2);
    }
}
