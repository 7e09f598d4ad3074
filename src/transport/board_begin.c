/* board_begin.c - an operation to which all members have come: whether they call the same, in which mode it is carried
 * out, and where the buffers of each lie in this process.
 *
 * Training calls the same on the same buffers again and again. What was found out is kept, and holds for as long as
 * everybody publishes the same words as before and nothing has been unmapped. */
#include "base/dtype.h"
#include "transport/board_page.h"

static bool same_signature(const uint64_t a[2], const uint64_t b[2]) { return a[0] == b[0] && a[1] == b[1]; }

/* The member whose signature the fewest share; the last of those in a tie. */
static int odd_member(gw_board *board) {
    int odd = 0, least = board->members + 1;
    for (int m = 0; m < board->members; m++) {
        const uint64_t *signature = board_entry_of(board, board->finished, m)->call.signature;
        int same = 0;
        for (int n = 0; n < board->members; n++)
            same += same_signature(board_entry_of(board, board->finished, n)->call.signature, signature);
        if (same <= least) {
            least = same;
            odd = m;
        }
    }
    return odd;
}

static gw_status compare_signatures(gw_board *board, gw_error *error) {
    const uint64_t *own = board_head(board)->signature;
    bool agree = true;
    for (int m = 0; m < board->members; m++)
        agree = agree && same_signature(board_entry_of(board, board->finished, m)->call.signature, own);
    if (agree) return GW_OK;
    int odd = odd_member(board);
    return gw_fail_rank(error, GW_MISMATCH, board->ranks[odd],
                        "rank %d called operation %llu with another kind, count, type, operation or root than the "
                        "other ranks of its host",
                        board->ranks[odd], (unsigned long long)board_head(board)->number);
}

/* How far everybody is comes with the arrivals. */
static void note_left(gw_board *board) {
    uint64_t least = UINT64_MAX;
    for (int m = 0; m < board->members; m++) {
        uint64_t left = board_entry_of(board, board->finished, m)->left;
        least = left < least ? left : least;
    }
    if (least > board->all_left) board->all_left = least;
}

bool gw_board_needs_out(const gw_board *board, const gw_board_op *op, int member, size_t *offset, size_t *bytes) {
    size_t element = gw_dtype_bytes(op->reduction.dtype);
    *offset = 0;
    *bytes = op->count * element;
    if (!board_only_owner_gets(op)) return true;
    if (op->dst_wide) element = gw_dtype_bytes(gw_accumulator(op->reduction.dtype, op->reduction.op));
    *offset = board->sides[member].offset * element;
    *bytes = board->sides[member].length * element;
    return *bytes != 0;
}

void gw_board_plan_steps(gw_board *board) {
    if (board->stepped == board->mode) return;
    board->stepped = board->mode;
    size_t bytes = board->mode == BOARD_STAGED ? gw_board_piece_bytes(board->members) : BOARD_DIRECT_BYTES;
    size_t longest = 0;
    for (int m = 0; m < board->members; m++)
        if (board->sides[m].length > longest) longest = board->sides[m].length;
    board->step = bytes / board->element;
    board->steps = (longest + board->step - 1) / board->step;
}

/* Maps one buffer of a peer; *at stays NULL where it is private. */
static gw_status reach(gw_board *board, int member, gw_shared where, uint64_t bytes_from, uint64_t bytes,
                       gw_mapping **mapping, uint8_t **at, gw_error *error) {
    if (!where.version || where.version == BOARD_NOT_NEEDED) return GW_OK;
    *mapping = gw_harbour_pin(board->harbour, board->ranks[member], where, error);
    if (!*mapping) return error->status;
    const gw_segment *segment = &(*mapping)->segment;
    uint64_t from = where.offset + bytes_from;
    if (from > segment->bytes || bytes > segment->bytes - from)
        return gw_fail_rank(error, GW_PROTOCOL, board->ranks[member],
                            "rank %d published a buffer that does not lie in its shared memory", board->ranks[member]);
    *at = (uint8_t *)((uintptr_t)segment->base + where.offset);
    return GW_OK;
}

static void resolve_own(gw_board *board) {
    board_side *side = &board->sides[board->self];
    side->in = board_head(board)->in;
    side->out = board_head(board)->out;
}

