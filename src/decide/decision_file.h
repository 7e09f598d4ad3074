/* decision_file.h - what was decided in a run, as a file with which a run makes the same decisions at the same steps:
 *
 *     gradwire-decisions 1
 *     model 4 ranks on 2 hosts, 62 tensors, 1640032 bytes
 *     step 0 arch=auto sync=bsp compress=none schedule=wfbp transport=auto
 *     # 4 ranks on 2 hosts, 1 Gbit/s, 52 us; 1.56 MiB of gradients, 8.2 ms of computing a step
 *     # predicted    measured     strategy
 *     # 9.80 ms      9.91 ms      arch=hierarchical ... schedule=dear ...
 *     step 20 arch=hierarchical sync=bsp compress=none schedule=dear transport=auto
 *
 * A strategy counts from its step on. Comments say why. */
#ifndef GW_DECIDE_DECISION_FILE_H
#define GW_DECIDE_DECISION_FILE_H

#include "strategy/strategy.h"

#define GW_DECISIONS_MAX 256

typedef struct gw_decision {
    uint64_t step; /* the first with this strategy */
    gw_strategy strategy;
    char *why; /* lines without #, each with its newline; NULL: none. Owned */
} gw_decision;

typedef struct gw_decisions {
    char model[160];
    int count;
    gw_decision entries[GW_DECISIONS_MAX];
} gw_decisions;

/* Adds one; the oldest but the first is forgotten if there are too many. `why` is copied. */
void gw_decisions_add(gw_decisions *decisions, uint64_t step, const gw_strategy *strategy, const char *why);
void gw_decisions_free(gw_decisions *decisions);
gw_status gw_decisions_write(const gw_decisions *decisions, const char *path, gw_error *error);
/* Strict; errors name the line. GW_INVALID too if there is no such file. */
gw_status gw_decisions_read(gw_decisions *decisions, const char *path, gw_error *error);

#endif
