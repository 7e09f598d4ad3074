/* shm_coll_internal.h - the inside of a shm collective: the layout of its segment, and the state of each member.
 *
 * In the segment every cache line has one writer (except claims and joined), so that lines travel only when there is
 * something new. Counters only grow and are never reset: operations and windows are numbered since the object was
 * opened, and a slot or a staging buffer is reused when the counters of all members have passed it.
 *
 * A member may write nonsense anywhere in the segment. Each keeps its own counters, its own call and all limits in
 * private memory; what it reads of others only decides when it goes on, or is checked (gw_shm_coll_begin). */
#ifndef GW_SHM_SHM_COLL_INTERNAL_H
#define GW_SHM_SHM_COLL_INTERNAL_H

#include "base/clock.h"
#include "base/dtype.h"
#include "shm/peer_map.h"
#include "shm/shm_coll.h"

#define COLL_SLOT_BYTES 16384                /* of one member's data in one slot */
#define COLL_INLINE_BYTES 2048               /* of the largest operation that is always inline; see set_limits */
#define COLL_SLOTS_READ_BYTES 16384          /* slots: of all others' data, read by a member with its own core */
#define COLL_DIRECT_BYTES (128 << 10)        /* direct: of a chunk that is claimed */
#define COLL_FIXED_BYTES (64 << 10)          /* of the largest operation whose parts are not claimed: one chunk each */
#define COLL_PART_BYTES 8192                 /* of the smallest part of an all-reduce that is claimed */
#define COLL_SWEEP 1024                      /* operations between two sweeps for memory that members have freed */
#define COLL_WINDOW_BYTES (128 << 10)        /* of a window: chunks of all parts that are staged together */
#define COLL_BUFFERS 8                       /* windows that may be in flight */
#define COLL_QUANTUM_BYTES ((size_t)1 << 20) /* of work in one poll */
#define COLL_SPINS 16                        /* polls of gw_shm_coll_spin: about half a microsecond */
#define COLL_NOT_NEEDED 2u                   /* version of a buffer that nobody will touch (live versions are odd) */
#define COLL_NEAR_LINES 4                    /* of one member's data that lie in its entry */
#define COLL_FITS_SLOTS 1u                   /* id of a private input that comes in the slot */
#define COLL_WIDEN_MAX 4                     /* accumulator bytes for one byte of the raw type, at most */

/* A member's call and its buffers. */
typedef struct coll_call {
    uint64_t signature[2]; /* the first words; the third is rarely used, and has no room in this line */
    gw_shm_ref in, out;    /* version 0: private */
} coll_call;

/* One member's entry in one slot, and the claims on the part it owns. */
typedef struct coll_entry {
    /* index of the operation + 1; the fields below belong to it. (CPUs fetch lines in pairs, so no pair is shared.) */
    alignas(2 * GW_CACHE_LINE) _Atomic uint64_t arrived;
    uint64_t finished; /* operations this member had finished when it arrived */
    union {
        coll_call call;
        struct {
            uint64_t signature[2];
            uint8_t nearest[2 * sizeof(gw_shm_ref)]; /* what this member gives to an inline operation, if it fits */
        };
    };
    alignas(GW_CACHE_LINE) uint8_t near[COLL_NEAR_LINES * GW_CACHE_LINE]; /* or else fits here */
    alignas(GW_CACHE_LINE) _Atomic uint64_t next; /* chunk of the part to be claimed next, by anyone */
    _Atomic uint64_t done;                        /* chunks of the part that are finished */
    /* index + 1 of the operation whose part is finished (parts not claimed), or whose data is in the slot (slots) */
    alignas(GW_CACHE_LINE) _Atomic uint64_t served;
    uint64_t third_word;     /* of the signature, if its first word says so */
    _Atomic uint32_t wishes; /* coll_wish; of operations that are neither inline nor reduce */
} coll_entry;

