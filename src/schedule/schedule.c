/* schedule.c - the life of pieces. See schedule.h. */
#include "schedule/schedule_internal.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

size_t gw_tensor_bytes(const gw_schedule *s, int tensor) {
    return s->tensors[tensor].count * s->tensors[tensor].element;
}

static int pieces_at_most(const gw_schedule *s) {
    size_t most = 0;
    for (int t = 0; t < s->tensor_count; t++)
        most += 1 + (s->tensors[t].whole ? 0 : gw_tensor_bytes(s, t) / GW_SLICE_BYTES_MIN);
    return (int)most;
}

gw_status gw_schedule_open(gw_schedule **out, const gw_policy *policy, const gw_schedule_settings *settings,
                           const gw_schedule_tensor *tensors, int count, gw_error *error) {
    gw_schedule *s = calloc(1, sizeof *s);
    if (!s) return gw_fail(error, GW_MEMORY, "out of memory for a schedule");
    s->policy = policy;
    s->tensor_count = count;
    s->tensors = calloc((size_t)count + 1, sizeof *s->tensors);
    if (s->tensors) memcpy(s->tensors, tensors, (size_t)count * sizeof *tensors);
    s->piece_room = s->tensors ? pieces_at_most(s) : 0;
    s->span_room = s->piece_room;
    s->pieces = calloc((size_t)s->piece_room + 1, sizeof *s->pieces);
    s->spans = calloc((size_t)s->span_room + 1, sizeof *s->spans);
    s->first_piece = calloc((size_t)count + 1, sizeof *s->first_piece);
    s->last_piece = calloc((size_t)count + 1, sizeof *s->last_piece);
    s->picked = calloc((size_t)count + 1, sizeof *s->picked);
    if (!s->tensors || !s->pieces || !s->spans || !s->first_piece || !s->last_piece || !s->picked) {
        gw_schedule_close(s);
        return gw_fail(error, GW_MEMORY, "out of memory for a schedule of %d tensors", count);
    }
    gw_schedule_cut(s, settings, NULL);
    *out = s;
    return GW_OK;
}

void gw_schedule_close(gw_schedule *s) {
    if (!s) return;
    free(s->picked);
    free(s->last_piece);
    free(s->first_piece);
    free(s->spans);
    free(s->pieces);
    free(s->tensors);
    free(s);
}

static void index_pieces(gw_schedule *s) {
    for (int t = 0; t < s->tensor_count; t++) s->first_piece[t] = s->last_piece[t] = -1;
    for (int p = 0; p < s->piece_count; p++) {
        gw_piece *piece = &s->pieces[p];
        for (int i = 0; i < piece->spans; i++) {
            const gw_span *span = &s->spans[piece->first_span + i];
            if (s->first_piece[span->tensor] < 0) s->first_piece[span->tensor] = p;
            s->last_piece[span->tensor] = p;
            piece->bytes += span->count * s->tensors[span->tensor].element;
        }
        piece->missing = piece->spans;
        piece->priority = s->spans[piece->first_span].tensor;
        piece->readied = s->steps_over;
    }
}

void gw_schedule_cut(gw_schedule *s, const gw_schedule_settings *settings, const gw_schedule_facts *facts) {
    assert(gw_schedule_idle(s));
    s->settings = *settings;
    s->facts = facts ? *facts : (gw_schedule_facts){0};
    s->piece_count = s->span_count = 0;
    s->cursor = 0;
    s->policy->cut(s);
    index_pieces(s);
    if (s->policy->rank) s->policy->rank(s);
}

bool gw_schedule_idle(const gw_schedule *s) {
    for (int p = 0; p < s->piece_count; p++)
        if (s->pieces[p].state != GW_PIECE_GATHERING || s->pieces[p].missing != s->pieces[p].spans) return false;
    return true;
}

const gw_policy *gw_schedule_policy(const gw_schedule *s) { return s->policy; }
const gw_schedule_settings *gw_schedule_set_to(const gw_schedule *s) { return &s->settings; }
int gw_schedule_pieces(const gw_schedule *s) { return s->piece_count; }
int gw_schedule_pieces_max(const gw_schedule *s) { return s->piece_room; }
const gw_piece *gw_schedule_piece(const gw_schedule *s, int piece) { return &s->pieces[piece]; }
const gw_span *gw_schedule_spans(const gw_schedule *s, int piece) { return &s->spans[s->pieces[piece].first_span]; }
size_t gw_schedule_in_flight(const gw_schedule *s) { return s->in_flight_bytes; }

int gw_schedule_pieces_of(const gw_schedule *s, int tensor, int *first) {
    *first = s->first_piece[tensor];
    return *first < 0 ? 0 : s->last_piece[tensor] - *first + 1;
}

/* What happens. */

void gw_schedule_ready(gw_schedule *s, int tensor) {
    int first, count = gw_schedule_pieces_of(s, tensor, &first);
    for (int p = first; p < first + count; p++) {
        gw_piece *piece = &s->pieces[p];
        assert(piece->state == GW_PIECE_GATHERING && piece->missing > 0);
        if (--piece->missing > 0) continue;
        piece->state = GW_PIECE_READY;
        piece->readied++;
    }
}

void gw_schedule_end(gw_schedule *s) { s->steps_over++; }

int gw_schedule_next(const gw_schedule *s) { return s->policy->next(s); }

bool gw_schedule_startable(const gw_schedule *s, int piece) {
    return s->pieces[piece].state == GW_PIECE_READY || s->pieces[piece].state == GW_PIECE_HALFWAY;
}

void gw_schedule_start(gw_schedule *s, int p) {
    gw_piece *piece = &s->pieces[p];
    assert(gw_schedule_startable(s, p));
    piece->state = piece->state == GW_PIECE_READY ? GW_PIECE_MOVING : GW_PIECE_SPREADING;
    s->cursor = (s->cursor + 1) % (s->policy->splits ? 2 * s->piece_count : s->piece_count);
    piece->in_flight = true;
    s->in_flight++;
    s->in_flight_bytes += piece->bytes;
}

/* A whole backward pass may wait for first halves; of second halves the next forward pass needs first what was produced
 * last. */
uint8_t gw_schedule_urgency(const gw_schedule *s, int p, bool second) {
    if (!s->policy->splits) return 0;
    return second ? (uint8_t)((int64_t)GW_URGENCY_MAX * p / s->piece_count) : GW_URGENCY_MAX;
}

void gw_schedule_left(gw_schedule *s, int p) {
    gw_piece *piece = &s->pieces[p];
    if (!piece->in_flight) return;
    piece->in_flight = false;
    s->in_flight--;
    s->in_flight_bytes -= piece->bytes;
}

bool gw_schedule_done(gw_schedule *s, int p) {
    gw_piece *piece = &s->pieces[p];
    assert(piece->state == GW_PIECE_MOVING || piece->state == GW_PIECE_SPREADING);
    gw_schedule_left(s, p);
    if (piece->state == GW_PIECE_MOVING && s->policy->splits) {
        piece->state = GW_PIECE_HALFWAY;
        return false;
    }
    piece->state = GW_PIECE_GATHERING;
    piece->missing = piece->spans;
    return true;
}
