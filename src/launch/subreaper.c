/* subreaper.c - see subreaper.h. Children are found in /proc, because adopted ones were not started by this process. */
#include "launch/subreaper.h"

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

#include "launch/byte_queue.h"

void gw_subreaper_enable(void) { prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); }

typedef struct child_stat {
    char state; /* as in proc(5) */
    pid_t parent;
    unsigned flags;
} child_stat;

enum { EXITING = 4 }; /* PF_EXITING of the kernel */

/* False: there is no such process, or it is not a child of this one. */
static bool is_child(const char *pid, child_stat *child) {
    char path[64], text[512];
    snprintf(path, sizeof path, "/proc/%.20s/stat", pid);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) return false;
    ssize_t bytes = read(fd, text, sizeof text - 1);
    close(fd);
    text[bytes > 0 ? bytes : 0] = 0;
    const char *name_end = strrchr(text, ')'); /* the name may hold anything */
    return name_end &&
           sscanf(name_end + 1, " %c %d %*d %*d %*d %*d %u", &child->state, &child->parent, &child->flags) == 3 &&
           child->parent == getpid();
}

/* Whether the text, a sequence of zero-terminated strings, contains the wanted one. */
static bool holds(const gw_buffer *text, const char *wanted) {
    const char *end = gw_buffer_head(text) + gw_buffer_size(text);
    for (const char *at = gw_buffer_head(text); at < end; at += strlen(at) + 1)
        if (strcmp(at, wanted) == 0) return true;
    return false;
}

static bool has_marks(const char *pid, const char *const *marks) {
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

/* Children without the marks are spared. Exiting children count as marked: this process will adopt their children. Only
 * the environment of own children is read, because the read may block while a process is being started. */
static bool is_marked(const char *pid, const child_stat *child, const char *const *marks) {
    if (child->state == 'Z') return false;
    return child->flags & EXITING || has_marks(pid, marks);
}

/* marks NULL: all children. */
static int kill_children(const char *const *marks) {
    DIR *proc = opendir("/proc");
    if (!proc) return 0;
    int count = 0;
    child_stat child;
    for (struct dirent *entry; (entry = readdir(proc));) {
        if (!isdigit((unsigned char)entry->d_name[0]) || !is_child(entry->d_name, &child)) continue;
        if (marks && !is_marked(entry->d_name, &child, marks)) continue;
        kill((pid_t)atol(entry->d_name), SIGKILL);
        count++;
    }
    closedir(proc);
    return count;
}

int gw_subreaper_kill_all(gw_time budget) {
    gw_time deadline = gw_clock_now() + budget;
    for (;;) {
        pid_t pid;
        while ((pid = waitpid(-1, NULL, WNOHANG)) > 0) continue;
        if (pid < 0 && errno == ECHILD) return 0;
        int count = kill_children(NULL);
        if (gw_clock_now() >= deadline) return count;
        poll(NULL, 0, 2);
    }
}

int gw_subreaper_kill_marked(const char *const *marks, gw_time budget) {
    gw_time deadline = gw_clock_now() + budget;
    for (;;) {
        int count = kill_children(marks);
        if (count == 0 || gw_clock_now() >= deadline) return count;
        poll(NULL, 0, 2);
    }
}
