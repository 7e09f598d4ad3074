/* schedule_check.c - see schedule_check.h. */
#include "sim/schedule_check.h"

#include <stdlib.h>
#include <string.h>

void gw_schedule_check_free(gw_schedule_check *w) {
    free(w->moved);
    w->moved = NULL;
}

static bool moves(const gw_bucket *bucket) {
    return bucket->state == GW_BUCKET_MOVING || bucket->state == GW_BUCKET_SPREADING;
}

/* A poll collects ready buckets before it starts any, so a bucket that is ready after the poll was ready before. */
static bool overtook(const gw_schedule *s, const gw_bucket *started) {
    for (int p = 0; p < gw_schedule_buckets(s); p++) {
        const gw_bucket *bucket = gw_schedule_bucket(s, p);
        if (bucket->state != GW_BUCKET_READY || bucket->readied > started->readied) continue;
        if (bucket->readied < started->readied || bucket->priority < started->priority) return true;
    }
    return false;
}

const char *gw_schedule_check_poll(gw_schedule_check *w, const gw_schedule *s) {
    const gw_policy *policy = gw_schedule_policy(s);
    size_t credit = gw_schedule_current_settings(s)->credit_bytes;
    const char *wrong = NULL;
    int in_flight = 0, buckets = gw_schedule_buckets(s);
    if (buckets != w->buckets) { /* the first poll */
        gw_schedule_check_free(w);
        w->moved = calloc((size_t)buckets + 1, sizeof *w->moved);
        if (!w->moved) abort();
        w->buckets = buckets;
    }
    for (int p = 0; p < buckets; p++) {
        const gw_bucket *bucket = gw_schedule_bucket(s, p);
        bool started = moves(bucket) && !w->moved[p];
        if (started && policy->reorders && overtook(s, bucket)) wrong = "a bucket was started before a more urgent one";
        w->moved[p] = moves(bucket);
        in_flight += bucket->in_flight; /* over servers a bucket moves on after it was sent */
    }
    if (!w->decides) return NULL;
    if (policy->reorders && !credit && in_flight > 1) wrong = "two buckets are in flight where one may be";
    if (credit && in_flight > 1 && gw_schedule_in_flight(s) > credit) wrong = "more is in flight than the credit";
    return wrong;
}
