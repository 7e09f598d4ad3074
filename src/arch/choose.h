/* choose.h - which plan carries which collective. */
#ifndef GW_ARCH_CHOOSE_H
#define GW_ARCH_CHOOSE_H

#include "plan/plan.h"

/* The builder for a request under an architecture of the strategy line ("auto", "ring", ...). "auto" takes shared
 * memory where it can, else the plan that takes least by size, ranks, hosts and the topology's wire (cost.h). An
 * architecture that does not carry the collective (a ring has no broadcast) leaves it to the one that "auto" would
 * choose. The answer depends only on what all ranks know alike. element_bytes: of the user's type. NULL only for an
 * unknown name. */
const gw_plan_builder *gw_arch_choose(const char *arch, const gw_plan_request *request, size_t element_bytes);

/* Up to which size "auto" takes a plan. */
typedef struct gw_arch_range {
    const gw_plan_builder *builder;
    size_t bytes_max; /* SIZE_MAX: for all that is larger */
} gw_arch_range;

#define GW_ARCH_RANGES_MAX 8

/* What "auto" does with a collective of bytes at this place, from small to large, looked at in powers of two up to
 * 4 GiB. Returns how many ranges there are. */
int gw_arch_ranges(gw_collective collective, const gw_topology *topology, gw_arch_range ranges[GW_ARCH_RANGES_MAX]);

#endif
