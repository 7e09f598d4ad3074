/* comm.c - communicators: opening and closing, shared memory, running operations. */
#include "engine/comm.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "arch/choose.h"
#include "base/dtype.h"
#include "base/log.h"
#include "engine/arrange.h"
#include "engine/recording.h"
#include "engine/serve.h"
#include "transport/shm.h"

static _Thread_local gw_error last_error; /* of this thread's last failed call */

gw_status gw_comm_told(const gw_error *error) {
    last_error = *error;
    return error->status;
}

const char *gw_last_error(const gw_comm *comm) {
    if (comm && atomic_load(&comm->failed) && !gw_node_forked(comm->node)) return comm->error.text;
    return last_error.text;
}

/* Opening and closing. */

/* Waits for the members of a board to come, polled because there is nothing to be woken by yet. (L) is held. */
static gw_status attach_board(gw_comm *comm, gw_time until, gw_error *error) {
    gw_node *node = comm->node;
    for (useconds_t nap = 10;; nap = nap < 1000 ? nap * 2 : 1000) {
        bool attached = false;
        gw_status status = gw_board_attach(comm->board, &attached, error);
        if (status || attached) return status;
        const gw_error *failed = gw_engine_error(gw_core_engine(node->core));
        if (failed->status) {
            *error = *failed;
            return failed->status;
        }
        if (gw_clock_now() > until)
            return gw_fail(error, GW_TIMEOUT, "not all ranks on %s joined a communicator before the deadline",
                           node->endpoints[node->rank].host);
        gw_node_unlock(node);
        usleep(nap);
        gw_node_lock(node);
    }
}

/* The ranks of a host sit at a board in the topology's order. */
static gw_status open_board(gw_comm *comm, uint32_t id, const int *members, const gw_topology *topology,
                            gw_time until, gw_error *error) {
    gw_node *node = comm->node;
    if (!node->boards || comm->local_size < 2) return GW_OK;
    int *local = malloc((size_t)comm->local_size * sizeof *local);
    if (!local) return gw_fail(error, GW_MEMORY, "out of memory for a communicator");
    int host = gw_topology_host(topology, comm->rank), place = gw_topology_local_rank(topology, comm->rank);
    for (int i = 0; i < comm->local_size; i++) local[i] = members[gw_topology_rank(topology, host, i)];
    uint64_t key = (uint64_t)comm->generation << 32 | (id + UINT64_C(1));
    gw_status status = gw_board_open(&comm->board, node->shm, local, comm->local_size, place, key, error);
    free(local);
    return status ? status : attach_board(comm, until, error);
}

static void close_parts(gw_comm *comm) {
    gw_board_close(comm->board);
    gw_team_close(comm->team);
    for (int i = 0; i < comm->call_count; i++) free((void *)(uintptr_t)comm->calls[i].spec.counts);
    free(comm->calls);
    free(comm);
}

gw_status gw_comm_open_until(gw_comm **out, gw_node *node, uint32_t id, const int *members, int size, int rank,
                             gw_time until, gw_error *error) {
    gw_comm *comm = calloc(1, sizeof *comm);
    int *host_of = malloc(2 * (size_t)size * sizeof *host_of), *order = host_of + size;
    gw_topology topology;
    gw_status status = GW_OK;
    if (!comm || !host_of) status = gw_fail(error, GW_MEMORY, "out of memory for a communicator of %d ranks", size);
    if (!status) status = gw_comm_arrange(node, members, size, order, host_of, &topology, error);
    if (status) {
        free(comm);
        free(host_of);
        return status;
    }
    gw_node_lock(node);
    *comm = (gw_comm){.node = node, .rank = rank, .size = size, .error = {.rank = -1},
                      .arch = gw_strategy_name(&node->strategy, GW_AXIS_ARCH),
                      .chunk_bytes = (size_t)gw_strategy_integer(&node->strategy, GW_AXIS_ARCH, "chunk"),
                      .generation = gw_control_generation(gw_core_control(node->core))};
    if (!comm->chunk_bytes && node->net) comm->chunk_bytes = node->net->ops->chunk_bytes;
    for (int r = 0; r < size; r++) {
        comm->local_size += host_of[r] == host_of[rank];
        comm->local_rank += host_of[r] == host_of[rank] && r < rank;
    }
    status = open_board(comm, id, members, &topology, until, error);
    if (!status)
        status = gw_team_open(&comm->team, gw_core_engine(node->core), id, rank, members, &topology, comm->board,
                              error);
    if (!status) {
        const gw_error *failed = gw_engine_error(gw_core_engine(node->core));
        if (failed->status) comm->error = *failed; /* between the agreement on its members and now */
        atomic_store(&comm->failed, failed->status != GW_OK);
        comm->next = node->comms;
        node->comms = comm;
        *out = comm;
    } else {
        close_parts(comm);
    }
    gw_node_unlock(node);
    free(host_of);
    return status;
}