/* One member's data in one slot. More than a few lines are not in the entry: a rank reads the entries of all members
 * whenever it gets a core, and without the data all entries of a slot lie on one page. */
typedef struct coll_data {
    alignas(GW_CACHE_LINE) uint8_t bytes[COLL_SLOT_BYTES];
    uint8_t padding[3 * GW_CACHE_LINE]; /* else the data of all members would map to the same cache sets */
} coll_data;

/* Windows copied in; windows whose own chunk is combined; windows copied out. */
typedef enum coll_counter { COLL_FILLED, COLL_REDUCED, COLL_DRAINED } coll_counter;

/* One member's progress since the object was opened; written by that member. */
typedef struct coll_progress {
    alignas(2 * GW_CACHE_LINE) _Atomic uint64_t finished; /* operations */
    _Atomic uint64_t windows[3];                          /* by coll_counter */
    _Atomic uint32_t cpu;                                 /* on which it arrived last, if members share cores */
} coll_progress;

#define COLL_CAUSE_BYTES 256

/* The segment: this page, progress of p members, GW_SHM_COLL_DEPTH slots of p entries, as many of data, p staging
 * areas. */
typedef struct coll_page {
    alignas(2 * GW_CACHE_LINE) _Atomic uint32_t joined; /* members that have mapped the segment */
    _Atomic uint32_t oversubscribed;                    /* the first member has fewer cores than there are members */
    _Atomic uint32_t unreadable;                        /* some member cannot read the memory of some other */
    alignas(GW_CACHE_LINE) _Atomic uint32_t aborted;    /* 1 + index of the member that gave up */
    _Atomic uint32_t gives_up;                          /* the same, before it has written these: */
    int32_t culprit;                                    /* the rank that it blames; -1: none */
    char cause[COLL_CAUSE_BYTES];                       /* its error; "": it had none */
} coll_page;

/* Those of shm_coll.h; SLOTS is inline with private data that follows the arrival (shm_coll_slots.c). */
typedef enum coll_mode { COLL_INLINE, COLL_SLOTS, COLL_DIRECT, COLL_STAGED, COLL_PULL } coll_mode;

/* What a member says with its call, in tasks that only move data. */
typedef enum coll_wish {
    COLL_PULLS = 1,    /* it has measured pulling to be faster than staging; the chooser decides for all */
    COLL_IN_PLACE = 2, /* it overwrites input that others still need */
} coll_wish;

#define COLL_CLASSES 64 /* of sizes, by their logarithm */

/* What the chooser knows of calls of one task and size: shm_coll_choice.c. */
typedef struct coll_choice {
    uint32_t calls;
    uint32_t ns[2]; /* smoothed; staged, pulled; 0: not measured yet */
} coll_choice;

/* What one member gives another in a task that only moves data: where it lies in the one's in and the other's out. */
typedef struct coll_block {
    size_t in, out, length;
} coll_block;

/* What one member gives to the others, of its in. */
typedef struct coll_range {
    size_t at, length;
} coll_range;

/* One member's side of the head operation, as this process sees it. */
typedef struct coll_side {
    const uint8_t *in; /* NULL: not mapped here */
    uint8_t *out;
    gw_mapping *in_mapping, *out_mapping; /* NULL for this rank and for private memory */
    bool in_private, out_private;
    coll_call call; /* the published call from which this was resolved, and its */
    uint32_t wishes;
    size_t offset, length; /* of the part it owns, in elements */
    coll_range gives;      /* bytes; inline, slots */
    coll_block takes;      /* bytes that this member gets of it; inline, slots */
} coll_side;

struct gw_shm_coll {
    gw_peer_map *peer_map;
    int members, self;
    int *ranks; /* by member */
    uint64_t key;
    coll_page *page; /* NULL: not found yet */
    coll_progress *progress;
    coll_entry *entries;
    coll_data *data;
    uint8_t *stage;
    gw_mapping *mapping; /* of the segment, for all but the first member */
    bool joined, attached;
    bool populated; /* all pages of the staging areas are there */

