/* stepper_ps_state.c - all that a server knows, as one block of bytes: for a snapshot, for a replica, and for itself
 * when ranks come together anew. A head, the seats of its workers, weights, results, the optimiser's arrays for its
 * shares, and its desk. Host order; exact. */
#include <stdlib.h>
#include <string.h>

#include "engine/stepper_ps_internal.h"

#define MAGIC UINT64_C(0x3176727365737767) /* "gwsesrv1" */

typedef struct state_head {
    uint64_t magic, bytes; /* of all */
    uint64_t server, servers, workers, parcels, space, arrays;
    uint64_t has_weights, desk;
} state_head;

/* A process, and not another that came in its place. */
static uint64_t identity(const gw_attendant *who) { return (uint64_t)who->life << 32 | (uint32_t)who->seat; }

/* Of the optimiser, for each tensor. */
static int arrays_of(const gw_ps *ps) {
    const gw_step_options *options = &ps->stepper->config.options;
    int arrays = 0;
    if (!options->state || !ps->weights_here || ps->stepper->config.count == 0) return 0;
    while (options->state(options->ctx, 0, arrays)) arrays++;
    return arrays;
}

static state_head head_of(const gw_ps *ps, const gw_shelf *shelf) {
    size_t space = ps->shares.space_bytes[shelf->server];
    state_head head = {.magic = MAGIC, .server = (uint64_t)shelf->server, .servers = (uint64_t)ps->servers,
                       .workers = (uint64_t)ps->world, .parcels = (uint64_t)ps->parcel_count, .space = space,
                       .arrays = (uint64_t)arrays_of(ps), .has_weights = ps->weights_here,
                       .desk = gw_desk_saved_bytes(shelf->desk)};
    head.bytes = sizeof head + head.workers * sizeof(uint64_t) + space * (1 + head.has_weights + head.arrays) +
                 head.desk;
    return head;
}

size_t gw_ps_state_bytes(const gw_ps *ps, const gw_shelf *shelf) { return head_of(ps, shelf).bytes; }

/* The optimiser's array number `which`, of the server's shares: to the block, or back from it. */
static void copy_array(const gw_ps *ps, int server, int which, uint8_t *block, bool back) {
    const gw_step_options *options = &ps->stepper->config.options;
    for (int i = 0; i < ps->shares.first_of[ps->shares.tensors]; i++) {
        const gw_share *share = &ps->shares.list[i];
        if (share->server != server) continue;
        float *own = options->state(options->ctx, share->tensor, which) + share->first;
        if (back) memcpy(own, block + share->at, share->count * sizeof *own);
        else memcpy(block + share->at, own, share->count * sizeof *own);
    }
}

void gw_ps_state_save(const gw_ps *ps, const gw_shelf *shelf, void *memory) {
    state_head head = head_of(ps, shelf);
    uint8_t *at = memory;
    memcpy(at, &head, sizeof head);
    at += sizeof head;
    for (int w = 0; w < ps->world; w++, at += sizeof(uint64_t)) {
        uint64_t seat = identity(&ps->placement.who[w]);
        memcpy(at, &seat, sizeof seat);
    }
    if (ps->weights_here) memcpy(at, shelf->weights, head.space), at += head.space;
    memcpy(at, shelf->result, head.space);
    at += head.space;
    for (int i = 0; i < (int)head.arrays; i++, at += head.space) {
        memset(at, 0, head.space); /* spaces have gaps */
        copy_array(ps, shelf->server, i, at, false);
    }
    gw_desk_save(shelf->desk, at);
}

static gw_status wrong(const gw_shelf *shelf, const char *what, gw_error *error) {
    return gw_fail(error, GW_MISMATCH, "the saved state of server %d does not fit: %s", shelf->server, what);
}

static gw_status check(const gw_ps *ps, const gw_shelf *shelf, const state_head *head, size_t bytes,
                       gw_error *error) {
    if (head->magic != MAGIC || head->bytes != bytes) return wrong(shelf, "it is not one, or cut short", error);
    if (head->server != (uint64_t)shelf->server || head->servers != (uint64_t)ps->servers)
        return wrong(shelf, "it is of another server, or of another number of servers", error);
    if (head->space != ps->shares.space_bytes[shelf->server] || head->parcels != (uint64_t)ps->parcel_count ||
        head->has_weights != ps->weights_here)
        return wrong(shelf, "it is of another model or strategy", error);
    if (head->arrays != (uint64_t)arrays_of(ps)) return wrong(shelf, "it is of another optimiser", error);
    if (head->workers > 1 << 20 || bytes != sizeof *head + head->workers * sizeof(uint64_t) +
                                                head->space * (1 + head->has_weights + head->arrays) + head->desk)
        return wrong(shelf, "it is damaged", error);
    return GW_OK;
}

/* from[w]: which of the saved workers worker w was; -1: none. */
static void match_seats(const gw_ps *ps, const uint8_t *seats, int workers, int *from) {
    for (int w = 0; w < ps->world; w++) {
        from[w] = -1;
        for (int i = 0; i < workers && !ps->placement.who[w].fresh; i++) {
            uint64_t seat;
            memcpy(&seat, seats + (size_t)i * sizeof seat, sizeof seat);
            if (seat == identity(&ps->placement.who[w])) from[w] = i;
        }
    }
}

gw_status gw_ps_state_restore(gw_ps *ps, gw_shelf *shelf, const void *memory, size_t bytes, bool old,
                              gw_error *error) {
    const uint8_t *at = memory;
    state_head head;
    if (bytes < sizeof head) return wrong(shelf, "it is cut short", error);
    memcpy(&head, at, sizeof head);
    gw_status status = check(ps, shelf, &head, bytes, error);
    if (status) return status;
    int *from = malloc((size_t)ps->world * sizeof *from);
    uint64_t *desk = malloc(head.desk + 1);
    if (from && desk) {
        at += sizeof head;
        match_seats(ps, at, (int)head.workers, from);
        at += head.workers * sizeof(uint64_t);
        if (ps->weights_here) memcpy(shelf->weights, at, head.space), at += head.space;
        memcpy(shelf->result, at, head.space);
        at += head.space;
        for (int i = 0; i < (int)head.arrays; i++, at += head.space)
            copy_array(ps, shelf->server, i, (uint8_t *)(uintptr_t)at, true);
        memcpy(desk, at, head.desk); /* aligned */
        if (!gw_desk_restore(shelf->desk, desk, head.desk, from, old)) status = wrong(shelf, "its desk", error);
    } else {
        status = gw_fail(error, GW_MEMORY, "out of memory for the state of a server");
    }
    free(from);
    free(desk);
    return status;
}
