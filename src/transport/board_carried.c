/* board_carried.c - a few KiB of private memory, all-reduced: everyone's data comes in its slot.
 *
 * As inline, but a member arrives before it has copied anything, and says so when it has: others find out what it calls
 * while it copies. */
#include "transport/board_page.h"
#include "transport/copy.h"

void gw_board_fill_carried(gw_board *board, board_entry *entry, uint8_t *data, const gw_board_op *op) {
    gw_copy(data, op->in, op->count * board->element);
    board_tell(board, &entry->served, board->published);
}

bool gw_board_work_carried(gw_board *board, bool *done) {
    const gw_board_op *op = board_head(board);
    *done = gw_board_all_served(board);
    if (!*done) return false;
    for (int m = 0; m < board->members; m++) board->src[m] = board_data_of(board, board->finished, m);
    board->src[board->self] = op->in;
    board->dst[0] = op->out;
    gw_board_combine(op, board->dst, 1, board->src, board->members, op->count);
    return true;
}