static gw_status resolve_side(gw_board *board, int member, gw_error *error) {
    const gw_board_op *op = board_head(board);
    board_side *side = &board->sides[member];
    const board_call *call = &side->call;
    size_t offset, bytes;
    uint8_t *in_at = NULL;
    side->in_private = !call->in.version;
    side->out_private = !call->out.version;
    if (member == board->self) {
        resolve_own(board);
        return GW_OK;
    }
    bool out = gw_board_needs_out(board, op, member, &offset, &bytes);
    side->out = NULL;
    gw_status status = reach(board, member, call->in, 0, op->count * board->element, &side->in_mapping, &in_at, error);
    if (!status && out) status = reach(board, member, call->out, offset, bytes, &side->out_mapping, &side->out, error);
    side->in = in_at;
    return status;
}

/* One private buffer, and all is staged, unless everybody's data comes in the slots. */
static void choose_mode(gw_board *board) {
    int carried = 0;
    for (int m = 0; m < board->members; m++) {
        const board_call *call = &board->sides[m].call;
        if (!call->in.version || !call->out.version) board->mode = BOARD_STAGED;
        carried += !call->in.version && call->in.id == BOARD_CARRIES;
    }
    if (carried == board->members) board->mode = BOARD_CARRIED;
}

static gw_status resolve_sides(gw_board *board, gw_error *error) {
    gw_status status = GW_OK;
    for (int m = 0; m < board->members; m++) {
        board_side *side = &board->sides[m];
        side->call = board_entry_of(board, board->finished, m)->call;
        side->in_mapping = side->out_mapping = NULL;
    }
    choose_mode(board);
    gw_board_plan_steps(board);
    board->held = true;
    for (int m = 0; m < board->members && !status; m++) status = resolve_side(board, m, error);
    board->resolved = !status;
    board->settled = board->mode;
    board->unmapped = board->harbour->unmapped;
    /* The others may have done this rank's part too, returned and freed their buffers before it looked. */
    if (!status || board->mode != BOARD_DIRECT || !gw_board_direct_done(board)) return status;
    *error = (gw_error){.rank = -1};
    return GW_OK;
}

static bool same_place(const gw_shared *a, const gw_shared *b) {
    return a->version == b->version && a->id == b->id && a->offset == b->offset;
}

static bool same_call(const board_call *a, const board_call *b) {
    return same_signature(a->signature, b->signature) && same_place(&a->in, &b->in) && same_place(&a->out, &b->out);
}

/* Takes over what was found out for the last operation, if all of it still holds. */
static bool resolve_again(gw_board *board) {
    if (!board->resolved || board->unmapped != board->harbour->unmapped) return false;
    for (int m = 0; m < board->members; m++)
        if (!same_call(&board_entry_of(board, board->finished, m)->call, &board->sides[m].call)) return false;
    for (int m = 0; m < board->members; m++) {
        board_side *side = &board->sides[m];
        if (side->in_mapping) side->in_mapping->pins++;
        if (side->out_mapping) side->out_mapping->pins++;
    }
    board->held = true;
    board->mode = board->settled;
    resolve_own(board);
    return true;
}

void gw_board_release(gw_board *board) {
    for (int m = 0; board->held && m < board->members; m++) {
        gw_harbour_unpin(board->sides[m].in_mapping);
        gw_harbour_unpin(board->sides[m].out_mapping);
    }
    board->held = false;
}

gw_status gw_board_check_abort(gw_board *board, gw_error *error) {
    uint32_t by = atomic_load_explicit(&board->page->aborted, memory_order_acquire);
    if (!by) return GW_OK;
    int rank = board->ranks[by - 1];
    return gw_fail_rank(error, GW_ABORTED, rank, "rank %d gave up operation %llu among the ranks of its host", rank,
                        (unsigned long long)board_head(board)->number);
}

gw_status gw_board_begin(gw_board *board, gw_error *error) {
    gw_status status = gw_board_check_abort(board, error);
    if (!status && (board->mode == BOARD_INLINE || !resolve_again(board))) {
        status = compare_signatures(board, error);
        if (!status && board->mode != BOARD_INLINE) status = resolve_sides(board, error);
    }
    if (!status) note_left(board);
    board->arrived = !status;
    return status;
}
