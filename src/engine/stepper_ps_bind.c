/* stepper_ps_bind.c - what a cut of the schedule means for servers: pieces become parcels. See stepper_ps.h. */
#include <stdlib.h>
#include <string.h>

#include "base/dtype.h"
#include "engine/stepper_ps_internal.h"

static size_t element_of(const gw_ps *ps, int tensor) {
    return gw_dtype_bytes(ps->stepper->tensors[tensor].what.dtype);
}

size_t gw_parcel_segment_bytes(const gw_ps *ps, const gw_segment *segment) {
    return segment->count * element_of(ps, segment->tensor);
}

uint8_t *gw_ps_tensor_at(const gw_ps *ps, const gw_segment *segment, bool weights) {
    const gw_sync_tensor *view = &ps->stepper->tensors[segment->tensor].view;
    return (uint8_t *)(weights ? view->weights : view->travels) + segment->first * element_of(ps, segment->tensor);
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

/* The piece's parcel for that server which ends right before `at` and has room, or a new one. */
static gw_parcel *parcel_for(gw_ps *ps, int piece, int server, size_t at, gw_dtype dtype) {
    for (int i = ps->first_parcel[piece]; i < ps->parcel_count; i++) {
        gw_parcel *p = &ps->parcels[i];
        if (p->server == server && p->at + p->bytes == at && p->dtype == dtype && p->bytes < ps->parcel_bytes) return p;
    }
    if (!grow((void **)&ps->parcels, &ps->parcel_room, ps->parcel_count, sizeof *ps->parcels)) return NULL;
    gw_parcel *p = &ps->parcels[ps->parcel_count++];
    *p = (gw_parcel){.piece = piece, .server = server, .at = at, .dtype = dtype};
    return p;
}

/* Segments are gathered by parcel afterwards; until then `first` of a segment's parcel is not set. */
typedef struct draft {
    int parcel;
    gw_segment segment;
} draft;

typedef struct draft_list {
    draft *list;
    int used, room;
} draft_list;

/* What a share and a span have in common goes into parcels. */
static bool deal_out(gw_ps *ps, int piece, const gw_span *span, const gw_share *share, draft_list *drafts) {
    size_t element = element_of(ps, span->tensor), at = share->at;
    size_t first = span->first > share->first ? span->first : share->first;
    size_t end = span->first + span->count, share_end = share->first + share->count;
    if (share_end < end) end = share_end;
    while (first < end) {
        at = share->at + (first - share->first) * element;
        gw_parcel *p = parcel_for(ps, piece, share->server, at, ps->stepper->tensors[span->tensor].what.dtype);
        if (!p || !grow((void **)&drafts->list, &drafts->room, drafts->used, sizeof *drafts->list)) return false;
        size_t room = p->bytes < ps->parcel_bytes ? (ps->parcel_bytes - p->bytes) / element : 0, count = end - first;
        size_t grain = gw_ps_codec_grain(ps, span->tensor, 1); /* a codec's block is not cut */
        if (grain) room = room < grain ? grain : room / grain * grain;
        else room = count;
        if (count > room) count = room;
        drafts->list[drafts->used++] = (draft){(int)(p - ps->parcels), {span->tensor, first, count}};
        p->bytes += count * element;
        p->count += count;
        p->segments++;
        first += count;
    }
    return true;
}

static bool cut_piece(gw_ps *ps, int piece, draft_list *drafts) {
    const gw_schedule *schedule = ps->stepper->schedule;
    const gw_span *spans = gw_schedule_spans(schedule, piece);
    ps->first_parcel[piece] = ps->parcel_count;
    for (int i = 0; i < gw_schedule_piece(schedule, piece)->spans; i++)
        for (int k = ps->shares.first_of[spans[i].tensor]; k < ps->shares.first_of[spans[i].tensor + 1]; k++)
            if (!deal_out(ps, piece, &spans[i], &ps->shares.list[k], drafts)) return false;
    return true;
}

static bool gather_segments(gw_ps *ps, const draft_list *drafts) {
    gw_segment *segments = realloc(ps->segments, ((size_t)drafts->used + 1) * sizeof *segments);
    if (!segments) return false;
    ps->segments = segments;
    for (int i = 0, at = 0; i < ps->parcel_count; i++) {
        ps->parcels[i].first = at;
        at += ps->parcels[i].segments;
        ps->parcels[i].segments = 0;
    }
    for (int i = 0; i < drafts->used; i++) {
        gw_parcel *p = &ps->parcels[drafts->list[i].parcel];
        segments[p->first + p->segments++] = drafts->list[i].segment;
    }
    return true;
}

static bool lies_together(const gw_ps *ps, const gw_parcel *p, bool weights) {
    const gw_segment *segments = &ps->segments[p->first];
    for (int i = 1; i < p->segments; i++)
        if (gw_ps_tensor_at(ps, &segments[i - 1], weights) + gw_parcel_segment_bytes(ps, &segments[i - 1]) !=
            gw_ps_tensor_at(ps, &segments[i], weights))
            return false;
    return true;
}

/* What a worker needs to find out by how much weights move. */
static gw_status take_moved(gw_ps *ps, gw_error *error) {
    if (!ps->additive || ps->stepper->config.serves_only) return GW_OK;
    for (int i = 0; i < ps->parcel_count; i++)
        if (ps->parcels[i].bytes > ps->moved_bytes) ps->moved_bytes = ps->parcels[i].bytes;
    free(ps->moved);
    ps->moved = malloc(ps->moved_bytes + 1);
    return ps->moved ? GW_OK : gw_fail(error, GW_MEMORY, "out of memory for %zu bytes of weights", ps->moved_bytes);
}

static gw_status place(gw_ps *ps, gw_error *error) {
    bool stages = false, pushes = !ps->stepper->config.serves_only;
    for (int i = 0; i < ps->parcel_count; i++) {
        gw_parcel *p = &ps->parcels[i];
        p->packs = pushes && !lies_together(ps, p, false);
        p->unpacks = pushes && !lies_together(ps, p, ps->weights_here);
        stages |= p->packs || p->unpacks;
    }
    if (stages && !ps->staging && !(ps->staging = malloc(ps->staging_bytes + 1)))
        return gw_fail(error, GW_MEMORY, "out of memory for %zu bytes of pushes", ps->staging_bytes);
    for (int i = 0; i < ps->parcel_count; i++) {
        gw_parcel *p = &ps->parcels[i];
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
    int pieces = gw_schedule_pieces(ps->stepper->schedule);
    draft_list drafts = {0};
    bool fits = true;
    ps->parcel_count = 0;
    for (int p = 0; p < pieces && fits; p++) fits = cut_piece(ps, p, &drafts);
    ps->first_parcel[pieces] = ps->parcel_count;
    fits = fits && gather_segments(ps, &drafts);
    free(drafts.list);
    if (!fits) return gw_fail(error, GW_MEMORY, "out of memory for parcels of %d pieces", pieces);
    gw_status status = place(ps, error);
    if (!status) status = take_moved(ps, error);
    return status ? status : gw_ps_codec_lay(ps, error);
}
