/* board_page.h - the inside of a board: what lies in its segment, and what each member keeps for itself.
 *
 * In the segment every line is written by one member (but for claims and joined), so that lines travel only when there
 * is news. Counters only grow and are never reset: operations and staged pieces are numbered from the opening of the
 * board, and a slot or a staging buffer is used again when everyone's counter says that it was left. */
#ifndef GW_TRANSPORT_BOARD_PAGE_H
#define GW_TRANSPORT_BOARD_PAGE_H

#include "base/dtype.h"
#include "transport/board.h"
#include "transport/harbour.h"

#define BOARD_SLOT_BYTES 16384            /* of one member's data in one slot */
#define BOARD_INLINE_BYTES 2048           /* of data that goes into the slot wherever it lies; see set_limits */
#define BOARD_CARRIED_BYTES 16384         /* of all others' private data, read by each that has a core to itself */
#define BOARD_DIRECT_BYTES (128 << 10)    /* of one chunk that is claimed */
#define BOARD_FIXED_BYTES (64 << 10)      /* of an operation whose parts are not claimed; a part is one chunk */
#define BOARD_PART_BYTES 8192             /* at least, of a part of an all-reduce that is claimed */
#define BOARD_SWEEP 1024                  /* operations between two looks for memory that members have freed */
#define BOARD_WINDOW_BYTES (128 << 10)    /* pieces of all parts that are staged together */
#define BOARD_BUFFERS 8                   /* windows that may be in flight */
#define BOARD_QUANTUM_BYTES ((size_t)1 << 20) /* of one poll */
#define BOARD_LOOKS 16                    /* of gw_board_watch: about half a microsecond */
#define BOARD_NOT_NEEDED 2u               /* as the version of a buffer: nobody will touch it (those alive are odd) */
#define BOARD_CARRIES 1u                  /* as the id of private input: it comes in the slot */
#define BOARD_WIDEN_MAX 4                 /* accumulator bytes for one byte of the raw type, at most */

/* What a member calls, and on which memory. */
typedef struct board_call {
    uint64_t signature[2];
    union {
        struct {
            gw_shared in, out; /* version 0: private */
        };
        uint8_t room[2 * sizeof(gw_shared)]; /* or the data, of an operation that goes inline and has no more */
    };
} board_call;

/* One member's line in one slot, and the claims on the part it owns. */
typedef struct board_entry {
    /* index of the operation + 1; what follows belongs to that one. (Lines are fetched in pairs: none is shared.) */
    alignas(2 * GW_LINE) _Atomic uint64_t arrived;
    uint64_t left; /* operations this member had finished */
    board_call call;
    alignas(GW_LINE) _Atomic uint64_t next; /* chunk of the part to be claimed next, by anyone */
    _Atomic uint64_t done;                  /* chunks of the part that are finished */
    /* index + 1 of the operation whose part is finished (parts not claimed), or whose data is here (carried) */
    alignas(GW_LINE) _Atomic uint64_t served;
} board_entry;

/* One member's data in one slot. Not in its entry: a rank looks at the entries of all whenever it gets a core, and
 * finds those of a slot on one page. */
typedef struct board_data {
    alignas(GW_LINE) uint8_t bytes[BOARD_SLOT_BYTES];
    uint8_t apart[3 * GW_LINE]; /* the data of all members would fall into the same sets of the cache */
} board_data;

/* One member's progress since the board was opened; written by that member. */
typedef struct board_progress {
    alignas(2 * GW_LINE) _Atomic uint64_t left; /* operations finished */
    _Atomic uint64_t filled;                    /* windows copied in */
    _Atomic uint64_t reduced;                   /* windows whose own piece is combined */
    _Atomic uint64_t drained;                   /* windows copied out */
    _Atomic uint32_t cpu;                       /* at which it arrived last, where members share cores */
} board_progress;

/* The segment: this page, progress of p members, GW_BOARD_DEPTH slots of p entries, as many of data, p staging
 * areas. */
