/* choose.h - which plan carries which collective. */
#ifndef GW_ARCH_CHOOSE_H
#define GW_ARCH_CHOOSE_H

#include "plan/plan.h"

/* The builder for a request under an architecture of the strategy line ("auto", "ring", ...). An architecture that
 * does not carry the collective (a ring has no broadcast) leaves it to the one that "auto" would choose. The answer
 * depends only on what all ranks know alike. element_bytes: of the user's type. NULL only for an unknown name. */
const gw_plan_builder *gw_arch_choose(const char *arch, const gw_plan_request *request, size_t element_bytes);

#endif
