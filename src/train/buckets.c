/* buckets.c - see buckets.h. */
#include "train/buckets.h"

#include <stdlib.h>

/* Cuts the table from its end; with list NULL only counts. */
static int cut(const gw_model *model, size_t bytes, gw_bucket *list) {
    int count = 0;
    for (int end = model->parameters; end > 0; count++) {
        int first = end;
        size_t floats = 0;
        while (first > 0 && (first == end || floats * sizeof(float) < bytes)) floats += model->table[--first].count;
        if (list)
            list[count] = (gw_bucket){
                .first = first, .parameters = end - first, .offset = model->table[first].offset, .count = floats};
        end = first;
    }
    return count;
}

gw_status gw_buckets_create(gw_comm *comm, const gw_model *model, size_t bytes, gw_buckets *buckets, gw_error *error) {
    int count = cut(model, bytes, NULL);
    *buckets = (gw_buckets){.comm = comm, .model = model, .count = count};
    buckets->list = calloc((size_t)count + 1, sizeof *buckets->list);
    buckets->requests = calloc((size_t)count + 1, sizeof *buckets->requests);
    if (!buckets->list || !buckets->requests) {
        gw_buckets_destroy(buckets);
        return gw_fail(error, GW_MEMORY, "no memory for %d buckets", count);
    }
    cut(model, bytes, buckets->list);
    return GW_OK;
}

void gw_buckets_destroy(gw_buckets *buckets) {
    for (int i = 0; buckets->requests && i < buckets->started; i++) gw_wait(buckets->requests[i]);
    free(buckets->requests);
    free(buckets->list);
    *buckets = (gw_buckets){0};
}

void gw_buckets_begin(gw_buckets *buckets) {
    buckets->started = 0;
    buckets->starting = 0;
    buckets->status = GW_OK;
}

static void start_next(gw_buckets *b) {
    const gw_bucket *bucket = &b->list[b->started];
    float *gradients = b->model->gradients + bucket->offset;
    gw_time begun = gw_clock_now();
    gw_status status =
        gw_allreduce_start(b->comm, gradients, gradients, bucket->count, GW_F32, GW_SUM, &b->requests[b->started]);
    if (status != GW_OK && b->status == GW_OK) b->status = status;
    b->starting += gw_clock_now() - begun;
    b->started++;
}

void gw_buckets_ready(void *ctx, int parameter) {
    gw_buckets *b = ctx;
    if (b->started < b->count && b->list[b->started].first == parameter) start_next(b);
}

void gw_buckets_rest(gw_buckets *buckets) {
    while (buckets->started < buckets->count) start_next(buckets);
}

gw_status gw_buckets_wait(gw_buckets *buckets, int i, gw_error *error) {
    gw_status status = gw_wait(buckets->requests[i]);
    buckets->requests[i] = NULL;
    if (buckets->status != GW_OK) status = buckets->status;
    return status == GW_OK ? GW_OK : gw_fail(error, status, "%s", gw_last_error(buckets->comm));
}
