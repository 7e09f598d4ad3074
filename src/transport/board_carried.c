/* board_carried.c - a few KiB of private memory, all-reduced: everyone's data comes in its slot, in pieces.
 *
 * As inline, but a member arrives before it has copied anything, and each piece has a stamp of its own, in the line
 * after it. So others read the first piece while the second is written: lines go both ways at the same time, which
 * takes a fifth to a quarter less than to write all and then read all. */
#include "transport/board_page.h"
#include "transport/copy.h"

#include <assert.h>

#define STRIDE (BOARD_PIECE_BYTES + GW_LINE)

static_assert((BOARD_CARRIED_BYTES + BOARD_PIECE_BYTES - 1) / BOARD_PIECE_BYTES * STRIDE <= BOARD_INLINE_BYTES,
              "carried data and its stamps fit into a slot");

static _Atomic uint64_t *stamp_of(board_entry *entry, size_t piece) {
    return (_Atomic uint64_t *)(void *)(entry->data + piece * STRIDE + BOARD_PIECE_BYTES);
}

void gw_board_fill_carried(gw_board *board, board_entry *entry, const gw_board_op *op) {
    size_t bytes = op->count * board->element, done = 0;
    for (size_t piece = 0; done < bytes; piece++, done += BOARD_PIECE_BYTES) {
        gw_copy(entry->data + piece * STRIDE, (const uint8_t *)op->in + done,
                board_min(bytes - done, BOARD_PIECE_BYTES));
        board_tell(board, stamp_of(entry, piece), board->published);
    }
}

static bool all_have(gw_board *board, size_t piece) {
    for (int m = 0; m < board->members; m++) {
        board_entry *entry = board_entry_of(board, board->finished, m);
        if (atomic_load_explicit(stamp_of(entry, piece), memory_order_acquire) != board->finished + 1) return false;
    }
    return true;
}

static void combine_piece(gw_board *board, const gw_board_op *op, size_t piece, size_t count) {
    for (int m = 0; m < board->members; m++)
        board->src[m] = board_entry_of(board, board->finished, m)->data + piece * STRIDE;
    board->src[board->self] = (const uint8_t *)op->in + piece * BOARD_PIECE_BYTES;
    board->dst[0] = (uint8_t *)op->out + piece * BOARD_PIECE_BYTES;
    gw_board_combine(op, board->dst, 1, board->src, board->members, count);
}

bool gw_board_work_carried(gw_board *board, bool *done) {
    const gw_board_op *op = board_head(board);
    size_t each = BOARD_PIECE_BYTES / board->element, before = board->combined;
    while (board->combined < op->count && all_have(board, board->combined / each)) {
        size_t count = board_min(each, op->count - board->combined);
        combine_piece(board, op, board->combined / each, count);
        board->combined += count;
    }
    *done = board->combined == op->count;
    return *done || board->combined > before;
}
