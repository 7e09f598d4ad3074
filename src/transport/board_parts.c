/* board_parts.c - how an operation is cut into parts, and what is done to a range of elements. */
#include "base/dtype.h"
#include "base/half.h"
#include "transport/board_page.h"
#include "transport/copy.h"

/* Parts of an all-reduce may lie anywhere, so they begin with a cache line. Where they are claimed, one that is too
 * small takes longer to claim than to do (eight members on two cores: 8 KiB in 15.7 us instead of 17.1). */
static void cut_lines(gw_board *board, size_t count) {
    size_t line = GW_LINE / board->element, lines = (count + line - 1) / line;
    size_t share = (lines + (size_t)board->members - 1) / (size_t)board->members * line, at = 0;
    size_t least = board->page->crowded ? BOARD_PART_BYTES / board->element : 0;
    if (share < least) share = least;
    for (int m = 0; m < board->members; m++) {
        size_t length = board_min(share, count - at);
        board->sides[m].offset = at;
        board->sides[m].length = length;
        at += length;
    }
}

static void cut_lanes(gw_board *board, const gw_board_op *op) {
    size_t at = 0;
    for (int m = 0; m < board->members; m++) {
        size_t length = 0;
        if (m < op->lanes && op->counts) length = op->counts[m];
        else if (m < op->lanes) length = op->count / (size_t)op->lanes + ((size_t)m < op->count % (size_t)op->lanes);
        board->sides[m].offset = at;
        board->sides[m].length = length;
        at += length;
    }
}

void gw_board_cut(gw_board *board) {
    const gw_board_op *op = board_head(board);
    board->element = gw_dtype_bytes(op->reduction.dtype);
    board->wide_element = gw_dtype_bytes(gw_accumulator(op->reduction.dtype, op->reduction.op));
    if (op->task == GW_BOARD_ALLREDUCE) cut_lines(board, op->count);
    if (op->task == GW_BOARD_REDUCE_SCATTER || op->task == GW_BOARD_ALLGATHER) cut_lanes(board, op);
    if (op->task == GW_BOARD_BROADCAST || op->task == GW_BOARD_BARRIER) {
        for (int m = 0; m < board->members; m++) board->sides[m].offset = board->sides[m].length = 0;
        board->sides[op->task == GW_BOARD_BROADCAST ? op->root : 0].length = op->count;
    }
}

size_t gw_board_out_bytes(const gw_board *board) {
    const gw_board_op *op = &board->ops[board->finished % GW_BOARD_DEPTH];
    return board_only_owner_gets(op) && op->dst_wide ? board->wide_element : board->element;
}

static void widen(gw_reduction r, void *dst, const void *src, size_t count) {
    const uint8_t *raw = src;
    switch (r.dtype) {
    case GW_F16: gw_f16_to_f32_array(dst, src, count); break;
    case GW_BF16: gw_bf16_to_f32_array(dst, src, count); break;
    case GW_I8: for (size_t i = 0; i < count; i++) ((int32_t *)dst)[i] = (int8_t)raw[i]; break;
    case GW_U8: for (size_t i = 0; i < count; i++) ((int32_t *)dst)[i] = raw[i]; break;
    case GW_I32: for (size_t i = 0; i < count; i++) ((int64_t *)dst)[i] = ((const int32_t *)src)[i]; break;
    default: memmove(dst, src, count * gw_dtype_bytes(r.dtype));
    }
}

/* One wide, unfinished result; it has a type of its own, so it is none of the sources. */
static void combine_wide(gw_reduction r, void *dst, const void *const *src, int sources, size_t count) {
    if (sources == 1) {
        widen(r, dst, src[0], count);
        return;
    }
    gw_reduce_pair(r, dst, src[0], false, src[1], false, count, false);
    for (int s = 2; s < sources; s++) gw_reduce_pair(r, dst, dst, true, src[s], false, count, false);
}

void gw_board_combine(const gw_board_op *op, void *const *dst, int destinations, const void *const *src, int sources,
                      size_t count) {
    gw_reduction r = op->reduction;
    size_t element = gw_dtype_bytes(r.dtype);
    if (!board_reduces(op)) {
        gw_copy_push(dst, destinations, src[0], count * element);
        return;
    }
    bool wide = op->task == GW_BOARD_REDUCE_SCATTER && op->dst_wide;
    if (wide && gw_accumulator(r.dtype, r.op) != r.dtype) {
        for (int d = 0; d < destinations; d++) combine_wide(r, dst[d], src, sources, count);
        return;
    }
    if (wide && r.op == GW_AVG) r.op = GW_SUM; /* undivided, and the accumulator is of the same type */
    gw_reduce_push(r, dst, destinations, src, sources, count);
}
