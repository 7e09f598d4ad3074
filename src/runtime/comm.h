/* comm.h - communicators and requests: the opaque types of gradwire.h. */
#ifndef GW_RUNTIME_COMM_H
#define GW_RUNTIME_COMM_H

#include "runtime/context.h"
#include "shm/shm_coll.h"

#define GW_PROBED_PAGES 64

/* group.c: calls that are started and complete together. */
typedef struct gw_batch gw_batch;

struct gw_comm {
    gw_context *context;
    gw_comm *next; /* of the context's communicators; (L) of context.h */
    gw_team *team;
    gw_shm_coll *coll; /* NULL: alone on this host, or no shared memory */
    int rank, size, local_rank, local_size;
    const char *arch;        /* of the strategy; looked up once */
    size_t chunk_bytes;      /* likewise; 0: the engine's choice */
    const gw_native *native; /* all-reduces of the transport's library; NULL: none */
    uint32_t generation;     /* of the job */
    gw_error error;          /* the first one; written once under the lock, before failed */
    _Atomic bool failed;
    gw_batch *group;                   /* between gw_group_start and gw_group_end; NULL: none is open */
    gw_batch *spare_batches;           /* (L) */
    size_t *counts;                    /* room for the arrays of one uneven call */
    uintptr_t probed[GW_PROBED_PAGES]; /* complements of the numbers of pages that are known to be readable */
    gw_op_spec planned;                /* (L) the last planned call; calls of its kind reuse the plan */
    gw_request *requests;              /* (L) started, not yet completed by gw_wait or gw_test */
};

struct gw_request {
    gw_comm *comm;
    gw_op *op;         /* NULL: that of a batch */
    gw_batch *batch;   /* NULL: that of one operation */
    gw_request *next;  /* in the communicator's list, or the context's spare list */
    gw_request **link; /* the pointer to this one, while in the communicator's list */
};

/* Opens a communicator of these job ranks. rank: own index in members. */
gw_status gw_comm_open(gw_comm **comm, gw_context *context, uint32_t id, const int *members, int size, int rank,
                       gw_error *error);
/* The same, but it fails at time `until`; gw_comm_open allows one deadline. */
gw_status gw_comm_open_until(gw_comm **comm, gw_context *context, uint32_t id, const int *members, int size, int rank,
                             gw_time until, gw_error *error);
/* (L) is held. A shm collective of these job ranks, all on this host, for the team with this id; self: own index.
 * Waits for the others until `until`. *coll: NULL if the job has no shm collectives, or there is one member. */
gw_status gw_context_open_coll(gw_context *context, uint32_t id, const int *members, int count, int self, gw_time until,
                               gw_shm_coll **coll, gw_error *error);
/* Opens the first communicator of a joined job: of all workers; on a server process, of all processes. */
gw_status gw_comm_open_world(gw_context *context, gw_comm **comm, gw_error *error);
/* rejoin.c: joins the job given by options and environment, and opens that communicator. If a process of an elastic job
 * is lost meanwhile, joins the next generation. */
gw_status gw_world_join(gw_comm **comm, const gw_options *options, gw_error *error);
/* Sets the calling thread's last error, and returns its status. */
gw_status gw_comm_set_last_error(const gw_error *error);
/* fork_guard.c: true in a forked child of the rank; sets the last error (GW_INVALID). Every public call checks this
 * before it takes a lock. */
bool gw_comm_forked(const gw_comm *comm);
/* call.c. Checks a call and runs it; request: NULL for a blocking call. */
gw_status gw_dispatch(gw_comm *comm, const gw_call *call, gw_request **request);
/* Sets the calling thread's last error to GW_INVALID with this sentence. */
gw_status gw_invalid(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* Runs one operation in the caller's thread. Without a builder, the communicator's strategy chooses it. */
gw_status gw_comm_run(gw_comm *comm, gw_op_spec *spec);
/* Runs a call that differs only in its buffers from the last one, without checking and planning it again: halves the
 * start time of a small call. False: it differs in more, and nothing has happened. */
bool gw_comm_run_again(gw_comm *comm, gw_collective what, const void *in, void *out, size_t count, gw_dtype dtype,
                       gw_redop op, int root, gw_status *status);
gw_status gw_comm_begin(gw_comm *comm, gw_op_spec *spec, gw_request **request);
/* (L) is held. Plans and starts one operation, and ends it once it is done. */
gw_status gw_comm_start_op(gw_comm *comm, gw_op_spec *spec, gw_op **op, gw_error *error);
gw_status gw_comm_end_op(gw_comm *comm, gw_op *op);
/* (L) is held. A request in the communicator's list; NULL: out of memory. */
gw_request *gw_request_open(gw_comm *comm, gw_op *op, gw_batch *batch);
/* (L) is held. Frees a request that is done, and returns its status. */
gw_status gw_request_retire(gw_request *request);
/* (L) is held. Waits for the operations that nobody has waited for: they still write to the caller's memory. */
void gw_comm_finish_requests(gw_comm *comm);
/* Sets the calling thread's last error: that of the communicator if it has failed. */
gw_status gw_comm_set_failure(gw_comm *comm, const gw_error *error);
/* (L) is held. gw_alloc and gw_free. */
void *gw_comm_alloc(gw_comm *comm, size_t bytes, gw_error *error);
void gw_comm_release(gw_comm *comm, void *memory);

/* host_memory.c: whether the process can read memory at this address: NULL and memory of a device cannot be read. */
bool gw_memory_is_readable(gw_comm *comm, const void *address);
/* True if gw_memory_is_readable has found so before; costs no system call. */
static inline bool gw_memory_was_readable(const gw_comm *comm, const void *address) {
    uintptr_t page = (uintptr_t)address >> 12;
    return comm->probed[page % GW_PROBED_PAGES] == ~page;
}

/* group.c. Adds calls to the open group. request: NULL for a blocking call. */
gw_status gw_group_add(gw_comm *comm, const gw_op_spec *specs, size_t count, gw_request **request);
/* Runs calls together, without a group: blocks if request is NULL. */
gw_status gw_batch_run(gw_comm *comm, const gw_op_spec *specs, size_t count, gw_request **request);
/* (L) is held. done: all operations of the batch are over, and *status is that of the first that failed. drive: waits
 * for that. release: of one request. */
bool gw_batch_done(gw_batch *batch, gw_status *status);
void gw_batch_drive(gw_batch *batch);
void gw_batch_release(gw_batch *batch);
/* (L) is held. Whether its group is still open, so that none of its calls is started. */
bool gw_batch_is_open(const gw_batch *batch);
void gw_batch_free_all(gw_comm *comm);

#endif
