/* shm_coll.h - collectives among the ranks of one host, on shared buffers.
 *
 * A shm collective (gw_shm_coll) is a segment that the members of a communicator on this host map. An operation runs in
 * one of four modes, which all members derive alike from its size and from where the members' buffers lie:
 *
 *     inline   up to a few KiB, for private memory a few KiB more: every member copies its data into the segment and
 *              arrives; each member that has seen all arrivals combines everything itself. One synchronization.
 *     direct   all buffers in memory of gw_shm_alloc: members publish their locations, arrive, and reduce parts from
 *              all inputs straight into all outputs. Each starts with its own part and then helps the others, so that
 *              nobody waits for a member that has no core at the moment. No copies.
 *     pull     tasks that only move data: each member copies what it gets out of the memory of those who give it,
 *              where that is shared, or can be read by process_vm_readv and this is faster here (shm_coll_choice.c).
 *     staged   otherwise: parts go through the segment in chunks, several in flight. A member copies in only what
 *              others need, and copies out only what others made: a fraction (p-1)/p of the data each way.
 *
 * Each element is combined in member order in every mode: the same bits everywhere and in every run.
 *
 * Operations are matched by the order of gw_shm_coll_start. Up to GW_SHM_COLL_DEPTH may be in flight; a member may
 * enter the next operation while others still finish this one. One thread at a time calls these functions, the one that
 * drives the transport; they never block. To sleep: ops->arm(transport, true), poll everything once more, wait for
 * wait_fd, ops->arm(transport, false); members ring the doorbells of sleepers. */
#ifndef GW_SHM_SHM_COLL_H
#define GW_SHM_SHM_COLL_H

#include "base/reduce.h"
#include "base/shm_task.h"
#include "base/status.h"
#include "shm/peer_map.h"

#define GW_SHM_COLL_DEPTH 4
#define GW_SHM_COLL_SIGNATURE 3 /* words */
#define GW_SHM_COLL_THREE_WORDS (UINT64_C(1) << 31)

/* One operation; count, lanes, counts, root, dst_wide and reduction are the same on all members. A task that cuts one
 * of its buffers into parts lays out the other one alike: REDUCE_SCATTER and SCATTER touch only the own part of out,
 * ALLGATHER and GATHER only that of in. In place: in equals out. */
typedef struct gw_shm_coll_op {
    gw_shm_task task;
    uint64_t number; /* the caller's number, for error messages */
    /* Of all that must agree; members that differ get GW_MISMATCH. The third word counts only if
     * GW_SHM_COLL_THREE_WORDS is set in the first. */
    uint64_t signature[GW_SHM_COLL_SIGNATURE];
    gw_reduction reduction;
    const void *in; /* count elements */
    void *out;
    size_t count;
    int lanes; /* members 0..lanes-1 own a part each, cut as by gw_part; ALLTOALL: all members, all parts alike */
    /* lengths of these parts: lanes entries that sum to count, valid until done; NULL: even parts */
    const size_t *counts;
    int root;      /* BROADCAST, REDUCE, GATHER, SCATTER: member index */
    bool dst_wide; /* REDUCE_SCATTER: out has the accumulator type, and results are not finished */
} gw_shm_coll_op;

typedef struct gw_shm_coll gw_shm_coll;

/* peer_map has all members attached, and outlives the object. members: their ranks in member order
 * (copied), this rank at index self. key: not 0, and of no other shm collective that these ranks have open. */
gw_status gw_shm_coll_open(gw_shm_coll **coll, gw_peer_map *peer_map, const int *members, int count, int self,
                           uint64_t key, gw_error *error);
/* To be polled: *attached turns true when all members have mapped the segment. */
gw_status gw_shm_coll_attach(gw_shm_coll *coll, bool *attached, gw_error *error);

/* True if an operation may be started on an attached object: fewer than GW_SHM_COLL_DEPTH are in flight. */
bool gw_shm_coll_can_start(const gw_shm_coll *coll);
void gw_shm_coll_start(gw_shm_coll *coll, const gw_shm_coll_op *op);
/* Works on all operations that can progress, up to about 1 MiB. *completed: operations finished since gw_shm_coll_open,
 * in the order they were started. *moved: something was done (may be NULL). After an error the object can only be
 * closed. */
gw_status gw_shm_coll_poll(gw_shm_coll *coll, uint64_t *completed, bool *moved, gw_error *error);

/* The same for a caller that has its own core and nothing else to do: polls for half a microsecond before it returns.
 * It checks for sleepers, and wakes them, only before it returns: off the critical path if all members are awake. */
gw_status gw_shm_coll_spin(gw_shm_coll *coll, uint64_t *completed, gw_error *error);

/* The rank that the oldest unfinished operation waits for, -1: none. */
int gw_shm_coll_awaited(const gw_shm_coll *coll);
/* If members share cores: true when all members last seen on this rank's core have arrived at the oldest unfinished
 * operation, and have nothing left to do for it. The operation then waits for members on other cores only. */
bool gw_shm_coll_core_is_idle(const gw_shm_coll *coll);
/* Operations that this rank has finished; UINT64_MAX for a rank that is no member. */
uint64_t gw_shm_coll_finished(const gw_shm_coll *coll, int rank);
/* After GW_MISMATCH: the signature that this rank (a member) published for the operation that failed. */
void gw_shm_coll_signature(const gw_shm_coll *coll, int rank, uint64_t signature[GW_SHM_COLL_SIGNATURE]);

/* Before gw_shm_coll_close: the error because of which operations in flight are given up. The other members get its
 * sentence. */
void gw_shm_coll_blame(gw_shm_coll *coll, const gw_error *error);
/* Gives up operations in flight: members that still work on them get GW_ABORTED, and this rank's shared buffers are
 * moved out of their reach. NULL is fine. */
void gw_shm_coll_close(gw_shm_coll *coll);

#endif
