/* shm_coll_all_arrived.c - begins an operation at which all members have arrived: checks that they made the same call,
 * chooses the mode, and maps the buffers of each into this process.
 *
 * Training repeats the same call on the same buffers. The results are kept, and hold for as long as every member
 * publishes the same call as before and nothing has been unmapped. */
#include "base/dtype.h"
#include "shm/shm_coll_internal.h"

#include <string.h>

static bool same_words(const uint64_t a[2], const uint64_t b[2]) { return a[0] == b[0] && a[1] == b[1]; }

static const coll_entry *head_entry(const gw_shm_coll *coll, int member) {
    return coll_entry_of(coll, coll->finished, member);
}

static bool same_signature(const coll_entry *a, const coll_entry *b) {
    bool third = a->call.signature[0] & GW_SHM_COLL_THREE_WORDS;
    return same_words(a->call.signature, b->call.signature) && (!third || a->third_word == b->third_word);
}

static bool agrees(gw_shm_coll *coll, int member) {
    const uint64_t *mine = coll_head(coll)->signature;
    const coll_entry *entry = head_entry(coll, member);
    return same_words(mine, entry->call.signature) &&
           (!(mine[0] & GW_SHM_COLL_THREE_WORDS) || mine[2] == entry->third_word);
}

/* The member whose signature is the rarest among all members; in a tie, the last such member. */
static int odd_member(gw_shm_coll *coll) {
    int odd = 0, least = coll->members + 1;
    for (int m = 0; m < coll->members; m++) {
        int same = 0;
        for (int n = 0; n < coll->members; n++) same += same_signature(head_entry(coll, n), head_entry(coll, m));
        if (same <= least) {
            least = same;
            odd = m;
        }
    }
    return odd;
}

static bool all_agree(gw_shm_coll *coll) {
    bool agree = true;
    for (int m = 0; m < coll->members; m++) agree = agree && (m == coll->self || agrees(coll, m));
    return agree;
}

static gw_status compare_signatures(gw_shm_coll *coll, gw_error *error) {
    if (all_agree(coll)) return GW_OK;
    int odd = odd_member(coll);
    return gw_fail_rank(error, GW_MISMATCH, coll->ranks[odd],
                        "rank %d called operation %llu with another kind, count, type, operation, scale or root than "
                        "the other ranks of its host",
                        coll->ranks[odd], (unsigned long long)coll_head(coll)->number);
}

/* Each arrival says how many operations the member had finished. */
static void note_finished(gw_shm_coll *coll) {
    uint64_t least = coll->finished;
    for (int m = 0; m < coll->members; m++) {
        uint64_t count = head_entry(coll, m)->finished;
        least = count < least ? count : least;
    }
    if (least > coll->all_finished) coll->all_finished = least;
}

static bool own_part(const gw_shm_coll *coll, int member, size_t element, size_t *offset, size_t *bytes) {
    *offset = coll->sides[member].offset * element;
    *bytes = coll->sides[member].length * element;
    return *bytes != 0;
}

bool gw_shm_coll_needs_in(const gw_shm_coll *coll, const gw_shm_coll_op *op, int member, size_t *offset,
                          size_t *bytes) {
    size_t element = gw_dtype_bytes(op->reduction.dtype);
    *offset = 0;
    *bytes = op->count * element;
    switch (op->task) {
    case GW_SHM_TASK_ALLGATHER:
    case GW_SHM_TASK_GATHER: return own_part(coll, member, element, offset, bytes);
    case GW_SHM_TASK_BROADCAST:
    case GW_SHM_TASK_SCATTER: return member == op->root;
    default: return op->task != GW_SHM_TASK_BARRIER;
    }
}

bool gw_shm_coll_needs_out(const gw_shm_coll *coll, const gw_shm_coll_op *op, int member, size_t *offset,
                           size_t *bytes) {
    size_t element = gw_dtype_bytes(op->reduction.dtype);
    *offset = 0;
    *bytes = op->count * element;
    switch (op->task) {
    case GW_SHM_TASK_REDUCE_SCATTER:
        if (op->dst_wide) element = gw_dtype_bytes(gw_accumulator(op->reduction.dtype, op->reduction.op));
        return own_part(coll, member, element, offset, bytes);
    case GW_SHM_TASK_SCATTER: return own_part(coll, member, element, offset, bytes);
    case GW_SHM_TASK_REDUCE:
    case GW_SHM_TASK_GATHER: return member == op->root;
    default: return op->task != GW_SHM_TASK_BARRIER;
    }
}

void gw_shm_coll_plan_chunks(gw_shm_coll *coll) {
    if (coll->chunks_mode == coll->mode) return;
    coll->chunks_mode = coll->mode;
    size_t bytes = coll->mode == COLL_STAGED ? gw_shm_coll_chunk_bytes(coll->members) : COLL_DIRECT_BYTES;
    size_t longest = 0;
    for (int m = 0; m < coll->members; m++)
        if (coll->sides[m].length > longest) longest = coll->sides[m].length;
    coll->chunk_elements = bytes / coll->element;
    coll->window_count = (longest + coll->chunk_elements - 1) / coll->chunk_elements;
}

