/* builtin_profiles.h - profiles of well-known models, derived from their architecture. Tensors are exact; compute is
 * divided among the layers by floating-point operations and scaled to the throughput of one device. */
#ifndef GW_PROFILE_BUILTIN_PROFILES_H
#define GW_PROFILE_BUILTIN_PROFILES_H

#include "profile/profile.h"

typedef struct gw_builtin_profile {
    const char *name, *about;
    int batch;         /* default samples per step */
    double throughput; /* default samples per second of one device */
} gw_builtin_profile;

/* All of them, a NULL name at the end. */
extern const gw_builtin_profile gw_builtin_profiles[];
const gw_builtin_profile *gw_builtin_profile_find(const char *name);

/* batch 0, throughput 0: the defaults. */
gw_status gw_builtin_profile_make(const gw_builtin_profile *builtin, int batch, double throughput, gw_profile *profile,
                                  gw_error *error);
/* The same, but times are floating-point operations of one sample: 1 us stands for one operation. */
gw_status gw_builtin_profile_flops(const gw_builtin_profile *builtin, gw_profile *profile, gw_error *error);

#endif
