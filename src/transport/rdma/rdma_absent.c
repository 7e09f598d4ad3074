/* rdma_absent.c - transport=rdma in a build without libfabric: it says what is missing. */
#include "transport/rdma/rdma.h"
#include "transport/transport_registry.h"

static gw_status absent(gw_error *error) {
    return gw_fail(error, GW_UNSUPPORTED,
                   "rdma: this gradwire was built without libfabric; install its headers (Debian: libfabric-dev) and "
                   "build again");
}

static gw_status open_absent(gw_transport **out, const gw_transport_options *options, gw_error *error) {
    (void)out, (void)options;
    return absent(error);
}

const gw_transport_type gw_transport_rdma = {
    .technique = GW_RDMA_TECHNIQUE,
    .available = absent,
    .open = open_absent,
};
