/* board_inline.c - operations of a few KiB: everyone's data lies in the board, everyone combines all of it.
 *
 * One arrival is all the synchronisation there is: nobody writes what another member reads, and the slot is used
 * again only when all have left it. */
#include "transport/board_page.h"
#include "transport/copy.h"

void gw_board_fill_inline(gw_board *board, uint8_t *data, const gw_board_op *op) {
    size_t element = gw_dtype_bytes(op->reduction.dtype);
    if (op->task == GW_BOARD_BARRIER || op->count == 0) return;
    if (board_reduces(op)) gw_copy(data, op->in, op->count * element);
    if (op->task == GW_BOARD_BROADCAST && op->root == board->self) gw_copy(data, op->in, op->count * element);
    if (op->task != GW_BOARD_ALLGATHER || board->self >= op->lanes) return;
    size_t at = 0, length = op->count / (size_t)op->lanes;
    for (int m = 0; m < board->self; m++)
        at += op->counts ? op->counts[m] : length + ((size_t)m < op->count % (size_t)op->lanes);
    length = op->counts ? op->counts[board->self] : length + ((size_t)board->self < op->count % (size_t)op->lanes);
    gw_copy(data + at * element, (const uint8_t *)op->out + at * element, length * element);
}

static void copy_part(gw_board *board, const gw_board_op *op, int owner) {
    const board_side *part = &board->sides[owner];
    if (part->length == 0) return;
    const uint8_t *from = board_inline_of(board, board->finished, owner);
    size_t at = part->offset * board->element;
    gw_copy((uint8_t *)op->out + at, from + at, part->length * board->element);
}

static void combine_range(gw_board *board, const gw_board_op *op, size_t offset, size_t count) {
    if (count == 0) return;
    for (int m = 0; m < board->members; m++)
        board->src[m] = board_inline_of(board, board->finished, m) + offset * board->element;
    board->dst[0] = (uint8_t *)op->out + offset * gw_board_out_bytes(board);
    gw_board_combine(op, board->dst, 1, board->src, board->members, count);
}

bool gw_board_work_inline(gw_board *board, bool *done) {
    const gw_board_op *op = board_head(board);
    const board_side *own = &board->sides[board->self];
    switch (op->task) {
    case GW_BOARD_ALLREDUCE: combine_range(board, op, 0, op->count); break;
    case GW_BOARD_REDUCE_SCATTER: combine_range(board, op, own->offset, own->length); break;
    case GW_BOARD_BROADCAST: copy_part(board, op, op->root); break;
    case GW_BOARD_ALLGATHER:
        for (int m = 0; m < op->lanes; m++)
            if (m != board->self) copy_part(board, op, m);
        break;
    case GW_BOARD_BARRIER: break;
    }
    *done = true;
    return true;
}
