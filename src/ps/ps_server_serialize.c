/* ps_server_serialize.c - the state of a server as one block of bytes: for a snapshot, for a replica, and for a move
 * after a loss. Layout: a head, the identities of its workers, weights, results, the optimiser's arrays for its shards,
 * and its clock table. Host byte order; values are saved bit by bit. */
#include <stdlib.h>
#include <string.h>

#include "ps/ps_internal.h"

#define MAGIC UINT64_C(0x3276727365737767) /* "gwsesrv2" */

typedef struct state_head {
    uint64_t magic, bytes; /* of all */
    uint64_t server, servers, workers, partitions, space, arrays;
    uint64_t has_weights, clock_table;
} state_head;

/* Of one process; a process that replaces it has another identity. */
static uint64_t identity(const gw_ps_member *who) { return (uint64_t)who->generation << 32 | (uint32_t)who->member; }

/* How many arrays the optimiser has for each tensor. */
static int arrays_of(const gw_ps *ps) {
    const gw_reducer_options *options = &ps->step_engine->config.options;
    int arrays = 0;
    if (!options->state || !ps->weights_here || ps->step_engine->config.count == 0) return 0;
    while (options->state(options->ctx, 0, arrays)) arrays++;
    return arrays;
}

static state_head head_of(const gw_ps *ps, const gw_shard_store *store) {
    size_t space = ps->shards.space_bytes[store->server];
    state_head head = {.magic = MAGIC, .server = (uint64_t)store->server, .servers = (uint64_t)ps->servers,
                       .workers = (uint64_t)ps->world, .partitions = (uint64_t)ps->partition_count, .space = space,
                       .arrays = (uint64_t)arrays_of(ps), .has_weights = ps->weights_here,
                       .clock_table = gw_clock_table_saved_bytes(store->clocks)};
    head.bytes =
        sizeof head + head.workers * sizeof(uint64_t) + space * (1 + head.has_weights + head.arrays) + head.clock_table;
    return head;
}

size_t gw_ps_state_bytes(const gw_ps *ps, const gw_shard_store *store) { return head_of(ps, store).bytes; }

/* Copies the optimiser's array number `which` of the server's shards to the block, or back from it. */
static void copy_array(const gw_ps *ps, int server, int which, uint8_t *block, bool back) {
    const gw_reducer_options *options = &ps->step_engine->config.options;
    for (int i = 0; i < ps->shards.first_of[ps->shards.tensors]; i++) {
        const gw_shard *shard = &ps->shards.list[i];
        if (shard->server != server) continue;
        float *own = options->state(options->ctx, shard->tensor, which);
        uint8_t *at = block + shard->at;
        gw_segment part = {.tensor = shard->tensor};
        for (; gw_ps_next_stripe(shard, &part); at += part.count * sizeof *own) {
            if (back) memcpy(own + part.first, at, part.count * sizeof *own);
            else memcpy(at, own + part.first, part.count * sizeof *own);
        }
    }
}

void gw_ps_state_save(const gw_ps *ps, const gw_shard_store *store, void *memory) {
    state_head head = head_of(ps, store);
    uint8_t *at = memory;
    memcpy(at, &head, sizeof head);
    at += sizeof head;
    for (int w = 0; w < ps->world; w++, at += sizeof(uint64_t)) {
        uint64_t member = identity(&ps->placement.members[w]);
        memcpy(at, &member, sizeof member);
    }
    if (ps->weights_here) memcpy(at, store->weights, head.space), at += head.space;
    memcpy(at, store->result, head.space);
    at += head.space;
    for (int i = 0; i < (int)head.arrays; i++, at += head.space) {
        memset(at, 0, head.space); /* spaces have gaps */
        copy_array(ps, store->server, i, at, false);
    }
    gw_clock_table_save(store->clocks, at);
}

static gw_status wrong(const gw_shard_store *store, const char *what, gw_error *error) {
    return gw_fail(error, GW_MISMATCH, "the saved state of server %d does not fit: %s", store->server, what);
}

static gw_status check(const gw_ps *ps, const gw_shard_store *store, const state_head *head, size_t bytes,
                       gw_error *error) {
    if (head->magic != MAGIC || head->bytes != bytes) return wrong(store, "it is not one, or cut short", error);
    if (head->server != (uint64_t)store->server || head->servers != (uint64_t)ps->servers)
        return wrong(store, "it is of another server, or of another number of servers", error);
    if (head->space != ps->shards.space_bytes[store->server] || head->partitions != (uint64_t)ps->partition_count ||
        head->has_weights != ps->weights_here)
        return wrong(store, "it is of another model or strategy", error);
    if (head->arrays != (uint64_t)arrays_of(ps)) return wrong(store, "it is of another optimiser", error);
    uint64_t known = sizeof *head + head->space * (1 + head->has_weights + head->arrays);
    if (head->workers > 1 << 20 || bytes < known || (bytes - known) / sizeof(uint64_t) < head->workers ||
        head->clock_table != bytes - known - head->workers * sizeof(uint64_t))
        return wrong(store, "it is damaged", error);
    return GW_OK;
}

/* from[w]: which of the saved workers worker w was; -1: none. */
static void match_members(const gw_ps *ps, const uint8_t *members, int workers, int *from) {
    for (int w = 0; w < ps->world; w++) {
        from[w] = -1;
        for (int i = 0; i < workers && !ps->placement.members[w].fresh; i++) {
            uint64_t member;
            memcpy(&member, members + (size_t)i * sizeof member, sizeof member);
            if (member == identity(&ps->placement.members[w])) from[w] = i;
        }
    }
}

/* The blocks after the identities, once the clock table is known to fit. */
static void restore_values(gw_ps *ps, gw_shard_store *store, const state_head *head, const uint8_t *at) {
    if (ps->weights_here) memcpy(store->weights, at, head->space), at += head->space;
    memcpy(store->result, at, head->space);
    at += head->space;
    for (int i = 0; i < (int)head->arrays; i++, at += head->space)
        copy_array(ps, store->server, i, (uint8_t *)(uintptr_t)at, true);
}

gw_status gw_ps_state_restore(gw_ps *ps, gw_shard_store *store, const void *memory, size_t bytes, bool old,
                              gw_error *error) {
    const uint8_t *members = (const uint8_t *)memory + sizeof(state_head);
    state_head head;
    if (bytes < sizeof head) return wrong(store, "it is cut short", error);
    memcpy(&head, memory, sizeof head);
    gw_status status = check(ps, store, &head, bytes, error);
    if (status) return status;
    int *from = malloc((size_t)ps->world * sizeof *from);
    uint64_t *clock_table = malloc(head.clock_table + 1);
    if (from && clock_table) {
        match_members(ps, members, (int)head.workers, from);
        memcpy(clock_table, (const uint8_t *)memory + bytes - head.clock_table, head.clock_table); /* aligned */
        if (gw_clock_table_restore(store->clocks, clock_table, head.clock_table, from, old))
            restore_values(ps, store, &head, members + head.workers * sizeof(uint64_t));
        else status = wrong(store, "its clock table", error);
    } else {
        status = gw_fail(error, GW_MEMORY, "out of memory for the state of a server");
    }
    free(from);
    free(clock_table);
    return status;
}
