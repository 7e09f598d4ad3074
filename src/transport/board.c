/* board.c - opening a board, arriving at operations, choosing their way, leaving them. */
#include "transport/board.h"

#include "base/dtype.h"
#include "transport/board_page.h"
#include "transport/shm.h"

#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static size_t slots_bytes(int members) {
    return GW_BOARD_DEPTH * (size_t)members * (sizeof(board_entry) + sizeof(board_data));
}

static size_t segment_bytes(int members) {
    return gw_segment_round(sizeof(board_page) + (size_t)members * sizeof(board_progress) + slots_bytes(members)) +
           (size_t)members * gw_board_stage_bytes(members);
}

/* Every member sees the same layout. */
static void lay_out(gw_board *board, void *base) {
    uint8_t *at = base;
    size_t members = (size_t)board->members;
    board->page = base;
    board->progress = (board_progress *)(at + sizeof(board_page));
    board->entries = (board_entry *)(at + sizeof(board_page) + members * sizeof(board_progress));
    board->data = (board_data *)(board->entries + GW_BOARD_DEPTH * members);
    board->stage = at + segment_bytes(board->members) - members * gw_board_stage_bytes(board->members);
}

/* With a core for each member a second synchronisation soon costs less than reading everyone's private data; without,
 * it costs a change of process. Likewise a small part is soon done by its owner, but not by one without a core. The
 * first member decides for all. */
static void set_limits(board_page *page, int members) {
    bool crowded = members > sysconf(_SC_NPROCESSORS_ONLN);
    page->crowded = crowded;
    page->inline_bytes = crowded ? BOARD_SLOT_BYTES : BOARD_INLINE_BYTES;
    page->carried_bytes = crowded ? UINT32_MAX : BOARD_CARRIED_BYTES;
    page->fixed_bytes = crowded ? 0 : BOARD_FIXED_BYTES;
}

void gw_board_ring(gw_board *board) {
    board->news = false;
    gw_harbour_fence();
    for (int m = 0; m < board->members; m++) {
        gw_harbour_peer *peer = &board->harbour->peers[board->ranks[m]];
        if (m != board->self && gw_harbour_sleeps(peer->page)) gw_harbour_ring(board->harbour, board->ranks[m]);
    }
}

gw_status gw_board_open(gw_board **out, gw_transport *transport, const int *members, int count, int self,
                        uint64_t key, gw_error *error) {
    for (int m = 0; m < count; m++)
        if (m != self && !gw_shm_reaches(transport, members[m]))
            return gw_fail_rank(error, GW_UNSUPPORTED, members[m], "rank %d cannot be reached through shared memory",
                                members[m]);
    gw_board *board = calloc(1, sizeof *board);
    if (!board) return gw_fail(error, GW_MEMORY, "no memory for a board");
    *board = (gw_board){.harbour = gw_shm_harbour(transport), .members = count, .self = self, .key = key, .cpu = -1};
    board->ranks = malloc((size_t)count * sizeof *board->ranks);
    board->sides = calloc((size_t)count, sizeof *board->sides);
    board->src = calloc((size_t)count, sizeof *board->src);
    board->dst = calloc((size_t)count + 1, sizeof *board->dst);
    gw_status status = GW_OK;
    if (!board->ranks || !board->sides || !board->src || !board->dst)
        status = gw_fail(error, GW_MEMORY, "no memory for a board of %d members", count);
    if (!status) memcpy(board->ranks, members, (size_t)count * sizeof *members);
    if (!status && self == 0) {
        void *base = gw_harbour_share(board->harbour, segment_bytes(count), key, false, error);
        if (base) lay_out(board, base);
        else status = GW_MEMORY;
        if (base) set_limits(board->page, count);
    }
    if (status) gw_board_close(board);
    else *out = board;
    return status;
}

/* Looks for what the first member has published. */
static gw_status find_page(gw_board *board, gw_error *error) {
    uint64_t bytes;
    gw_shared where = gw_harbour_lookup(board->harbour, board->ranks[0], board->key, &bytes);
    if (!where.version) return GW_OK;
    if (bytes != segment_bytes(board->members))
        return gw_fail_rank(error, GW_MISMATCH, board->ranks[0],
                            "rank %d opened this board for another number of members than %d", board->ranks[0],
                            board->members);
    board->mapping = gw_harbour_pin(board->harbour, board->ranks[0], where, error);
    if (!board->mapping) return error->status;
    lay_out(board, board->mapping->segment.base);
    return GW_OK;
}

