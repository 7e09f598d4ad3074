/* roster.c - see roster.h. The text is one line of words. The generation stands at both ends, so that a reader notices
 * a write in progress. */
#include "base/roster.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/units.h"

size_t gw_roster_write(const gw_roster *roster, char text[GW_ROSTER_TEXT]) {
    size_t used = (size_t)snprintf(text, GW_ROSTER_TEXT, "roster %d %d %d %d %s", roster->generation, roster->world,
                                   roster->workers, roster->port, roster->address);
    for (int r = 0; r < roster->world; r++)
        used += (size_t)snprintf(text + used, GW_ROSTER_TEXT - used, " %d", roster->members[r]);
    return used + (size_t)snprintf(text + used, GW_ROSTER_TEXT - used, " end %d\n", roster->generation);
}

static bool take_number(char **next, int low, int high, int *value) {
    char *word = strsep(next, " ");
    int64_t number;
    if (!word || !gw_integer_parse(word, low, high, &number)) return false;
    *value = (int)number;
    return true;
}

static bool take_word(char **next, const char *expected) {
    char *word = strsep(next, " ");
    return word && strcmp(word, expected) == 0;
}

static bool parse(gw_roster *roster, char *next) {
    int again = -1;
    if (!take_word(&next, "roster") || !take_number(&next, 0, INT32_MAX, &roster->generation) ||
        !take_number(&next, 1, GW_ROSTER_MEMBERS_MAX, &roster->world) ||
        !take_number(&next, 1, GW_ROSTER_MEMBERS_MAX, &roster->workers) || !take_number(&next, 1, 65535, &roster->port))
        return false;
    char *address = strsep(&next, " ");
    if (!address || (size_t)snprintf(roster->address, sizeof roster->address, "%s", address) >= sizeof roster->address)
        return false;
    for (int r = 0; r < roster->world; r++)
        if (!take_number(&next, 0, GW_ROSTER_MEMBERS_MAX - 1, &roster->members[r])) return false;
    return take_word(&next, "end") && take_number(&next, 0, INT32_MAX, &again) && again == roster->generation;
}

bool gw_roster_parse(gw_roster *roster, const char *text, size_t bytes) {
    const char *end = bytes ? memchr(text, '\n', bytes) : NULL;
    char *copy = end ? strndup(text, (size_t)(end - text)) : NULL;
    bool good = copy && parse(roster, copy);
    free(copy);
    return good;
}

bool gw_roster_read(gw_roster *roster, const char *path) {
    int file = open(path, O_RDONLY | O_CLOEXEC);
    char *text = file >= 0 ? malloc(GW_ROSTER_TEXT) : NULL;
    ssize_t bytes = text ? pread(file, text, GW_ROSTER_TEXT, 0) : -1;
    bool good = bytes > 0 && gw_roster_parse(roster, text, (size_t)bytes);
    free(text);
    if (file >= 0) close(file);
    return good;
}

int gw_roster_servers(const gw_roster *roster) {
    int count = 0;
    for (int r = 0; r < roster->world; r++) count += roster->members[r] >= roster->workers;
    return count;
}

int gw_roster_rank(const gw_roster *roster, int member) {
    for (int r = 0; r < roster->world; r++)
        if (roster->members[r] == member) return r;
    return -1;
}