typedef struct board_page {
    alignas(2 * GW_LINE) _Atomic uint32_t joined; /* members that have mapped the board */
    uint32_t inline_bytes;                        /* the largest but all-reduce that goes inline; set by the first */
    uint32_t carried_bytes;                       /* as BOARD_CARRIED_BYTES */
    uint32_t fixed_bytes;                         /* the largest whose parts are left to their owners, not claimed */
    uint32_t crowded;                             /* there are more members than cores */
    alignas(GW_LINE) _Atomic uint32_t aborted;    /* 1 + index of the member that gave up */
} board_page;

typedef enum board_mode { BOARD_INLINE, BOARD_CARRIED, BOARD_DIRECT, BOARD_STAGED } board_mode;

/* What a member contributes to the operation that is worked on, as this process sees it. */
typedef struct board_side {
    const uint8_t *in; /* NULL: not to be reached from here */
    uint8_t *out;
    gw_mapping *in_mapping, *out_mapping; /* NULL for this rank and for private memory */
    bool in_private, out_private;
    board_call call; /* as it was published, when this was found out */
    size_t offset, length; /* of the part it owns, in elements */
} board_side;

struct gw_board {
    gw_harbour *harbour;
    int members, self;
    int *ranks; /* by member */
    uint64_t key;
    board_page *page; /* NULL: not found yet */
    board_progress *progress;
    board_entry *entries;
    board_data *data;
    uint8_t *stage;
    gw_mapping *mapping; /* of the segment, for all but the first member */
    bool joined;

    gw_board_op ops[GW_BOARD_DEPTH]; /* by index % GW_BOARD_DEPTH */
    uint64_t started, published, finished;
    uint64_t all_left; /* operations that every member is known to have finished */
    bool failed;
    int cpu;   /* as in progress; -1: not told yet, or not crowded */
    bool news; /* something was published, and sleepers are not rung for yet */

    /* what was found out for the last operation, and holds for one like it: finding it out again would outweigh a small
     * operation */
    gw_board_op like;     /* parts are cut for it */
    bool described;       /* its own buffers lie at own_in and own_out, while the own table is as it was: */
    gw_shared own_in, own_out;
    uint32_t own_entries, own_changes;
    board_mode stepped;   /* step and steps are those of this mode; BOARD_INLINE: of none */
    bool resolved;        /* sides and settled are known, for calls that are published as these were */
    board_mode settled;   /* the mode that it was carried out in */
    uint32_t unmapped;    /* of the harbour, when sides were found out */

    /* the operation `finished`, once it is at the head */
    bool prepared; /* parts are cut */
    bool arrived;  /* all members have come, and agree; sides are resolved */
    bool fixed;    /* direct: parts are left to their owners */
    board_mode mode;
    int seen; /* members whose arrival has been seen, from member 0 on */
    bool held; /* mappings of sides are pinned */
    board_side *sides;
    size_t element, wide_element; /* bytes */
    size_t step;                  /* elements of a chunk (direct) or piece (staged) */
    uint64_t steps;               /* staged: windows of this operation */
    uint64_t window;              /* staged: the first window of this operation */
    bool far;                     /* others read faster what this member writes past its cache (board_far.c) */
    int contradicted;             /* probes in a row that say otherwise */
    const void **src;             /* room for members entries each */
    void **dst;
};

static inline gw_board_op *board_head(gw_board *board) { return &board->ops[board->finished % GW_BOARD_DEPTH]; }

static inline board_entry *board_entry_of(const gw_board *board, uint64_t index, int member) {
    return &board->entries[(size_t)(index % GW_BOARD_DEPTH) * (size_t)board->members + (size_t)member];
}

static inline uint8_t *board_data_of(const gw_board *board, uint64_t index, int member) {
    return board->data[(size_t)(index % GW_BOARD_DEPTH) * (size_t)board->members + (size_t)member].bytes;
}

