/* bind.c - see bind.h. */
#include "launch/bind.h"

#include <stdlib.h>
#include <string.h>

void gw_bind_share(const cpu_set_t *all, int local, int ranks, cpu_set_t *share) {
    int cores = CPU_COUNT(all), first = cores * local / ranks, end = cores * (local + 1) / ranks, seen = 0;
    *share = *all;
    if (ranks > cores) return;
    for (int cpu = 0; cpu < CPU_SETSIZE; cpu++) {
        if (!CPU_ISSET(cpu, all)) continue;
        if (seen < first || seen >= end) CPU_CLR(cpu, share);
        seen++;
    }
}

/* A rank that cannot be bound runs all the same. */
void gw_bind_self(int local, int ranks) {
    const char *how = getenv("GRADWIRE_BIND");
    cpu_set_t all, share;
    if (how && strcmp(how, "none") == 0) return;
    if (sched_getaffinity(0, sizeof all, &all) != 0) return; /* more cores than the set has room for */
    gw_bind_share(&all, local, ranks, &share);
    sched_setaffinity(0, sizeof share, &share);
}
