/* combine.h - which techniques combine in training steps. */
#ifndef GW_STRATEGY_COMBINE_H
#define GW_STRATEGY_COMBINE_H

#include "gradwire/reducer.h"
#include "strategy/strategy.h"

/* The facts about a step that decide which strategies are possible. */
typedef struct gw_reducer_facts {
    int world;
    bool updates; /* it has weights and an update function */
    bool sums;    /* the result is the sum (GW_SUM), not the mean */
    bool clips;
    bool apart;          /* servers run in their own processes */
    double momentum;     /* of the optimiser; negative: not known */
    bool keeps_momentum; /* the optimiser cannot give it up to a codec; momentum is then above 0 */
    uint64_t steps;      /* of the whole run; 0: not known */
} gw_reducer_facts;

/* Replaces automatic parameters of the codec by those for this step. An optimiser of which nothing is known keeps its
 * momentum, and so does one whose differences of weights are sent: the codec then has none. */
void gw_strategy_choose_codec(gw_strategy *strategy, const gw_reducer_facts *facts);

/* GW_UNSUPPORTED with the reason where no training step can use this strategy. */
gw_status gw_strategy_check_step(const gw_strategy *strategy, const gw_reducer_facts *facts, gw_error *error);
/* True if training steps with this strategy encode their values; false for compress=none, which sends them
 * unchanged. */
bool gw_strategy_compresses(const gw_strategy *strategy);
/* True if its codec keeps something from step to step, or from one round of a step to the next: a push cannot be
 * encoded a second time, after a loss. */
bool gw_strategy_keeps_codec_state(const gw_strategy *strategy);
/* The number of parameter servers that the strategy uses; 0: none. */
int gw_strategy_servers(const gw_strategy *strategy);
/* Adapts a strategy to a job with that many server processes. 0: changes nothing. Otherwise arch=auto and arch=ps
 * become arch=ps with as many servers, and any other architecture is refused; sync=ssp:staleness=0 becomes sync=bsp. */
gw_status gw_strategy_apply_servers(gw_strategy *strategy, int processes, gw_error *error);
/* Adapts a strategy to clipping: ssp without staleness becomes bsp. Both make the same steps, but servers that hold the
 * weights have no norm of the mean, which bsp clips. */
void gw_strategy_apply_clip(gw_strategy *strategy);

/* Builds a strategy from two techniques of different axes, such that training steps can use it. The other axes are at
 * their default, except that arch is the one that the synchronization needs. GW_UNSUPPORTED with the reason if there is
 * no such strategy. */
gw_status gw_strategy_combine(gw_axis a, const gw_technique *first, gw_axis b, const gw_technique *second, int world,
                              gw_strategy *line, gw_error *error);

#endif
