/* step_finite.c - gradients that are not finite. They are looked for when this rank hands them over: in a sum over all
 * ranks nobody could say whose they were, and codecs that send the largest values may keep a NaN for good. */
#include "base/finite.h"
#include "reducer/step_engine_internal.h"

static gw_status refuse(const gw_step_engine *s, int tensor, size_t element, gw_error *error) {
    const gw_step_engine_tensor *t = &s->tensors[tensor];
    int rank = gw_team_rank(s->config.team);
    return gw_fail_rank(error, GW_NOT_FINITE, rank,
                        "the gradient of %s on rank %d is not finite in step %llu (element %zu%s)", t->what.name, rank,
                        (unsigned long long)gw_step_engine_step(s, s->steps), element,
                        t->factors ? " of a factor" : "");
}

gw_status gw_step_engine_check_finite(gw_step_engine *s, int tensor, const void *values, size_t count,
                                      gw_error *error) {
    gw_nonfinite how = s->config.options.nonfinite;
    if (how == GW_NONFINITE_IGNORED) return GW_OK;
    size_t first = gw_first_nonfinite(values, count, s->tensors[tensor].what.dtype);
    if (first == count) return GW_OK;
    s->nonfinite = (gw_step_engine_nonfinite){s->nonfinite.count + 1, gw_step_engine_step(s, s->steps), tensor};
    return how == GW_NONFINITE_REFUSED ? refuse(s, tensor, first, error) : GW_OK;
}

gw_step_engine_nonfinite gw_step_engine_nonfinites(const gw_step_engine *s) { return s->nonfinite; }
