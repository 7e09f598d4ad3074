/* combine.h - which techniques go together in training steps. */
#ifndef GW_STRATEGY_COMBINE_H
#define GW_STRATEGY_COMBINE_H

#include "strategy/strategy.h"

/* What a step is committed with, as far as it decides what is possible. */
typedef struct gw_step_facts {
    int world;
    bool updates; /* it has weights and an update function */
    bool sums;    /* GW_SUM rather than the mean */
    bool clips;
    bool apart;   /* servers are processes of their own */
} gw_step_facts;

/* GW_UNSUPPORTED with the reason where a training step cannot be made this way. */
gw_status gw_strategy_check_step(const gw_strategy *strategy, const gw_step_facts *facts, gw_error *error);
/* Parameter servers that its steps go through; 0: none. */
int gw_strategy_servers(const gw_strategy *strategy);
/* In a job with that many server processes (0: none) an architecture that is not said is ps, with as many servers;
 * another is refused. */
gw_status gw_strategy_serve(gw_strategy *strategy, int processes, gw_error *error);

/* A line in which two techniques of different axes meet and that can be stepped, with as little else as possible: the
 * defaults, or the architecture that the synchrony needs. GW_UNSUPPORTED with the reason where there is none. */
gw_status gw_strategy_pair(gw_axis a, const gw_technique *first, gw_axis b, const gw_technique *second, int world,
                           gw_strategy *line, gw_error *error);

#endif
