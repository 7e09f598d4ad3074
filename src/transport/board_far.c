/* board_far.c - whether the members read what one has staged faster from its cache or from memory.
 *
 * Cores that share a cache hand lines over at 20 GB/s and more, both to be read and to be written again. Where they do
 * not (two dies, two sockets; the cores of a virtual machine may be moved from one case to the other while it runs) it
 * is 3 to 5 GB/s, which is less than memory gives. So now and then a member takes the time of writing lines that others
 * have read, and as long as that is slow it writes past the cache.
 *
 * All-reduce of private memory, two ranks on cores that are far apart: 64 KiB in 10.5 us instead of 21, 1 MiB in 136
 * instead of 320. On cores that are near each other it would be 11.8 instead of 5.8, and 160 instead of 70. */
#include "base/clock.h"
#include "transport/board_page.h"
#include "transport/copy.h"

#define PROBE_WINDOWS 64
#define PROBE_BYTES ((size_t)8192)
#define NEAR_BYTES_PER_NS 10

static bool probes(uint64_t window) { return window % PROBE_WINDOWS == 0; }

/* The lines of a probe, too, must have come from the cache when they were read. */
bool gw_board_streams(const gw_board *board, uint64_t window) {
    return board->far && !probes(window) && !probes(window + BOARD_BUFFERS);
}

void gw_board_judge(gw_board *board, size_t bytes, uint64_t ns) {
    bool far = bytes < ns * NEAR_BYTES_PER_NS;
    board->contradicted = far == board->far ? 0 : board->contradicted + 1;
    if (board->contradicted < 2) return; /* one may have been interrupted */
    board->far = far;
    board->contradicted = 0;
}

void gw_board_probe(gw_board *board, uint64_t window, int owner, uint8_t *staged, const uint8_t *from, size_t bytes) {
    uint8_t near[PROBE_BYTES];
    uint64_t turn = window / PROBE_WINDOWS % (uint64_t)(board->members - 1); /* members may differ: each in turn */
    if (!probes(window) || bytes < PROBE_BYTES || owner != (board->self + 1 + (int)turn) % board->members) return;
    gw_copy(near, from, PROBE_BYTES); /* where the data comes from is not to count */
    gw_time begun = gw_clock_now();
    gw_copy(staged, near, PROBE_BYTES);
    gw_board_judge(board, PROBE_BYTES, gw_clock_now() - begun);
}
