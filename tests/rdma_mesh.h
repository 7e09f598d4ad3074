/* rdma_mesh.h - ranks of tcp_mesh.h over the rdma transport. */
#ifndef GW_TESTS_RDMA_MESH_H
#define GW_TESTS_RDMA_MESH_H

#include "tcp_mesh.h"
#include "transport/rdma/rdma.h"
#include "transport/rdma/rdma_wire.h"

#include <pthread.h>

/* Ends the program as skipped where libfabric is missing. */
static inline void rdma_or_skip(void) {
    gw_rdma_provider list[GW_RDMA_PROVIDERS_MAX];
    gw_error error = {0};
    setenv("FI_SHM_DISABLE_CMA", "1", 0); /* as gw_rdma_open does: it must be set before libfabric is loaded */
    if (gw_rdma_providers(list, &error) > 0) return;
    printf("skipped: %s\n", error.text);
    exit(77);
}

static inline void rdma_rank_open(mesh_rank *n, const char *provider, gw_rdma_strict strict) {
    gw_address loopback;
    CHECK(gw_address_literal("127.0.0.1", &loopback));
    bool all[MESH_MAX];
    for (int p = 0; p < MESH_MAX; p++) all[p] = true;
    gw_rdma_options options = {.rank = n->rank, .world = n->mesh->world, .provider = provider, .address = &loopback,
                               .summed = mesh_guarded == MESH_SUMMED ? all : NULL, .strict = strict};
    gw_error error = {0};
    CHECK_EQ(GW_OK, gw_rdma_open(&n->transport, &options, rank_sink(n), rank_dial, n, &error));
    if (error.status) printf("    %s\n", error.text);
    n->shown_max = GW_RDMA_INLINE_BYTES;
}

static inline mesh *rdma_mesh(int world, const char *provider, gw_rdma_strict strict, bool connects) {
    mesh *m = mesh_make(world, false, connects);
    for (int r = 0; r < world; r++) rdma_rank_open(&m->ranks[r], provider, strict);
    return m;
}

/* close() waits for its peers, so another thread calls it while they are polled. */

static inline void *close_rank(void *transport) {
    ((gw_transport *)transport)->ops->close(transport);
    return NULL;
}

static inline pthread_t rank_close_start(mesh_rank *n) {
    pthread_t thread;
    pthread_create(&thread, NULL, close_rank, n->transport);
    n->transport = NULL;
    return thread;
}

static inline void rdma_mesh_close(mesh *m) {
    pthread_t closers[MESH_MAX];
    bool open[MESH_MAX];
    for (int r = 0; r < m->world; r++) {
        open[r] = m->ranks[r].transport != NULL;
        if (open[r]) closers[r] = rank_close_start(&m->ranks[r]);
    }
    for (int r = 0; r < m->world; r++)
        if (open[r]) pthread_join(closers[r], NULL);
    mesh_close(m);
}

#endif