gw_status gw_board_attach(gw_board *board, bool *attached, gw_error *error) {
    *attached = false;
    gw_status status = board->page ? GW_OK : find_page(board, error);
    if (status || !board->page) return status;
    if (!board->joined) {
        board->joined = true;
        atomic_fetch_add(&board->page->joined, 1);
        gw_board_ring(board);
    }
    *attached = atomic_load(&board->page->joined) == (uint32_t)board->members;
    return GW_OK;
}

bool gw_board_free(const gw_board *board) { return board->started - board->finished < GW_BOARD_DEPTH; }

/* Of an all-reduce private data is carried, so that shared data need not be copied. */
static bool goes_inline(const gw_board *board, const gw_board_op *op) {
    size_t bytes = op->count * gw_dtype_bytes(op->reduction.dtype);
    size_t most = op->task == GW_BOARD_ALLREDUCE ? BOARD_INLINE_BYTES : board->page->inline_bytes;
    return op->task == GW_BOARD_BARRIER || bytes <= most;
}

static bool needs_in(const gw_board_op *op, int member) {
    return board_reduces(op) || (op->task == GW_BOARD_BROADCAST && member == op->root);
}

/* What lies where. Offsets are those of the buffer's beginning, which may lie before the segment where only a later
 * range of it is used. */
static void find_own(gw_board *board, const gw_board_op *op) {
    size_t offset, bytes, in_bytes = op->count * gw_dtype_bytes(op->reduction.dtype);
    board->own_in = board->own_out = (gw_shared){.version = BOARD_NOT_NEEDED};
    if (needs_in(op, board->self)) gw_harbour_find(board->harbour, op->in, in_bytes, &board->own_in);
    if (!gw_board_needs_out(board, op, board->self, &offset, &bytes)) return;
    gw_harbour_find(board->harbour, (const void *)((uintptr_t)op->out + offset), bytes, &board->own_out);
    board->own_out.offset -= offset;
}

static void describe(gw_board *board, board_entry *entry, const gw_board_op *op) {
    uint32_t entries = atomic_load_explicit(&board->harbour->page->entries, memory_order_relaxed);
    uint32_t changes = atomic_load_explicit(&board->harbour->page->changes, memory_order_relaxed);
    if (!board->described || op->in != board->like.in || op->out != board->like.out ||
        entries != board->own_entries || changes != board->own_changes) {
        find_own(board, op);
        board->like.in = op->in;
        board->like.out = op->out;
        board->own_entries = entries;
        board->own_changes = changes;
        board->described = true;
    }
    entry->call.in = board->own_in;
    entry->call.out = board->own_out;
}

/* Private data that is little enough is laid down in the board at once: if all do so, one arrival is enough. */
static bool carries(const gw_board *board, const board_call *call, const gw_board_op *op) {
    size_t own = op->count * board->element, read = own * (size_t)(board->members - 1);
    bool little = own <= BOARD_SLOT_BYTES && read <= board->page->carried_bytes; /* of one member nothing is read */
    return op->task == GW_BOARD_ALLREDUCE && !call->in.version && !call->out.version && little;
}

/* The slot is free when all have left the operation that used it before. */
static bool slot_is_free(gw_board *board) {
    if (board->all_left + GW_BOARD_DEPTH > board->published) return true;
    uint64_t least = UINT64_MAX;
    for (int m = 0; m < board->members; m++) {
        uint64_t left = atomic_load(&board->progress[m].left);
        least = left < least ? left : least;
    }
    board->all_left = least;
    return least + GW_BOARD_DEPTH > board->published;
}

/* Alike but for their buffers. */
static bool alike(const gw_board_op *a, const gw_board_op *b) {
    return a->task == b->task && a->count == b->count && a->lanes == b->lanes && a->root == b->root &&
           a->dst_wide == b->dst_wide && a->reduction.dtype == b->reduction.dtype &&
           a->reduction.op == b->reduction.op && !a->counts && !b->counts;
}

/* Cuts the head operation into parts. */
static void prepare(gw_board *board) {
    const gw_board_op *op = board_head(board);
    if (board->element == 0 || !alike(&board->like, op)) { /* 0: it is the first */
        gw_board_cut(board);
        board->fixed = op->count * board->element <= board->page->fixed_bytes;
        board->like = *op;
        board->described = board->resolved = false;
        board->stepped = BOARD_INLINE;
    }
    board->mode = goes_inline(board, op) ? BOARD_INLINE : BOARD_DIRECT;
    board->seen = 0;
    board->prepared = true;
}