/* Of an operation that goes inline. What fits into the member's line comes with it: of another core, a line of its own
 * would be one more to wait for (4 B between two, on cores that are far apart: 0.78 us instead of 0.94). */
static inline uint8_t *board_inline_of(const gw_board *board, uint64_t index, int member) {
    const gw_board_op *op = &board->ops[index % GW_BOARD_DEPTH];
    board_call *call = &board_entry_of(board, index, member)->call;
    bool fits = op->count * gw_dtype_bytes(op->reduction.dtype) <= sizeof call->room;
    return fits ? call->room : board_data_of(board, index, member);
}

/* Publishes news. Those who sleep are to be rung for, at the latest at the end of the poll: looking at them has to wait
 * until the news is out, which a little work that follows need not. */
void gw_board_ring(gw_board *board);
static inline void board_tell(gw_board *board, _Atomic uint64_t *counter, uint64_t value) {
    atomic_store_explicit(counter, value, memory_order_release);
    board->news = true;
}

static inline bool board_reduces(const gw_board_op *op) {
    return op->task == GW_BOARD_ALLREDUCE || op->task == GW_BOARD_REDUCE_SCATTER;
}

static inline bool board_only_owner_gets(const gw_board_op *op) { return op->task == GW_BOARD_REDUCE_SCATTER; }

static inline size_t board_min(size_t a, size_t b) { return a < b ? a : b; }

/* board_begin.c: all have come. Whether they agree, and where their buffers lie. */
gw_status gw_board_begin(gw_board *board, gw_error *error);
gw_status gw_board_check_abort(gw_board *board, gw_error *error);
void gw_board_release(gw_board *board); /* sides may be unmapped */
void gw_board_plan_steps(gw_board *board);
/* The range of a member's out that the head operation touches, in bytes; false: none. */
bool gw_board_needs_out(const gw_board *board, const gw_board_op *op, int member, size_t *offset, size_t *bytes);

/* board_parts.c: cuts the operation into the parts that members own. */
void gw_board_cut(gw_board *board);
/* Combines (or copies) count elements: sources of all members, or the one source of a copying task. */
void gw_board_combine(const gw_board_op *op, void *const *dst, int destinations, const void *const *src, int sources,
                      size_t count);
/* Bytes that an element of out has. */
size_t gw_board_out_bytes(const gw_board *board);

/* Each does what it can, spending at most *budget bytes, and says whether anything moved; *done when this rank may
 * leave. */
bool gw_board_work_inline(gw_board *board, bool *done);
bool gw_board_work_direct(gw_board *board, size_t *budget, bool *done);
bool gw_board_direct_done(gw_board *board); /* all of it, by whomever */
bool gw_board_all_served(gw_board *board);
void gw_board_expect_direct(gw_board *board);
bool gw_board_work_staged(gw_board *board, size_t *budget, bool *done);
/* inline: copies this member's data into its slot, before it arrives. */
void gw_board_fill_inline(gw_board *board, uint8_t *data, const gw_board_op *op);
/* carried: the same, after it has arrived. */
void gw_board_fill_carried(gw_board *board, board_entry *entry, uint8_t *data, const gw_board_op *op);
bool gw_board_work_carried(gw_board *board, bool *done);
/* staged: copies a window in, if there is one and room for it; also before all have arrived. */
bool gw_board_fill_staged(gw_board *board, size_t *budget);

/* board_far.c: whether what this member stages in a window is to be written past the cache. */
bool gw_board_streams(const gw_board *board, uint64_t window);
/* Before an owner's piece is staged: takes the time of staging some of it, if it is the one's turn. */
void gw_board_probe(gw_board *board, uint64_t window, int owner, uint8_t *staged, const uint8_t *from, size_t bytes);
void gw_board_judge(gw_board *board, size_t bytes, uint64_t ns); /* so long a probe took */

size_t gw_board_piece_bytes(int members);
size_t gw_board_stage_bytes(int members); /* of one member */

#endif
