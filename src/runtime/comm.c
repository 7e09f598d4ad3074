/* comm.c - communicators: opening, closing, their memory. */
#include "runtime/comm.h"

#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "arch/choose_plan.h"
#include "base/dtype.h"
#include "base/environment.h"
#include "base/log.h"
#include "base/sized.h"
#include "ps/server_process.h"
#include "runtime/job_racks.h"
#include "runtime/link_costs.h"
#include "runtime/recording.h"
#include "transport/shm/shm_transport.h"

/* Bytes of the first gw_options that had a size. */
#define GW_OPTIONS_LEAST (offsetof(gw_options, quorum) + sizeof(const char *))

static _Thread_local gw_error last_error; /* of this thread's last failed call */

gw_status gw_comm_set_last_error(const gw_error *error) {
    last_error = *error;
    return error->status;
}

const char *gw_last_error(const gw_comm *comm) {
    if (comm && atomic_load(&comm->failed) && !gw_context_forked(comm->context)) return comm->error.text;
    return last_error.text;
}

gw_status gw_async_error(const gw_comm *comm) {
    if (!comm || gw_comm_forked(comm)) return GW_INVALID;
    return atomic_load(&comm->failed) ? comm->error.status : GW_OK;
}

/* Opening and closing. */

/* Waits until all members have attached to the shm collective. Polls: nothing can wake it yet. (L) is held. */
static gw_status attach_coll(gw_context *context, gw_shm_coll *coll, gw_time until, gw_error *error) {
    for (useconds_t nap = 10;; nap = nap < 1000 ? nap * 2 : 1000) {
        bool attached = false;
        gw_status status = gw_shm_coll_attach(coll, &attached, error);
        if (status || attached) return status;
        const gw_error *failed = gw_engine_error(gw_core_engine(context->core));
        if (failed->status) {
            *error = *failed;
            return failed->status;
        }
        if (gw_clock_now() > until)
            return gw_fail(error, GW_TIMEOUT, "not all ranks on %s joined a communicator before the deadline",
                           context->endpoints[context->rank].host);
        gw_context_unlock(context);
        usleep(nap);
        gw_context_lock(context);
    }
}

gw_status gw_context_open_coll(gw_context *context, uint32_t id, const int *members, int count, int self, gw_time until,
                               gw_shm_coll **coll, gw_error *error) {
    uint64_t key = (uint64_t)gw_control_generation(gw_core_control(context->core)) << 32 | (id + UINT64_C(1));
    *coll = NULL;
    if (!context->use_shm_coll || count < 2) return GW_OK;
    gw_status status = gw_shm_coll_open(coll, gw_shm_peer_map(context->shm), members, count, self, key, error);
    return status ? status : attach_coll(context, *coll, until, error);
}

/* Members of a shm collective are in the topology's order. */
static gw_status open_coll(gw_comm *comm, uint32_t id, const int *members, const gw_topology *topology, gw_time until,
                           gw_error *error) {
    int *local = malloc((size_t)comm->local_size * sizeof *local);
    if (!local) return gw_fail(error, GW_MEMORY, "out of memory for a communicator");
    int host = gw_topology_host(topology, comm->rank), place = gw_topology_local_rank(topology, comm->rank);
    for (int i = 0; i < comm->local_size; i++) local[i] = members[gw_topology_rank(topology, host, i)];
    gw_status status =
        gw_context_open_coll(comm->context, id, local, comm->local_size, place, until, &comm->coll, error);
    free(local);
    return status;
}

static void close_parts(gw_comm *comm) {
    if (comm->coll && atomic_load(&comm->failed)) gw_shm_coll_blame(comm->coll, &comm->error);
    gw_shm_coll_close(comm->coll);
    gw_team_close(comm->team);
    gw_batch_free_all(comm);
    free(comm->counts);
    free(comm);
}

