/* roll.c - see roll.h. One line of words; the round stands at both ends, so that a reader who meets the writer sees
 * it. */
#include "base/roll.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/units.h"

size_t gw_roll_write(const gw_roll *roll, char text[GW_ROLL_TEXT]) {
    size_t used = (size_t)snprintf(text, GW_ROLL_TEXT, "roll %d %d %d %d %s", roll->round, roll->world,
                                   roll->workers, roll->port, roll->address);
    for (int r = 0; r < roll->world; r++)
        used += (size_t)snprintf(text + used, GW_ROLL_TEXT - used, " %d", roll->seats[r]);
    return used + (size_t)snprintf(text + used, GW_ROLL_TEXT - used, " end %d\n", roll->round);
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

static bool parse(gw_roll *roll, char *next) {
    int again = -1;
    if (!take_word(&next, "roll") || !take_number(&next, 0, INT32_MAX, &roll->round) ||
        !take_number(&next, 1, GW_ROLL_SEATS_MAX, &roll->world) ||
        !take_number(&next, 1, GW_ROLL_SEATS_MAX, &roll->workers) || !take_number(&next, 1, 65535, &roll->port))
        return false;
    char *address = strsep(&next, " ");
    if (!address || (size_t)snprintf(roll->address, sizeof roll->address, "%s", address) >= sizeof roll->address)
        return false;
    for (int r = 0; r < roll->world; r++)
        if (!take_number(&next, 0, GW_ROLL_SEATS_MAX - 1, &roll->seats[r])) return false;
    return take_word(&next, "end") && take_number(&next, 0, INT32_MAX, &again) && again == roll->round;
}

bool gw_roll_parse(gw_roll *roll, const char *text, size_t bytes) {
    const char *end = bytes ? memchr(text, '\n', bytes) : NULL;
    char *copy = end ? strndup(text, (size_t)(end - text)) : NULL;
    bool good = copy && parse(roll, copy);
    free(copy);
    return good;
}

bool gw_roll_read(gw_roll *roll, const char *path) {
    int file = open(path, O_RDONLY | O_CLOEXEC);
    char *text = file >= 0 ? malloc(GW_ROLL_TEXT) : NULL;
    ssize_t bytes = text ? pread(file, text, GW_ROLL_TEXT, 0) : -1;
    bool good = bytes > 0 && gw_roll_parse(roll, text, (size_t)bytes);
    free(text);
    if (file >= 0) close(file);
    return good;
}

int gw_roll_servers(const gw_roll *roll) {
    int count = 0;
    for (int r = 0; r < roll->world; r++) count += roll->seats[r] >= roll->workers;
    return count;
}

int gw_roll_rank(const gw_roll *roll, int seat) {
    for (int r = 0; r < roll->world; r++)
        if (roll->seats[r] == seat) return r;
    return -1;
}
