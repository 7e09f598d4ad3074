/* payload_memory.c - how many coded buckets may be in flight, and how much memory their payloads get: for as many
 * buckets as the schedule lets be in flight, at most config.payload_bytes_max, and at least for the largest bucket. */
#include <math.h>
#include <stdlib.h>

#include "reducer/step_engine_internal.h"

static size_t bytes_max(const gw_step_engine *s) {
    return s->config.payload_bytes_max ? s->config.payload_bytes_max : (size_t)64 << 20;
}

/* Messages to all members: an operation has about 3 KB of state for each of them. */
#define PEERS_IN_FLIGHT 1024
#define BUCKETS_MIN 2 /* one is encoded while another travels */

static size_t smaller(size_t a, size_t b) { return a < b ? a : b; }

static const gw_bucket *bucket_of(const gw_step_engine *s, int p) { return gw_schedule_bucket(s->schedule, p); }

static double payload_of_byte(const gw_step_engine *s, int p) {
    return (double)s->transfers[p].payload_bytes / (double)bucket_of(s, p)->bytes;
}

/* What buckets of so many bytes need together, at most: those with most payload for a byte. */
static size_t within_credit(const gw_step_engine *s, size_t credit) {
    double need = 0, left = (double)credit, below = HUGE_VAL;
    while (left > 0) {
        double best = 0, bytes = 0;
        for (int p = 0; p < gw_schedule_buckets(s->schedule); p++)
            if (payload_of_byte(s, p) < below && payload_of_byte(s, p) > best) best = payload_of_byte(s, p);
        for (int p = 0; p < gw_schedule_buckets(s->schedule); p++)
            if (payload_of_byte(s, p) == best) bytes += (double)bucket_of(s, p)->bytes;
        if (best == 0) break;
        need += best * (bytes < left ? bytes : left);
        left -= bytes;
        below = best;
    }
    return (size_t)need + GW_PAYLOAD_ALIGNMENT;
}

/* A policy that reorders without credit has one bucket in flight. */
static size_t most_in_flight(const gw_step_engine *s, size_t largest) {
    size_t credit = gw_schedule_current_settings(s->schedule)->credit_bytes;
    if (!s->config.policy->reorders) return bytes_max(s);
    return credit ? within_credit(s, credit) : largest;
}

static int buckets_at_once(const gw_step_engine *s) {
    int buckets = gw_schedule_buckets(s->schedule);
    for (int p = 0; p < buckets; p++) {
        if (!s->transfers[p].route.coded || gw_step_engine_form(s, p) == GW_FORM_IN_FLIGHT) continue;
        int within = PEERS_IN_FLIGHT / s->lanes.hosts;
        return within > BUCKETS_MIN ? within : BUCKETS_MIN;
    }
    return buckets;
}

static size_t moved_bytes(const gw_step_engine *s, int bucket) {
    const gw_transfer *transfer = &s->transfers[bucket];
    size_t bytes = 0;
    for (int l = 0; l < transfer->lane_count; l++)
        if (transfer->lanes[l].exchange) bytes += gw_coded_exchange_moved_bytes(transfer->lanes[l].exchange);
    return bytes;
}

/* Of a bucket: what it needs, and what its busiest rank sends and receives. */
typedef struct need {
    size_t payload, moved;
} need;

static int larger_first(const void *a, const void *b) {
    size_t x = ((const need *)a)->payload, y = ((const need *)b)->payload;
    return x < y ? 1 : x > y ? -1 : 0;
}

/* Of the first buckets, at most `leases`, that fit together. */
static need fitting(const need *needs, int count, int leases, size_t bytes) {
    need sum = {0};
    for (int i = 0; i < count && leases > 0; i++) {
        if (sum.payload + needs[i].payload > bytes) continue;
        sum.payload += needs[i].payload;
        sum.moved += needs[i].moved;
        leases--;
    }
    return sum;
}

static gw_status open_pool(gw_step_engine *s, need *needs, int count, gw_error *error) {
    int leases = buckets_at_once(s);
    for (int p = 0; p < count; p++) needs[p] = (need){s->transfers[p].payload_bytes, moved_bytes(s, p)};
    qsort(needs, (size_t)count, sizeof *needs, larger_first);
    size_t all = fitting(needs, count, leases, SIZE_MAX).payload, largest = count ? needs[0].payload : 0;
    if (all == 0) return GW_OK;
    size_t wanted = smaller(smaller(all, bytes_max(s)), most_in_flight(s, largest));
    if (wanted < largest) wanted = largest;
    s->payload_in_flight = fitting(needs, count, leases, wanted).moved;
    return gw_payload_pool_open(&s->payloads, wanted, leases, error);
}

gw_status gw_payload_memory_open(gw_step_engine *s, gw_error *error) {
    int count = gw_schedule_buckets(s->schedule);
    need *needs = calloc((size_t)count + 1, sizeof *needs);
    if (!needs) return gw_fail(error, GW_MEMORY, "out of memory for %d buckets", count);
    gw_payload_pool_close(s->payloads);
    s->payloads = NULL;
    s->payload_in_flight = 0;
    gw_status status = open_pool(s, needs, count, error);
    free(needs);
    return status;
}

gw_step_engine_payloads gw_step_engine_payload_memory(const gw_step_engine *s) {
    return (gw_step_engine_payloads){.memory = s->payloads ? gw_payload_pool_bytes(s->payloads) : 0,
                                     .in_flight = s->payload_in_flight};
}