/* Private memory means staging, whatever the others have: copying in need not wait for them. */
static void plan_early(gw_board *board, const board_call *call) {
    if (call->in.version && call->out.version) return;
    board->mode = BOARD_STAGED;
    board->sides[board->self].in_private = !call->in.version;
    gw_board_plan_steps(board);
}

static void tell_cpu(gw_board *board) {
    int cpu = sched_getcpu();
    if (cpu == board->cpu) return;
    board->cpu = cpu;
    atomic_store_explicit(&board->progress[board->self].cpu, (uint32_t)cpu, memory_order_relaxed);
}

/* Only the head is published where buffers are described, because parts are known for the head alone. */
static bool publish(gw_board *board) {
    const gw_board_op *op = &board->ops[board->published % GW_BOARD_DEPTH];
    bool at_head = board->published == board->finished, inlined = goes_inline(board, op), carried = false;
    if ((!inlined && !at_head) || !slot_is_free(board)) return false;
    board_entry *entry = board_entry_of(board, board->published, board->self);
    uint8_t *data = board_data_of(board, board->published, board->self);
    if (at_head) prepare(board);
    if (board->page->crowded) tell_cpu(board);
    memcpy(entry->call.signature, op->signature, sizeof entry->call.signature);
    entry->left = board->finished;
    if (inlined) gw_board_fill_inline(board, board_inline_of(board, board->published, board->self), op);
    else describe(board, entry, op);
    if (!inlined && (carried = carries(board, &entry->call, op))) entry->call.in.id = BOARD_CARRIES;
    else if (!inlined) plan_early(board, &entry->call);
    if (!inlined && !board->fixed) {
        atomic_store_explicit(&entry->next, 0, memory_order_relaxed);
        atomic_store_explicit(&entry->done, 0, memory_order_relaxed);
    }
    board->published++;
    board_tell(board, &entry->arrived, board->published);
    if (carried) gw_board_fill_carried(board, entry, data, op);
    if (!inlined && board->fixed && board->resolved) gw_board_expect_direct(board);
    if (!inlined && !board->fixed) gw_board_ring(board);
    return true;
}

void gw_board_start(gw_board *board, const gw_board_op *op) {
    board->ops[board->started % GW_BOARD_DEPTH] = *op;
    board->started++;
    if (board->started - board->published == 1 && !board->failed) publish(board);
}

int gw_board_awaited(const gw_board *board) {
    if (board->finished == board->started || !board->page) return -1;
    for (int m = 0; m < board->members; m++) {
        if (m == board->self) continue;
        if (atomic_load(&board_entry_of(board, board->finished, m)->arrived) <= board->finished) return board->ranks[m];
    }
    for (int m = 0; m < board->members; m++) /* all came: who has not done its part? */
        if (m != board->self && atomic_load(&board->progress[m].left) <= board->finished) return board->ranks[m];
    return -1;
}

bool gw_board_core_is_idle(const gw_board *board) {
    if (board->cpu < 0 || board->finished == board->published || board->mode == BOARD_STAGED) return false;
    for (int m = 0; m < board->members; m++) {
        bool came = atomic_load(&board_entry_of(board, board->finished, m)->arrived) > board->finished;
        uint32_t cpu = atomic_load_explicit(&board->progress[m].cpu, memory_order_relaxed);
        if (!came && cpu == (uint32_t)board->cpu) return false;
    }
    return true;
}

uint64_t gw_board_left(const gw_board *board, int rank) {
    for (int m = 0; board->page && m < board->members; m++)
        if (board->ranks[m] == rank) return atomic_load(&board->progress[m].left);
    return UINT64_MAX;
}

void gw_board_signature(const gw_board *board, int rank, uint64_t signature[2]) {
    for (int m = 0; m < board->members; m++)
        if (board->ranks[m] == rank)
            memcpy(signature, board_entry_of(board, board->finished, m)->call.signature, 2 * sizeof *signature);
}

/* True once all members have come to the head operation. */
static bool all_arrived(gw_board *board) {
    while (board->seen < board->members &&
           atomic_load(&board_entry_of(board, board->finished, board->seen)->arrived) == board->finished + 1)
        board->seen++;
    return board->seen == board->members;
}

