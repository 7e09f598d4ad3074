/* training_watch.c - see training_watch.h. */
#include "sim/training_watch.h"

#include <stdlib.h>
#include <string.h>

void gw_watch_free(gw_watch *w) {
    free(w->moved);
    w->moved = NULL;
}

static bool moves(const gw_piece *piece) {
    return piece->state == GW_PIECE_MOVING || piece->state == GW_PIECE_SPREADING;
}

/* A poll takes in what is ready before it starts anything: what is ready after it was so before. */
static bool overtook(const gw_schedule *s, const gw_piece *started) {
    for (int p = 0; p < gw_schedule_pieces(s); p++) {
        const gw_piece *piece = gw_schedule_piece(s, p);
        if (piece->state == GW_PIECE_READY && piece->priority < started->priority) return true;
    }
    return false;
}

const char *gw_watch_look(gw_watch *w, const gw_schedule *s) {
    const gw_policy *policy = gw_schedule_policy(s);
    size_t credit = gw_schedule_set_to(s)->credit_bytes;
    const char *wrong = NULL;
    int in_flight = 0, pieces = gw_schedule_pieces(s);
    if (pieces != w->pieces) { /* the first look */
        gw_watch_free(w);
        w->moved = calloc((size_t)pieces + 1, sizeof *w->moved);
        if (!w->moved) abort();
        w->pieces = pieces;
    }
    for (int p = 0; p < pieces; p++) {
        const gw_piece *piece = gw_schedule_piece(s, p);
        bool started = moves(piece) && !w->moved[p];
        if (started && policy->reorders && overtook(s, piece)) wrong = "a piece was started before a more urgent one";
        w->moved[p] = moves(piece);
        in_flight += moves(piece);
    }
    if (!w->decides) return NULL;
    if (policy->reorders && !credit && in_flight > 1) wrong = "two pieces are in flight where one may be";
    if (credit && in_flight > 1 && gw_schedule_in_flight(s) > credit) wrong = "more is in flight than the credit";
    return wrong;
}