/* Maps one buffer of a peer that the operation needs; *at stays NULL if it is private. */
static gw_status reach(gw_shm_coll *coll, int member, gw_shm_ref where, uint64_t bytes_from, uint64_t bytes,
                       gw_mapping **mapping, uint8_t **at, gw_error *error) {
    if (!where.version) return GW_OK;
    if (where.version == COLL_NOT_NEEDED)
        return gw_fail_rank(error, GW_PROTOCOL, coll->ranks[member],
                            "rank %d published no buffer for operation %llu, which needs one of it",
                            coll->ranks[member], (unsigned long long)coll_head(coll)->number);
    *mapping = gw_peer_map_pin(coll->peer_map, coll->ranks[member], where, error);
    if (!*mapping) return error->status;
    const gw_segment *segment = &(*mapping)->segment;
    uint64_t from = where.offset + bytes_from;
    if (from > segment->bytes || bytes > segment->bytes - from)
        return gw_fail_rank(error, GW_PROTOCOL, coll->ranks[member],
                            "rank %d published a buffer that does not lie in its shared memory", coll->ranks[member]);
    *at = (uint8_t *)((uintptr_t)segment->base + where.offset);
    return GW_OK;
}

/* Reductions have none. */
static uint32_t wishes_of(const gw_shm_coll *coll, int member) {
    if (coll_reduces(coll_head(coll))) return 0;
    return atomic_load_explicit(&head_entry(coll, member)->wishes, memory_order_relaxed);
}

static void resolve_own(gw_shm_coll *coll) {
    coll_side *side = &coll->sides[coll->self];
    side->in = coll_head(coll)->in;
    side->out = coll_head(coll)->out;
}

static gw_status resolve_side(gw_shm_coll *coll, int member, gw_error *error) {
    const gw_shm_coll_op *op = coll_head(coll);
    coll_side *side = &coll->sides[member];
    const coll_call *call = &side->call;
    size_t in_offset, in_bytes, offset, bytes;
    uint8_t *in_at = NULL;
    side->in_private = !call->in.version;
    side->out_private = !call->out.version;
    if (member == coll->self) {
        resolve_own(coll);
        return GW_OK;
    }
    bool out = gw_shm_coll_needs_out(coll, op, member, &offset, &bytes);
    bool in = gw_shm_coll_needs_in(coll, op, member, &in_offset, &in_bytes);
    gw_status status = GW_OK;
    side->out = NULL;
    if (coll->mode == COLL_PULL) { /* those who give this member nothing may have left, and have freed their buffers */
        out = false;
        in = gw_shm_coll_block(coll, member, coll->self).length != 0;
    }
    if (in) status = reach(coll, member, call->in, in_offset, in_bytes, &side->in_mapping, &in_at, error);
    if (!status && out) status = reach(coll, member, call->out, offset, bytes, &side->out_mapping, &side->out, error);
    side->in = in_at;
    return status;
}

/* What the members' buffers have in common. */
typedef struct coll_scene {
    int in_slots;        /* members whose data is there */
    bool private;        /* some buffer is */
    bool source_private; /* some input that others need is */
    bool in_place;       /* some member of an all-to-all overwrites what others still need */
} coll_scene;

static coll_scene look_around(const gw_shm_coll *coll) {
    coll_scene scene = {0};
    for (int m = 0; m < coll->members; m++) {
        const coll_call *call = &coll->sides[m].call;
        size_t offset, bytes;
        bool gives = gw_shm_coll_needs_in(coll, coll_head(coll), m, &offset, &bytes);
        scene.in_slots += !call->in.version && call->in.id == COLL_FITS_SLOTS;
        scene.private = scene.private || !call->in.version || !call->out.version;
        scene.source_private = scene.source_private || (gives && !call->in.version);
        scene.in_place = scene.in_place || (coll->sides[m].wishes & COLL_IN_PLACE);
    }
    return scene;
}

/* A task that only moves data needs the sources alone: each member pulls what it gets. But from one source to all,
 * or from each to all, in shared memory, a push reads the data once and not once for each receiver. */
static coll_mode mode_of(gw_shm_coll *coll) {
    const gw_shm_coll_op *op = coll_head(coll);
    coll_scene scene = look_around(coll);
    coll->either = false;
    bool to_all = op->task == GW_SHM_TASK_ALLGATHER || op->task == GW_SHM_TASK_BROADCAST;
    if (scene.in_slots == coll->members) return COLL_SLOTS;
    if (!scene.private && (to_all || coll_reduces(op))) return COLL_DIRECT;
    if (coll_reduces(op) || scene.in_place || scene.in_slots) return COLL_STAGED; /* some have been served already */
    if (!scene.source_private) return COLL_PULL;
    coll->either = coll->reads;
    return coll->reads && coll->sides[gw_shm_coll_chooser(coll, op)].wishes & COLL_PULLS ? COLL_PULL : COLL_STAGED;
}

