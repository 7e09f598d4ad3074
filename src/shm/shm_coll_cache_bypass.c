/* shm_coll_cache_bypass.c - whether members read the data that one member has staged faster from its cache or from
 * memory.
 *
 * Cores that share a cache transfer lines at 20 GB/s and more, both for reading and for writing them again. Cores that
 * share none (on two dies or two sockets) reach 3 to 5 GB/s, which is less than memory gives. The cores of a virtual
 * machine may move from one case to the other while it runs. So from time to time a member measures how long it takes
 * to write lines that others have read. As long as that is slow, the member writes past the cache.
 *
 * All-reduce of private memory, two ranks on cores that are far apart: 64 KiB in 10.5 us instead of 21, 1 MiB in 136
 * instead of 320. On near cores writing past the cache would take 11.8 us instead of 5.8, and 160 instead of 70. */
#include "base/clock.h"
#include "base/copy.h"
#include "shm/shm_coll_internal.h"

#define PROBE_WINDOWS 64
#define PROBE_BYTES ((size_t)8192)
#define NEAR_BYTES_PER_NS 10

static bool probes(uint64_t window) { return window % PROBE_WINDOWS == 0; }

/* A probe is valid only if the window that used its buffer before went through the cache too. */
bool gw_shm_coll_bypasses_cache(const gw_shm_coll *coll, uint64_t window) {
    return coll->far && !probes(window) && !probes(window + COLL_BUFFERS);
}

void gw_shm_coll_note_probe(gw_shm_coll *coll, size_t bytes, uint64_t ns) {
    bool far = bytes < ns * NEAR_BYTES_PER_NS;
    coll->contradicted = far == coll->far ? 0 : coll->contradicted + 1;
    if (coll->contradicted < 2) return; /* a single probe may have been interrupted */
    coll->far = far;
    coll->contradicted = 0;
}

void gw_shm_coll_probe(gw_shm_coll *coll, uint64_t window, int owner, uint8_t *staged, const uint8_t *from,
                       size_t bytes) {
    uint8_t near[PROBE_BYTES];
    /* distances may differ: probe each member in turn */
    uint64_t turn = window / PROBE_WINDOWS % (uint64_t)(coll->members - 1);
    if (!probes(window) || bytes < PROBE_BYTES || owner != (coll->self + 1 + (int)turn) % coll->members) return;
    gw_copy(near, from, PROBE_BYTES); /* so that loading the source is not measured */
    gw_time begun = gw_clock_now();
    gw_copy(staged, near, PROBE_BYTES);
    gw_shm_coll_note_probe(coll, PROBE_BYTES, gw_clock_now() - begun);
}