gw_status gw_comm_open_until(gw_comm **out, gw_context *context, uint32_t id, const int *members, int size, int rank,
                             gw_time until, gw_error *error) {
    gw_comm *comm = calloc(1, sizeof *comm);
    int *host_of = malloc(3 * (size_t)size * sizeof *host_of), *order = host_of + size;
    gw_topology topology;
    gw_status status = GW_OK;
    if (!comm || !host_of) status = gw_fail(error, GW_MEMORY, "out of memory for a communicator of %d ranks", size);
    if (!status) status = gw_comm_order_ring(context, members, size, order, host_of, order + size, &topology, error);
    if (status) {
        free(comm);
        free(host_of);
        return status;
    }
    gw_context_lock(context);
    *comm = (gw_comm){.context = context, .rank = rank, .size = size, .error = {.rank = -1},
                      .arch = gw_strategy_name(&context->strategy, GW_AXIS_ARCH),
                      .chunk_bytes = (size_t)gw_strategy_integer(&context->strategy, GW_AXIS_ARCH, "chunk"),
                      .generation = gw_control_generation(gw_core_control(context->core)),
                      .counts = calloc(gw_counts_entries(GW_COLL_ALLTOALLV, size), sizeof(size_t))};
    if (!comm->counts) status = gw_fail(error, GW_MEMORY, "out of memory for a communicator of %d ranks", size);
    if (!comm->chunk_bytes && context->net) comm->chunk_bytes = context->net->ops->chunk_bytes;
    for (int r = 0; r < size; r++) {
        comm->local_size += host_of[r] == host_of[rank];
        comm->local_rank += host_of[r] == host_of[rank] && r < rank;
    }
    if (!status) status = open_coll(comm, id, members, &topology, until, error);
    if (!status)
        status =
            gw_team_open(&comm->team, gw_core_engine(context->core), id, rank, members, &topology, comm->coll, error);
    if (!status) {
        const gw_error *failed = gw_engine_error(gw_core_engine(context->core));
        if (failed->status) comm->error = *failed; /* the job failed after the members were agreed on */
        atomic_store(&comm->failed, failed->status != GW_OK);
        comm->next = context->comms;
        context->comms = comm;
        *out = comm;
    } else {
        close_parts(comm);
    }
    gw_context_unlock(context);
    free(host_of);
    return status;
}

gw_status gw_comm_open(gw_comm **out, gw_context *context, uint32_t id, const int *members, int size, int rank,
                       gw_error *error) {
    return gw_comm_open_until(out, context, id, members, size, rank, gw_clock_now() + context->deadline, error);
}

/* True if it was the user's last communicator. On a worker `everyone` does not count: the user does not see it. */
static bool unlink_comm(gw_comm *comm) {
    gw_context *context = comm->context;
    gw_comm **at = &context->comms;
    while (*at != comm) at = &(*at)->next;
    *at = comm->next;
    if (context->everyone == comm) context->everyone = NULL;
    bool hidden = context->everyone && context->rank < context->world - context->job_env.servers;
    return !context->comms || (hidden && context->comms == context->everyone && !context->comms->next);
}

static void drop_everyone(gw_context *context) {
    gw_comm *everyone = context->everyone;
    gw_context_lock(context);
    if (everyone) {
        unlink_comm(everyone);
        close_parts(everyone);
    }
    gw_context_unlock(context);
}

/* Files that only rank 0 reads. */
enum { LINKS, RACKS, FILES };

typedef struct job_file {
    const char *variable; /* that names it */
    char *text;           /* owned */
    size_t size;
    gw_error unread;
} job_file;

static void read_files(const gw_context *context, job_file files[FILES]) {
    files[LINKS] = (job_file){.variable = "GRADWIRE_LINKS", .unread = {.rank = -1}};
    files[RACKS] = (job_file){.variable = "GRADWIRE_RACKS", .unread = {.rank = -1}};
    gw_job_links_read(context, &files[LINKS].text, &files[LINKS].size, &files[LINKS].unread);
    gw_job_racks_read(context, &files[RACKS].text, &files[RACKS].size, &files[RACKS].unread);
}

/* For an all-reduce of minima; -1: it cannot be read. */
static int32_t length_of(const gw_context *context, const job_file *file) {
    return context->rank ? INT32_MAX : file->unread.status ? -1 : (int32_t)file->size;
}

/* Rank 0 broadcasts a file: `length` bytes, which all ranks know by now. */
static gw_status spread_file(gw_context *context, gw_comm *world, job_file *file, int32_t length, gw_error *error) {
    if (file->unread.status) return gw_fail(error, file->unread.status, "%s: %s", file->variable, file->unread.text);
    if (length < 0)
        return gw_fail_rank(error, GW_INVALID, 0, "rank 0 on %s cannot use its file of %s; its own error says why",
                            context->endpoints[0].host, file->variable);
    file->size = (size_t)length;
    if (length == 0) return GW_OK;
    if (context->rank != 0 && !(file->text = malloc(file->size)))
        return gw_fail(error, GW_MEMORY, "out of memory for the file of %s", file->variable);
    gw_op_spec spec = {.collective = GW_COLL_BROADCAST, .builder = &gw_plan_tree, .in = file->text, .out = file->text,
                       .count = file->size, .dtype = GW_U8, .redop = GW_SUM, .root = 0};
    gw_status status = gw_comm_run(world, &spec);
    if (status) *error = last_error;
    return status;
}

