/* profile_load.h - the profile of a model that a user names: of the zoo, or in a file. */
#ifndef GW_PROFILE_PROFILE_LOAD_H
#define GW_PROFILE_PROFILE_LOAD_H

#include "profile/profile.h"

/* The files that a user may take for a model. */
typedef enum gw_model_file {
    GW_MODEL_FILE_PROFILE,     /* layers and their times; also a file that cannot be read */
    GW_MODEL_FILE_DESCRIPTION, /* for the trainer: `input 28 28 1` */
    GW_MODEL_FILE_MACHINES     /* machine speeds of gradwire fit, which are no model */
} gw_model_file;

/* By the first word of a file. */
gw_model_file gw_model_file_kind(const char *path);

/* The layer times of a model of the zoo with its default batch, or of a file. GW_INVALID, with a sentence that says
 * what to do, if there are none. On success the caller owns *profile: gw_profile_free. */
gw_status gw_profile_load(const char *name, gw_profile *profile, gw_error *error);

#endif
