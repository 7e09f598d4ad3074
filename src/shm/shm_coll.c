/* shm_coll.c - opens a shm collective; starts operations, chooses their mode, drives and finishes them. */
#include "shm/shm_coll.h"

#include "base/dtype.h"
#include "shm/shm_coll_internal.h"

#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static size_t slots_bytes(int members) {
    return GW_SHM_COLL_DEPTH * (size_t)members * (sizeof(coll_entry) + sizeof(coll_data));
}

static size_t segment_bytes(int members) {
    return gw_segment_round(sizeof(coll_page) + (size_t)members * sizeof(coll_progress) + slots_bytes(members)) +
           (size_t)members * gw_shm_coll_stage_bytes(members);
}

/* Every member sees the same layout. */
static void lay_out(gw_shm_coll *coll, void *base) {
    uint8_t *at = base;
    size_t members = (size_t)coll->members;
    coll->page = base;
    coll->progress = (coll_progress *)(at + sizeof(coll_page));
    coll->entries = (coll_entry *)(at + sizeof(coll_page) + members * sizeof(coll_progress));
    coll->data = (coll_data *)(coll->entries + GW_SHM_COLL_DEPTH * members);
    coll->stage = at + segment_bytes(coll->members) - members * gw_shm_coll_stage_bytes(coll->members);
}

/* If each member has a core, a second synchronization costs less than reading the private data of all members, already
 * for small data. If not, it costs a context switch. Likewise an owner that has a core does its small part at once; an
 * owner that has none does not, so its part is left for others to claim. The first member decides for all. */
static void set_limits(gw_shm_coll *coll) {
    coll->oversubscribed = atomic_load(&coll->page->oversubscribed) != 0;
    coll->reads = atomic_load(&coll->page->unreadable) == 0;
    coll->inline_bytes = coll->oversubscribed ? COLL_SLOT_BYTES : COLL_INLINE_BYTES;
    coll->slots_read_bytes = coll->oversubscribed ? SIZE_MAX : COLL_SLOTS_READ_BYTES;
    coll->fixed_bytes = coll->oversubscribed ? 0 : COLL_FIXED_BYTES;
}

void gw_shm_coll_wake(gw_shm_coll *coll) {
    coll->wake_pending = false;
    gw_peer_map_fence();
    for (int m = 0; m < coll->members; m++) {
        gw_peer_map_peer *peer = &coll->peer_map->peers[coll->ranks[m]];
        if (m != coll->self && gw_peer_map_sleeps(peer->page)) gw_peer_map_wake(coll->peer_map, coll->ranks[m]);
    }
}

gw_status gw_shm_coll_open(gw_shm_coll **out, gw_peer_map *peer_map, const int *members, int count, int self,
                           uint64_t key, gw_error *error) {
    for (int m = 0; m < count; m++)
        if (m != self && !peer_map->peers[members[m]].page)
            return gw_fail_rank(error, GW_UNSUPPORTED, members[m], "rank %d cannot be reached through shared memory",
                                members[m]);
    gw_shm_coll *coll = calloc(1, sizeof *coll);
    if (!coll) return gw_fail(error, GW_MEMORY, "no memory for a host-local collective");
    *coll = (gw_shm_coll){.peer_map = peer_map, .members = count, .self = self, .key = key, .cpu = -1};
    coll->ranks = malloc((size_t)count * sizeof *coll->ranks);
    coll->sides = calloc((size_t)count, sizeof *coll->sides);
    coll->src = calloc((size_t)count, sizeof *coll->src);
    coll->dst = calloc((size_t)count + 1, sizeof *coll->dst);
    gw_status status = GW_OK;
    if (!coll->ranks || !coll->sides || !coll->src || !coll->dst)
        status = gw_fail(error, GW_MEMORY, "no memory for a host-local collective of %d members", count);
    if (!status) memcpy(coll->ranks, members, (size_t)count * sizeof *members);
    if (!status && self == 0) {
        void *base = gw_peer_map_share(coll->peer_map, segment_bytes(count), key, false, error);
        if (base) lay_out(coll, base);
        else status = GW_MEMORY;
        if (base) atomic_store(&coll->page->oversubscribed, count > sysconf(_SC_NPROCESSORS_ONLN));
    }
    if (status) gw_shm_coll_close(coll);
    else *out = coll;
    return status;
}

