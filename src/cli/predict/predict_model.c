/* predict_model.c - the model of a prediction: built-in layer times, a profile in a file, or layers that are timed on
 * this machine. */
#include <string.h>

#include "cli/common/trainer_parts.h"
#include "cli/predict/predict_options.h"
#include "profile/builtin_profiles.h"
#include "profile/profile_load.h"

enum { BATCH = 32, STEPS = 10 };

bool gw_predict_times_model(const char *name) {
    const gw_zoo_model *model = gw_zoo_find(name);
    if (gw_zoo_is_path(name)) return gw_model_file_kind(name) == GW_MODEL_FILE_DESCRIPTION;
    return model && model->trains && !model->batch;
}

/* throughput 0: as recorded. */
static void adjust(gw_profile *profile, int batch, double throughput) {
    if (batch) profile->batch = batch;
    if (throughput > 0 && profile->batch) gw_profile_scale(profile, profile->batch / throughput);
}

gw_status gw_predict_model(const char *name, int batch, double throughput, gw_predict_request *ask, gw_error *error) {
    const gw_zoo_model *model = gw_zoo_find(name);
    gw_status status;
    if (model && model->batch) return gw_builtin_profile_make(model, batch, throughput, &ask->profile, error);
    ask->timed = gw_predict_times_model(name);
    if (ask->timed) status = gw_layer_times(name, NULL, batch ? batch : BATCH, STEPS, &ask->profile, error);
    else status = gw_profile_load(name, &ask->profile, error);
    if (!status) adjust(&ask->profile, batch, throughput);
    return status;
}
