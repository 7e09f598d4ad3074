/* tcp_type.c - tcp in the table of transports: its parameters on the strategy line, and its opener. */
#include "transport/tcp/tcp.h"
#include "transport/transport_registry.h"

#include <stdlib.h>

enum { STREAMS, CONGESTION, SECURITY, CHECKSUM }; /* of gw_tcp_params */

static const char *const congestions[] = {"auto", "cubic", "bbr", "reno", "system", NULL};

const gw_param gw_tcp_params[] = {
    [STREAMS] = {.name = "streams",
                 .kind = GW_PARAM_INTEGER,
                 .preset = 1,
                 .lowest = 1,
                 .highest = 8,
                 .about = "connections to each peer"},
    [CONGESTION] = {.name = "congestion",
                    .kind = GW_PARAM_CHOICE,
                    .choices = congestions,
                    .about = "congestion control; system is the kernel's own choice"},
    [SECURITY] = GW_SECURITY_PARAM,
    [CHECKSUM] = GW_CHECKSUM_PARAM,
    {.name = NULL},
};

static gw_status open_by_table(gw_transport **out, const gw_transport_options *o, gw_error *error) {
    bool *summed = gw_transport_summed(o, o->values[CHECKSUM]);
    if (!summed) return gw_fail(error, GW_MEMORY, "tcp: no memory for %d peers", o->world);
    gw_tcp_options options = {.rank = o->rank,
                              .world = o->world,
                              .streams = (int)o->values[STREAMS],
                              .congestion = congestions[(int)o->values[CONGESTION]],
                              .summed = summed};
    gw_status status = gw_tcp_open(out, &options, o->sink, o->dial, o->ctx, error);
    free(summed);
    return status;
}

const gw_transport_type gw_transport_tcp = {
    .technique = {.name = "tcp", .about = "TCP, also within a host", .params = gw_tcp_params},
    .tcp_sockets = true,
    .open = open_by_table,
};
