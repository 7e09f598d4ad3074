/* desk_state.c - what a desk knows as bytes, and workers that come. See desk.h. The bytes: how many workers and
 * parcels, whether it is behind what workers have seen, the rounds of the parcels, then for each parcel of each worker
 * its clock and the round it was last used in. A push that is only kept for its round is not counted: it is made
 * again. */
#include <string.h>

#include "server/desk_internal.h"

static size_t words(int workers, int parcels) { return 3 + (size_t)parcels * (1 + 2 * (size_t)workers); }

size_t gw_desk_saved_bytes(const gw_desk *d) { return words(d->workers, d->parcels) * sizeof(uint64_t); }

/* The block may stand anywhere in a larger one. */
static void put(uint8_t **at, uint64_t word) {
    memcpy(*at, &word, sizeof word);
    *at += sizeof word;
}

void gw_desk_save(const gw_desk *d, void *memory) {
    uint8_t *at = memory;
    put(&at, (uint64_t)d->workers);
    put(&at, (uint64_t)d->parcels);
    put(&at, d->old);
    for (int p = 0; p < d->parcels; p++) put(&at, d->round[p]);
    for (int p = 0; p < d->parcels; p++)
        for (int w = 0; w < d->workers; w++) {
            const gw_desk_seat *s = gw_desk_at(d, p, w);
            put(&at, s->clock - s->in);
            put(&at, s->next);
        }
}

bool gw_desk_restore(gw_desk *d, const void *memory, size_t bytes, const int *from, bool old) {
    const uint64_t *saved = memory;
    if (bytes < 3 * sizeof *saved || saved[1] != (uint64_t)d->parcels || saved[0] > INT32_MAX ||
        bytes != words((int)saved[0], d->parcels) * sizeof *saved)
        return false;
    size_t workers = (size_t)saved[0];
    const uint64_t *rounds = saved + 3, *seats = rounds + d->parcels;
    for (int w = 0; w < d->workers; w++)
        if (from[w] >= (int)workers) return false;
    d->old = old || saved[2];
    d->heard = 0;
    for (int p = 0; p < d->parcels; p++) {
        d->round[p] = rounds[p];
        for (int w = 0; w < d->workers; w++) {
            const uint64_t *was = from[w] < 0 ? NULL : &seats[2 * ((size_t)p * workers + (size_t)from[w])];
            *gw_desk_at(d, p, w) = (gw_desk_seat){.clock = was ? was[0] : 0, .next = was ? was[1] : 0, .unheard = true,
                                                  .unknown = !was};
        }
    }
    return true;
}

void gw_desk_admit(gw_desk *d, int w, uint64_t clock) {
    for (int p = 0; p < d->parcels; p++) {
        gw_desk_at(d, p, w)->clock = clock;
        gw_desk_at(d, p, w)->unknown = false;
    }
}

void gw_desk_used(gw_desk *d, int p, int w, uint64_t number) {
    if (w >= 0) gw_desk_at(d, p, w)->clock = number + 1;
    else d->round[p] = number + 1;
    for (int i = 0; w < 0 && i < d->workers; i++) gw_desk_at(d, p, i)->next = number + 1;
}

uint64_t gw_desk_lost(const gw_desk *d, int w) { return d->who[w].lost; }
int gw_desk_heard(const gw_desk *d) { return d->heard; }
