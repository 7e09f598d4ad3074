/* publish.c - see publish.h. */
#include "engine/publish.h"

#include <stdlib.h>
#include <string.h>

#define DECISIONS 15 /* in one message */
#define MESSAGES 16  /* on their way at a time */

typedef struct message {
    uint32_t count;
    uint32_t pieces[DECISIONS];
} message;

struct gw_publisher {
    gw_core *core;
    gw_team *team;
    int rank, size;
    message draft;               /* rank 0: not sent yet */
    message sent[MESSAGES];      /* rank 0: until all have it */
    gw_op **ops;                 /* rank 0: size entries for each message; NULL: none */
    message inbox;               /* others: being received, or being taken from */
    gw_op *receiving;
    uint32_t taken;
};

gw_status gw_publisher_open(gw_publisher **out, gw_core *core, gw_team *team, gw_error *error) {
    gw_publisher *p = calloc(1, sizeof *p);
    if (!p) return gw_fail(error, GW_MEMORY, "out of memory for the order of a step");
    *p = (gw_publisher){.core = core, .team = team, .rank = gw_team_rank(team), .size = gw_team_size(team)};
    p->ops = calloc((size_t)(p->size * MESSAGES), sizeof *p->ops);
    if (!p->ops) {
        gw_publisher_close(p);
        return gw_fail(error, GW_MEMORY, "out of memory for the order of a step");
    }
    *out = p;
    return GW_OK;
}

static void release(gw_op **op) {
    if (*op) gw_op_release(*op);
    *op = NULL;
}

void gw_publisher_close(gw_publisher *p) {
    if (!p) return;
    for (int i = 0; p->ops && i < p->size * MESSAGES; i++) release(&p->ops[i]);
    release(&p->receiving);
    free(p->ops);
    free(p);
}

bool gw_publisher_leads(const gw_publisher *p) { return p->rank == 0; }

bool gw_publisher_quiet(const gw_publisher *p) {
    if (p->receiving && !gw_op_done(p->receiving)) return false;
    for (int i = 0; i < p->size * MESSAGES; i++)
        if (p->ops[i] && !gw_op_done(p->ops[i])) return false;
    return p->draft.count == 0;
}

/* Rank 0. */

static gw_status reap(gw_publisher *p, int slot, bool *free_slot, gw_error *error) {
    *free_slot = true;
    for (int r = 1; r < p->size; r++) {
        gw_op **op = &p->ops[slot * p->size + r];
        if (!*op) continue;
        if (!gw_op_done(*op)) {
            *free_slot = false;
            continue;
        }
        gw_status status = gw_op_status(*op);
        release(op);
        gw_engine_explain(gw_core_engine(p->core), status, error);
        if (status) return status;
    }
    return GW_OK;
}

bool gw_publisher_room(const gw_publisher *p) { return p->draft.count < DECISIONS; }

void gw_publisher_decide(gw_publisher *p, int piece) { p->draft.pieces[p->draft.count++] = (uint32_t)piece; }

static gw_status send_to_all(gw_publisher *p, int slot, gw_time now, gw_error *error) {
    gw_status status = GW_OK;
    p->sent[slot] = p->draft;
    p->draft.count = 0;
    for (int r = 1; !status && r < p->size; r++) {
        gw_op_spec spec = {.collective = GW_COLL_SEND, .builder = &gw_plan_pair, .in = &p->sent[slot],
                           .count = sizeof(message), .dtype = GW_U8, .root = r};
        status = gw_core_start(p->core, &p->ops[slot * p->size + r], p->team, &spec, now, error);
    }
    return status;
}

gw_status gw_publisher_send(gw_publisher *p, gw_time now, gw_error *error) {
    if (p->draft.count == 0) return GW_OK;
    for (int slot = 0; slot < MESSAGES; slot++) {
        bool free_slot = false;
        gw_status status = reap(p, slot, &free_slot, error);
        if (status) return status;
        if (free_slot) return send_to_all(p, slot, now, error);
    }
    return GW_OK; /* all are on their way: the next poll tries again */
}

/* The others. */

int gw_publisher_next(const gw_publisher *p) {
    return !p->receiving && p->taken < p->inbox.count ? (int)p->inbox.pieces[p->taken] : -1;
}

void gw_publisher_take(gw_publisher *p) { p->taken++; }

static gw_status receive(gw_publisher *p, gw_time now, gw_error *error) {
    gw_op_spec spec = {.collective = GW_COLL_RECV, .builder = &gw_plan_pair, .out = &p->inbox, .count = sizeof(message),
                       .dtype = GW_U8, .root = 0};
    p->taken = p->inbox.count = 0;
    return gw_core_start(p->core, &p->receiving, p->team, &spec, now, error);
}

gw_status gw_publisher_poll(gw_publisher *p, bool wanted, gw_time now, bool *moved, gw_error *error) {
    if (p->rank == 0) return gw_publisher_send(p, now, error);
    if (!p->receiving && p->taken == p->inbox.count && wanted) {
        gw_status status = receive(p, now, error);
        if (status) return status;
    }
    if (!p->receiving || !gw_op_done(p->receiving)) return GW_OK;
    gw_status status = gw_op_status(p->receiving);
    release(&p->receiving);
    *moved = true;
    gw_engine_explain(gw_core_engine(p->core), status, error);
    if (status) return status;
    if (p->inbox.count > DECISIONS)
        return gw_fail_rank(error, GW_PROTOCOL, gw_team_member(p->team, 0),
                            "rank %d published an order of %u pieces, more than a message holds",
                            gw_team_member(p->team, 0), p->inbox.count);
    return GW_OK;
}
