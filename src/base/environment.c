/* environment.c - see environment.h. */
#include "base/environment.h"

#include "base/suggest.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define PREFIX "GRADWIRE_"

static const char *const names[] = {
    "GRADWIRE_BENCH",       "GRADWIRE_BENCH_BOUND",   "GRADWIRE_BENCH_COMPRESS",
    "GRADWIRE_BIND",        "GRADWIRE_CACHE",         "GRADWIRE_CAPTURE",
    "GRADWIRE_CPU",         "GRADWIRE_DEADLINE",      "GRADWIRE_DECISIONS",
    "GRADWIRE_FLIGHT_DIR",  "GRADWIRE_GENERATION",    "GRADWIRE_INTERFACE",
    "GRADWIRE_LAB_PREFIX",  "GRADWIRE_LIBRARY",       "GRADWIRE_LINKS",
    "GRADWIRE_LISTEN_FD",   "GRADWIRE_LIVE",          "GRADWIRE_LOG",
    "GRADWIRE_MASTER_PORT", "GRADWIRE_MEMBER",        "GRADWIRE_PORTS",
    "GRADWIRE_QUORUM",      "GRADWIRE_RACKS",         "GRADWIRE_ROSTER",
    "GRADWIRE_SERVERS",     "GRADWIRE_SNAPSHOTS",     "GRADWIRE_STAGE",
    "GRADWIRE_STRATEGY",    "GRADWIRE_STRATEGY_FILE", "GRADWIRE_TIMELINE",
    "GRADWIRE_TOKEN",       "GRADWIRE_TOKEN_FILE",    "GRADWIRE_TUNE",
};

#define NAMES (sizeof names / sizeof names[0])

static bool is_known(const char *name) {
    size_t i = 0;
    while (i < NAMES && strcmp(names[i], name) != 0) i++;
    return i < NAMES;
}

/* Compares what follows the prefix, which would make all names alike. */
static const char *nearest(const char *name) {
    const char *ends[NAMES + 1] = {NULL};
    for (size_t i = 0; i < NAMES; i++) ends[i] = names[i] + strlen(PREFIX);
    const char *end = gw_suggest_nearest(name + strlen(PREFIX), ends);
    return end ? end - strlen(PREFIX) : NULL;
}

const char *gw_environment_unknown(char text[GW_VARIABLE_BYTES], const char **near) {
    for (char **entry = environ; entry && *entry; entry++) {
        if (strncmp(*entry, PREFIX, strlen(PREFIX)) != 0) continue;
        snprintf(text, GW_VARIABLE_BYTES, "%.*s", (int)strcspn(*entry, "="), *entry);
        if (is_known(text)) continue;
        *near = nearest(text);
        return text;
    }
    return NULL;
}
