/* board_staged.c - operations on memory that others cannot reach, through staging areas of the board.
 *
 * Every member owns a part. A window is one piece of each part; windows follow each other through BOARD_BUFFERS
 * buffers, and each member does three things to a window, each when its time has come:
 *
 *   fill    copy the own input's pieces, those of other owners only, into the own staging area
 *           (when all owners have combined the window that used the buffer before)
 *   reduce  combine the own piece from the own input and the staged (or shared) ones of all others into the own output,
 *           the shared outputs, and the staging area's result (when all have filled; all have drained the one before)
 *   drain   copy the results of the other owners into the own output (when all have reduced)
 *
 * A member whose memory is shared skips fill and drain: others reach it.
 *
 * Reading across processes instead (process_vm_readv) would need no copying in, but was measured to be slower at every
 * size, by a quarter with a core for each rank and by half with fewer: the kernel looks up every page it touches. */
#include "transport/board_page.h"
#include "transport/copy.h"

size_t gw_board_piece_bytes(int members) {
    size_t piece = (size_t)BOARD_WINDOW_BYTES / (size_t)members / 4096 * 4096;
    return piece < 4096 ? 4096 : piece;
}

/* Of one buffer of one member: a piece for each owner, then its own result, which may be wide. */
static size_t buffer_bytes(int members) {
    return gw_board_piece_bytes(members) * ((size_t)members + BOARD_WIDEN_MAX);
}

size_t gw_board_stage_bytes(int members) { return BOARD_BUFFERS * buffer_bytes(members); }

static uint8_t *buffer_of(gw_board *board, int member, uint64_t window) {
    return board->stage + (size_t)member * gw_board_stage_bytes(board->members) +
           (size_t)(window % BOARD_BUFFERS) * buffer_bytes(board->members);
}

static uint8_t *staged_input(gw_board *board, int member, uint64_t window, int owner) {
    return buffer_of(board, member, window) + (size_t)owner * gw_board_piece_bytes(board->members);
}

static uint8_t *staged_result(gw_board *board, int owner, uint64_t window) {
    return staged_input(board, owner, window, board->members);
}

/* The range of a window's piece of an owner's part; its length, 0 if the part has ended. */
static size_t piece_of(const gw_board *board, uint64_t window, int owner, size_t *offset) {
    const board_side *part = &board->sides[owner];
    size_t begin = (size_t)(window - board->window) * board->step;
    if (begin >= part->length) return 0;
    *offset = part->offset + begin;
    return board_min(board->step, part->length - begin);
}

typedef enum counter { FILLED, REDUCED, DRAINED } counter;

static _Atomic uint64_t *counter_of(gw_board *board, int member, counter which) {
    board_progress *progress = &board->progress[member];
    return which == FILLED ? &progress->filled : which == REDUCED ? &progress->reduced : &progress->drained;
}

static bool all_reached(gw_board *board, counter which, uint64_t windows) {
    for (int m = 0; m < board->members; m++)
        if (atomic_load(counter_of(board, m, which)) < windows) return false;
    return true;
}

/* The window that used this one's buffer before has been passed by all. */
static bool buffer_is_free(gw_board *board, counter which, uint64_t window) {
    return window < BOARD_BUFFERS || all_reached(board, which, window - BOARD_BUFFERS + 1);
}

static uint64_t own_counter(gw_board *board, counter which) {
    return atomic_load_explicit(counter_of(board, board->self, which), memory_order_relaxed);
}

static void advance(gw_board *board, counter which, uint64_t windows) {
    board_tell(board, counter_of(board, board->self, which), windows);
    if (!board->fixed) gw_board_ring(board);
}

static void stage(gw_board *board, uint64_t window, int owner, const uint8_t *from, size_t bytes) {
    uint8_t *at = staged_input(board, board->self, window, owner);
    gw_board_probe(board, window, owner, at, from, bytes);
    if (gw_board_streams(board, window)) gw_copy_past(at, from, bytes);
    else gw_copy(at, from, bytes);
}