    /* Set when attached; the same on all members. */
    bool oversubscribed;
    size_t inline_bytes;     /* of the largest inline operation but all-reduce */
    size_t slots_read_bytes; /* as COLL_SLOTS_READ_BYTES */
    size_t fixed_bytes;      /* of the largest operation whose parts are not claimed */
    bool reads;              /* every member can read the memory of all others */

    gw_shm_coll_op ops[GW_SHM_COLL_DEPTH]; /* by index % GW_SHM_COLL_DEPTH */
    uint64_t started, published, finished;
    uint64_t all_finished; /* operations that every member is known to have finished */
    uint64_t windows[3];   /* as in this rank's progress */
    coll_call own_call;    /* as in this rank's entry, of the last operation that was published and not inline */
    bool failed;
    gw_error cause;    /* why this rank gives up, for the others; set by gw_shm_coll_blame */
    int cpu;           /* as in progress; -1: not published yet, or not oversubscribed */
    bool wake_pending; /* something was published, and sleepers have not been woken yet */

    /* cached results of the last operation, valid for an equal one: computing them again would outweigh a small
     * operation */
    gw_shm_coll_op last_op; /* the operation that parts are cut for */
    bool inlined;           /* it is inline */
    bool only_gives;        /* this member gets nothing of others, or is not to wait for them, if it is inline */
    bool own_found;         /* own_in and own_out are its buffers, as long as this rank's table has these counts: */
    gw_shm_ref own_in, own_out;
    bool own_registered; /* one of them is in registered memory */
    uint32_t own_entries, own_changes;
    uint32_t own_wishes;     /* coll_wish; of the last operation that was published and not inline */
    coll_mode chunks_mode;   /* chunk_elements and window_count are those of this mode; COLL_INLINE: of none */
    bool resolved;           /* sides and resolved_mode hold for calls equal to the published ones */
    coll_mode resolved_mode; /* the mode in which the last operation ran */
    bool either;             /* it could be staged or pulled, by what the chooser wished */
    uint32_t unmapped;       /* of the peer map, when sides were resolved */

    /* the head operation, which has the index `finished` */
    bool prepared; /* parts are cut */
    bool arrived;  /* all members have arrived and agree; sides are resolved */
    bool fixed;    /* direct: parts are left to their owners */
    bool over;     /* direct: others have done all parts, and sides may not be mapped */
    coll_mode mode;
    int seen;    /* members whose arrival has been seen, from member 0 on */
    bool pinned; /* mappings of sides are pinned */
    coll_side *sides;
    size_t element, wide_element; /* bytes */
    size_t chunk_elements;        /* elements of a chunk (direct, staged) */
    uint64_t window_count;        /* staged: windows of this operation */
    uint64_t first_window;        /* staged: the first window of this operation */
    bool far;                     /* others read data written past the cache faster (shm_coll_cache_bypass.c) */
    int contradicted;             /* probes in a row that contradict `far` */
    int pulled;                   /* pull: members whose data has been read, from the next one on */
    size_t pulled_bytes;          /* of the member after these */
    gw_time began;                /* of an operation that this member measures; 0: it does not */
    coll_choice choices[GW_SHM_TASK_BARRIER][COLL_CLASSES];
    const void **src; /* scratch: pointers for all members */
    void **dst;
};

static inline const gw_shm_coll_op *coll_head(const gw_shm_coll *coll) {
    return &coll->ops[coll->finished % GW_SHM_COLL_DEPTH];
}

static inline coll_entry *coll_entry_of(const gw_shm_coll *coll, uint64_t index, int member) {
    return &coll->entries[(size_t)(index % GW_SHM_COLL_DEPTH) * (size_t)coll->members + (size_t)member];
}

