/* coded_exchange_blocking.c - runs an exchange in the caller's thread. */
#include "reducer/coded_exchange.h"
#include "runtime/comm.h"

gw_status gw_coded_exchange_make(gw_coded_exchange **exchange, gw_coded_tensor *tensor, gw_comm *comm,
                                 const gw_codec_setup *setup, const gw_codec_tensor *what, uint64_t seed) {
    gw_error error = {.rank = -1};
    gw_coding coding;
    gw_context_lock(comm->context);
    gw_lanes lanes = gw_lanes_of(gw_team_topology(comm->team), comm->rank, true);
    gw_coded_form form = gw_coded_form_of(setup, comm->size, false);
    gw_status status = gw_coding_open(&coding, setup, seed, comm->rank, comm->size, &error);
    if (!status) status = gw_coding_tensor_open(&coding, tensor, what, false, &lanes, form == GW_FORM_TWO_PASS, &error);
    gw_coded_part whole = {.tensor = tensor, .count = what->count};
    gw_coded_exchange_config config = {.setup = *setup, .parts = &whole, .count = 1, .ranks = comm->size,
                                       .arch = "auto", .seed = seed};
    if (!status) status = gw_coded_exchange_open(exchange, comm->context->core, comm->team, &config, &error);
    gw_context_unlock(comm->context);
    return status ? gw_comm_set_last_error(&error) : GW_OK;
}

gw_status gw_coded_exchange_run(gw_coded_exchange *exchange, gw_comm *comm) {
    gw_error error = {.rank = -1};
    gw_status status = GW_OK;
    gw_op *op = NULL;
    gw_context_lock(comm->context);
    while (!gw_coded_exchange_next(exchange, gw_clock_now(), &op, &status, &error)) gw_context_drive(comm->context, op);
    gw_context_unlock(comm->context);
    return status ? gw_comm_set_last_error(&error) : GW_OK;
}