/* Maps the segment, if the first member has published it. */
static gw_status find_page(gw_shm_coll *coll, gw_error *error) {
    uint64_t bytes;
    gw_shm_ref where = gw_peer_map_lookup(coll->peer_map, coll->ranks[0], coll->key, &bytes);
    if (!where.version) return GW_OK;
    if (bytes != segment_bytes(coll->members))
        return gw_fail_rank(error, GW_MISMATCH, coll->ranks[0],
                            "rank %d opened this host-local collective for another number of members than %d",
                            coll->ranks[0], coll->members);
    coll->mapping = gw_peer_map_pin(coll->peer_map, coll->ranks[0], where, error);
    if (!coll->mapping) return error->status;
    if (coll->mapping->segment.bytes != bytes) /* the entry has changed since */
        return gw_fail_rank(error, GW_PROTOCOL, coll->ranks[0],
                            "rank %d replaced the memory of a host-local collective while it was opened",
                            coll->ranks[0]);
    lay_out(coll, coll->mapping->segment.base);
    return GW_OK;
}

gw_status gw_shm_coll_attach(gw_shm_coll *coll, bool *attached, gw_error *error) {
    *attached = false;
    gw_status status = coll->page ? GW_OK : find_page(coll, error);
    if (status || !coll->page) return status;
    if (!coll->joined) {
        coll->joined = true;
        for (int m = 0; m < coll->members; m++)
            if (m != coll->self && !gw_peer_map_reads(coll->peer_map, coll->ranks[m]))
                atomic_store(&coll->page->unreadable, 1);
        atomic_fetch_add(&coll->page->joined, 1);
        gw_shm_coll_wake(coll);
    }
    if (!coll->attached && atomic_load(&coll->page->joined) == (uint32_t)coll->members) {
        set_limits(coll);
        coll->attached = true;
    }
    *attached = coll->attached;
    return GW_OK;
}

bool gw_shm_coll_can_start(const gw_shm_coll *coll) { return coll->started - coll->finished < GW_SHM_COLL_DEPTH; }

/* The limit of an all-reduce is always COLL_INLINE_BYTES: above it private data goes through the slots, and shared data
 * needs no copy. In an all-gather each member writes only a part (4 KiB between two, shared: 0.28 us instead of 0.39).
 */
static bool is_inline(const gw_shm_coll *coll, const gw_shm_coll_op *op) {
    size_t bytes = op->count * gw_dtype_bytes(op->reduction.dtype), most = coll->inline_bytes;
    if (op->task == GW_SHM_TASK_ALLREDUCE) most = COLL_INLINE_BYTES;
    if (op->task == GW_SHM_TASK_ALLGATHER && most < 2 * COLL_INLINE_BYTES) most = 2 * COLL_INLINE_BYTES;
    return op->task == GW_SHM_TASK_BARRIER || bytes <= most;
}

/* Finds this rank's buffers in its segments. An offset is that of the buffer's beginning, which may lie before the
 * segment if only a later range of the buffer is used. */
static void find_own(gw_shm_coll *coll, const gw_shm_coll_op *op) {
    size_t offset, bytes;
    coll->own_in = coll->own_out = (gw_shm_ref){.version = COLL_NOT_NEEDED};
    if (gw_shm_coll_needs_in(coll, op, coll->self, &offset, &bytes)) {
        gw_peer_map_find(coll->peer_map, (const void *)((uintptr_t)op->in + offset), bytes, &coll->own_in);
        coll->own_in.offset -= offset;
        if (!coll->own_in.version) coll->own_in.offset = coll->reads && !coll_reduces(op) ? (uintptr_t)op->in : 0;
    }
    if (!gw_shm_coll_needs_out(coll, op, coll->self, &offset, &bytes)) return;
    gw_peer_map_find(coll->peer_map, (const void *)((uintptr_t)op->out + offset), bytes, &coll->own_out);
    coll->own_out.offset = coll->own_out.version ? coll->own_out.offset - offset : 0;
}

