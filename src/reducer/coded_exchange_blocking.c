/* coded_exchange_blocking.c - runs an exchange in the caller's thread. */
#include "reducer/coded_exchange.h"
#include "runtime/comm.h"

gw_status gw_coded_exchange_make(gw_coded_exchange **exchange, gw_comm *comm, const gw_coded_exchange_config *config) {
    gw_error error = {.rank = -1};
    gw_context_lock(comm->context);
    gw_status status = gw_coded_exchange_open(exchange, comm->context->core, comm->team, config, &error);
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
