/* step_engine_change.c - another architecture, schedule or codec between two steps. Tensors, synchronization and team
 * stay. Under one architecture a codec encodes the same elements of a tensor on each rank whatever the schedule, so it
 * keeps its state. In all other cases a residual is added to the rank's next gradient: it reaches the sum by any route.
 */
#include <stdlib.h>
#include <string.h>

#include "reducer/step_engine_internal.h"

const gw_step_engine_config *gw_step_engine_current_config(const gw_step_engine *s) { return &s->config; }

const gw_reducer_tensor *gw_step_engine_tensor_at(const gw_step_engine *s, int tensor) {
    return &s->tensors[tensor].what;
}

static bool same_codec(const gw_codec_setup *a, const gw_codec_setup *b) {
    return a->codec == b->codec && a->feedback == b->feedback && memcmp(a->value, b->value, sizeof a->value) == 0;
}

bool gw_step_engine_take_config(gw_step_engine *s, const gw_step_engine_config *config) {
    bool stays = same_codec(&s->config.codec, &config->codec) && strcmp(s->config.arch, config->arch) == 0;
    s->config.first_id = config->first_id;
    s->config.flat = config->flat;
    s->config.arch = config->arch;
    s->config.chunk_bytes = config->chunk_bytes;
    s->config.factors = config->factors;
    s->config.policy = config->policy;
    s->config.settings = config->settings;
    s->config.codec = config->codec;
    return stays;
}

gw_status gw_step_engine_move_kept(gw_step_engine *s, bool stays, gw_error *error) {
    return stays ? gw_step_engine_state_move(s, s->kept_codec, s->kept_codec_bytes, error)
                 : gw_step_engine_state_carry(s, s->kept_codec, s->kept_codec_bytes, error);
}

gw_status gw_step_engine_change(gw_step_engine *s, const gw_step_engine_config *config, gw_error *error) {
    gw_step_engine_take_ready(s); /* takes the end of the last step from the ring */
    gw_status status = gw_step_engine_keep_codec_state(s, error);
    if (status) return status;
    bool stays = gw_step_engine_take_config(s, config);
    status = gw_step_engine_rebuild(s, error);
    if (!status) status = gw_step_engine_move_kept(s, stays, error);
    free(s->kept_codec);
    s->kept_codec = NULL;
    if (!status) return GW_OK;
    s->error = *error; /* it has no transfers any more */
    atomic_store(&s->failed, true);
    return status;
}

void gw_step_engine_add_carried(gw_step_engine *s, int tensor) {
    gw_step_engine_tensor *t = &s->tensors[tensor];
    float *gradient = t->what.gradient;
    if (!t->carried) return;
    for (size_t i = 0; i < t->what.count; i++) gradient[i] += t->carried[i];
    free(t->carried);
    t->carried = NULL;
}