static void describe(gw_shm_coll *coll, const gw_shm_coll_op *op) {
    uint32_t entries = coll->peer_map->entries, changes = coll->peer_map->changes;
    if (!coll->own_found || op->in != coll->last_op.in || op->out != coll->last_op.out ||
        entries != coll->own_entries || changes != coll->own_changes) {
        find_own(coll, op);
        coll->own_registered = gw_shm_coll_find_registered(coll);
        coll->last_op.in = op->in;
        coll->last_op.out = op->out;
        coll->own_entries = entries;
        coll->own_changes = changes;
        coll->own_found = true;
    }
    if (coll->own_registered && !gw_shm_coll_lend(coll, op)) return describe(coll, op);
    memcpy(coll->own_call.signature, op->signature, sizeof coll->own_call.signature);
    coll->own_call.in = coll->own_in;
    coll->own_call.out = coll->own_out;
}

static bool is_shared(const gw_shm_ref *ref) { return ref->version && ref->version != COLL_NOT_NEEDED; }

/* True if this rank copies its data into the slot at once: an operation on little private data. If all members do so,
 * one arrival is enough. */
static bool fits_slots(const gw_shm_coll *coll, const gw_shm_coll_op *op) {
    const coll_call *call = &coll->own_call;
    size_t own = op->count * coll->element, read = coll_reduces(op) ? own * (size_t)(coll->members - 1) : own;
    bool little = own <= COLL_SLOT_BYTES && read <= coll->slots_read_bytes; /* a single member reads nothing */
    return little && !is_shared(&call->in) && !is_shared(&call->out);
}

/* The slot is free when all members have finished the operation that used it before. */
static bool slot_is_free(gw_shm_coll *coll) {
    if (coll->all_finished + GW_SHM_COLL_DEPTH > coll->published) return true;
    uint64_t least = UINT64_MAX;
    for (int m = 0; m < coll->members; m++) {
        uint64_t count = atomic_load(&coll->progress[m].finished);
        least = count < least ? count : least;
    }
    coll->all_finished = least;
    return least + GW_SHM_COLL_DEPTH > coll->published;
}

/* Equal except for their buffers. */
static bool same_shape(const gw_shm_coll_op *a, const gw_shm_coll_op *b) {
    return a->task == b->task && a->count == b->count && a->lanes == b->lanes && a->root == b->root &&
           a->dst_wide == b->dst_wide && a->reduction.dtype == b->reduction.dtype &&
           a->reduction.op == b->reduction.op && !a->counts && !b->counts;
}

/* A member that only gives has nothing to wait for: its data is in the segment. If the others make another call, they
 * find out. */
static bool only_gives(const gw_shm_coll *coll, const gw_shm_coll_op *op) {
    switch (op->task) {
    case GW_SHM_TASK_BROADCAST:
    case GW_SHM_TASK_SCATTER: return coll->self == op->root;
    case GW_SHM_TASK_REDUCE:
    case GW_SHM_TASK_GATHER: return coll->self != op->root;
    default: return false;
    }
}

/* Cuts the head operation into parts. */
static void prepare(gw_shm_coll *coll) {
    const gw_shm_coll_op *op = coll_head(coll);
    if (coll->element == 0 || !same_shape(&coll->last_op, op)) { /* 0: this is the first */
        gw_shm_coll_cut(coll);
        gw_shm_coll_plan_small(coll);
        coll->fixed = op->count * coll->element <= coll->fixed_bytes;
        coll->inlined = is_inline(coll, op);
        coll->only_gives = coll->inlined && only_gives(coll, op);
        coll->last_op = *op;
        coll->own_found = coll->resolved = false;
        coll->chunks_mode = COLL_INLINE;
    }
    coll->mode = coll->inlined ? COLL_INLINE : COLL_DIRECT;
    coll->seen = coll->pulled = 0;
    coll->pulled_bytes = 0;
    coll->over = false;
    coll->prepared = true;
}

/* Whether the operation is staged, whatever memory the others have. A source that cannot be read must be staged; a
 * source that can may be pulled. */
static bool is_surely_staged(const gw_shm_coll *coll, const gw_shm_coll_op *op) {
    const coll_call *call = &coll->own_call;
    if (coll_reduces(op)) return !call->in.version || !call->out.version;
    return (!call->in.version && !coll->reads) || (coll->own_wishes & COLL_IN_PLACE);
}