gw_status gw_comm_open(gw_comm **out, gw_node *node, uint32_t id, const int *members, int size, int rank,
                       gw_error *error) {
    return gw_comm_open_until(out, node, id, members, size, rank, gw_clock_now() + node->deadline, error);
}

/* (L) is held. */
static void release_memory(gw_node *node, void *memory) {
    if (node->shm) gw_shm_free(node->shm, memory);
    else free(memory);
}

/* True if none is left but that of all processes, of which a worker does not know. */
static bool unlink_comm(gw_comm *comm) {
    gw_node *node = comm->node;
    gw_comm **at = &node->comms;
    while (*at != comm) at = &(*at)->next;
    *at = comm->next;
    if (node->everyone == comm) node->everyone = NULL;
    bool hidden = node->everyone && node->rank < node->world - node->place.servers;
    return !node->comms || (hidden && node->comms == node->everyone && !node->comms->next);
}

static void drop_everyone(gw_node *node) {
    gw_comm *everyone = node->everyone;
    gw_node_lock(node);
    if (everyone) {
        unlink_comm(everyone);
        close_parts(everyone);
    }
    gw_node_unlock(node);
}

/* Rank 0 tells all what its file of links says, if it has one: `size` bytes, which all know by now. */
static gw_status spread_links(gw_node *node, gw_comm *world, char *bytes, size_t size, gw_error *error) {
    char *text = node->rank == 0 ? bytes : malloc(size);
    if (!text) return gw_fail(error, GW_MEMORY, "out of memory for the links of a job");
    gw_op_spec spec = {.collective = GW_COLL_BROADCAST, .builder = &gw_plan_tree, .in = text, .out = text,
                       .count = size, .dtype = GW_U8, .redop = GW_SUM, .root = 0};
    gw_status status = gw_comm_run(world, &spec);
    if (status) *error = last_error;
    else status = gw_job_links_learn(node, text, size, error);
    if (text != bytes) free(text);
    return status;
}

/* All ranks must agree whether boards are used, whether to record, whether cores are short, and what links cost: one
 * small all-reduce by messages tells, with the length of what rank 0 has read, -1: it could not. */
