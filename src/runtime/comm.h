/* comm.h - communicators and requests: the opaque types of gradwire.h. */
#ifndef GW_RUNTIME_COMM_H
#define GW_RUNTIME_COMM_H

#include "runtime/context.h"
#include "shm/shm_coll.h"

/* A call recorded between gw_group_start and gw_group_end. */
typedef struct gw_grouped {
    gw_op_spec spec;
    bool fused; /* part of a fused operation */
} gw_grouped;

struct gw_comm {
    gw_context *context;
    gw_comm *next;        /* of the context's communicators; (L) of context.h */
    gw_team *team;
    gw_shm_coll *coll;      /* NULL: alone on this host, or no shared memory */
    int rank, size, local_rank, local_size;
    const char *arch;     /* of the strategy; looked up once */
    size_t chunk_bytes;   /* likewise; 0: the engine's choice */
    const gw_native *native; /* all-reduces of the transport's library; NULL: none */
    uint32_t generation;  /* of the job */
    gw_error error;       /* the first one; written once under the lock, before failed */
    _Atomic bool failed;
    bool grouping;        /* between gw_group_start and gw_group_end */
    gw_grouped *calls;    /* recorded so far */
    int call_count, call_capacity;
    gw_op_spec planned;   /* (L) the last planned call; calls of its kind reuse the plan */
    gw_request *requests; /* (L) started, not yet completed by gw_wait or gw_test */
    void *fuse;           /* buffer for fused small tensors; from gw_alloc */
    size_t fuse_bytes;
};

struct gw_request {
    gw_comm *comm;
    gw_op *op;
    gw_request *next;  /* in the communicator's list, or the context's spare list */
    gw_request **link; /* the pointer to this one, while in the communicator's list */
};

/* Opens a communicator of these job ranks. rank: own index in members. */
gw_status gw_comm_open(gw_comm **comm, gw_context *context, uint32_t id, const int *members, int size, int rank,
                       gw_error *error);
/* The same, but it fails at time `until`; gw_comm_open allows one deadline. */
gw_status gw_comm_open_until(gw_comm **comm, gw_context *context, uint32_t id, const int *members, int size, int rank,
                             gw_time until, gw_error *error);
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
/* Runs one operation in the caller's thread. Without a builder, the communicator's strategy chooses it. */
gw_status gw_comm_run(gw_comm *comm, gw_op_spec *spec);
/* Runs a call that differs only in its buffers from the last one, without checking and planning it again: halves the
 * start time of a small call. False: it differs in more, and nothing has happened. */
bool gw_comm_run_again(gw_comm *comm, gw_collective what, const void *in, void *out, size_t count, gw_dtype dtype,
                       gw_redop op, gw_status *status);
gw_status gw_comm_begin(gw_comm *comm, gw_op_spec *spec, gw_request **request);
/* Records the call if a group is open; false: none is. */
bool gw_group_add(gw_comm *comm, const gw_op_spec *spec, gw_status *status);

#endif