static size_t fill_window(gw_board *board, uint64_t window) {
    const uint8_t *in = board_head(board)->in;
    size_t offset, copied = 0;
    for (int owner = 0; owner < board->members; owner++) {
        size_t bytes = owner == board->self ? 0 : piece_of(board, window, owner, &offset) * board->element;
        if (bytes) stage(board, window, owner, in + offset * board->element, bytes);
        copied += bytes;
    }
    return copied;
}

bool gw_board_fill_staged(gw_board *board, size_t *budget) {
    uint64_t end = board->window + board->steps, window = own_counter(board, FILLED);
    if (window == end) return false;
    if (!board_reduces(board_head(board)) || !board->sides[board->self].in_private) {
        advance(board, FILLED, end);
        return true;
    }
    if (!buffer_is_free(board, REDUCED, window)) return false;
    *budget -= board_min(*budget, fill_window(board, window));
    advance(board, FILLED, window + 1);
    return true;
}

/* Where a member's input for the own piece can be read. */
static const uint8_t *source_of(gw_board *board, int member, uint64_t window, size_t offset) {
    const board_side *side = &board->sides[member];
    if (side->in) return side->in + offset * board->element;
    return staged_input(board, member, window, board->self);
}

static size_t reduce_window(gw_board *board, uint64_t window) {
    const gw_board_op *op = board_head(board);
    size_t offset, count = piece_of(board, window, board->self, &offset);
    if (count == 0) return 0;
    int sources = 0, destinations = 0;
    bool staged = false, past = gw_board_streams(board, window);
    for (int m = 0; m < board->members; m++) {
        const board_side *side = &board->sides[m];
        if (board_reduces(op)) board->src[sources++] = source_of(board, m, window, offset);
        if (m != board->self && board_only_owner_gets(op)) continue;
        if (side->out) board->dst[destinations++] = side->out + offset * gw_board_out_bytes(board);
        else staged = true;
    }
    const board_side *own = &board->sides[board->self];
    if (!board_reduces(op))
        board->src[sources++] = (op->task == GW_BOARD_ALLGATHER ? own->out : own->in) + offset * board->element;
    if (staged && !past) board->dst[destinations++] = staged_result(board, board->self, window);
    gw_board_combine(op, board->dst, destinations, board->src, sources, count);
    if (staged && past) /* the own output has it too */
        gw_copy_past(staged_result(board, board->self, window), own->out + offset * board->element,
                     count * board->element);
    return count * board->element;
}

static size_t drain_window(gw_board *board, uint64_t window) {
    const gw_board_op *op = board_head(board);
    size_t offset = 0, copied = 0;
    if (!board->sides[board->self].out_private || board_only_owner_gets(op)) return 0;
    for (int i = 1; i < board->members; i++) {
        int owner = (board->self + i) % board->members;
        size_t bytes = piece_of(board, window, owner, &offset) * board->element, at = offset * board->element;
        if (bytes) gw_copy((uint8_t *)op->out + at, staged_result(board, owner, window), bytes);
        copied += bytes;
    }
    return copied;
}

bool gw_board_work_staged(gw_board *board, size_t *budget, bool *done) {
    uint64_t end = board->window + board->steps;
    bool moved = false, more = true;
    while (more && *budget) {
        more = gw_board_fill_staged(board, budget);
        uint64_t window = own_counter(board, REDUCED);
        if (window < end && all_reached(board, FILLED, window + 1) && buffer_is_free(board, DRAINED, window)) {
            *budget -= board_min(*budget, reduce_window(board, window));
            advance(board, REDUCED, window + 1);
            more = true;
        }
        window = own_counter(board, DRAINED);
        if (window < end && all_reached(board, REDUCED, window + 1)) {
            *budget -= board_min(*budget, drain_window(board, window));
            advance(board, DRAINED, window + 1);
            more = true;
        }
        moved = moved || more;
    }
    *done = own_counter(board, DRAINED) == end;
    return moved || *done;
}
