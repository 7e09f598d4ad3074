/* shm_coll_choice.c - whether a task that only moves data is staged or pulled, where both are possible: what has been
 * measured to be faster on this machine, for each task and each power of two of bytes.
 *
 * Staging copies twice, at the speed of the caches; reading another process copies once, but the kernel looks up every
 * page, and some CPUs run its copy loop slowly. So neither is faster everywhere. One member measures for all: one that
 * gets data, since a member that only gives may leave a staged operation before it is over. It tries both a few times,
 * then takes the faster, and tries the other again now and then: cores of a virtual machine move, and load changes. */
#include "shm/shm_coll_internal.h"

#define FIRST_TRIES 8 /* calls that take turns; the first of each kind touches memory for the first time */
#define TRY_AGAIN 64  /* calls between two tries of the slower one */
#define SMOOTHING 4   /* weight of what was known against a new time */

int gw_shm_coll_chooser(const gw_shm_coll *coll, const gw_shm_coll_op *op) {
    switch (op->task) {
    case GW_SHM_TASK_BROADCAST:
    case GW_SHM_TASK_SCATTER: return (op->root + 1) % coll->members;
    case GW_SHM_TASK_GATHER: return op->root;
    default: return 0;
    }
}

static coll_choice *choice_of(gw_shm_coll *coll, const gw_shm_coll_op *op) {
    unsigned long long bytes = op->count * gw_dtype_bytes(op->reduction.dtype);
    return &coll->choices[op->task][bytes ? 63 - __builtin_clzll(bytes) : 0];
}

bool gw_shm_coll_would_pull(gw_shm_coll *coll, const gw_shm_coll_op *op) {
    if (!coll->reads || coll->self != gw_shm_coll_chooser(coll, op)) return false;
    const coll_choice *choice = choice_of(coll, op);
    if (choice->calls < FIRST_TRIES) return choice->calls % 2;
    bool faster = choice->ns[true] < choice->ns[false];
    return choice->calls % TRY_AGAIN == 0 ? !faster : faster;
}

void gw_shm_coll_choice_begin(gw_shm_coll *coll) {
    bool measures = coll->mode != COLL_INLINE && coll->either;
    coll->began = measures && coll->self == gw_shm_coll_chooser(coll, coll_head(coll)) ? gw_clock_now() : 0;
}

/* A time that is much longer than what is known has been interrupted. While little is known, the shortest counts. */
void gw_shm_coll_choice_end(gw_shm_coll *coll) {
    if (!coll->began) return;
    coll_choice *choice = choice_of(coll, coll_head(coll));
    gw_time ns = gw_clock_now() - coll->began;
    uint32_t *known = &choice->ns[coll->mode == COLL_PULL];
    if (choice->calls++ < 2) return;
    if (ns > UINT32_MAX / 4) ns = UINT32_MAX / 4;
    if (*known && ns > 2 * (gw_time)*known) ns = 2 * (gw_time)*known;
    if (!*known) *known = (uint32_t)ns + 1;
    else if (choice->calls > FIRST_TRIES) *known = (uint32_t)(((gw_time)*known * (SMOOTHING - 1) + ns) / SMOOTHING);
    else if (ns < *known) *known = (uint32_t)ns + 1;
}
