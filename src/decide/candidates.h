/* candidates.h - the strategies that may be chosen where a line leaves axes open. */
#ifndef GW_DECIDE_CANDIDATES_H
#define GW_DECIDE_CANDIDATES_H

#include "strategy/strategy.h"

#define GW_CANDIDATES_MAX 256

typedef struct gw_candidate_facts {
    int hosts, per_host;   /* ranks of the largest host */
    const char *optimizer; /* what uses the results, as in accuracy_risk.h */
} gw_candidate_facts;

/* Whether anything may be chosen: an axis is open, every step is made together, and no servers keep the weights. */
bool gw_candidates_apply(const gw_strategy *asked);
/* Writes them into a list of GW_CANDIDATES_MAX; returns their number. The first is `asked` with its defaults. Under
 * accuracy=exact an open codec is none; under safe it is also any that measurements call safe. */
int gw_candidates_list(const gw_strategy *asked, const gw_candidate_facts *facts, gw_strategy *list);

#endif