static gw_status agree(gw_node *node, gw_comm *world, gw_error *error) {
    char *links = NULL;
    size_t size = 0;
    gw_error unread = {.rank = -1};
    gw_job_links_file(node, &links, &size, &unread);
    int32_t records = gw_trace_wanted(), length = node->rank ? INT32_MAX : unread.status ? -1 : (int32_t)size;
    int32_t mine[5] = {node->shm_everywhere, records, -records, length, -node->spin_yield}, all[5] = {0};
    gw_op_spec spec = {.collective = GW_COLL_ALLREDUCE, .builder = &gw_plan_halving, .in = mine, .out = all,
                       .count = 5, .dtype = GW_I32, .redop = GW_MIN, .root = -1};
    gw_status status = gw_comm_run(world, &spec);
    if (status) *error = last_error;
    else if (unread.status) status = gw_fail(error, unread.status, "GRADWIRE_LINKS: %s", unread.text);
    else if (all[3] < 0)
        status = gw_fail_rank(error, GW_INVALID, 0, "rank 0 on %s cannot use its file of GRADWIRE_LINKS; its own error "
                                                    "says why", node->endpoints[0].host);
    else if (all[3] > 0) status = spread_links(node, world, links, (size_t)all[3], error);
    free(links);
    if (status) return status;
    if (all[1] != -all[2])
        status = gw_fail(error, GW_INVALID, "GRADWIRE_TIMELINE or GRADWIRE_CAPTURE is %sset for rank %d, but %s: "
                                            "set it "
                         "for all ranks or for none", records ? "" : "not ", node->rank,
                         records ? "not for all others" : "it is for others");
    node->boards = !status && all[0] == 1;
    node->crowded = all[4] < 0;
    return status;
}

/* The job's first communicator may hand all-reduces to the library under the transport. Others may not: calls of
 * several of them could be made in another order on another rank. */
static void make_native(gw_comm *world) {
    gw_node *node = world->node;
    if (!node->net || !node->net->ops->native) return;
    world->native = node->net->ops->native;
    gw_team_native(world->team, node->net);
}

/* *comm is that of all processes, and becomes that of those that work. A server process keeps it. */
static gw_status open_workers(gw_node *node, const int *members, gw_comm **comm, gw_error *error) {
    int workers = node->world - node->place.servers;
    uint32_t id = node->next_comm++;
    node->everyone = *comm;
    if (node->rank >= workers) return GW_OK;
    gw_status status = gw_comm_open(comm, node, id, members, workers, node->rank, error);
    if (status) drop_everyone(node);
    return status;
}

gw_status gw_comm_open_world(gw_node *node, gw_comm **comm, gw_error *error) {
    int *members = malloc((size_t)node->world * sizeof *members);
    if (!members) return gw_fail(error, GW_MEMORY, "out of memory for a job of %d ranks", node->world);
    for (int r = 0; r < node->world; r++) members[r] = r;
    gw_comm *first = NULL;
    gw_status status = gw_comm_open(&first, node, node->next_comm++, members, node->world, node->rank, error);
    if (!status && node->world > 1) {
        status = agree(node, first, error);
        gw_comm *bare = first; /* without a board: it has served */
        if (!status) status = gw_comm_open(&first, node, node->next_comm++, members, node->world, node->rank, error);
        gw_node_lock(node);
        unlink_comm(bare);
        close_parts(bare);
        gw_node_unlock(node);
    }
    if (!status && node->place.servers) status = open_workers(node, members, &first, error);
    free(members);
    if (!status) make_native(first);
    if (!status) *comm = first;
    return status;
}

gw_status gw_init(gw_comm **comm, const gw_options *options) {
    gw_error error = {.rank = -1};
    if (!comm) {
        gw_fail(&error, GW_INVALID, "gw_init: the place for the communicator is NULL");
        return gw_comm_told(&error);
    }
    *comm = NULL;
    gw_status status = gw_world_join(comm, options, &error);
    if (!status && gw_trace_wanted() &&
        (status = gw_trace_wanted_start((*comm)->node->everyone ? (*comm)->node->everyone : *comm)) != GW_OK) {
        gw_fail(&error, status, "%s", gw_last_error(*comm));
        gw_finalize(*comm);
        *comm = NULL;
    }
    return status ? gw_comm_told(&error) : GW_OK;
}

int gw_rank(const gw_comm *comm) { return comm->rank; }
int gw_size(const gw_comm *comm) { return comm->size; }
int gw_local_rank(const gw_comm *comm) { return comm->local_rank; }
int gw_local_size(const gw_comm *comm) { return comm->local_size; }

/* Running operations. */

static gw_status told_failed(gw_comm *comm, const gw_error *error) {
    return gw_comm_told(atomic_load(&comm->failed) ? &comm->error : error);
}

