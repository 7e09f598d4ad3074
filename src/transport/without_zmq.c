/* without_zmq.c - in place of zmq.c where libzmq was not there when gradwire was built. */
#include "transport/zmq.h"

#include <string.h>

gw_status gw_zmq_usable(gw_error *error) {
    return gw_fail(error, GW_UNSUPPORTED,
                   "transport=zmq needs ZeroMQ, without which this gradwire was built: install libzmq3-dev and "
                   "build it again, or choose transport=tcp");
}

gw_status gw_zmq_open(gw_transport **out, const gw_zmq_options *options, gw_sink sink, gw_error *error) {
    (void)out, (void)options, (void)sink;
    return gw_zmq_usable(error);
}

void gw_zmq_endpoint(const gw_transport *transport, uint8_t endpoint[GW_ZMQ_ENDPOINT_BYTES]) {
    (void)transport;
    memset(endpoint, 0, GW_ZMQ_ENDPOINT_BYTES);
}

gw_status gw_zmq_attach(gw_transport *transport, int peer, const gw_address *host,
                        const uint8_t endpoint[GW_ZMQ_ENDPOINT_BYTES], gw_error *error) {
    (void)transport, (void)peer, (void)host, (void)endpoint;
    return gw_fail(error, GW_UNSUPPORTED, "this gradwire was built without ZeroMQ");
}
