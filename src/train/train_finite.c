/* train_finite.c - see train_finite.h. */
#include "train/train_finite.h"

#include <math.h>

#include "base/finite.h"
#include "base/log.h"
#include "train/trainer.h"

static const gw_parameter *first_spoilt(const gw_model *model) {
    for (int p = 0; p < model->parameters; p++) {
        const gw_parameter *one = &model->table[p];
        if (gw_first_nonfinite(model->weights + one->offset, one->count, GW_F32) < one->count) return one;
    }
    return NULL;
}

gw_status gw_trainer_check_loss(gw_trainer *t, const gw_loss *loss, gw_error *error) {
    gw_error found = {.rank = -1};
    if (isfinite(loss->sum)) return GW_OK;
    const gw_parameter *spoilt = first_spoilt(t->model);
    gw_fail(&found, GW_NOT_FINITE, "the loss on rank %d is %s in step %llu: %s%s", t->rank,
            isnan(loss->sum) ? "not a number" : "infinite", (unsigned long long)t->updates,
            spoilt ? "weights that are not finite begin with " : "the weights are finite, activations overflow",
            spoilt ? spoilt->name : "");
    if (!t->settings.allow_nonfinite) return gw_fail(error, GW_NOT_FINITE, "%s", found.text);
    if (!t->warned_nonfinite) gw_log(GW_LOG_WARN, t->rank, "%s", found.text);
    t->warned_nonfinite = true;
    return GW_OK;
}

void gw_trainer_warn_gradient(gw_trainer *t, const gw_reducer_counters *counters) {
    if (!counters->nonfinite || t->warned_nonfinite) return;
    t->warned_nonfinite = true;
    gw_log(GW_LOG_WARN, t->rank, "the gradient of %s is not finite in step %llu",
           t->model->table[counters->nonfinite_tensor].name, (unsigned long long)counters->nonfinite_step);
}
