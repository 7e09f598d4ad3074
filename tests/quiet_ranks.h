/* quiet_ranks.h - callbacks of ranks whose control plane has nothing to say: for tests of one part over the simulated
 * network. */
#ifndef GW_TEST_QUIET_RANKS_H
#define GW_TEST_QUIET_RANKS_H

#include "engine/rank_core.h"

static inline const char *host_name(void *ctx, int rank) {
    (void)ctx;
    (void)rank;
    return "host";
}
static inline void send_control(void *ctx, int neighbour, const gw_control_message *message) {
    (void)ctx;
    (void)neighbour;
    (void)message;
}
static inline void slow(void *ctx, const char *sentence) {
    (void)ctx;
    (void)sentence;
}
static inline void on_message(void *ctx, int from, int to, const void *bytes, size_t length) {
    (void)ctx;
    (void)from;
    (void)to;
    (void)bytes;
    (void)length;
}
static inline void on_hang_up(void *ctx, int rank, int gone) {
    (void)ctx;
    (void)rank;
    (void)gone;
}

#endif
