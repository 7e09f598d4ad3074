/* builtin_profiles.h - profiles of well-known models, derived from their architecture. Tensors are exact; compute is
 * divided among the layers by floating-point operations and scaled to the throughput of one device. */
#ifndef GW_PROFILE_BUILTIN_PROFILES_H
#define GW_PROFILE_BUILTIN_PROFILES_H

#include "profile/profile.h"
#include "zoo/zoo.h"

/* model: one that has layer times. batch 0, throughput 0: the defaults. */
gw_status gw_builtin_profile_make(const gw_zoo_model *model, int batch, double throughput, gw_profile *profile,
                                  gw_error *error);
/* The same, but times are floating-point operations of one sample: 1 us stands for one operation. */
gw_status gw_builtin_profile_flops(const gw_zoo_model *model, gw_profile *profile, gw_error *error);

#endif
