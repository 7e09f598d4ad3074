/* ps_bind.c - after a cut of the schedule: divides buckets into partitions, one message each. See ps.h. */
#include <stdlib.h>
#include <string.h>

#include "base/dtype.h"
#include "ps/ps_internal.h"

static size_t element_of(const gw_ps *ps, int tensor) {
    return gw_dtype_bytes(ps->step_engine->tensors[tensor].what.dtype);
}

size_t gw_partition_message_bytes(const gw_ps *ps, const gw_segment *segment) {
    return segment->count * element_of(ps, segment->tensor);
}

uint8_t *gw_ps_tensor_at(const gw_ps *ps, const gw_segment *segment, bool weights) {
    const gw_sync_tensor *view = &ps->step_engine->tensors[segment->tensor].view;
    return (uint8_t *)(weights ? view->weights : view->travels) + segment->first * element_of(ps, segment->tensor);
}

size_t gw_ps_grain(const gw_ps *ps, int tensor, size_t grain) {
    return ps->whole ? 0 : gw_ps_codec_grain(ps, tensor, grain);
}

static bool grow(void **memory, int *room, int used, size_t size) {
    if (used < *room) return true;
    int larger = *room ? 2 * *room : 64;
    void *grown = realloc(*memory, (size_t)larger * size);
    if (!grown) return false;
    *memory = grown;
    *room = larger;
    return true;
}

/* The bucket's partition for that server which ends right before `at` and has room, mostly the last; or a new one. */
static gw_partition *partition_for(gw_ps *ps, int bucket, int server, size_t at, gw_dtype dtype) {
    for (int i = ps->partition_count - 1; i >= ps->first_partition[bucket]; i--) {
        gw_partition *p = &ps->partitions[i];
        if (p->server == server && p->at + p->bytes == at && p->dtype == dtype && p->bytes < ps->partition_bytes)
            return p;
    }
    if (!grow((void **)&ps->partitions, &ps->partition_room, ps->partition_count, sizeof *ps->partitions)) return NULL;
    gw_partition *p = &ps->partitions[ps->partition_count++];
    *p = (gw_partition){.bucket = bucket, .server = server, .at = at, .dtype = dtype};
    return p;
}

/* Segments are gathered by partition afterwards; until then a partition's `first` is not set. */
typedef struct draft {
    int partition;
    gw_segment segment;
} draft;

typedef struct draft_list {
    draft *list;
    int used, room;
} draft_list;

/* What a shard and a range have in common goes into partitions. */
static bool deal_out(gw_ps *ps, int bucket, const gw_tensor_range *range, const gw_shard *shard, draft_list *drafts) {
    size_t element = element_of(ps, range->tensor);
    size_t grain = gw_ps_grain(ps, range->tensor, 1); /* a codec's block is not cut */
    uint64_t from = range->first, run;
    while (gw_stripes_next(&shard->covers, &from, range->first + range->count, &run)) {
        size_t at = shard->at + gw_stripes_place(&shard->covers, from) * element, count = run;
        gw_partition *p =
            partition_for(ps, bucket, shard->server, at, ps->step_engine->tensors[range->tensor].what.dtype);
        if (!p || !grow((void **)&drafts->list, &drafts->room, drafts->used, sizeof *drafts->list)) return false;
        size_t room = p->bytes < ps->partition_bytes ? (ps->partition_bytes - p->bytes) / element : 0;
        if (grain) room = room < grain ? grain : room / grain * grain;
        else room = count;
        if (count > room) count = room;
        drafts->list[drafts->used++] = (draft){(int)(p - ps->partitions), {range->tensor, from, count}};
        p->bytes += count * element;
        p->count += count;
        p->segments++;
        from += count;
    }
    return true;
}

static bool cut_bucket(gw_ps *ps, int bucket, draft_list *drafts) {
    const gw_schedule *schedule = ps->step_engine->schedule;
    const gw_tensor_range *ranges = gw_schedule_ranges(schedule, bucket);
    ps->first_partition[bucket] = ps->partition_count;
    for (int i = 0; i < gw_schedule_bucket(schedule, bucket)->ranges; i++)
        for (int k = ps->shards.first_of[ranges[i].tensor]; k < ps->shards.first_of[ranges[i].tensor + 1]; k++)
            if (!deal_out(ps, bucket, &ranges[i], &ps->shards.list[k], drafts)) return false;
    return true;
}

