/* schedule.c - the states of buckets. See schedule.h. */
#include "schedule/schedule_internal.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

size_t gw_tensor_bytes(const gw_schedule *s, int tensor) {
    return s->tensors[tensor].count * s->tensors[tensor].element;
}

static int buckets_at_most(const gw_schedule_tensor *tensors, int count) {
    size_t most = 0;
    for (int t = 0; t < count; t++)
        most += 1 + (tensors[t].whole ? 0 : tensors[t].count * tensors[t].element / GW_SLICE_BYTES_MIN);
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
    s->bucket_room = s->tensors ? buckets_at_most(tensors, count) : 0;
    s->range_room = s->bucket_room;
    s->buckets = calloc((size_t)s->bucket_room + 1, sizeof *s->buckets);
    s->ranges = calloc((size_t)s->range_room + 1, sizeof *s->ranges);
    s->first_bucket = calloc((size_t)count + 1, sizeof *s->first_bucket);
    s->last_bucket = calloc((size_t)count + 1, sizeof *s->last_bucket);
    s->places = calloc(2 * (size_t)count + 1, sizeof *s->places);
    s->transfers = calloc((size_t)count + 1, sizeof *s->transfers);
    gw_status status = GW_OK;
    if (!s->tensors || !s->buckets || !s->ranges || !s->first_bucket || !s->last_bucket || !s->places || !s->transfers)
        status = gw_fail(error, GW_MEMORY, "out of memory for a schedule of %d tensors", count);
    if (!status && policy->needs_graph) status = gw_forward_graph_open(&s->graph, tensors, count, error);
    if (status) {
        gw_schedule_close(s);
        return status;
    }
    for (int t = 0; t < count; t++) s->tensors[t].after = NULL;
    gw_schedule_cut(s, settings, NULL);
    *out = s;
    return GW_OK;
}

void gw_schedule_close(gw_schedule *s) {
    if (!s) return;
    gw_forward_graph_close(s->graph);
    free(s->transfers);
    free(s->places);
    free(s->last_bucket);
    free(s->first_bucket);
    free(s->ranges);
    free(s->buckets);
    free(s->tensors);
    free(s);
}

/* Of so many elements, rounded up. */
static size_t payload_of(const gw_schedule_tensor *tensor, size_t count) {
    if (!tensor->payload) return count * tensor->element;
    return (size_t)ceil((double)tensor->payload * (double)count / (double)tensor->count);
}

static void index_buckets(gw_schedule *s) {
    for (int t = 0; t < s->tensor_count; t++) s->first_bucket[t] = s->last_bucket[t] = -1;
    for (int p = 0; p < s->bucket_count; p++) {
        gw_bucket *bucket = &s->buckets[p];
        for (int i = 0; i < bucket->ranges; i++) {
            const gw_tensor_range *range = &s->ranges[bucket->first_range + i];
            if (s->first_bucket[range->tensor] < 0) s->first_bucket[range->tensor] = p;
            s->last_bucket[range->tensor] = p;
            bucket->bytes += range->count * s->tensors[range->tensor].element;
            bucket->payload += payload_of(&s->tensors[range->tensor], range->count);
        }
        bucket->missing = bucket->ranges;
        bucket->priority = s->ranges[bucket->first_range].tensor;
        bucket->readied = s->steps_over;
    }
}

void gw_schedule_cut(gw_schedule *s, const gw_schedule_settings *settings, const gw_schedule_facts *facts) {
    assert(gw_schedule_idle(s));
    s->settings = *settings;
    s->facts = facts ? *facts : (gw_schedule_facts){0};
    s->bucket_count = s->range_count = 0;
    s->cursor = 0;
    s->policy->cut(s);
    index_buckets(s);
    if (s->policy->rank) s->policy->rank(s);
}

bool gw_schedule_idle(const gw_schedule *s) {
    for (int p = 0; p < s->bucket_count; p++)
        if (s->buckets[p].state != GW_BUCKET_GATHERING || s->buckets[p].missing != s->buckets[p].ranges) return false;
    return true;
}

const gw_policy *gw_schedule_policy(const gw_schedule *s) { return s->policy; }
const gw_schedule_settings *gw_schedule_current_settings(const gw_schedule *s) { return &s->settings; }
int gw_schedule_buckets(const gw_schedule *s) { return s->bucket_count; }
int gw_schedule_buckets_max(const gw_schedule *s) { return s->bucket_room; }
const gw_bucket *gw_schedule_bucket(const gw_schedule *s, int bucket) { return &s->buckets[bucket]; }
const gw_tensor_range *gw_schedule_ranges(const gw_schedule *s, int bucket) {
    return &s->ranges[s->buckets[bucket].first_range];
}
size_t gw_schedule_in_flight(const gw_schedule *s) { return s->in_flight_bytes; }

int gw_schedule_buckets_of(const gw_schedule *s, int tensor, int *first) {
    *first = s->first_bucket[tensor];
    return *first < 0 ? 0 : s->last_bucket[tensor] - *first + 1;
}

/* Events. */

void gw_schedule_ready(gw_schedule *s, int tensor) {
    int first, count = gw_schedule_buckets_of(s, tensor, &first);
    for (int p = first; p < first + count; p++) {
        gw_bucket *bucket = &s->buckets[p];
        assert(bucket->state == GW_BUCKET_GATHERING && bucket->missing > 0);
        if (--bucket->missing > 0) continue;
        bucket->state = GW_BUCKET_READY;
        bucket->readied++;
    }
}

void gw_schedule_backward_done(gw_schedule *s) { s->steps_over++; }

int gw_schedule_next(const gw_schedule *s) { return s->policy->next(s); }

bool gw_schedule_startable(const gw_schedule *s, int bucket) {
    return s->buckets[bucket].state == GW_BUCKET_READY || s->buckets[bucket].state == GW_BUCKET_HALFWAY;
}

void gw_schedule_start(gw_schedule *s, int p) {
    gw_bucket *bucket = &s->buckets[p];
    assert(gw_schedule_startable(s, p));
    bucket->state = bucket->state == GW_BUCKET_READY ? GW_BUCKET_MOVING : GW_BUCKET_SPREADING;
    s->cursor = (s->cursor + 1) % (s->policy->splits ? 2 * s->bucket_count : s->bucket_count);
    bucket->in_flight = true;
    s->in_flight++;
    s->in_flight_bytes += bucket->payload;
}

/* First halves are most urgent: a whole backward pass may wait for them. Of the second halves, the next forward pass
 * first needs those that were produced last. */
uint8_t gw_schedule_urgency(const gw_schedule *s, int p, bool second) {
    if (!s->policy->splits) return 0;
    return second ? (uint8_t)((int64_t)GW_URGENCY_MAX * p / s->bucket_count) : GW_URGENCY_MAX;
}

void gw_schedule_sent(gw_schedule *s, int p) {
    gw_bucket *bucket = &s->buckets[p];
    if (!bucket->in_flight) return;
    bucket->in_flight = false;
    s->in_flight--;
    s->in_flight_bytes -= bucket->payload;
}

bool gw_schedule_done(gw_schedule *s, int p) {
    gw_bucket *bucket = &s->buckets[p];
    assert(bucket->state == GW_BUCKET_MOVING || bucket->state == GW_BUCKET_SPREADING);
    gw_schedule_sent(s, p);
    if (bucket->state == GW_BUCKET_MOVING && s->policy->splits) {
        bucket->state = GW_BUCKET_HALFWAY;
        return false;
    }
    bucket->state = GW_BUCKET_GATHERING;
    bucket->missing = bucket->ranges;
    return true;
}
