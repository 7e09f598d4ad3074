/* zmq_absent.c - transport=zmq in a build without libzmq: it says what is missing. */
#include "transport/transport_registry.h"
#include "transport/zmq/zmq_transport.h"

static gw_status absent(gw_error *error) {
    return gw_fail(error, GW_UNSUPPORTED,
                   "transport=zmq needs ZeroMQ, without which this gradwire was built: install libzmq3-dev and "
                   "build it again, or choose transport=tcp");
}

static gw_status listen_absent(gw_transport **out, const gw_transport_options *options,
                               uint8_t endpoint[GW_ENDPOINT_TRANSPORT_BYTES], gw_error *error) {
    (void)out, (void)options, (void)endpoint;
    return absent(error);
}

const gw_transport_type gw_transport_zmq = {
    .technique = GW_ZMQ_TECHNIQUE,
    .tcp_sockets = true,
    .threads = 1,
    .available = absent,
    .listen = listen_absent,
};