static inline uint8_t *coll_data_of(const gw_shm_coll *coll, uint64_t index, int member) {
    return coll->data[(size_t)(index % GW_SHM_COLL_DEPTH) * (size_t)coll->members + (size_t)member].bytes;
}

/* Where a member's in would begin, if what it gives to an inline operation lay there in its place. Little data lies in
 * the entry, next to the arrival: lines elsewhere would be one more transfer to wait for (4 B between two cores that
 * are far apart: 0.78 us instead of 0.94). */
static inline uint8_t *coll_inline_of(const gw_shm_coll *coll, uint64_t index, int member, const coll_range *gives) {
    coll_entry *entry = coll_entry_of(coll, index, member);
    uint8_t *data = gives->length <= sizeof entry->nearest ? entry->nearest
                    : gives->length <= sizeof entry->near  ? entry->near
                                                           : coll_data_of(coll, index, member);
    return (uint8_t *)((uintptr_t)data - gives->at);
}

/* coll_signal publishes a counter. gw_shm_coll_wake must follow, at the latest at the end of the poll. It waits until
 * the store is visible, so it pays to do a little work before it. */
void gw_shm_coll_wake(gw_shm_coll *coll);
static inline void coll_signal(gw_shm_coll *coll, _Atomic uint64_t *counter, uint64_t value) {
    atomic_store_explicit(counter, value, memory_order_release);
    coll->wake_pending = true;
}

static inline bool coll_reduces(const gw_shm_coll_op *op) {
    return op->task == GW_SHM_TASK_ALLREDUCE || op->task == GW_SHM_TASK_REDUCE_SCATTER ||
           op->task == GW_SHM_TASK_REDUCE;
}

/* Whether a member gets an owner's part of the result, in tasks in which every owner has one result. */
static inline bool coll_gets(const gw_shm_coll_op *op, int owner, int member) {
    if (op->task == GW_SHM_TASK_REDUCE_SCATTER) return member == owner;
    return (op->task != GW_SHM_TASK_REDUCE && op->task != GW_SHM_TASK_GATHER) || member == op->root;
}

/* Whether the data that a member gives differs from receiver to receiver. */
static inline bool coll_sends_apart(const gw_shm_coll_op *op) {
    return op->task == GW_SHM_TASK_SCATTER || op->task == GW_SHM_TASK_ALLTOALL;
}

static inline bool coll_same_place(const gw_shm_ref *a, const gw_shm_ref *b) {
    return a->version == b->version && a->id == b->id && a->offset == b->offset;
}

static inline size_t coll_min(size_t a, size_t b) { return a < b ? a : b; }

/* shm_coll_all_arrived.c: all members have arrived. Checks that they agree, and maps their buffers. */
gw_status gw_shm_coll_begin(gw_shm_coll *coll, gw_error *error);
gw_status gw_shm_coll_check_abort(gw_shm_coll *coll, gw_error *error);
void gw_shm_coll_release(gw_shm_coll *coll); /* sides may be unmapped */
void gw_shm_coll_plan_chunks(gw_shm_coll *coll);
/* The range of a member's in that others need in the head operation, and that of its out that it touches, in bytes;
 * false: none. */
bool gw_shm_coll_needs_in(const gw_shm_coll *coll, const gw_shm_coll_op *op, int member, size_t *offset, size_t *bytes);
bool gw_shm_coll_needs_out(const gw_shm_coll *coll, const gw_shm_coll_op *op, int member, size_t *offset,
                           size_t *bytes);

/* shm_coll_parts.c: cuts the operation into the parts that members own. */
void gw_shm_coll_cut(gw_shm_coll *coll);
/* Combines (or copies) count elements: sources of all members, or the one source of a copying task. */
void gw_shm_coll_combine(const gw_shm_coll_op *op, void *const *dst, int destinations, const void *const *src,
                         int sources, size_t count);
/* In elements. */
coll_block gw_shm_coll_block(const gw_shm_coll *coll, int from, int to);
/* Bytes of an element of out. */
size_t gw_shm_coll_out_bytes(const gw_shm_coll *coll);

