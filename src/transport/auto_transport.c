/* auto_transport.c - transport=auto, the default: shm among the ranks of a host, tcp to all others. */
#include "transport/tcp/tcp.h"
#include "transport/transport_registry.h"

static gw_status open_across(gw_transport **out, const gw_transport_options *options, gw_error *error) {
    return gw_transport_tcp.open(out, options, error);
}

const gw_transport_type gw_transport_auto = {
    .technique = {.name = "auto", .about = "shm within a host, tcp across", .params = gw_tcp_params},
    .within_host = &gw_transport_shm,
    .open = open_across,
};
