/* stepper_ps_copy.c - replicas (replication after aggregation: Li et al. 2014): what a server has used, a push or the
 * sum of a round, it gives to a second server on another rank, which does the same with it; only then are the workers
 * answered. Whatever was not answered is pushed again when the server is lost, so its loss loses nothing.
 *
 * Copies of one parcel go one after the other, in the order of use. Cost: a message there and one back for each push
 * (at once) or each round, and at once as many bytes as pushes have. */
#include <stdlib.h>
#include <string.h>

#include "engine/stepper_ps_internal.h"

static int copy_rank(const gw_ps *ps) { return ps->own < 0 ? -1 : ps->placement.copy_of[ps->own]; }

bool gw_ps_copies(const gw_ps *ps) { return copy_rank(ps) >= 0; }

gw_status gw_ps_copy_open(gw_ps *ps, gw_error *error) {
    int server = gw_placement_copy(&ps->placement, ps->rank);
    if (gw_ps_copies(ps) && !(ps->scratch = malloc(ps->shares.space_bytes[ps->own] + 1)))
        return gw_fail(error, GW_MEMORY, "out of memory for the replica of a server");
    if (server < 0) return GW_OK;
    gw_status status = gw_shelf_open(ps, &ps->copy, server, error);
    if (status) return status;
    ps->copy_landing = malloc(ps->shares.space_bytes[server] + 1);
    return ps->copy_landing ? GW_OK : gw_fail(error, GW_MEMORY, "out of memory for the replica of a server");
}

void gw_ps_copy_close(gw_ps *ps) {
    gw_shelf_close(&ps->copy);
    free(ps->copy_landing);
    free(ps->scratch);
    ps->scratch = NULL;
    ps->copy_landing = NULL;
    gw_ps_copy_clear(ps);
}

void gw_ps_copy_clear(gw_ps *ps) {
    free(ps->copy_queue);
    free(ps->copy_step);
    free(ps->copy_waiting);
    ps->copy_queue = ps->copy_waiting = NULL;
    ps->copy_step = NULL;
    ps->copies_due = 0;
}

/* The server. */

/* For each parcel the workers whose pushes are to be copied; made when the first is, for parcels as they are cut. */
static bool make_queues(gw_ps *ps) {
    if (ps->copy_queue) return true;
    ps->copy_queue = calloc((size_t)ps->parcel_count * (size_t)ps->world + 1, sizeof *ps->copy_queue);
    ps->copy_step = calloc((size_t)ps->parcel_count * (size_t)ps->world + 1, sizeof *ps->copy_step);
    ps->copy_waiting = calloc((size_t)ps->parcel_count + 1, sizeof *ps->copy_waiting);
    return ps->copy_queue && ps->copy_step && ps->copy_waiting;
}

static void send_first(gw_ps *ps, int parcel, uint64_t number, uint64_t step, gw_time now, gw_error *error) {
    const gw_parcel *p = &ps->parcels[parcel];
    int worker = ps->copy_queue[(size_t)parcel * (size_t)ps->world];
    gw_letter letter = {.kind = gw_letter_of(GW_PS_COPY, worker), .parcel = (uint32_t)parcel, .round = number,
                        .step = step, .bytes = p->bytes};
    const uint8_t *what = worker < 0 ? ps->shelf.result + p->at : gw_ps_pushed_by(ps, p, worker);
    gw_mail_send(ps->mail, copy_rank(ps), &letter, what, now, error);
}

void gw_ps_copy_out(gw_ps *ps, int parcel, int worker, uint64_t number, uint64_t step, gw_time now, gw_error *error) {
    if (!gw_ps_copies(ps)) return;
    if (!make_queues(ps)) {
        gw_fail(error, GW_MEMORY, "out of memory for the replica of a server");
        return;
    }
    gw_desk_unsafe(ps->shelf.desk, parcel, worker);
    int *queue = &ps->copy_queue[(size_t)parcel * (size_t)ps->world];
    if (worker >= 0) ps->copy_step[(size_t)parcel * (size_t)ps->world + (size_t)worker] = step;
    queue[ps->copy_waiting[parcel]++] = worker;
    ps->copies_due++;
    if (ps->copy_waiting[parcel] == 1) send_first(ps, parcel, number, step, now, error);
}

void gw_ps_copied(gw_ps *ps, const gw_letter *letter, gw_time now, gw_error *error) {
    int parcel = (int)letter->parcel, worker = gw_letter_worker(letter);
    bool known = letter->parcel < (uint32_t)ps->parcel_count && ps->copy_waiting && ps->copy_waiting[parcel] > 0;
    int *queue = known ? &ps->copy_queue[(size_t)parcel * (size_t)ps->world] : NULL;
    if (!known || queue[0] != worker) {
        gw_fail(error, GW_PROTOCOL, "the replica of server %d has a copy of parcel %d, which nobody sent", ps->own,
                parcel);
        return;
    }
    ps->copies_due--;
    ps->copy_waiting[parcel]--;
    memmove(queue, queue + 1, (size_t)ps->copy_waiting[parcel] * sizeof *queue);
    gw_desk_safe(ps->shelf.desk, parcel, worker);
    if (ps->copy_waiting[parcel]) {
        int next = queue[0];
        send_first(ps, parcel, gw_desk_clock(ps->shelf.desk, parcel, next) - 1,
                   ps->copy_step[(size_t)parcel * (size_t)ps->world + (size_t)next], now, error);
    }
    if (!error->status) gw_ps_answer_due(ps, parcel, now, error);
}

static bool all_left(const gw_ps *ps) {
    for (int w = 0; w < ps->world; w++)
        if (!gw_desk_left(ps->shelf.desk, w)) return false;
    return true;
}

bool gw_ps_copy_end(gw_ps *ps, gw_time now, gw_error *error) {
    int to = copy_rank(ps);
    if (to < 0 || ps->said_close || !ps->said_leave || ps->copies_due || !all_left(ps)) return false;
    gw_letter letter = {.kind = GW_PS_CLOSE};
    ps->said_close = true;
    gw_mail_send(ps->mail, to, &letter, NULL, now, error);
    return true;
}

/* The replica. */

void gw_ps_copy_came(gw_ps *ps, int from, const gw_letter *letter, gw_time now, gw_error *error) {
    int parcel = (int)letter->parcel, worker = gw_letter_worker(letter);
    const gw_parcel *p = &ps->parcels[parcel];
    const uint8_t *came = ps->copy_landing + p->at;
    if (worker >= ps->world) {
        gw_fail(error, GW_PROTOCOL, "rank %d copied a push of worker %d of %d",
                gw_team_member(ps->stepper->config.team, from), worker, ps->world);
        return;
    }
    if (worker < 0) memcpy(ps->copy.result + p->at, came, p->bytes);
    double scale = worker < 0 || ps->additive ? 1 : gw_ps_scale(ps);
    if (ps->weights_here) gw_ps_update(ps, &ps->copy, p, came, letter->step, scale);
    gw_desk_used(ps->copy.desk, parcel, worker, letter->round);
    gw_letter reply = {.kind = gw_letter_of(GW_PS_COPIED, worker), .parcel = letter->parcel};
    gw_mail_send(ps->mail, from, &reply, NULL, now, error);
}