static gw_status resolve_sides(gw_shm_coll *coll, gw_error *error) {
    gw_status status = GW_OK;
    for (int m = 0; m < coll->members; m++) {
        coll_side *side = &coll->sides[m];
        if (m == coll->self) side->call = coll->own_call;
        else gw_read_once(&side->call, &head_entry(coll, m)->call, sizeof side->call);
        side->wishes = m == coll->self ? coll->own_wishes : wishes_of(coll, m);
        side->in_mapping = side->out_mapping = NULL;
    }
    coll->mode = mode_of(coll);
    gw_shm_coll_plan_chunks(coll);
    coll->pinned = true;
    for (int m = 0; m < coll->members && !status; m++) status = resolve_side(coll, m, error);
    coll->resolved = !status;
    coll->resolved_mode = coll->mode;
    coll->unmapped = coll->peer_map->unmapped;
    /* The others may have done this rank's part too, and have returned and freed their buffers before this rank mapped
     * them. */
    if (!status || coll->mode != COLL_DIRECT || !gw_shm_coll_direct_done(coll)) return status;
    *error = (gw_error){.rank = -1};
    coll->over = true;
    return GW_OK;
}

static bool same_call(const coll_call *a, const coll_call *b) {
    return same_words(a->signature, b->signature) && coll_same_place(&a->in, &b->in) &&
           coll_same_place(&a->out, &b->out);
}

static bool same_side(const gw_shm_coll *coll, int member) {
    const coll_side *side = &coll->sides[member];
    if (member == coll->self) return same_call(&coll->own_call, &side->call) && coll->own_wishes == side->wishes;
    return same_call(&head_entry(coll, member)->call, &side->call) && wishes_of(coll, member) == side->wishes;
}

/* Reuses the results of the last operation, if all of them still hold. */
static bool resolve_again(gw_shm_coll *coll) {
    if (!coll->resolved || coll->unmapped != coll->peer_map->unmapped) return false;
    for (int m = 0; m < coll->members; m++)
        if (!same_side(coll, m)) return false;
    if ((coll_head(coll)->signature[0] & GW_SHM_COLL_THREE_WORDS) && !all_agree(coll)) return false;
    for (int m = 0; m < coll->members; m++) {
        coll_side *side = &coll->sides[m];
        if (side->in_mapping) side->in_mapping->pins++;
        if (side->out_mapping) side->out_mapping->pins++;
    }
    coll->pinned = true;
    coll->mode = coll->resolved_mode;
    resolve_own(coll);
    return true;
}

void gw_shm_coll_release(gw_shm_coll *coll) {
    for (int m = 0; coll->pinned && m < coll->members; m++) {
        gw_peer_map_unpin(coll->sides[m].in_mapping);
        gw_peer_map_unpin(coll->sides[m].out_mapping);
    }
    coll->pinned = false;
}

static gw_status report_abort(gw_shm_coll *coll, int rank, gw_error *error) {
    char cause[COLL_CAUSE_BYTES];
    int culprit;
    gw_read_once(&culprit, &coll->page->culprit, sizeof culprit);
    gw_read_once(cause, coll->page->cause, sizeof cause);
    cause[sizeof cause - 1] = 0;
    for (char *c = cause; *c; c++)
        if (*c < ' ' || *c > '~') *c = '?';
    if (culprit < -1 || culprit >= coll->peer_map->world) culprit = rank;
    if (cause[0]) return gw_fail_rank(error, GW_ABORTED, culprit, "%s (so rank %d gave up)", cause, rank);
    return gw_fail_rank(error, GW_ABORTED, rank,
                        "rank %d left in the middle of a collective of its host (operation %llu)", rank,
                        (unsigned long long)coll_head(coll)->number);
}

gw_status gw_shm_coll_check_abort(gw_shm_coll *coll, gw_error *error) {
    uint32_t by = atomic_load_explicit(&coll->page->aborted, memory_order_acquire);
    if (!by) return GW_OK;
    if (by > (uint32_t)coll->members)
        return gw_fail(error, GW_PROTOCOL,
                       "a rank of this host wrote %u where the member that gave up belongs: one of them is broken", by);
    return report_abort(coll, coll->ranks[by - 1], error);
}

gw_status gw_shm_coll_begin(gw_shm_coll *coll, gw_error *error) {
    gw_status status = gw_shm_coll_check_abort(coll, error);
    if (!status && (coll->mode == COLL_INLINE || !resolve_again(coll))) {
        status = compare_signatures(coll, error);
        if (!status && coll->mode != COLL_INLINE) status = resolve_sides(coll, error);
    }
    if (!status) note_finished(coll);
    if (!status) gw_shm_coll_choice_begin(coll);
    coll->arrived = !status;
    return status;
}
