/* board.h - collectives among the ranks of one host, on shared buffers.
 *
 * A board is a segment that the members of a communicator on this host map. An operation goes through it in one of
 * three ways, which all members derive alike from its size and from where the members' buffers lie:
 *
 *   inline   up to a few KiB, private memory a few more: every member copies its data into the board and arrives;
 *            whoever has seen all arrivals combines everything itself. One synchronisation.
 *   direct   all buffers in memory of gw_shm_alloc: members publish where, arrive, and reduce parts from all inputs
 *            straight into all outputs; each starts with its own part and then helps the others, so that a member
 *            which does not run is not waited for. No copies.
 *   staged   otherwise: parts go through the board in pieces, several in flight. Only what others need is copied in,
 *            and only what others made is copied out: a fraction (p-1)/p of the data each way.
 *
 * Each element is combined in member order whichever way is taken: the same bits everywhere and in every run.
 *
 * Operations are matched by the order of gw_board_start. Up to GW_BOARD_DEPTH may be under way; a member may enter the
 * next operation while others still finish this one. Functions of a board are called by one thread at a time, the one
 * that drives the transport, and never block. To sleep: ops->arm(transport, true), poll everything once more, wait for
 * wait_fd, ops->arm(transport, false); members ring the doorbells of sleepers. */
#ifndef GW_TRANSPORT_BOARD_H
#define GW_TRANSPORT_BOARD_H

#include "base/board_task.h"
#include "base/reduce.h"
#include "base/status.h"
#include "transport/transport.h"

#define GW_BOARD_DEPTH 4

/* One operation; count, lanes, counts, root, dst_wide and reduction are the same on all members. */
typedef struct gw_board_op {
    gw_board_task task;
    uint64_t number;    /* the caller's, for error messages */
    uint64_t signature[2]; /* of all that must agree; members that differ get GW_MISMATCH */
    gw_reduction reduction;
    const void *in; /* count elements; may be out. Not read by ALLGATHER */
    void *out;      /* addressed like in: REDUCE_SCATTER touches only the own part of it */
    size_t count;
    int lanes;            /* REDUCE_SCATTER, ALLGATHER: members 0..lanes-1 own a part each, cut as by gw_part */
    const size_t *counts; /* or of these lengths: lanes entries that sum to count, valid until done; NULL: even parts */
    int root;             /* BROADCAST: member index */
    bool dst_wide;        /* REDUCE_SCATTER: out has the accumulator type, and averages are not divided */
} gw_board_op;

typedef struct gw_board gw_board;

/* transport: of gw_shm_open; it must reach all members, and outlive the board. members: their ranks in member order
 * (copied), this rank at index self. key: not 0, of no other board that these ranks have open. */
gw_status gw_board_open(gw_board **board, gw_transport *transport, const int *members, int count, int self,
                        uint64_t key, gw_error *error);
/* To be polled: *attached turns true when all members have come. */
gw_status gw_board_attach(gw_board *board, bool *attached, gw_error *error);

/* True if an operation may be started on an attached board: fewer than GW_BOARD_DEPTH are under way. */
bool gw_board_free(const gw_board *board);
void gw_board_start(gw_board *board, const gw_board_op *op);
/* Works for a while (about 1 MiB) on what can be done. *completed: operations finished since gw_board_open, in the
 * order they were started. *moved: something was done (may be NULL). After an error the board only can be closed. */
gw_status gw_board_poll(gw_board *board, uint64_t *completed, bool *moved, gw_error *error);

/* The same, for who has nothing else to do and a core of its own: looks for half a microsecond before it comes back.
 * Sleepers are rung for only then, which takes none of the time that matters if all are awake. */
gw_status gw_board_watch(gw_board *board, uint64_t *completed, gw_error *error);

/* The rank that the oldest unfinished operation waits for, -1: none. */
int gw_board_awaited(const gw_board *board);
/* Where members share cores: all that were last seen at this one's core have come to the oldest unfinished operation,
 * and none of them has anything else to do for it. What it lacks comes from other cores. */
bool gw_board_core_is_idle(const gw_board *board);
/* Operations that this rank has finished; UINT64_MAX for one that is no member. */
uint64_t gw_board_left(const gw_board *board, int rank);
/* After GW_MISMATCH: what this rank (of a member) published for the operation that failed. */
void gw_board_signature(const gw_board *board, int rank, uint64_t signature[2]);

/* With operations under way, they are given up: members that still work on them get GW_ABORTED, and this rank's shared
 * buffers are moved out of their reach. NULL is fine. */
void gw_board_close(gw_board *board);

#endif