/* Nobody is rung for `left`: who waits for it, to use a slot again, waits for this rank to arrive there too, and will
 * be rung for then. */
static void finish(gw_board *board) {
    gw_board_release(board);
    if (board->mode == BOARD_STAGED) board->window += board->steps;
    board->prepared = board->arrived = false;
    board->finished++;
    if (board->finished % BOARD_SWEEP == 0) gw_harbour_sweep(board->harbour);
    atomic_store_explicit(&board->progress[board->self].left, board->finished, memory_order_release);
    /* Others have read the lines of the next slot when it was used last: they are taken back before they are needed. */
    board_entry *next = board_entry_of(board, board->finished, board->self);
    __builtin_prefetch(&next->arrived, 1);
    __builtin_prefetch(&next->served, 1);
}

/* Works on the head operation. */
static gw_status advance(gw_board *board, size_t *budget, bool *moved, gw_error *error) {
    bool done = false;
    if (!board->prepared) prepare(board);
    if (!board->arrived) {
        if (!all_arrived(board)) {
            if (board->mode == BOARD_STAGED) *moved = gw_board_fill_staged(board, budget) || *moved;
            return GW_OK;
        }
        gw_status status = gw_board_begin(board, error);
        if (status) return status;
    }
    switch (board->mode) {
    case BOARD_INLINE: *moved = gw_board_work_inline(board, &done) || *moved; break;
    case BOARD_CARRIED: *moved = gw_board_work_carried(board, &done) || *moved; break;
    case BOARD_DIRECT: *moved = gw_board_work_direct(board, budget, &done) || *moved; break;
    case BOARD_STAGED: *moved = gw_board_work_staged(board, budget, &done) || *moved; break;
    }
    if (!done) return GW_OK;
    gw_status status = gw_board_check_abort(board, error);
    if (!status) finish(board);
    return status;
}

static inline void pause_core(void) {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#endif
}

/* looks: how often to look while nothing moves. */
static gw_status work(gw_board *board, int looks, bool *moved, gw_error *error) {
    size_t budget = BOARD_QUANTUM_BYTES;
    gw_status status = board->failed ? gw_fail(error, GW_ABORTED, "this board has failed before") : GW_OK;
    while (!status && looks > 0 && board->finished < board->started && budget) {
        uint64_t before = board->finished;
        bool any = false;
        while (board->published < board->started && publish(board)) any = true;
        if (board->finished < board->published) status = advance(board, &budget, &any, error);
        *moved = *moved || any;
        if (board->finished > before) continue;
        looks--;
        if (!any && looks) pause_core();
    }
    if (!status && !*moved && board->finished < board->started) status = gw_board_check_abort(board, error);
    if (status) board->failed = true;
    if (board->news) gw_board_ring(board);
    return status;
}

gw_status gw_board_poll(gw_board *board, uint64_t *completed, bool *moved, gw_error *error) {
    bool any = false;
    gw_status status = work(board, 1, &any, error);
    if (moved) *moved = any;
    *completed = board->finished;
    return status;
}

gw_status gw_board_watch(gw_board *board, uint64_t *completed, gw_error *error) {
    bool any = false;
    gw_status status = work(board, BOARD_LOOKS, &any, error);
    *completed = board->finished;
    return status;
}

/* What peers may still write into is put out of their reach before it is handed back. */
static void quarantine(gw_board *board) {
    uint32_t none = 0;
    atomic_compare_exchange_strong(&board->page->aborted, &none, (uint32_t)board->self + 1);
    gw_board_ring(board);
    for (uint64_t index = board->finished; index < board->published; index++) {
        const board_entry *entry = board_entry_of(board, index, board->self);
        const gw_board_op *op = &board->ops[index % GW_BOARD_DEPTH];
        gw_shared now;
        if (goes_inline(board, op) || entry->call.out.version % 2 == 0) continue;
        if (gw_harbour_find(board->harbour, op->out, 1, &now) && now.version == entry->call.out.version)
            gw_harbour_renew(board->harbour, now.id, NULL);
    }
}

void gw_board_close(gw_board *board) {
    if (!board) return;
    if (board->page && board->finished < board->started) quarantine(board);
    if (board->sides) gw_board_release(board);
    if (board->page && board->self == 0) gw_harbour_unshare(board->harbour, board->page);
    gw_harbour_unpin(board->mapping);
    free(board->dst);
    free(board->src);
    free(board->sides);
    free(board->ranks);
    free(board);
}