/* The copy-in of an operation that is surely staged need not wait for the arrival of the others. */
static void plan_early(gw_shm_coll *coll, const gw_shm_coll_op *op) {
    const coll_call *call = &coll->own_call;
    if (!is_surely_staged(coll, op)) return;
    coll->mode = COLL_STAGED;
    coll->sides[coll->self].in_private = !call->in.version;
    gw_shm_coll_plan_chunks(coll);
}

static void publish_cpu(gw_shm_coll *coll) {
    int cpu = sched_getcpu();
    if (cpu == coll->cpu) return;
    coll->cpu = cpu;
    atomic_store_explicit(&coll->progress[coll->self].cpu, (uint32_t)cpu, memory_order_relaxed);
}

/* Else the first operations would fault it in, and be measured to be slow. */
static void populate_stage(gw_shm_coll *coll) {
    if (coll->populated) return;
    coll->populated = true;
    gw_segment_populate(coll->stage, (size_t)coll->members * gw_shm_coll_stage_bytes(coll->members));
}

/* Writes the call into this rank's entry. True: the data goes into the slot. */
static bool publish_call(gw_shm_coll *coll, coll_entry *entry, const gw_shm_coll_op *op) {
    describe(coll, op);
    bool in_slots = fits_slots(coll, op);
    coll->own_wishes = 0;
    if (op->task == GW_SHM_TASK_ALLTOALL && op->in == op->out) coll->own_wishes |= COLL_IN_PLACE;
    if (!in_slots && !coll_reduces(op) && gw_shm_coll_would_pull(coll, op)) coll->own_wishes |= COLL_PULLS;
    if (!coll_reduces(op)) atomic_store_explicit(&entry->wishes, coll->own_wishes, memory_order_relaxed);
    if (!in_slots && !coll_reduces(op)) populate_stage(coll);
    if (in_slots) coll->own_call.in = (gw_shm_ref){.id = COLL_FITS_SLOTS, .offset = coll->own_call.in.offset};
    else plan_early(coll, op);
    entry->call = coll->own_call;
    if (coll->fixed) return in_slots;
    atomic_store_explicit(&entry->next, 0, memory_order_relaxed);
    atomic_store_explicit(&entry->done, 0, memory_order_relaxed);
    return in_slots;
}

/* An operation that is not inline is published only when it is the head, because parts are cut for the head alone. */
static bool publish(gw_shm_coll *coll) {
    const gw_shm_coll_op *op = &coll->ops[coll->published % GW_SHM_COLL_DEPTH];
    bool at_head = coll->published == coll->finished, in_slots = false;
    if (at_head) prepare(coll);
    bool inlined = at_head ? coll->inlined : is_inline(coll, op);
    if ((!inlined && !at_head) || !slot_is_free(coll)) return false;
    coll_entry *entry = coll_entry_of(coll, coll->published, coll->self);
    if (coll->oversubscribed) publish_cpu(coll);
    if (op->signature[0] & GW_SHM_COLL_THREE_WORDS) entry->third_word = op->signature[2];
    entry->finished = coll->finished;
    if (inlined) {
        memcpy(entry->call.signature, op->signature, sizeof entry->call.signature);
        gw_shm_coll_fill_inline(coll, coll->published);
    } else {
        in_slots = publish_call(coll, entry, op);
    }
    coll->published++;
    coll_signal(coll, &entry->arrived, coll->published);
    if (in_slots) gw_shm_coll_fill_slot(coll, entry, coll_data_of(coll, coll->finished, coll->self), op);
    if (!inlined && coll->fixed && coll->resolved) gw_shm_coll_prefetch_direct(coll);
    if (!inlined && !coll->fixed) gw_shm_coll_wake(coll);
    return true;
}

void gw_shm_coll_start(gw_shm_coll *coll, const gw_shm_coll_op *op) {
    coll->ops[coll->started % GW_SHM_COLL_DEPTH] = *op;
    coll->started++;
    if (coll->started - coll->published == 1 && !coll->failed) publish(coll);
}

