/* timeline_repair.c - see timeline_repair.h. A complete object is a line in braces, perhaps with a comma; any
 * other line was being written when its rank was killed. */
#include "insight/timeline_repair.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

#include "base/file.h"
#include "trace/chrome.h"

/* Length of the line without comma and newline; 0: not a complete object. */
static size_t object(const char *line, size_t length) {
    while (length && strchr("\n,", line[length - 1])) length--;
    return length > 1 && line[0] == '{' && line[length - 1] == '}' ? length : 0;
}

/* True if the file is a gradwire timeline. */
static bool copy_whole(FILE *from, FILE *to, bool *changed) {
    char *line = NULL;
    size_t room = 0, objects = 0;
    ssize_t length = getline(&line, &room, from);
    bool ours = length == 2 && memcmp(line, "[\n", 2) == 0;
    bool closed = false;
    if (ours) fputs("[\n", to);
    while (ours && (length = getline(&line, &room, from)) > 0) {
        closed = strcmp(line, "]\n") == 0;
        size_t kept = object(line, (size_t)length);
        if (kept) fprintf(to, "%s%.*s", objects++ ? ",\n" : "", (int)kept, line);
        else *changed |= !closed;
    }
    if (ours) fputs("\n]\n", to);
    *changed |= !closed;
    free(line);
    return ours;
}

bool gw_timeline_repair(const char *path) {
    char beside[4096];
    bool changed = false, done = false;
    FILE *from = fopen(path, "re"), *to = NULL;
    if (!from) return true;
    int length = snprintf(beside, sizeof beside, "%s.mending", path);
    if (flock(fileno(from), LOCK_EX | LOCK_NB) != 0 || length >= (int)sizeof beside) goto out;
    int fd = gw_file_create(beside, 0666);
    to = fd >= 0 ? fdopen(fd, "w") : NULL;
    if (!to) {
        if (fd >= 0) close(fd);
        goto out;
    }
    bool ours = copy_whole(from, to, &changed);
    bool written = fflush(to) == 0 && !ferror(to);
    fclose(to);
    done = written && (!ours || !changed || rename(beside, path) == 0);
    if (!ours || !changed || !done) unlink(beside);
out:
    fclose(from);
    return done;
}
