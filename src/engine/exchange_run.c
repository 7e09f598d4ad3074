/* exchange_run.c - an exchange carried out in the caller's thread. */
#include "engine/comm.h"
#include "engine/exchange.h"

gw_status gw_exchange_make(gw_exchange **exchange, gw_comm *comm, const gw_exchange_config *config) {
    gw_error error = {.rank = -1};
    gw_node_lock(comm->node);
    gw_status status = gw_exchange_open(exchange, comm->node->core, comm->team, config, &error);
    gw_node_unlock(comm->node);
    return status ? gw_comm_told(&error) : GW_OK;
}

gw_status gw_exchange_run(gw_exchange *exchange, gw_comm *comm) {
    gw_error error = {.rank = -1};
    gw_status status = GW_OK;
    gw_op *op = NULL;
    gw_node_lock(comm->node);
    while (!gw_exchange_next(exchange, gw_clock_now(), &op, &status, &error)) gw_node_drive(comm->node, op);
    gw_node_unlock(comm->node);
    return status ? gw_comm_told(&error) : GW_OK;
}
