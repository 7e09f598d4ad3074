/* cost.h - the time of a collective by each plan, in closed form (Hockney 1994; Thakur, Rabenseifner and Gropp 2005):
 * see gw_cost_terms in plan.h. Constant time, as it is needed for every call. A test compares rounds, bytes and
 * messages with the cost functions of the plans. */
#ifndef GW_ARCH_COST_H
#define GW_ARCH_COST_H

#include "plan/plan.h"

/* The cost inputs of a request: with the measured link costs, else with built-in ones. */
gw_cost_inputs gw_cost_inputs_of(const gw_plan_request *request, size_t element_bytes);

/* The cost terms of a plan; rounds < 0: it has no closed form. */
gw_cost_terms gw_cost_terms_of(const gw_plan_builder *builder, const gw_cost_inputs *scene);
double gw_cost_seconds(const gw_cost_terms *work, const gw_cost_inputs *scene);

#endif
