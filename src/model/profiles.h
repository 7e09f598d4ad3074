/* profiles.h - profiles of well-known models, made from their architecture: exact tensors, and compute spread over the
 * layers by floating-point operations and scaled to the throughput of one device. */
#ifndef GW_MODEL_PROFILES_H
#define GW_MODEL_PROFILES_H

#include "model/profile.h"

typedef struct gw_builtin_profile {
    const char *name, *about;
    int batch;         /* samples of a step unless asked otherwise */
    double throughput; /* samples per second of one device unless asked otherwise */
} gw_builtin_profile;

/* All of them, a NULL name at the end. */
extern const gw_builtin_profile gw_builtin_profiles[];
const gw_builtin_profile *gw_builtin_profile_find(const char *name);

/* batch 0, throughput 0: the profile's own. */
gw_status gw_builtin_profile_make(const gw_builtin_profile *builtin, int batch, double throughput, gw_profile *profile,
                                  gw_error *error);
/* The same with times in floating-point operations of one sample: 1 us stands for one. */
gw_status gw_builtin_profile_count(const gw_builtin_profile *builtin, gw_profile *profile, gw_error *error);

#endif
