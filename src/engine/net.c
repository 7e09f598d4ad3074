/* net.c - the transports between hosts that keep house by themselves: zmq and mpi. (tcp is fed with connections by the
 * gateway, and so by node.c.) */
#include <stdlib.h>

#include "engine/node.h"
#include "transport/mpi.h"
#include "transport/zmq.h"

static bool names(const gw_node *node, const char *transport) {
    return gw_strategy_is(&node->strategy, GW_AXIS_TRANSPORT, transport);
}

static gw_status listen_zmq(gw_node *node, const gw_address *address, const char *ports, uint8_t *own,
                            gw_error *error) {
    gw_zmq_options options = {.rank = node->rank, .world = node->world, .address = *address,
                              .clear = gw_strategy_flag(&node->strategy, GW_AXIS_TRANSPORT, "clear")};
    gw_status status = gw_gateway_derive(node->gateway, "zmq", options.key, error);
    if (!status && ports && ports[0]) status = gw_ports_parse(ports, &options.port_low, &options.port_high, error);
    if (!status) status = gw_zmq_open(&node->net, &options, gw_engine_sink(gw_core_engine(node->core)), error);
    if (!status) gw_zmq_endpoint(node->net, own);
    return status;
}

static gw_status attach_zmq(gw_node *node, gw_error *error) {
    gw_status status = GW_OK;
    for (int r = 0; r < node->world && !status; r++)
        if (r != node->rank)
            status = gw_zmq_attach(node->net, r, &node->endpoints[r].address, node->endpoints[r].shm, error);
    return status;
}

/* When all are there: MPI's own start waits for every rank. */
static gw_status open_mpi(gw_node *node, gw_error *error) {
    gw_mpi_options options = {.rank = node->rank, .world = node->world, .deadline = node->deadline,
                              .library = gw_strategy_choice(&node->strategy, GW_AXIS_TRANSPORT, "library")};
    return gw_mpi_open(&node->net, &options, gw_engine_sink(gw_core_engine(node->core)), error);
}

bool gw_net_is_tcp(const gw_node *node) { return !names(node, "zmq") && !names(node, "mpi"); }

gw_status gw_net_listen(gw_node *node, const gw_address *address, const char *ports, uint8_t own[GW_ENDPOINT_SHM],
                        gw_error *error) {
    return names(node, "zmq") ? listen_zmq(node, address, ports, own, error) : GW_OK;
}

gw_status gw_net_connect(gw_node *node, gw_error *error) {
    return names(node, "zmq") ? attach_zmq(node, error) : open_mpi(node, error);
}

int gw_net_threads(const gw_node *node) { return names(node, "zmq") ? 1 : 0; }
