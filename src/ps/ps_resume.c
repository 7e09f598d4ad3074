/* ps_resume.c - servers and workers after a loss: every rank keeps its state, joins the new team, sends each server's
 * state to the rank that runs it now, and pushes again what was not answered. The numbers of pushes (ps/clock_table.h)
 * ensure that none is used twice. */
#include <stdlib.h>
#include <string.h>

#include "ps/ps_internal.h"

/* Keeping state. */

static gw_status keep(gw_ps *ps, const gw_shard_store *store, gw_kept_state *kept, gw_error *error) {
    free(kept->bytes);
    *kept = (gw_kept_state){.server = -1};
    if (store->server < 0) return GW_OK;
    kept->count = gw_ps_state_bytes(ps, store);
    kept->bytes = malloc(kept->count);
    if (!kept->bytes) return gw_fail(error, GW_MEMORY, "out of memory for the state of server %d", store->server);
    kept->server = store->server;
    gw_ps_state_save(ps, store, kept->bytes);
    return GW_OK;
}

static uint64_t furthest(const gw_ps *ps) {
    uint64_t most = 0;
    for (int i = 0; i < ps->partition_count; i++)
        if (ps->partitions[i].round > most) most = ps->partitions[i].round;
    return most;
}

void gw_ps_describe_member(const gw_ps *ps, gw_ps_member *mine) {
    mine->serves = ps->store.known ? ps->store.server : ps->kept[0].server;
    mine->copies = ps->copy.known ? ps->copy.server : ps->kept[1].server;
    mine->pushes = furthest(ps);
    mine->leaves = atomic_load(&ps->step_engine->leaving);
}

/* State that was not yet transferred to this rank is not kept: the rank that sends it still has it. */
gw_status gw_ps_suspend(gw_ps *ps, gw_error *error) {
    gw_status status = GW_OK;
    if (ps->store.known) status = keep(ps, &ps->store, &ps->kept[0], error);
    if (!status && ps->copy.known) status = keep(ps, &ps->copy, &ps->kept[1], error);
    if (!status) gw_ps_close_team(ps);
    return status;
}

/* A push that was answered is over, even if its send has not been reported. */
static void mark_again(gw_ps *ps) {
    ps->repeats = ps->rule.spare > 0;
    for (int i = 0; i < ps->partition_count; i++) {
        gw_partition *p = &ps->partitions[i];
        if (p->left == 0) continue;
        if (p->answered) {
            p->left = 1;
            gw_ps_partition_gone(ps, i);
            gw_ps_partition_event_done(ps, i);
        } else {
            p->again = ps->repeats = true;
        }
    }
}

gw_status gw_ps_rejoin(gw_ps *ps, gw_error *error) {
    gw_status status = gw_ps_open_team(ps, error);
    if (!status) status = gw_ps_codec_lay(ps, error);
    if (!status) status = gw_ps_open_clock_tables(ps, error);
    if (status) return status;
    gw_ps_listen(ps);
    mark_again(ps);
    return GW_OK;
}

void gw_ps_free_kept(gw_ps *ps) {
    for (int i = 0; i < 2; i++) {
        free(ps->kept[i].bytes);
        ps->kept[i] = (gw_kept_state){.server = -1};
    }
}

/* Transfer of state. */

const gw_placement *gw_ps_placement(const gw_ps *ps) { return &ps->placement; }
size_t gw_ps_space(const gw_ps *ps, int server) { return ps->shards.space_bytes[server]; }
int gw_ps_partitions(const gw_ps *ps) { return ps->partition_count; }
bool gw_ps_has_weights(const gw_ps *ps) { return ps->weights_here; }
void *gw_ps_space_weights(const gw_ps *ps) { return ps->store.weights; }
bool gw_ps_gives_weights(const gw_ps *ps) { return ps->additive && ps->placement.all_fresh; }

gw_status gw_ps_get_state(gw_ps *ps, int server, const void **bytes, size_t *count, gw_error *error) {
    if (server == ps->store.server && ps->store.known) { /* it was transferred to this rank before */
        gw_status status = keep(ps, &ps->store, &ps->kept[0], error);
        if (status) return status;
    }
    for (int i = 0; i < 2; i++)
        if (ps->kept[i].server == server) {
            *bytes = ps->kept[i].bytes;
            *count = ps->kept[i].count;
            return GW_OK;
        }
    return gw_fail(error, GW_PROTOCOL, "this rank does not have the state of server %d", server);
}

gw_status gw_ps_set_state(gw_ps *ps, int server, const void *bytes, size_t count, gw_error *error) {
    gw_shard_store *store = server == ps->store.server ? &ps->store : &ps->copy;
    gw_status status = gw_ps_state_restore(ps, store, bytes, count, false, error);
    if (!status) store->known = true;
    return status;
}

void gw_ps_admit(gw_ps *ps) {
    uint64_t floor = gw_placement_slowest_clock(&ps->placement);
    for (int w = 0; w < ps->world; w++) {
        if (!ps->placement.members[w].fresh || ps->placement.members[w].serves_only || ps->placement.all_fresh)
            continue;
        if (ps->store.clocks) gw_clock_table_admit(ps->store.clocks, w, floor);
        if (ps->copy.clocks) gw_clock_table_admit(ps->copy.clocks, w, floor);
    }
}

void gw_ps_next_push_numbers(const gw_ps *ps, int worker, uint64_t *numbers) {
    for (int i = 0; i < ps->partition_count; i++) numbers[i] = gw_clock_table_number(ps->store.clocks, i, worker);
}

void gw_ps_begin_at(gw_ps *ps, int server, const uint64_t *numbers, const void *weights) {
    for (int i = 0; i < ps->partition_count; i++)
        if (ps->partitions[i].server == server) ps->partitions[i].round = numbers[i];
    for (int i = 0; weights && i < ps->shards.first_of[ps->shards.tensors]; i++) {
        const gw_shard *shard = &ps->shards.list[i];
        const uint8_t *at = (const uint8_t *)weights + shard->at;
        gw_segment part = {.tensor = shard->tensor};
        for (; shard->server == server && gw_ps_next_stripe(shard, &part); at += gw_partition_message_bytes(ps, &part))
            memcpy(gw_ps_tensor_at(ps, &part, true), at, gw_partition_message_bytes(ps, &part));
    }
}

void gw_ps_begin_fresh(gw_ps *ps) { ps->store.known = true; }

gw_status gw_ps_transfer_done(gw_ps *ps, gw_error *error) {
    gw_ps_free_kept(ps);
    ps->store.known = ps->copy.known = true;
    return gw_ps_snapshot_open(ps, error);
}
