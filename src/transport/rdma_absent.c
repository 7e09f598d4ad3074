/* rdma_absent.c - rdma.h in a build without libfabric: it says what is missing. */
#include "transport/rdma.h"

gw_status gw_rdma_open(gw_transport **out, const gw_rdma_options *options, gw_sink sink, gw_dial dial, void *dial_ctx,
                       gw_error *error) {
    (void)out, (void)options, (void)sink, (void)dial, (void)dial_ctx;
    return gw_fail(error, GW_UNSUPPORTED, "transport=rdma is not there: " GW_RDMA_ABSENT);
}

gw_rdma_counters gw_rdma_count(const gw_transport *transport) {
    (void)transport;
    return (gw_rdma_counters){0};
}

int gw_rdma_providers(gw_rdma_provider list[GW_RDMA_PROVIDERS_MAX]) {
    (void)list;
    return 0;
}

bool gw_rdma_version(int *major, int *minor) {
    (void)major, (void)minor;
    return false;
}
