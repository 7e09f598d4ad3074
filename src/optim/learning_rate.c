/* learning_rate.c - see learning_rate.h. */
#include "optim/learning_rate.h"

#include <math.h>
#include <string.h>

#include "base/suggest.h"

const char *const gw_learning_rate_names[] = {"constant", "step", "cosine", "linear", NULL};

gw_status gw_learning_rate_find(const char *name, gw_learning_rate_kind *kind, gw_error *error) {
    char quoted[GW_QUOTE_BYTES], hint[GW_HINT_BYTES];
    for (int i = 0; gw_learning_rate_names[i]; i++)
        if (strcmp(name, gw_learning_rate_names[i]) == 0) {
            *kind = (gw_learning_rate_kind)i;
            return GW_OK;
        }
    return gw_fail(error, GW_INVALID, "no course of the learning rate is called %s (%s)",
                   gw_suggest_quote(name, quoted), gw_suggest_hint(name, gw_learning_rate_names, hint));
}

/* Progress from the end of the warm-up to `total`, 0 to 1. */
static double progress(const gw_learning_rate *rate, uint64_t step) {
    if (step >= rate->total || rate->total <= rate->warmup) return 1;
    return (double)(step - rate->warmup) / (double)(rate->total - rate->warmup);
}

double gw_learning_rate_at(const gw_learning_rate *rate, uint64_t step) {
    if (step < rate->warmup)
        return rate->start + (rate->peak - rate->start) * (double)(step + 1) / (double)rate->warmup;
    switch (rate->kind) {
    case GW_RATE_CONSTANT: return rate->peak;
    case GW_RATE_STEP: return rate->every ? rate->peak * pow(rate->factor, (double)(step / rate->every)) : rate->peak;
    case GW_RATE_COSINE: return rate->last + (rate->peak - rate->last) * (1 + cos(acos(-1) * progress(rate, step))) / 2;
    case GW_RATE_LINEAR: return rate->last + (rate->peak - rate->last) * (1 - progress(rate, step));
    }
    return rate->peak;
}

double gw_learning_rate_scaled(double rate, double batch_of_rate, double global_batch) {
    return rate * global_batch / batch_of_rate;
}
