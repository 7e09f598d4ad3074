/* decider.h - strategy=auto: chooses the strategy of training steps while they run.
 *
 *     warm up --> time layers --> decide: measure links, predict, try the best three --> watch --> decide ...
 *
 * It begins with the line as it was given. After the first steps rank 0 predicts every candidate from measured links
 * and layer times; the best, and the best of other kinds, are tried for a few steps each, beside what was measured
 * before, and the fastest stays. From then on all ranks share the length of their steps now and then, in the
 * background. When it has changed they decide anew; so they do when much of what the codec should code is sent exact,
 * and then they choose that codec no more. All ranks take every turn after the same step, because they use the same
 * figures.
 *
 * Decisions are kept in a file if there is one (decision_file.h). A file that exists is replayed: the same strategies
 * from the same steps on, and nothing is measured. The caller's thread only. */
#ifndef GW_DECIDE_DECIDER_H
#define GW_DECIDE_DECIDER_H

#include "base/clock.h"
#include "gradwire.h"
#include "predict/machine.h"
#include "profile/profile.h"
#include "strategy/strategy.h"

typedef struct gw_decider gw_decider;

typedef struct gw_decider_config {
    gw_comm *comm;            /* the reducer's; the decider splits one of its own */
    const gw_strategy *asked; /* copied; gw_candidates_apply holds */
    const char *file;         /* of decisions; NULL: none. Copied */
    const char *optimizer;    /* what uses the results, as in accuracy_risk.h. Lent */
    int tensors;
    uint64_t bytes;      /* of all gradients */
    int timed_steps;     /* that the caller needs to time layers */
    uint64_t first_step; /* number of the next step */
} gw_decider_config;

typedef struct gw_decider_progress {
    uint64_t next_step; /* number of the next step */
    gw_time now;
    uint64_t waited_ns; /* what calls have waited in all steps so far */
    double exact_share; /* of what the codec should code: sent exact now, because the codec is outside the range in
                           which it is trusted */
} gw_decider_progress;

typedef enum gw_decide_action {
    GW_DECIDE_NOTHING,
    GW_DECIDE_TIME_LAYERS, /* time the layers of the next timed_steps steps */
    GW_DECIDE_NOW,         /* flush, and call gw_decider_decide */
} gw_decide_action;

/* *first: the strategy to begin with. A collective call. */
gw_status gw_decider_open(gw_decider **decider, const gw_decider_config *config, gw_strategy *first, gw_error *error);
void gw_decider_close(gw_decider *decider); /* NULL is fine */
/* Links between hosts as they were measured last. False: they were not. */
bool gw_decider_links(const gw_decider *decider, gw_machine *machine);
/* It watches, or repeats a file: nothing is being measured or tried; how many strategies have been tried so far. */
bool gw_decider_settled(const gw_decider *decider);
int gw_decider_trials(const gw_decider *decider);
/* A step has ended. */
gw_status gw_decider_step(gw_decider *decider, const gw_decider_progress *progress, gw_decide_action *action,
                          gw_error *error);
/* The strategy from the next step on; *strategy holds the present one. profile: the model as it was timed last. A
 * collective call, while nothing is in flight. */
gw_status gw_decider_decide(gw_decider *decider, const gw_profile *profile, gw_strategy *strategy, gw_error *error);

#endif
