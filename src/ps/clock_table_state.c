/* clock_table_state.c - a clock table as bytes, and restarted workers. See clock_table.h. Layout, in 64-bit words:
 * number of workers, number of partitions, whether the table is behind what workers have seen, the round of each
 * partition, the number of workers in the last one, then for each partition and worker its clock and the round after
 * the last in which its push was used. A push of an incomplete round is not counted: the worker pushes it again. */
#include <string.h>

#include "ps/clock_table_internal.h"

static size_t words(int workers, int partitions) { return 3 + (size_t)partitions * (2 + 2 * (size_t)workers); }

size_t gw_clock_table_saved_bytes(const gw_clock_table *t) {
    return words(t->workers, t->partitions) * sizeof(uint64_t);
}

/* The block may be unaligned, inside a larger one. */
static void put(uint8_t **at, uint64_t word) {
    memcpy(*at, &word, sizeof word);
    *at += sizeof word;
}

void gw_clock_table_save(const gw_clock_table *t, void *memory) {
    uint8_t *at = memory;
    put(&at, (uint64_t)t->workers);
    put(&at, (uint64_t)t->partitions);
    put(&at, t->old);
    for (int p = 0; p < t->partitions; p++) put(&at, t->round[p]);
    for (int p = 0; p < t->partitions; p++) put(&at, (uint64_t)t->joined[p]);
    for (int p = 0; p < t->partitions; p++)
        for (int w = 0; w < t->workers; w++) {
            const gw_clock_table_entry *e = gw_clock_table_at(t, p, w);
            put(&at, e->clock - e->in);
            put(&at, e->next);
        }
}

bool gw_clock_table_restore(gw_clock_table *t, const void *memory, size_t bytes, const int *from, bool old) {
    const uint64_t *saved = memory;
    if (bytes < 3 * sizeof *saved || saved[1] != (uint64_t)t->partitions || saved[0] > INT32_MAX ||
        bytes != words((int)saved[0], t->partitions) * sizeof *saved)
        return false;
    size_t workers = (size_t)saved[0];
    const uint64_t *rounds = saved + 3, *joined = rounds + t->partitions, *entries = joined + t->partitions;
    for (int w = 0; w < t->workers; w++)
        if (from[w] >= (int)workers) return false;
    for (int p = 0; p < t->partitions; p++)
        if (joined[p] > INT32_MAX) return false;
    t->old = old || saved[2];
    t->heard = 0;
    for (int p = 0; p < t->partitions; p++) {
        t->round[p] = rounds[p];
        t->joined[p] = (int)joined[p];
        for (int w = 0; w < t->workers; w++) {
            const uint64_t *was = from[w] < 0 ? NULL : &entries[2 * ((size_t)p * workers + (size_t)from[w])];
            *gw_clock_table_at(t, p, w) = (gw_clock_table_entry){
                .clock = was ? was[0] : 0, .next = was ? was[1] : 0, .no_push_yet = true, .clock_unknown = !was};
        }
    }
    return true;
}

void gw_clock_table_admit(gw_clock_table *t, int w, uint64_t clock) {
    for (int p = 0; p < t->partitions; p++) {
        gw_clock_table_at(t, p, w)->clock = clock;
        gw_clock_table_at(t, p, w)->clock_unknown = false;
    }
}

void gw_clock_table_used(gw_clock_table *t, int p, int w, uint64_t number, int joined) {
    if (w >= 0) gw_clock_table_at(t, p, w)->clock = number + 1;
    else t->round[p] = number + 1, t->joined[p] = joined;
    for (int i = 0; w < 0 && i < t->workers; i++) gw_clock_table_at(t, p, i)->next = number + 1;
}

uint64_t gw_clock_table_lost(const gw_clock_table *t, int w) { return t->per_worker[w].lost; }
int gw_clock_table_pushed_since_restore(const gw_clock_table *t) { return t->heard; }