static gw_status take_files(gw_context *context, gw_comm *world, job_file files[FILES], const int32_t *lengths,
                            gw_error *error) {
    gw_status status = GW_OK;
    for (int f = 0; f < FILES && !status; f++) status = spread_file(context, world, &files[f], lengths[f], error);
    if (!status && files[LINKS].size) status = gw_job_links_parse(context, files[LINKS].text, files[LINKS].size, error);
    if (!status) status = gw_job_racks_find(context, files[RACKS].text, files[RACKS].size, error);
    return status;
}

/* All ranks must agree on shm collectives, recording, oversubscription and what rank 0's files say. One small
 * all-reduce by messages settles it; it includes the sizes of the files. */
static gw_status agree(gw_context *context, gw_comm *world, gw_error *error) {
    job_file files[FILES];
    read_files(context, files);
    int32_t records = gw_trace_wanted();
    int32_t mine[] = {
        context->shm_everywhere,          records, -records, -context->spin_yield, length_of(context, &files[LINKS]),
        length_of(context, &files[RACKS])};
    enum { COUNT = sizeof mine / sizeof *mine };
    int32_t all[COUNT] = {0};
    gw_op_spec spec = {.collective = GW_COLL_ALLREDUCE, .builder = &gw_plan_halving, .in = mine, .out = all,
                       .count = COUNT, .dtype = GW_I32, .redop = GW_MIN, .root = -1};
    gw_status status = gw_comm_run(world, &spec);
    if (status) *error = last_error;
    else status = take_files(context, world, files, all + COUNT - FILES, error);
    for (int f = 0; f < FILES; f++) free(files[f].text);
    if (status) return status;
    if (all[1] != -all[2])
        status = gw_fail(error, GW_INVALID,
                         "GRADWIRE_TIMELINE or GRADWIRE_CAPTURE is %sset for rank %d, but %s: "
                         "set it "
                         "for all ranks or for none",
                         records ? "" : "not ", context->rank, records ? "not for all others" : "it is for others");
    context->use_shm_coll = !status && all[0] == 1;
    context->oversubscribed = all[3] < 0;
    return status;
}

/* Only the job's first communicator may use the transport's library for all-reduces: with several, the order of calls
 * could differ between ranks. */
static void make_native(gw_comm *world) {
    gw_context *context = world->context;
    if (!context->net || !context->net->ops->native) return;
    world->native = context->net->ops->native;
    gw_team_native(world->team, context->net);
}

/* *comm is the communicator of all processes. On a worker, replaces it by a communicator of the workers. */
static gw_status open_workers(gw_context *context, const int *members, gw_comm **comm, gw_error *error) {
    int workers = context->world - context->job_env.servers;
    uint32_t id = context->next_comm++;
    context->everyone = *comm;
    if (context->rank >= workers) return GW_OK;
    gw_status status = gw_comm_open(comm, context, id, members, workers, context->rank, error);
    if (status) drop_everyone(context);
    return status;
}

gw_status gw_comm_open_world(gw_context *context, gw_comm **comm, gw_error *error) {
    int *members = malloc((size_t)context->world * sizeof *members);
    if (!members) return gw_fail(error, GW_MEMORY, "out of memory for a job of %d ranks", context->world);
    for (int r = 0; r < context->world; r++) members[r] = r;
    gw_comm *first = NULL;
    gw_status status =
        gw_comm_open(&first, context, context->next_comm++, members, context->world, context->rank, error);
    if (!status && context->world > 1) {
        status = agree(context, first, error);
        gw_comm *bare = first; /* without shm collectives; needed only to agree */
        if (!status)
            status = gw_comm_open(&first, context, context->next_comm++, members, context->world, context->rank, error);
        gw_context_lock(context);
        unlink_comm(bare);
        close_parts(bare);
        gw_context_unlock(context);
    }
    if (!status && context->job_env.servers) status = open_workers(context, members, &first, error);
    free(members);
    if (!status) make_native(first);
    if (!status) *comm = first;
    return status;
}