/* (L) is held. */
static void plan(gw_comm *comm, gw_op_spec *spec) {
    if (spec->builder) return;
    if (!comm->planned.builder || !gw_op_same_kind(&comm->planned, spec)) {
        gw_plan_request request = {.collective = spec->collective, .topology = *gw_team_topology(comm->team),
                                   .rank = comm->rank, .count = spec->count, .counts = spec->counts,
                                   .root = spec->root, .chunk_count = 1, .pipeline = GW_PIPELINE};
        request.topology.native = comm->native && comm->native->carries(spec->dtype, spec->redop);
        comm->planned = *spec;
        comm->planned.builder = gw_arch_choose(comm->arch, &request, gw_dtype_bytes(spec->dtype));
        comm->planned.chunk_bytes = comm->chunk_bytes;
        comm->planned.ahead = true;
    }
    spec->builder = comm->planned.builder;
    spec->chunk_bytes = comm->chunk_bytes;
    spec->ahead = true;
}

/* (L) is held. */
static gw_status start(gw_comm *comm, const gw_op_spec *spec, gw_op **op, gw_error *error) {
    gw_node *node = comm->node;
    if (atomic_load(&comm->failed)) {
        *error = comm->error;
        return error->status;
    }
    gw_time now = gw_clock_now();
    gw_status status = gw_core_start(node->core, op, comm->team, spec, now, error);
    if (!status) gw_flight_begin(&node->flight, *op, now);
    return status;
}

/* (L) is held; the operation is done. */
static gw_status end(gw_node *node, gw_op *op) {
    gw_status status = gw_op_status(op);
    gw_flight_end(&node->flight, op, gw_clock_now());
    gw_op_release(op);
    return status;
}

/* (L) is held, and given back. Not a part of gw_comm_run, because clearing an error takes a tenth of a quick call. */
static gw_status run_planned(gw_comm *comm, const gw_op_spec *spec) {
    gw_node *node = comm->node;
    gw_error error = {.rank = -1};
    gw_op *op = NULL;
    gw_status status = start(comm, spec, &op, &error);
    if (!status) {
        gw_node_drive(node, op);
        status = end(node, op);
    }
    gw_node_unlock(node);
    return status ? told_failed(comm, &error) : GW_OK;
}

/* (L) is held, and given back. */
static gw_status run(gw_comm *comm, const gw_op_spec *spec) {
    if (atomic_load(&comm->failed) || !gw_node_quick(comm->node, comm->team, spec)) return run_planned(comm, spec);
    gw_node_unlock(comm->node);
    return GW_OK;
}

gw_status gw_comm_run(gw_comm *comm, gw_op_spec *spec) {
    gw_node_lock(comm->node);
    plan(comm, spec);
    return run(comm, spec);
}

bool gw_comm_run_again(gw_comm *comm, gw_collective what, const void *in, void *out, size_t count, gw_dtype dtype,
                       gw_redop op, gw_status *status) {
    gw_op_spec *last = &comm->planned;
    gw_node_lock(comm->node);
    if (!last->builder || last->collective != what || last->count != count || last->dtype != dtype ||
        last->redop != op || last->counts) {
        gw_node_unlock(comm->node);
        return false;
    }
    last->in = in;
    last->out = out;
    *status = run(comm, last);
    return true;
}

static void link_request(gw_comm *comm, gw_request *request) {
    request->link = &comm->requests;
    request->next = comm->requests;
    if (request->next) request->next->link = &request->next;
    comm->requests = request;
}

