/* comm.h - communicators: what stands behind the handles of gradwire.h. */
#ifndef GW_ENGINE_COMM_H
#define GW_ENGINE_COMM_H

#include "engine/node.h"
#include "transport/board.h"

/* One call noted between gw_group_start and gw_group_end. */
typedef struct gw_grouped {
    gw_op_spec spec;
    bool fused; /* travels in a fused operation */
} gw_grouped;

struct gw_comm {
    gw_node *node;
    gw_comm *next;        /* of the node's communicators; (L) of node.h */
    gw_team *team;
    gw_board *board;      /* NULL: alone on this host, or no shared memory */
    int rank, size, local_rank, local_size;
    const char *arch;     /* of the strategy; looked up once */
    const gw_native *native; /* what the library under the transport can do for it; NULL: nothing */
    size_t chunk_bytes;   /* likewise; 0: the engine's choice */
    uint32_t generation;  /* that it belongs to */
    gw_error error;       /* the first; written once under the lock, before failed */
    _Atomic bool failed;
    bool grouping;        /* between gw_group_start and gw_group_end */
    gw_grouped *calls;    /* noted so far */
    int call_count, call_room;
    gw_op_spec planned;   /* (L) the last call that was planned; one of its kind gets the same plan */
    gw_request *requests; /* (L) begun and not yet given back by gw_wait or gw_test */
    void *fuse;           /* what grouped small tensors are packed into; from gw_alloc */
    size_t fuse_bytes;
};

struct gw_request {
    gw_comm *comm;
    gw_op *op;
    gw_request *next;  /* of the communicator's, or of the node's spare ones */
    gw_request **link; /* what points to this one, while it is the communicator's */
};

/* A communicator of these job ranks; takes a reference of the node. rank: the own index in members. */
gw_status gw_comm_open(gw_comm **comm, gw_node *node, uint32_t id, const int *members, int size, int rank,
                       gw_error *error);
/* The same, until then at the latest; gw_comm_open takes a deadline. */
gw_status gw_comm_open_until(gw_comm **comm, gw_node *node, uint32_t id, const int *members, int size, int rank,
                             gw_time until, gw_error *error);
/* The communicator of all ranks of a job that has just been joined; for one that works, of those that do. */
gw_status gw_comm_open_world(gw_node *node, gw_comm **comm, gw_error *error);
/* rejoin.c: joins the job that options and environment tell of, and opens that communicator. Where a process is lost
 * meanwhile and the job is elastic, with those that are called again. */
gw_status gw_world_join(gw_comm **comm, const gw_options *options, gw_error *error);
/* Sets the calling thread's last error, and returns its status. */
gw_status gw_comm_told(const gw_error *error);
/* forked.c: whether this process is a child of the rank; then it is the calling thread's last error (GW_INVALID). Every
 * public call asks before it takes a lock. */
bool gw_comm_forked(const gw_comm *comm);
/* Runs one operation in the caller's thread. Without a builder, the communicator's strategy chooses it. */
gw_status gw_comm_run(gw_comm *comm, gw_op_spec *spec);
/* Runs it if it differs only in its buffers from the last call, which was checked and planned: a small one is under way
 * in half the time. False: it differs in more, and nothing has happened. */
bool gw_comm_run_again(gw_comm *comm, gw_collective what, const void *in, void *out, size_t count, gw_dtype dtype,
                       gw_redop op, gw_status *status);
gw_status gw_comm_begin(gw_comm *comm, gw_op_spec *spec, gw_request **request);
/* Notes the call if a group is open. */
bool gw_group_takes(gw_comm *comm, const gw_op_spec *spec, gw_status *status);

#endif
