/* step_clip.c - the norm of all gradients of a step together (gw_reducer_options.clip): of the mean, or of this rank's
 * own. The synchronization decides which (gw_sync.norms). */
#include "base/clip.h"
#include "reducer/step_engine_internal.h"

bool gw_step_engine_clips(const gw_step_engine *s, uint64_t step, gw_sync_norm norm) {
    const gw_sync *sync = s->config.sync;
    unsigned norms = sync->norms ? sync->norms(s->config.sync_values, step) : GW_NORM_MEAN;
    return s->config.options.clip > 0 && (norms & norm);
}

static double square_sum(const float *values, size_t count) {
    double sums[8] = {0};
    for (size_t i = 0; i < count; i++) sums[i % 8] += (double)values[i] * values[i];
    return ((sums[0] + sums[1]) + (sums[2] + sums[3])) + ((sums[4] + sums[5]) + (sums[6] + sums[7]));
}

double gw_step_engine_clip_scale(const gw_step_engine *s, gw_sync_norm norm) {
    double squares = 0;
    for (int i = 0; i < s->config.count; i++) {
        const gw_sync_tensor *t = &s->tensors[i].view;
        squares += square_sum(norm == GW_NORM_OWN ? t->gradient : t->travels, t->count);
    }
    return gw_clip_factor(squares, s->config.options.clip);
}