static gw_status check_version(int compiled, gw_error *error) {
    if (compiled <= GW_VERSION_NUMBER) return GW_OK;
    return gw_fail(error, GW_UNSUPPORTED,
                   "gw_init: the program was compiled against gradwire %d.%d.%d, but this library is %s: install the "
                   "newer library, or compile the program again",
                   compiled / 10000, compiled / 100 % 100, compiled % 100, gw_version());
}

/* Rank 0 warns for the whole job: it gets the variables of the launcher, as all ranks do. */
static void warn_of_variables(const gw_comm *comm) {
    char name[GW_VARIABLE_BYTES];
    const char *near = NULL;
    if (comm->context->rank || comm->context->job_env.generation || !gw_environment_unknown(name, &near)) return;
    if (near) gw_log(GW_LOG_WARN, 0, "the variable %s is not one of gradwire's: did you mean %s?", name, near);
    else gw_log(GW_LOG_WARN, 0, "the variable %s is not one of gradwire's: it does nothing", name);
}

gw_status gw_init_version(int version, gw_comm **comm, const gw_options *given) {
    gw_error error = {.rank = -1};
    gw_options options = GW_OPTIONS_DEFAULT;
    if (!comm) {
        gw_fail(&error, GW_INVALID, "gw_init: the place for the communicator is NULL");
        return gw_comm_set_last_error(&error);
    }
    *comm = NULL;
    gw_status status = check_version(version, &error);
    if (!status && given)
        status = gw_sized_read(&options, sizeof options, given, given->size, GW_OPTIONS_LEAST, "gw_init: gw_options",
                               &error);
    if (!status) status = gw_world_join(comm, &options, &error);
    if (!status) warn_of_variables(*comm);
    if (!status && gw_trace_wanted() &&
        (status = gw_trace_wanted_start((*comm)->context->everyone ? (*comm)->context->everyone : *comm)) != GW_OK) {
        gw_fail(&error, status, "%s", gw_last_error(*comm));
        gw_finalize(*comm);
        *comm = NULL;
    }
    return status ? gw_comm_set_last_error(&error) : GW_OK;
}

int gw_rank(const gw_comm *comm) { return comm->rank; }
int gw_size(const gw_comm *comm) { return comm->size; }
int gw_local_rank(const gw_comm *comm) { return comm->local_rank; }
int gw_local_size(const gw_comm *comm) { return comm->local_size; }

gw_status gw_finalize(gw_comm *comm) {
    if (!comm) return GW_OK;
    if (gw_comm_forked(comm)) return GW_INVALID;
    gw_context *context = comm->context;
    gw_context_lock(context);
    gw_comm_finish_requests(comm);
    bool last = unlink_comm(comm);
    gw_status status = atomic_load(&comm->failed) ? comm->error.status : GW_OK;
    close_parts(comm);
    gw_context_unlock(context);
    if (last && context->everyone) {
        gw_servers_dismiss(context->everyone);
        drop_everyone(context);
    }
    if (last) gw_context_leave(context);
    return status;
}

/* Memory. */

void *gw_comm_alloc(gw_comm *comm, size_t bytes, gw_error *error) {
    gw_context *context = comm->context;
    void *memory = NULL;
    if (context->shm) memory = gw_shm_alloc(context->shm, bytes, error);
    else if (posix_memalign(&memory, 4096, bytes ? bytes : 1) == 0) memset(memory, 0, bytes);
    else memory = NULL;
    if (!memory) gw_fail(error, GW_MEMORY, "out of memory for %zu bytes", bytes);
    return memory;
}

void gw_comm_release(gw_comm *comm, void *memory) {
    if (comm->context->shm) gw_shm_free(comm->context->shm, memory);
    else free(memory);
}

void *gw_alloc(gw_comm *comm, size_t bytes) {
    gw_error error = {.rank = -1};
    if (!comm) {
        gw_fail(&error, GW_INVALID, "gw_alloc: the communicator is NULL");
        gw_comm_set_last_error(&error);
        return NULL;
    }
    if (gw_comm_forked(comm)) return NULL;
    gw_context_lock(comm->context);
    void *memory = gw_comm_alloc(comm, bytes, &error);
    gw_context_unlock(comm->context);
    if (!memory) gw_comm_set_last_error(&error);
    return memory;
}

void gw_free(gw_comm *comm, void *memory) {
    if (!comm || !memory || gw_comm_forked(comm)) return;
    gw_context_lock(comm->context);
    gw_comm_release(comm, memory);
    gw_context_unlock(comm->context);
}
