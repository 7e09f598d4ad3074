/* decider_internal.h - what decider.c (the turns), decider_plan.c (what is tried) and decider_tell.c (what it
 * says of them) share. */
#ifndef GW_DECIDE_DECIDER_INTERNAL_H
#define GW_DECIDE_DECIDER_INTERNAL_H

#include "decide/decider.h"
#include "decide/decision_file.h"
#include "decide/ranking.h"
#include "decide/watch.h"
#include "runtime/comm.h"

#define GW_TRIALS_MAX 3
#define GW_TRIALS_HURRIED 2
#define GW_DISTRUSTED_MAX 16 /* codecs: more than measurements call safe */
#define GW_DECIDER_WINDOW 64 /* steps at most */

typedef enum gw_decider_phase {
    GW_DECIDER_WARMS,
    GW_DECIDER_TIMES,
    GW_DECIDER_TRIES,
    GW_DECIDER_WATCHES,
} gw_decider_phase;

typedef struct gw_trial {
    double predicted, measured; /* seconds of a step */
    double weight;              /* gw_ranking_weight */
    char line[GW_STRATEGY_PRINT_BYTES];
} gw_trial;

/* Rank 0 makes it, and all ranks follow it. */
typedef struct gw_trial_plan {
    int32_t count, unused;
    double present, compute; /* predicted seconds of a step with the present strategy; of its compute */
    gw_trial trials[GW_TRIALS_MAX];
} gw_trial_plan;

/* What the last decision was made for; rate 0: none has been made. */
typedef struct gw_decider_basis {
    double latency, rate; /* of the links: seconds, bytes per second */
    double slowest;       /* rate of the slowest link */
    double compute;       /* of a step, seconds */
} gw_decider_basis;

struct gw_decider {
    gw_comm *comm; /* owned */
    gw_strategy asked;
    char *file;            /* owned; NULL: none */
    const char *optimizer; /* the reducer's; NULL: not known */
    uint64_t bytes;        /* of gradients */
    int timed_steps;
    int hosts, per_host;
    gw_machine machine; /* links as measured last */
    gw_decider_phase phase;
    int warm; /* steps */
    bool replays;
    gw_decisions decisions;
    uint64_t next_step;
    /* The present window of steps. */
    int skip, length, filled; /* steps that do not count, that do, that have been counted */
    double seconds[GW_DECIDER_WINDOW], waits[GW_DECIDER_WINDOW];
    gw_time last; /* end of the last step; 0: none */
    uint64_t last_waited;
    double exact_share; /* in the last step */
    /* Deciding. */
    gw_watch_window present; /* of the strategy before the trials, means over the ranks */
    gw_strategy before;
    gw_ranking *ranking; /* rank 0's, owned */
    gw_trial_plan plan;
    bool hurries;      /* not the first decision */
    int trial, trials; /* of the plan; of all plans so far */
    /* Watching. */
    gw_watch watch;
    gw_request *request; /* NULL: nothing is being shared */
    double shared[3];    /* step, wait, share sent exact */
    /* Codecs that left the range in which they are trusted: not chosen again. */
    const gw_technique *distrusted[GW_DISTRUSTED_MAX];
    int distrusted_count;
    bool distrusts; /* the present one is about to become one */
    bool tolerates; /* the present one is one, but was faster than all others: no reason to look again */
    gw_decider_basis basis;
    bool changes; /* what is being decided has another basis than the last decision */
};

/* Whether the codec of a strategy was found to leave the range in which it is trusted, whatever its parameters. */
bool gw_decider_distrusts(const gw_decider *decider, const gw_strategy *strategy);

/* Rank 0: takes from the ranking what is to be tried beside the present strategy, which has been measured. */
void gw_decider_plan(gw_decider *decider, const gw_strategy *present);

/* Rank 0: prints the line that says what was chosen and why, and returns the ranking as text; the caller frees it.
 * best: the trial; -1: nothing has changed. */
char *gw_decider_tell(const gw_decider *decider, int best, const gw_strategy *chosen);

#endif