int gw_shm_coll_awaited(const gw_shm_coll *coll) {
    if (coll->finished == coll->started || !coll->page) return -1;
    for (int m = 0; m < coll->members; m++) {
        if (m == coll->self) continue;
        if (atomic_load(&coll_entry_of(coll, coll->finished, m)->arrived) <= coll->finished) return coll->ranks[m];
    }
    for (int m = 0; m < coll->members; m++) /* all have arrived: find one that has not finished */
        if (m != coll->self && atomic_load(&coll->progress[m].finished) <= coll->finished) return coll->ranks[m];
    return -1;
}

bool gw_shm_coll_core_is_idle(const gw_shm_coll *coll) {
    if (coll->cpu < 0 || coll->finished == coll->published || coll->mode == COLL_STAGED || coll->mode == COLL_PULL)
        return false;
    for (int m = 0; m < coll->members; m++) {
        bool came = atomic_load(&coll_entry_of(coll, coll->finished, m)->arrived) > coll->finished;
        uint32_t cpu = atomic_load_explicit(&coll->progress[m].cpu, memory_order_relaxed);
        if (!came && cpu == (uint32_t)coll->cpu) return false;
    }
    return true;
}

uint64_t gw_shm_coll_finished(const gw_shm_coll *coll, int rank) {
    for (int m = 0; coll->page && m < coll->members; m++)
        if (coll->ranks[m] == rank) return atomic_load(&coll->progress[m].finished);
    return UINT64_MAX;
}

void gw_shm_coll_signature(const gw_shm_coll *coll, int rank, uint64_t signature[GW_SHM_COLL_SIGNATURE]) {
    for (int m = 0; m < coll->members; m++) {
        if (coll->ranks[m] != rank) continue;
        const coll_entry *entry = coll_entry_of(coll, coll->finished, m);
        memcpy(signature, entry->call.signature, sizeof entry->call.signature);
        signature[2] = signature[0] & GW_SHM_COLL_THREE_WORDS ? entry->third_word : 0;
    }
}

/* True once all members have arrived at the head operation. */
static bool all_arrived(gw_shm_coll *coll) {
    while (coll->seen < coll->members &&
           atomic_load(&coll_entry_of(coll, coll->finished, coll->seen)->arrived) == coll->finished + 1)
        coll->seen++;
    return coll->seen == coll->members;
}

static void end_large(gw_shm_coll *coll) {
    gw_shm_coll_release(coll);
    gw_shm_coll_choice_end(coll);
    if (coll->own_registered) gw_shm_coll_take_back(coll);
}

/* Other cores hold the lines of the next slot since its last use. Prefetches for writing those that this rank writes if
 * the next operation is like the last one. */
static void prefetch_next(const gw_shm_coll *coll) {
    coll_entry *next = coll_entry_of(coll, coll->finished, coll->self);
    size_t gives = coll->sides[coll->self].gives.length;
    __builtin_prefetch(&next->arrived, 1);
    if (coll->mode != COLL_INLINE) __builtin_prefetch(&next->served, 1);
    else if (gives > sizeof next->nearest && gives <= sizeof next->near)
        for (size_t at = 0; at < gives; at += GW_CACHE_LINE) __builtin_prefetch(next->near + at, 1);
}

/* The store of `finished` wakes nobody. A member that waits for it, to reuse a slot, also waits for this rank's arrival
 * at the slot's next operation, and that arrival wakes the member. */
static void finish(gw_shm_coll *coll) {
    if (coll->mode != COLL_INLINE) end_large(coll);
    if (coll->mode == COLL_STAGED) coll->first_window += coll->window_count;
    coll->prepared = coll->arrived = false;
    coll->finished++;
    if (coll->finished % COLL_SWEEP == 0) gw_peer_map_sweep(coll->peer_map);
    atomic_store_explicit(&coll->progress[coll->self].finished, coll->finished, memory_order_release);
    prefetch_next(coll);
}

