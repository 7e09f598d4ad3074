/* liveness.c - see liveness.h. */
#include "launch/liveness.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

gw_status gw_liveness_open(gw_liveness *w, int roster_file, int first_member, int ranks, gw_error *error) {
    *w = (gw_liveness){.first_member = first_member, .slots = gw_heartbeat_map(roster_file)};
    if (!w->slots) return gw_fail(error, GW_SYSTEM, "cannot map memory for heartbeats: %s", strerror(errno));
    w->ranks = calloc((size_t)ranks, sizeof *w->ranks);
    return w->ranks ? GW_OK : gw_fail(error, GW_MEMORY, "there is no memory to watch %d ranks", ranks);
}

void gw_liveness_close(gw_liveness *w) {
    gw_heartbeat_unmap(w->slots);
    free(w->ranks);
    *w = (gw_liveness){.slots = NULL};
}

void gw_liveness_start(gw_liveness *w, int local, gw_time now) {
    if (!w->slots) return;
    gw_heartbeat_slot *slot = &w->slots[w->first_member + local];
    atomic_store(&slot->joined, 0);
    atomic_store(&slot->asks, 0);
    atomic_store(&slot->pid, 0);
    gw_silence_heard(&w->ranks[local].silence, now);
}

/* The process may have died while the shell around it still runs; then no heartbeat is due. */
static gw_liveness_state examine(uint32_t pid) {
    char path[32], line[256], state = 'Z';
    int tracer = 0;
    snprintf(path, sizeof path, "/proc/%u/status", pid);
    FILE *file = fopen(path, "re");
    while (file && fgets(line, sizeof line, file))
        if (sscanf(line, "State: %c", &state) == 1 || sscanf(line, "TracerPid: %d", &tracer) == 1) continue;
    if (file) fclose(file);
    return state == 'Z' || state == 'X' ? GW_LIVENESS_FINE : tracer ? GW_LIVENESS_TRACED : GW_LIVENESS_HUNG;
}

gw_liveness_state gw_liveness_look(gw_liveness *w, int local, gw_time now, gw_time *next) {
    const gw_heartbeat_slot *slot = &w->slots[w->first_member + local];
    gw_liveness_rank *rank = &w->ranks[local];
    uint32_t beats = atomic_load(&slot->beats);
    gw_time limit = gw_silence_limit(atomic_load(&slot->deadline_ms) * GW_MILLISECOND);
    bool joined = atomic_load(&slot->joined) > 0;
    if (joined && now + gw_silence_period(limit) < *next) *next = now + gw_silence_period(limit);
    if (beats != rank->beats || !joined) {
        rank->beats = beats;
        rank->reported = false;
        gw_silence_heard(&rank->silence, now);
        return GW_LIVENESS_FINE;
    }
    if (gw_silence_look(&rank->silence, now, limit) < limit || rank->reported) return GW_LIVENESS_FINE;
    gw_liveness_state state = examine(atomic_load(&slot->pid));
    rank->reported = state != GW_LIVENESS_FINE;
    return state;
}

bool gw_liveness_joined(const gw_liveness *w, int local) {
    const gw_heartbeat_slot *slot = &w->slots[w->first_member + local];
    return atomic_load(&slot->joined) > 0 && examine(atomic_load(&slot->pid)) == GW_LIVENESS_HUNG;
}

bool gw_liveness_asks(gw_liveness *w, int local, int *generation, int *blamed) {
    const gw_heartbeat_slot *slot = &w->slots[w->first_member + local];
    *generation = atomic_load(&slot->asks);
    *blamed = atomic_load(&slot->blames);
    bool news = *generation != w->ranks[local].asks;
    w->ranks[local].asks = *generation;
    return news;
}

/* The rank may be writing at this moment: a partial text is reported, and reported again once it is complete. */
const char *gw_liveness_address(gw_liveness *w, int local) {
    const gw_heartbeat_slot *slot = &w->slots[w->first_member + local];
    gw_liveness_rank *rank = &w->ranks[local];
    char text[GW_HEARTBEAT_ADDRESS];
    memcpy(text, slot->address, sizeof text);
    text[sizeof text - 1] = 0;
    if (strcmp(text, rank->address) == 0) return NULL;
    memcpy(rank->address, text, sizeof text);
    return rank->address;
}
