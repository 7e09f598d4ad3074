/* change.c - between two steps a reducer continues with another strategy. All ranks do so together. */
#include <stdlib.h>

#include "reducer/reducer_internal.h"

/* The pack buffer: whether one is needed depends on the codec. */
static gw_status fit_pack_buffer(gw_reducer *reducer, gw_step_engine_config *config, gw_error *error) {
    size_t bytes = gw_step_engine_flat_bytes(config);
    config->flat = reducer->flat;
    if (bytes == reducer->flat_bytes) return GW_OK;
    gw_free(reducer->comm, reducer->flat);
    reducer->flat = NULL;
    reducer->flat_bytes = bytes;
    return gw_reducer_alloc_pack_buffer(reducer, config, error);
}

static gw_status change_engine(gw_reducer *reducer, const gw_reducer_tensor *tensors, gw_error *error) {
    gw_context *context = reducer->comm->context;
    gw_step_engine_config config = *gw_step_engine_current_config(reducer->step_engine);
    config.tensors = tensors;
    gw_status status = gw_step_engine_config_from_strategy(&config, &reducer->strategy, error);
    if (!status) status = fit_pack_buffer(reducer, &config, error);
    if (status) return status;
    gw_context_lock(context);
    gw_reducer_reserve_team_ids(reducer, &config);
    status = gw_step_engine_change(reducer->step_engine, &config, error);
    gw_context_unlock(context);
    return status;
}

gw_reducer_tensor *gw_reducer_list_tensors(const gw_reducer *reducer, gw_error *error) {
    gw_reducer_tensor *tensors = calloc((size_t)reducer->count + 1, sizeof *tensors);
    if (!tensors) gw_fail(error, GW_MEMORY, "out of memory for %d tensors", reducer->count);
    for (int i = 0; tensors && i < reducer->count; i++) tensors[i] = *gw_step_engine_tensor_at(reducer->step_engine, i);
    return tensors;
}

static gw_status change(gw_reducer *reducer, gw_error *error) {
    gw_reducer_tensor *tensors = gw_reducer_list_tensors(reducer, error);
    if (!tensors) return GW_MEMORY;
    gw_status status = change_engine(reducer, tensors, error);
    free(tensors);
    return status;
}

gw_status gw_reducer_change(gw_reducer *reducer, const gw_strategy *strategy) {
    gw_error error = {.rank = -1};
    gw_status status = gw_reducer_flush(reducer);
    if (!status) status = gw_barrier(reducer->comm); /* no rank still needs the old buckets */
    if (status) return status;
    reducer->strategy = *strategy;
    status = gw_reducer_agree(reducer->comm, change(reducer, &error), &error);
    if (status) return gw_comm_set_last_error(&error);
    gw_reducer_log_summary(reducer);
    return GW_OK;
}
