/* bucket_cut.c - cuts tensors into buckets: fuses neighbours, slices large ones. */
#include "schedule/schedule_internal.h"

#include <assert.h>

#define TAPER_BYTES_MIN ((size_t)64 << 10)
#define PART_BYTES_MIN ((size_t)16 << 10) /* that one rank reduces */
#define FIRST_BYTES_MAX ((size_t)1 << 20) /* as in DDP */

static gw_bucket *open_bucket(gw_schedule *s) {
    assert(s->bucket_count < s->bucket_room);
    gw_bucket *bucket = &s->buckets[s->bucket_count++];
    *bucket = (gw_bucket){.first_range = s->range_count, .state = GW_BUCKET_GATHERING};
    return bucket;
}

static void add_range(gw_schedule *s, gw_bucket *bucket, int tensor, size_t first, size_t count) {
    assert(s->range_count < s->range_room);
    s->ranges[s->range_count++] = (gw_tensor_range){.tensor = tensor, .first = first, .count = count};
    bucket->ranges++;
}

void gw_cut_run(gw_schedule *s, int first, int end) {
    gw_bucket *bucket = NULL;
    for (int t = first; t < end; t++) {
        if (s->tensors[t].count == 0) continue;
        if (!bucket) bucket = open_bucket(s);
        add_range(s, bucket, t, 0, s->tensors[t].count);
    }
}

static void slice(gw_schedule *s, int tensor, size_t slice_bytes) {
    size_t count = s->tensors[tensor].count, bytes = gw_tensor_bytes(s, tensor);
    size_t grain = s->tensors[tensor].grain ? s->tensors[tensor].grain : 1, grains = (count + grain - 1) / grain;
    size_t slices = (bytes + slice_bytes - 1) / slice_bytes;
    if (slices > grains) slices = grains;
    for (size_t i = 0; i < slices; i++) {
        size_t first = grains * i / slices * grain, end = grains * (i + 1) / slices * grain;
        if (end > count) end = count;
        add_range(s, open_bucket(s), tensor, first, end - first);
    }
}

/* What a tensor is cut to; 0: it is not cut. */
static size_t slice_bytes_of(const gw_schedule *s, int tensor, size_t slice_bytes) {
    size_t piece = s->tensors[tensor].piece, most = slice_bytes;
    if (piece && (!most || piece < most)) most = piece;
    return s->tensors[tensor].whole || gw_tensor_bytes(s, tensor) <= most ? 0 : most;
}

static size_t smaller(size_t a, size_t b) { return a < b ? a : b; }
static size_t larger(size_t a, size_t b) { return a < b ? b : a; }

/* A bucket below it costs little more than its start-ups. */
static size_t parts_bytes(const gw_schedule *s) { return (size_t)s->settings.parts * PART_BYTES_MIN; }

static size_t all_bytes(const gw_schedule *s) {
    size_t bytes = 0;
    for (int t = 0; t < s->tensor_count; t++) bytes += gw_tensor_bytes(s, t);
    return bytes;
}

size_t gw_share_of_all(const gw_schedule *s, size_t parts, size_t least, size_t most) {
    return smaller(larger(all_bytes(s) / parts, larger(least, parts_bytes(s))), most);
}

static void cut_tapered(gw_schedule *s, size_t first_bytes, size_t fuse_bytes) {
    size_t before = all_bytes(s), grown = smaller(first_bytes, fuse_bytes);
    size_t least = larger(TAPER_BYTES_MIN, parts_bytes(s));
    for (int end = s->tensor_count; end > 0; grown = smaller(2 * grown, fuse_bytes)) {
        int first = end - 1;
        size_t bytes = gw_tensor_bytes(s, first), slice_bytes = slice_bytes_of(s, first, 0);
        size_t limit = smaller(larger(before / 2, least), grown);
        if (slice_bytes) slice(s, first, slice_bytes);
        while (!slice_bytes && first > 0 && s->tensors[first - 1].kind == s->tensors[first].kind &&
               bytes + gw_tensor_bytes(s, first - 1) <= limit)
            bytes += gw_tensor_bytes(s, --first);
        if (!slice_bytes) gw_cut_run(s, first, end);
        before -= bytes;
        end = first;
    }
}

void gw_cut_tapered(gw_schedule *s, size_t fuse_bytes) { cut_tapered(s, fuse_bytes, fuse_bytes); }

void gw_cut_growing(gw_schedule *s, size_t fuse_bytes_max) {
    size_t all = all_bytes(s), least = larger(TAPER_BYTES_MIN, parts_bytes(s));
    size_t first = larger(smaller(all / 32, FIRST_BYTES_MAX), least);
    cut_tapered(s, first, smaller(larger(all / 8, least), fuse_bytes_max));
}

void gw_cut_by_bytes(gw_schedule *s, size_t fuse_bytes, size_t slice_bytes) {
    for (int end = s->tensor_count; end > 0;) {
        int first = end - 1;
        size_t bytes = gw_tensor_bytes(s, first), cut = slice_bytes_of(s, first, slice_bytes);
        if (cut) {
            slice(s, first, cut);
            end = first;
            continue;
        }
        while (first > 0 && s->tensors[first - 1].kind == s->tensors[first].kind &&
               bytes + gw_tensor_bytes(s, first - 1) <= fuse_bytes)
            bytes += gw_tensor_bytes(s, --first);
        gw_cut_run(s, first, end);
        end = first;
    }
}