/* Works on the head operation. */
static gw_status advance(gw_shm_coll *coll, size_t *budget, bool *moved, gw_error *error) {
    bool done = false;
    gw_status status = GW_OK;
    if (!coll->prepared) prepare(coll);
    if (!coll->arrived && !coll->only_gives) {
        if (!all_arrived(coll)) {
            if (coll->mode == COLL_STAGED) *moved = gw_shm_coll_fill_staged(coll, budget) || *moved;
            return GW_OK;
        }
        status = gw_shm_coll_begin(coll, error);
        if (status) return status;
    }
    switch (coll->mode) {
    case COLL_INLINE:
        gw_shm_coll_work_inline(coll);
        *moved = done = true;
        break;
    case COLL_SLOTS: *moved = (done = gw_shm_coll_work_slots(coll)) || *moved; break;
    case COLL_DIRECT: *moved = gw_shm_coll_work_direct(coll, budget, &done) || *moved; break;
    case COLL_STAGED: *moved = gw_shm_coll_work_staged(coll, budget, &done) || *moved; break;
    case COLL_PULL: status = gw_shm_coll_work_pull(coll, budget, moved, &done, error); break;
    }
    if (status || !done) return status;
    status = gw_shm_coll_check_abort(coll, error);
    if (!status) finish(coll);
    return status;
}

static inline void pause_core(void) {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#endif
}

/* spins: how often to poll while nothing moves. */
static gw_status work(gw_shm_coll *coll, int spins, bool *moved, gw_error *error) {
    size_t budget = COLL_QUANTUM_BYTES;
    gw_status status = GW_OK;
    if (coll->failed) status = gw_fail(error, GW_ABORTED, "this host-local collective has failed before");
    while (!status && spins > 0 && coll->finished < coll->started && budget) {
        uint64_t before = coll->finished;
        bool any = false;
        while (coll->published < coll->started && publish(coll)) any = true;
        if (coll->finished < coll->published) status = advance(coll, &budget, &any, error);
        *moved = *moved || any;
        if (coll->finished > before) continue;
        spins--;
        if (!any && spins) pause_core();
    }
    if (!status && !*moved && coll->finished < coll->started) status = gw_shm_coll_check_abort(coll, error);
    if (status) coll->failed = true;
    if (coll->wake_pending) gw_shm_coll_wake(coll);
    return status;
}

gw_status gw_shm_coll_poll(gw_shm_coll *coll, uint64_t *completed, bool *moved, gw_error *error) {
    bool any = false;
    gw_status status = work(coll, 1, &any, error);
    if (moved) *moved = any;
    *completed = coll->finished;
    return status;
}

gw_status gw_shm_coll_spin(gw_shm_coll *coll, uint64_t *completed, gw_error *error) {
    bool any = false;
    gw_status status = work(coll, COLL_SPINS, &any, error);
    *completed = coll->finished;
    return status;
}

void gw_shm_coll_blame(gw_shm_coll *coll, const gw_error *error) { coll->cause = *error; }

/* The first member that gives up says why. */
static void give_up(gw_shm_coll *coll) {
    coll_page *page = coll->page;
    uint32_t none = 0, mine = (uint32_t)coll->self + 1;
    if (!atomic_compare_exchange_strong(&page->gives_up, &none, mine)) return;
    page->culprit = coll->cause.status ? coll->cause.rank : coll->ranks[coll->self];
    snprintf(page->cause, sizeof page->cause, "%.*s", COLL_CAUSE_BYTES - 1, coll->cause.text);
    atomic_store(&page->aborted, mine);
}

/* Peers may still write into some buffers of this rank. Moves these out of the peers' reach, before the caller gets
 * them back. */
static void quarantine(gw_shm_coll *coll) {
    give_up(coll);
    gw_shm_coll_wake(coll);
    for (uint64_t index = coll->finished; index < coll->published; index++) {
        const gw_shm_coll_op *op = &coll->ops[index % GW_SHM_COLL_DEPTH];
        gw_shm_ref now;
        if (is_inline(coll, op) || coll->own_call.out.version % 2 == 0) continue;
        if (gw_peer_map_find(coll->peer_map, op->out, 1, &now) && now.version == coll->own_call.out.version)
            gw_peer_map_renew(coll->peer_map, now.id, NULL);
    }
}

void gw_shm_coll_close(gw_shm_coll *coll) {
    if (!coll) return;
    if (coll->page && coll->finished < coll->started) quarantine(coll);
    if (coll->sides) gw_shm_coll_release(coll);
    if (coll->page && coll->self == 0) gw_peer_map_unshare(coll->peer_map, coll->page);
    gw_peer_map_unpin(coll->mapping);
    free(coll->dst);
    free(coll->src);
    free(coll->sides);
    free(coll->ranks);
    free(coll);
}
