/* stepper_ps_move.c - servers and workers among other ranks: after a loss everybody keeps what he knew, comes together
 * with whoever is there now, hands each server's state to the rank that runs it from now on, and pushes again what was
 * not answered. Numbers of pushes (server/desk.h) see to it that nothing is used twice. */
#include <stdlib.h>
#include <string.h>

#include "engine/stepper_ps_internal.h"

/* What was known. */

static gw_status keep(gw_ps *ps, const gw_shelf *shelf, gw_kept_state *kept, gw_error *error) {
    free(kept->bytes);
    *kept = (gw_kept_state){.server = -1};
    if (shelf->server < 0) return GW_OK;
    kept->count = gw_ps_state_bytes(ps, shelf);
    kept->bytes = malloc(kept->count);
    if (!kept->bytes) return gw_fail(error, GW_MEMORY, "out of memory for what server %d knows", shelf->server);
    kept->server = shelf->server;
    gw_ps_state_save(ps, shelf, kept->bytes);
    return GW_OK;
}

static uint64_t furthest(const gw_ps *ps) {
    uint64_t most = 0;
    for (int i = 0; i < ps->parcel_count; i++)
        if (ps->parcels[i].round > most) most = ps->parcels[i].round;
    return most;
}

void gw_ps_attend(const gw_ps *ps, gw_attendant *mine) {
    mine->serves = ps->shelf.known ? ps->shelf.server : ps->kept[0].server;
    mine->copies = ps->copy.known ? ps->copy.server : ps->kept[1].server;
    mine->pushes = furthest(ps);
    mine->leaves = atomic_load(&ps->stepper->leaving);
}

/* What has not been handed over to this rank yet is not kept: whoever had it before still does. */
gw_status gw_ps_part(gw_ps *ps, gw_error *error) {
    gw_status status = GW_OK;
    if (ps->shelf.known) status = keep(ps, &ps->shelf, &ps->kept[0], error);
    if (!status && ps->copy.known) status = keep(ps, &ps->copy, &ps->kept[1], error);
    if (!status) gw_ps_unseat_all(ps);
    return status;
}

/* A push that was answered is over even if nobody said that it had left. */
static void mark_again(gw_ps *ps) {
    ps->repeats = ps->rule.spare > 0;
    for (int i = 0; i < ps->parcel_count; i++) {
        gw_parcel *p = &ps->parcels[i];
        if (p->left == 0) continue;
        if (p->answered) {
            p->left = 1;
            gw_ps_parcel_gone(ps, i);
            gw_ps_part_over(ps, i);
        } else {
            p->again = ps->repeats = true;
        }
    }
}

gw_status gw_ps_rejoin(gw_ps *ps, gw_error *error) {
    gw_status status = gw_ps_seat_all(ps, error);
    if (!status) status = gw_ps_open_desks(ps, error);
    if (status) return status;
    gw_ps_listen(ps);
    mark_again(ps);
    return GW_OK;
}

void gw_ps_forget(gw_ps *ps) {
    for (int i = 0; i < 2; i++) {
        free(ps->kept[i].bytes);
        ps->kept[i] = (gw_kept_state){.server = -1};
    }
}

/* Handing over. */

const gw_placement *gw_ps_placement(const gw_ps *ps) { return &ps->placement; }
size_t gw_ps_space(const gw_ps *ps, int server) { return ps->shares.space_bytes[server]; }
int gw_ps_parcels(const gw_ps *ps) { return ps->parcel_count; }
bool gw_ps_has_weights(const gw_ps *ps) { return ps->weights_here; }
void *gw_ps_space_weights(const gw_ps *ps) { return ps->shelf.weights; }
bool gw_ps_gives_weights(const gw_ps *ps) { return ps->additive && ps->placement.all_fresh; }

gw_status gw_ps_known(gw_ps *ps, int server, const void **bytes, size_t *count, gw_error *error) {
    if (server == ps->shelf.server && ps->shelf.known) { /* it has been handed over to this rank already */
        gw_status status = keep(ps, &ps->shelf, &ps->kept[0], error);
        if (status) return status;
    }
    for (int i = 0; i < 2; i++)
        if (ps->kept[i].server == server) {
            *bytes = ps->kept[i].bytes;
            *count = ps->kept[i].count;
            return GW_OK;
        }
    return gw_fail(error, GW_PROTOCOL, "this rank does not know what server %d knew", server);
}

gw_status gw_ps_take(gw_ps *ps, int server, const void *bytes, size_t count, gw_error *error) {
    gw_shelf *shelf = server == ps->shelf.server ? &ps->shelf : &ps->copy;
    gw_status status = gw_ps_state_restore(ps, shelf, bytes, count, false, error);
    if (!status) shelf->known = true;
    return status;
}

void gw_ps_admit(gw_ps *ps) {
    uint64_t floor = gw_placement_floor(&ps->placement);
    for (int w = 0; w < ps->world; w++) {
        if (!ps->placement.who[w].fresh || ps->placement.who[w].only || ps->placement.all_fresh) continue;
        if (ps->shelf.desk) gw_desk_admit(ps->shelf.desk, w, floor);
        if (ps->copy.desk) gw_desk_admit(ps->copy.desk, w, floor);
    }
}

void gw_ps_numbers(const gw_ps *ps, int worker, uint64_t *numbers) {
    for (int i = 0; i < ps->parcel_count; i++) numbers[i] = gw_desk_number(ps->shelf.desk, i, worker);
}

void gw_ps_begin_at(gw_ps *ps, int server, const uint64_t *numbers, const void *weights) {
    for (int i = 0; i < ps->parcel_count; i++)
        if (ps->parcels[i].server == server) ps->parcels[i].round = numbers[i];
    for (int i = 0; weights && i < ps->shares.first_of[ps->shares.tensors]; i++) {
        const gw_share *share = &ps->shares.list[i];
        gw_segment part = {share->tensor, share->first, share->count};
        if (share->server == server)
            memcpy(gw_ps_tensor_at(ps, &part, true), (const uint8_t *)weights + share->at,
                   gw_parcel_segment_bytes(ps, &part));
    }
}

void gw_ps_fresh(gw_ps *ps) { ps->shelf.known = true; }

gw_status gw_ps_settle(gw_ps *ps, gw_error *error) {
    gw_ps_forget(ps);
    ps->shelf.known = ps->copy.known = true;
    return gw_ps_keep_open(ps, error);
}
