/* board_direct.c - operations on buffers that every member reaches: each part is combined once, where it lies, and
 * pushed into all outputs.
 *
 * A part is cut into chunks that are claimed by an atomic counter. Members claim from their own part first (its counter
 * stays in their cache) and then from those of others. Where parts are small and every member has a core, each is left
 * to its owner: claims would move more lines than the data has. */
#include "transport/board_page.h"

#define EXPECTED_BYTES 4096 /* lines that a core can ask for without waiting, and a few */

static void do_chunk(gw_board *board, int owner, size_t offset, size_t count) {
    const gw_board_op *op = board_head(board);
    size_t at = offset * board->element, out_at = offset * gw_board_out_bytes(board);
    int sources = 0, destinations = 0;
    for (int m = 0; m < board->members; m++) {
        const board_side *side = &board->sides[m];
        if (board_reduces(op)) board->src[sources++] = side->in + at;
        if (m == owner || !board_only_owner_gets(op)) board->dst[destinations++] = side->out + out_at;
    }
    const board_side *own = &board->sides[owner];
    if (!board_reduces(op)) board->src[sources++] = (op->task == GW_BOARD_ALLGATHER ? own->out : own->in) + at;
    gw_board_combine(op, board->dst, destinations, board->src, sources, count);
}

static uint64_t chunks_of(const gw_board *board, int owner) {
    return (board->sides[owner].length + board->step - 1) / board->step;
}

/* Works on the chunks of one part until none is left to claim, or the budget is spent. */
static bool work_on_part(gw_board *board, int owner, size_t *budget) {
    board_entry *entry = board_entry_of(board, board->finished, owner);
    const board_side *part = &board->sides[owner];
    uint64_t chunks = chunks_of(board, owner);
    bool moved = false;
    while (*budget && atomic_load_explicit(&entry->next, memory_order_relaxed) < chunks) {
        uint64_t chunk = atomic_fetch_add_explicit(&entry->next, 1, memory_order_relaxed);
        if (chunk >= chunks) break;
        size_t begin = (size_t)chunk * board->step, count = board_min(board->step, part->length - begin);
        do_chunk(board, owner, part->offset + begin, count);
        *budget -= board_min(*budget, count * board->element);
        moved = true;
        if (atomic_fetch_add(&entry->done, 1) + 1 == chunks) gw_board_ring(board);
    }
    return moved;
}

/* The own part of the others' buffers is going to be read and written: one way over for each line, if it is asked for
 * as what will be written. Sides are those of the last operation, which the buffers of this one are likely to be in;
 * if they are not, nothing is lost. It is asked for before the others are known to have come, so that who comes last
 * does not wait for their arrivals and then once more for the data (4 KiB between two: 0.34 us instead of 0.39). Who
 * comes first may take lines that their owner is about to write, and costs it the way back for those few. */
void gw_board_expect_direct(gw_board *board) {
    const board_side *own = &board->sides[board->self];
    size_t begin = own->offset * board->element, end = begin + board_min(own->length * board->element, EXPECTED_BYTES);
    if (board->settled != BOARD_DIRECT) return;
    for (int m = 0; m < board->members; m++) __builtin_prefetch(&board_entry_of(board, board->finished, m)->arrived);
    for (int m = 0; m < board->members; m++) {
        const uint8_t *at = board->sides[m].in;
        if (m == board->self || !at || at != board->sides[m].out) continue;
        for (size_t byte = begin; byte < end; byte += GW_LINE) __builtin_prefetch(at + byte, 1);
    }
}

static bool do_own_part(gw_board *board) {
    board_entry *entry = board_entry_of(board, board->finished, board->self);
    const board_side *part = &board->sides[board->self];
    uint64_t now = board->finished + 1;
    if (atomic_load_explicit(&entry->served, memory_order_relaxed) == now) return false;
    if (part->length) do_chunk(board, board->self, part->offset, part->length);
    board_tell(board, &entry->served, now);
    return true;
}

bool gw_board_all_served(gw_board *board) {
    for (int m = 0; m < board->members; m++)
        if (atomic_load(&board_entry_of(board, board->finished, m)->served) != board->finished + 1) return false;
    return true;
}

bool gw_board_direct_done(gw_board *board) {
    if (board->fixed) return gw_board_all_served(board);
    for (int m = 0; m < board->members; m++)
        if (atomic_load(&board_entry_of(board, board->finished, m)->done) < chunks_of(board, m)) return false;
    return true;
}

bool gw_board_work_direct(gw_board *board, size_t *budget, bool *done) {
    bool moved = board->fixed && do_own_part(board);
    for (int i = 0; !board->fixed && i < board->members && *budget; i++)
        moved = work_on_part(board, (board->self + i) % board->members, budget) || moved;
    *done = gw_board_direct_done(board);
    return moved || *done;
}
