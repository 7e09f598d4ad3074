/* choose_plan.h - which plan runs which collective. */
#ifndef GW_ARCH_CHOOSE_PLAN_H
#define GW_ARCH_CHOOSE_PLAN_H

#include "plan/plan.h"

/* The builder for a request under an architecture of the strategy line ("auto", "ring", ...). "auto" takes shared
 * memory where it can, else the plan of least cost by size, ranks, hosts and the wire of the topology (cost.h). If an
 * architecture does not support the collective (a ring has no broadcast), "auto" chooses. The choice depends only on
 * values that are equal on all ranks. element_bytes: bytes of one element of the user's type. NULL only for an unknown
 * name. */
const gw_plan_builder *gw_arch_choose(const char *arch, const gw_plan_request *request, size_t element_bytes);

/* The builder for an all-gather of parts that vary in length, of up to room bytes each: around a ring, or straight to
 * each member. An architecture that has neither takes what is faster for the size. */
const gw_plan_builder *gw_arch_choose_varying(const char *arch, size_t room);

/* A plan that "auto" takes, up to a size. */
typedef struct gw_arch_range {
    const gw_plan_builder *builder;
    size_t bytes_max; /* SIZE_MAX: any larger size too */
} gw_arch_range;

#define GW_ARCH_RANGES_MAX 8

/* The plans that "auto" takes for a collective on this topology, from small to large sizes, in powers of two up to 4
 * GiB. Returns the number of ranges. */
int gw_arch_ranges(gw_collective collective, const gw_topology *topology, gw_arch_range ranges[GW_ARCH_RANGES_MAX]);

#endif