/* Each does what it can, with at most *budget bytes, and returns whether anything moved. *done: this rank may leave. */
void gw_shm_coll_work_inline(gw_shm_coll *coll);
bool gw_shm_coll_work_direct(gw_shm_coll *coll, size_t *budget, bool *done);
bool gw_shm_coll_direct_done(gw_shm_coll *coll); /* all parts are done, by any member */
bool gw_shm_coll_all_served(gw_shm_coll *coll);
void gw_shm_coll_prefetch_direct(gw_shm_coll *coll);
bool gw_shm_coll_work_staged(gw_shm_coll *coll, size_t *budget, bool *done);
/* inline: copies what this member gives to the operation of this index into its slot, before it arrives. */
void gw_shm_coll_fill_inline(gw_shm_coll *coll, uint64_t index);
/* slots: the same for the head, after it has arrived. */
void gw_shm_coll_fill_slot(gw_shm_coll *coll, coll_entry *entry, uint8_t *data, const gw_shm_coll_op *op);
bool gw_shm_coll_work_slots(gw_shm_coll *coll);
/* Both: what members give and take, after the cut. Copies a range of in to its place in data; makes this member's
 * output of src. */
void gw_shm_coll_plan_small(gw_shm_coll *coll);
void gw_shm_coll_fill(uint8_t *data, const gw_shm_coll_op *op, const coll_range *range);
void gw_shm_coll_finish_small(gw_shm_coll *coll);
/* staged: copies a window in, if there is one and a free buffer; also before all have arrived. */
bool gw_shm_coll_fill_staged(gw_shm_coll *coll, size_t *budget);

/* shm_coll_pull.c: like the others, but reading a peer's memory may fail. */
gw_status gw_shm_coll_work_pull(gw_shm_coll *coll, size_t *budget, bool *moved, bool *done, gw_error *error);
/* The member that measures for all, and whether this member, if it is that one, wishes to pull. */
int gw_shm_coll_chooser(const gw_shm_coll *coll, const gw_shm_coll_op *op);
bool gw_shm_coll_would_pull(gw_shm_coll *coll, const gw_shm_coll_op *op);
/* Measures from the arrival of all to the end. */
void gw_shm_coll_choice_begin(gw_shm_coll *coll);
void gw_shm_coll_choice_end(gw_shm_coll *coll);
/* shm_coll_registered.c. find: whether own_in or own_out is in registered memory; the others are called only if so.
 * lend: before this rank arrives; false: a registration has ended, so the buffers must be found again. take_back: after
 * the operation. in_at, out_at: where this rank finds its own bytes `at` to `at + bytes` if others may have worked on
 * them too. */
bool gw_shm_coll_find_registered(const gw_shm_coll *coll);
bool gw_shm_coll_lend(gw_shm_coll *coll, const gw_shm_coll_op *op);
void gw_shm_coll_take_back(gw_shm_coll *coll);
const uint8_t *gw_shm_coll_in_at(const gw_shm_coll *coll, size_t at, size_t bytes);
uint8_t *gw_shm_coll_out_at(const gw_shm_coll *coll, size_t at, size_t bytes);

/* shm_coll_cache_bypass.c: whether this member writes past the cache when it stages this window. */
bool gw_shm_coll_bypasses_cache(const gw_shm_coll *coll, uint64_t window);
/* Before an owner's chunk is staged: measures the staging of some of it, if it is that owner's turn. */
void gw_shm_coll_probe(gw_shm_coll *coll, uint64_t window, int owner, uint8_t *staged, const uint8_t *from,
                       size_t bytes);
void gw_shm_coll_note_probe(gw_shm_coll *coll, size_t bytes, uint64_t ns); /* the time of a probe */

size_t gw_shm_coll_chunk_bytes(int members);
size_t gw_shm_coll_stage_bytes(int members); /* of one member */

#endif
