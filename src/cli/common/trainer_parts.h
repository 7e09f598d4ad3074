/* trainer_parts.h - what commands of every build use of the trainer. In a build without oneDNN train_absent.c stands
 * in: each function that can fail is then GW_UNSUPPORTED, with a sentence that says what is missing. */
#ifndef GW_CLI_COMMON_TRAINER_PARTS_H
#define GW_CLI_COMMON_TRAINER_PARTS_H

#include "profile/profile.h"
#include "zoo/zoo.h"

extern const bool gw_trainer_built;

/* train_layer_times.c: runs training steps of a model of the zoo, or of a description in a file, and makes a profile of
 * the median times of each layer on this machine. Shows progress on a terminal after two seconds. The caller frees the
 * profile: gw_profile_free. */
gw_status gw_layer_times(const char *model, const gw_model_size *size, int batch, int steps, gw_profile *profile,
                         gw_error *error);

/* train_model_text.c: print the layers, or the description, of a model that the trainer can run. */
gw_status gw_model_print_layers(const char *model, const gw_model_size *size, int batch, bool json, gw_error *error);
gw_status gw_model_print_text(const char *model, const gw_model_size *size, gw_error *error);
/* The kinds of layers of a description, as a table. */
void gw_layer_kinds_print(void);

#endif