gw_status gw_comm_begin(gw_comm *comm, gw_op_spec *spec, gw_request **out) {
    gw_node *node = comm->node;
    gw_error error = {.rank = -1};
    gw_node_lock(node);
    plan(comm, spec);
    gw_request *request = node->spare_requests;
    if (request) node->spare_requests = request->next;
    else request = calloc(1, sizeof *request);
    gw_status status = request ? GW_OK : gw_fail(&error, GW_MEMORY, "out of memory for a request");
    if (!status) status = start(comm, spec, &request->op, &error);
    if (!status) {
        request->comm = comm;
        link_request(comm, request);
        *out = request;
        gw_node_started(node);
    } else if (request) {
        request->next = node->spare_requests;
        node->spare_requests = request;
    }
    gw_node_unlock(node);
    return status ? told_failed(comm, &error) : GW_OK;
}

static gw_status retire(gw_request *request) {
    gw_node *node = request->comm->node;
    gw_status status = end(node, request->op);
    *request->link = request->next;
    if (request->next) request->next->link = request->link;
    request->next = node->spare_requests;
    node->spare_requests = request;
    return status;
}

gw_status gw_wait(gw_request *request) {
    if (!request) return GW_OK;
    gw_comm *comm = request->comm;
    gw_node *node = comm->node;
    gw_error error = {.rank = -1};
    if (gw_comm_forked(comm)) return GW_INVALID;
    gw_node_lock(node);
    gw_node_drive(node, request->op);
    gw_status status = retire(request);
    gw_node_unlock(node);
    return status ? told_failed(comm, &error) : GW_OK;
}

gw_status gw_test(gw_request *request, bool *done) {
    gw_error error = {.rank = -1};
    if (!done) {
        gw_fail(&error, GW_INVALID, "gw_test: the place for the answer is NULL");
        return gw_comm_told(&error);
    }
    *done = true;
    if (!request) return GW_OK;
    gw_comm *comm = request->comm;
    gw_node *node = comm->node;
    if (gw_comm_forked(comm)) return GW_INVALID;
    gw_node_lock(node);
    if (!gw_op_done(request->op) && !node->driven) gw_core_poll(node->core, gw_clock_now());
    *done = gw_op_done(request->op);
    gw_status status = *done ? retire(request) : GW_OK;
    gw_node_unlock(node);
    return status ? told_failed(comm, &error) : GW_OK;
}

gw_status gw_finalize(gw_comm *comm) {
    if (!comm) return GW_OK;
    if (gw_comm_forked(comm)) return GW_INVALID;
    gw_node *node = comm->node;
    gw_node_lock(node);
    while (comm->requests) { /* what nobody waited for still writes into the caller's memory */
        gw_node_drive(node, comm->requests->op);
        retire(comm->requests);
    }
    if (comm->fuse) release_memory(node, comm->fuse);
    bool last = unlink_comm(comm);
    gw_status status = atomic_load(&comm->failed) ? comm->error.status : GW_OK;
    close_parts(comm);
    gw_node_unlock(node);
    if (last && node->everyone) {
        gw_servers_dismiss(node->everyone);
        drop_everyone(node);
    }
    if (last) gw_node_leave(node);
    return status;
}

/* Memory. */

void *gw_alloc(gw_comm *comm, size_t bytes) {
    gw_error error = {.rank = -1};
    if (!comm) {
        gw_fail(&error, GW_INVALID, "gw_alloc: the communicator is NULL");
        gw_comm_told(&error);
        return NULL;
    }
    if (gw_comm_forked(comm)) return NULL;
    gw_node *node = comm->node;
    void *memory = NULL;
    gw_node_lock(node);
    if (node->shm) memory = gw_shm_alloc(node->shm, bytes, &error);
    else if (posix_memalign(&memory, 4096, bytes ? bytes : 1) == 0) memset(memory, 0, bytes);
    else memory = NULL;
    gw_node_unlock(node);
    if (!memory) {
        gw_fail(&error, GW_MEMORY, "out of memory for %zu bytes", bytes);
        gw_comm_told(&error);
    }
    return memory;
}

void gw_free(gw_comm *comm, void *memory) {
    if (!comm || !memory || gw_comm_forked(comm)) return;
    gw_node *node = comm->node;
    gw_node_lock(node);
    release_memory(node, memory);
    gw_node_unlock(node);
}
