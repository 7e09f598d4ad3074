/* registration.c - gw_register and gw_unregister: the shared-memory part is in shm/registered_memory.c.
 *
 * Moving pages takes a millisecond or more, so the context's lock is not held meanwhile. The address space belongs to
 * the process, so one lock of the process lets one call at a time look at it and change it. */
#include "runtime/comm.h"
#include "shm/registered_memory.h"
#include "transport/shm/shm_transport.h"

static pthread_mutex_t moving = PTHREAD_MUTEX_INITIALIZER;

static gw_status begin(gw_context *context, void *memory, size_t bytes, gw_error *error) {
    gw_shared_segment own;
    gw_status status = gw_registered_open(&own, memory, bytes, error);
    if (status) return status;
    gw_context_lock(context);
    status = gw_peer_map_add(gw_shm_peer_map(context->shm), &own, error);
    gw_context_unlock(context);
    if (status) gw_registered_close(&own, NULL);
    return status;
}

/* If the pages cannot be given back, the memory stays registered. */
static gw_status end(gw_context *context, void *memory, gw_error *error) {
    uint32_t id;
    gw_shared_segment own;
    gw_peer_map *peer_map = gw_shm_peer_map(context->shm);
    gw_context_lock(context);
    bool found = gw_peer_map_registered(peer_map, memory, &id);
    if (found) own = gw_peer_map_take(peer_map, id);
    gw_context_unlock(context);
    if (!found) return gw_fail(error, GW_INVALID, "no registered memory begins there");
    gw_status status = gw_registered_close(&own, error);
    if (status && own.segment.base) {
        gw_context_lock(context);
        gw_peer_map_add(peer_map, &own, NULL);
        gw_context_unlock(context);
    }
    return status;
}

/* Without peers that reach memory of this rank there is nothing to do. */
static gw_status move(gw_comm *comm, const char *call, void *memory, size_t bytes, gw_error *error) {
    gw_error cause = {.rank = -1};
    gw_status status = GW_OK;
    if (!comm->context->shm) return GW_OK;
    pthread_mutex_lock(&moving);
    if (bytes) status = begin(comm->context, memory, bytes, &cause);
    else status = end(comm->context, memory, &cause);
    pthread_mutex_unlock(&moving);
    if (!status) return GW_OK;
    if (!bytes) return gw_fail(error, status, "%s: memory at %p: %.400s", call, memory, cause.text);
    return gw_fail(error, status, "%s: %zu bytes at %p: %.400s", call, bytes, memory, cause.text);
}

gw_status gw_register(gw_comm *comm, void *memory, size_t bytes) {
    gw_error error = {.rank = -1};
    if (!comm) return gw_invalid("gw_register: the communicator is NULL");
    if (gw_comm_forked(comm)) return GW_INVALID;
    if (!memory || !bytes) return gw_invalid("gw_register: there is no memory (%zu bytes at %p)", bytes, memory);
    return move(comm, "gw_register", memory, bytes, &error) ? gw_comm_set_last_error(&error) : GW_OK;
}

gw_status gw_unregister(gw_comm *comm, void *memory) {
    gw_error error = {.rank = -1};
    if (!comm || !memory) return GW_OK;
    if (gw_comm_forked(comm)) return GW_INVALID;
    return move(comm, "gw_unregister", memory, 0, &error) ? gw_comm_set_last_error(&error) : GW_OK;
}