static bool gather_segments(gw_ps *ps, const draft_list *drafts) {
    gw_segment *segments = realloc(ps->segments, ((size_t)drafts->used + 1) * sizeof *segments);
    if (!segments) return false;
    ps->segments = segments;
    for (int i = 0, at = 0; i < ps->partition_count; i++) {
        ps->partitions[i].first = at;
        at += ps->partitions[i].segments;
        ps->partitions[i].segments = 0;
    }
    for (int i = 0; i < drafts->used; i++) {
        gw_partition *p = &ps->partitions[drafts->list[i].partition];
        segments[p->first + p->segments++] = drafts->list[i].segment;
    }
    return true;
}

static bool lies_together(const gw_ps *ps, const gw_partition *p, bool weights) {
    const gw_segment *segments = &ps->segments[p->first];
    for (int i = 1; i < p->segments; i++)
        if (gw_ps_tensor_at(ps, &segments[i - 1], weights) + gw_partition_message_bytes(ps, &segments[i - 1]) !=
            gw_ps_tensor_at(ps, &segments[i], weights))
            return false;
    return true;
}

/* What a worker needs to find out by how much weights move. */
static gw_status take_moved(gw_ps *ps, gw_error *error) {
    if (!ps->additive || ps->step_engine->config.serves_only) return GW_OK;
    for (int i = 0; i < ps->partition_count; i++)
        if (ps->partitions[i].bytes > ps->moved_bytes) ps->moved_bytes = ps->partitions[i].bytes;
    free(ps->moved);
    ps->moved = malloc(ps->moved_bytes + 1);
    return ps->moved ? GW_OK : gw_fail(error, GW_MEMORY, "out of memory for %zu bytes of weights", ps->moved_bytes);
}

static gw_status place(gw_ps *ps, gw_error *error) {
    bool stages = false, pushes = !ps->step_engine->config.serves_only;
    for (int i = 0; i < ps->partition_count; i++) {
        gw_partition *p = &ps->partitions[i];
        p->packs = pushes && !lies_together(ps, p, false);
        p->unpacks = pushes && !lies_together(ps, p, ps->weights_here);
        stages |= p->packs || p->unpacks;
    }
    if (stages && !ps->staging && !(ps->staging = malloc(ps->staging_bytes + 1)))
        return gw_fail(error, GW_MEMORY, "out of memory for %zu bytes of pushes", ps->staging_bytes);
    for (int i = 0; i < ps->partition_count; i++) {
        gw_partition *p = &ps->partitions[i];
        uint8_t *staged = ps->staging ? ps->staging + ps->space_at[p->server] + p->at : NULL;
        p->rounds = 1;
        p->slot_at = p->at;
        p->slot_bytes = p->push_bytes = p->answer_bytes = p->bytes;
        p->from = p->packs ? staged : gw_ps_tensor_at(ps, &ps->segments[p->first], false);
        p->to = p->unpacks ? staged : gw_ps_tensor_at(ps, &ps->segments[p->first], ps->weights_here);
    }
    return GW_OK;
}

gw_status gw_ps_cut(gw_ps *ps, gw_error *error) {
    int buckets = gw_schedule_buckets(ps->step_engine->schedule);
    draft_list drafts = {0};
    bool fits = true;
    ps->partition_count = 0;
    for (int p = 0; p < buckets && fits; p++) fits = cut_bucket(ps, p, &drafts);
    ps->first_partition[buckets] = ps->partition_count;
    fits = fits && gather_segments(ps, &drafts);
    free(drafts.list);
    if (!fits) return gw_fail(error, GW_MEMORY, "out of memory for partitions of %d buckets", buckets);
    gw_status status = place(ps, error);
    if (!status) status = take_moved(ps, error);
    return status ? status : gw_ps_codec_lay(ps, error);
}
