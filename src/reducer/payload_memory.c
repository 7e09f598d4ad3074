/* payload_memory.c - how much memory the payloads of coded buckets in flight get: for as many buckets as the schedule
 * lets be in flight, at most config.payload_bytes_max, and at least for the largest bucket. */
#include <math.h>

#include "reducer/step_engine_internal.h"

static size_t bytes_max(const gw_step_engine *s) {
    return s->config.payload_bytes_max ? s->config.payload_bytes_max : (size_t)64 << 20;
}

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

gw_status gw_payload_memory_open(gw_step_engine *s, gw_error *error) {
    size_t largest = 0, all = 0;
    for (int p = 0; p < gw_schedule_buckets(s->schedule); p++) {
        all += s->transfers[p].payload_bytes;
        if (s->transfers[p].payload_bytes > largest) largest = s->transfers[p].payload_bytes;
    }
    gw_payload_pool_close(s->payloads);
    s->payloads = NULL;
    if (all == 0) return GW_OK;
    size_t wanted = smaller(smaller(all, bytes_max(s)), most_in_flight(s, largest));
    return gw_payload_pool_open(&s->payloads, wanted > largest ? wanted : largest, error);
}

static size_t moved_bytes(const gw_step_engine *s, int bucket) {
    const gw_transfer *transfer = &s->transfers[bucket];
    size_t bytes = 0;
    for (int l = 0; l < transfer->lane_count; l++)
        if (transfer->lanes[l].exchange) bytes += gw_coded_exchange_moved_bytes(transfer->lanes[l].exchange);
    return bytes;
}

gw_step_engine_payloads gw_step_engine_payload_memory(const gw_step_engine *s) {
    gw_step_engine_payloads p = {.memory = s->payloads ? gw_payload_pool_bytes(s->payloads) : 0};
    size_t held = 0, bytes = 0;
    for (int first = 0, end = 0; end < gw_step_engine_buckets(s); end++) {
        held += s->transfers[end].payload_bytes;
        bytes += moved_bytes(s, end);
        for (; held > p.memory; first++) {
            held -= s->transfers[first].payload_bytes;
            bytes -= moved_bytes(s, first);
        }
        if (bytes > p.in_flight) p.in_flight = bytes;
    }
    return p;
}
