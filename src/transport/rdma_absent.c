/* rdma_absent.c - rdma.h in a build without libfabric: it says what is missing. */
#include "transport/rdma.h"

static gw_status absent(gw_error *error) {
    return gw_fail(error, GW_UNSUPPORTED,
                   "rdma: this gradwire was built without libfabric; install its headers (Debian: libfabric-dev) and "
                   "build again");
}

gw_status gw_rdma_open(gw_transport **out, const gw_rdma_options *options, gw_sink sink, gw_dial dial, void *dial_ctx,
                       gw_error *error) {
    (void)out, (void)options, (void)sink, (void)dial, (void)dial_ctx;
    return absent(error);
}

gw_rdma_counters gw_rdma_count(const gw_transport *transport) {
    (void)transport;
    return (gw_rdma_counters){0};
}

int gw_rdma_providers(gw_rdma_provider list[GW_RDMA_PROVIDERS_MAX], gw_error *error) {
    (void)list;
    absent(error);
    return 0;
}
