/* next_bucket.c - the two ways to choose the next bucket that policies share. */
#include "schedule/schedule_internal.h"

int gw_next_by_produced(const gw_schedule *s) {
    if (s->bucket_count == 0) return -1;
    return s->buckets[s->cursor].state == GW_BUCKET_READY ? s->cursor : -1;
}

static bool comes_before(const gw_bucket *a, const gw_bucket *b) {
    return a->readied != b->readied ? a->readied < b->readied : a->priority < b->priority;
}

int gw_next_by_priority(const gw_schedule *s, size_t credit) {
    int best = -1;
    for (int p = 0; p < s->bucket_count; p++)
        if (s->buckets[p].state == GW_BUCKET_READY && (best < 0 || comes_before(&s->buckets[p], &s->buckets[best])))
            best = p;
    if (best >= 0 && s->in_flight && s->in_flight_bytes + s->buckets[best].payload > credit) return -1;
    return best;
}
