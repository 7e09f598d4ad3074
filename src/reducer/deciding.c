/* deciding.c - strategy=auto: the reducer times layers for its decider, asks it after each step, and does what it says.
 */
#include <stdio.h>
#include <stdlib.h>

#include "base/dtype.h"
#include "reducer/deciding.h"
#include "reducer/reducer_internal.h"

bool gw_reducer_links(const gw_reducer *reducer, gw_machine *machine) {
    return reducer->decider && gw_decider_links(reducer->decider, machine);
}

bool gw_reducer_chose_freely(const gw_reducer *reducer) {
    const gw_strategy *asked = &reducer->asked;
    return reducer->decider && gw_decider_trials(reducer->decider) > 0 && gw_strategy_is_open(asked, GW_AXIS_ARCH) &&
           gw_strategy_is_open(asked, GW_AXIS_SCHEDULE) && !gw_strategy_compresses(asked);
}

gw_status gw_reducer_begin_deciding(gw_reducer *reducer, gw_comm *comm, gw_error *error) {
    gw_decider_config config = {.comm = comm,
                                .asked = &reducer->asked,
                                .file = reducer->decisions,
                                .optimizer = reducer->optimizer,
                                .tensors = reducer->count,
                                .bytes = reducer->model.bytes,
                                .timed_steps = GW_MEASURE_STEPS,
                                .first_step = reducer->next_step};
    if (!reducer->chooses || gw_size(comm) == 1) return GW_OK;
    return gw_decider_open(&reducer->decider, &config, &reducer->strategy, error);
}

static gw_status time_layers(gw_reducer *reducer, gw_error *error) {
    gw_status status = GW_OK;
    if (!reducer->timing.values) status = gw_step_timing_open(&reducer->timing, reducer->count, error);
    if (!status) gw_step_timing_restart(&reducer->timing);
    return status;
}

/* The model as it was timed, a tensor for each layer. */
static gw_status make_profile(const gw_reducer *reducer, gw_profile *profile, gw_error *error) {
    gw_schedule_facts facts = gw_step_timing_facts(&reducer->timing);
    *profile = (gw_profile){.name = "this model", .count = reducer->count};
    profile->layers = calloc((size_t)reducer->count, sizeof *profile->layers);
    if (!profile->layers) return gw_fail(error, GW_MEMORY, "out of memory for the times of %d tensors", reducer->count);
    for (int i = 0; i < reducer->count; i++) {
        const gw_reducer_tensor *t = gw_step_engine_tensor_at(reducer->step_engine, i);
        gw_profile_layer *layer = &profile->layers[i];
        snprintf(layer->name, sizeof layer->name, "%.40s", t->name);
        snprintf(layer->kind, sizeof layer->kind, "tensor");
        layer->parameter_bytes = (t->count * gw_dtype_bytes(t->dtype) + 3) / 4 * 4;
        layer->rows = t->rows;
        layer->forward_us = facts.forward_us[i];
        layer->backward_us = facts.backward_us[i];
    }
    return GW_OK;
}

/* A schedule that cuts by measured times has been asked for: another architecture cuts by the same times. */
static gw_status cut_by_timing(gw_reducer *reducer) {
    return gw_reducer_cuts_by_timing(reducer) ? gw_reducer_recut_by_timing(reducer) : GW_OK;
}

static gw_status decide(gw_reducer *reducer, gw_error *error) {
    gw_profile profile = {.count = 0};
    gw_strategy next = reducer->strategy;
    gw_status status = gw_reducer_flush(reducer);
    bool timed = reducer->timing.values != NULL; /* a run that is replayed times nothing */
    if (!status && timed) status = gw_step_timing_broadcast_slowest(&reducer->timing, reducer->comm);
    if (status) return gw_fail(error, status, "%s", gw_last_error(reducer->comm));
    if (timed) status = make_profile(reducer, &profile, error);
    if (!status) status = gw_decider_decide(reducer->decider, &profile, &next, error);
    free(profile.layers);
    if (status || gw_strategy_equal(&next, &reducer->strategy)) return status;
    status = gw_reducer_change(reducer, &next);
    if (!status) status = cut_by_timing(reducer);
    return status ? gw_fail(error, status, "%s", gw_last_error(reducer->comm)) : GW_OK;
}

/* Measuring links and waiting for rank 0's prediction are waits of this step, as the recording has them. */
static gw_status decide_waiting(gw_reducer *reducer, gw_error *error) {
    uint64_t waited = reducer->wait_ns;
    gw_time begun = gw_clock_now();
    gw_status status = decide(reducer, error);
    reducer->wait_ns = waited + (gw_clock_now() - begun);
    return status;
}

static double exact_share(const gw_reducer *reducer) {
    gw_context_lock(reducer->comm->context); /* the driver counts it */
    double share = gw_step_engine_exact_share(reducer->step_engine);
    gw_context_unlock(reducer->comm->context);
    return share;
}

gw_status gw_reducer_decide(gw_reducer *reducer) {
    gw_error error = {.rank = -1};
    gw_decide_action action;
    gw_decider_progress now = {.next_step = reducer->next_step,
                               .now = gw_clock_now(),
                               .waited_ns = reducer->wait_ns,
                               .exact_share = exact_share(reducer)};
    gw_status status = gw_decider_step(reducer->decider, &now, &action, &error);
    if (!status && action == GW_DECIDE_TIME_LAYERS) status = time_layers(reducer, &error);
    if (!status && action == GW_DECIDE_NOW) status = decide_waiting(reducer, &error);
    return status ? gw_comm_set_last_error(&error) : GW_OK;
}
