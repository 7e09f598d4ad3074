/* start_order.c - see start_order.h. */
#include "reducer/start_order.h"

#include <stdlib.h>
#include <string.h>

#define DECISIONS 15 /* in one message */
#define MESSAGES 16  /* in flight at a time */

typedef struct message {
    uint32_t count;
    uint32_t buckets[DECISIONS];
} message;

struct gw_start_order {
    gw_core *core;
    gw_team *team;
    int rank, size;
    message draft;          /* rank 0: not sent yet */
    message sent[MESSAGES]; /* rank 0: until all ranks have received it */
    gw_op **ops;            /* rank 0: its sends, size entries for each message; NULL: none */
    message inbox;          /* others: the message being received, or followed */
    gw_op *receiving;       /* others: the receive of inbox; NULL: none */
    uint32_t taken;         /* others: decisions of inbox that were followed */
};

gw_status gw_start_order_open(gw_start_order **out, gw_core *core, gw_team *team, gw_error *error) {
    gw_start_order *o = calloc(1, sizeof *o);
    if (!o) return gw_fail(error, GW_MEMORY, "out of memory for the start order of buckets");
    *o = (gw_start_order){.core = core, .team = team, .rank = gw_team_rank(team), .size = gw_team_size(team)};
    o->ops = calloc((size_t)(o->size * MESSAGES), sizeof *o->ops);
    if (!o->ops) {
        gw_start_order_close(o);
        return gw_fail(error, GW_MEMORY, "out of memory for the start order of buckets");
    }
    *out = o;
    return GW_OK;
}

static void release(gw_op **op) {
    if (*op) gw_op_release(*op);
    *op = NULL;
}

void gw_start_order_close(gw_start_order *o) {
    if (!o) return;
    for (int i = 0; o->ops && i < o->size * MESSAGES; i++) release(&o->ops[i]);
    release(&o->receiving);
    free(o->ops);
    free(o);
}

bool gw_start_order_leads(const gw_start_order *o) { return o->rank == 0; }

bool gw_start_order_quiet(const gw_start_order *o) {
    if (o->receiving && !gw_op_done(o->receiving)) return false;
    for (int i = 0; i < o->size * MESSAGES; i++)
        if (o->ops[i] && !gw_op_done(o->ops[i])) return false;
    return o->draft.count == 0;
}

/* Rank 0. */

static gw_status reap(gw_start_order *o, int slot, bool *free_slot, gw_error *error) {
    *free_slot = true;
    for (int r = 1; r < o->size; r++) {
        gw_op **op = &o->ops[slot * o->size + r];
        if (!*op) continue;
        if (!gw_op_done(*op)) {
            *free_slot = false;
            continue;
        }
        gw_status status = gw_op_status(*op);
        release(op);
        gw_engine_explain(gw_core_engine(o->core), status, error);
        if (status) return status;
    }
    return GW_OK;
}

bool gw_start_order_has_space(const gw_start_order *o) { return o->draft.count < DECISIONS; }

void gw_start_order_decide(gw_start_order *o, int bucket) { o->draft.buckets[o->draft.count++] = (uint32_t)bucket; }

static gw_status send_to_all(gw_start_order *o, int slot, gw_time now, gw_error *error) {
    gw_status status = GW_OK;
    o->sent[slot] = o->draft;
    o->draft.count = 0;
    for (int r = 1; !status && r < o->size; r++) {
        gw_op_spec spec = {.collective = GW_COLL_SEND, .builder = &gw_plan_send_recv, .in = &o->sent[slot],
                           .count = sizeof(message), .dtype = GW_U8, .root = r};
        status = gw_core_start(o->core, &o->ops[slot * o->size + r], o->team, &spec, now, error);
    }
    return status;
}

gw_status gw_start_order_send(gw_start_order *o, gw_time now, gw_error *error) {
    if (o->draft.count == 0) return GW_OK;
    for (int slot = 0; slot < MESSAGES; slot++) {
        bool free_slot = false;
        gw_status status = reap(o, slot, &free_slot, error);
        if (status) return status;
        if (free_slot) return send_to_all(o, slot, now, error);
    }
    return GW_OK; /* all slots are in flight: the next poll tries again */
}

/* The others. */

int gw_start_order_next(const gw_start_order *o) {
    return !o->receiving && o->taken < o->inbox.count ? (int)o->inbox.buckets[o->taken] : -1;
}

void gw_start_order_take(gw_start_order *o) { o->taken++; }

static gw_status receive(gw_start_order *o, gw_time now, gw_error *error) {
    gw_op_spec spec = {.collective = GW_COLL_RECV,
                       .builder = &gw_plan_send_recv,
                       .out = &o->inbox,
                       .count = sizeof(message),
                       .dtype = GW_U8,
                       .root = 0};
    o->taken = o->inbox.count = 0;
    return gw_core_start(o->core, &o->receiving, o->team, &spec, now, error);
}

gw_status gw_start_order_poll(gw_start_order *o, bool wanted, gw_time now, bool *moved, gw_error *error) {
    if (o->rank == 0) return gw_start_order_send(o, now, error);
    if (!o->receiving && o->taken == o->inbox.count && wanted) {
        gw_status status = receive(o, now, error);
        if (status) return status;
    }
    if (!o->receiving || !gw_op_done(o->receiving)) return GW_OK;
    gw_status status = gw_op_status(o->receiving);
    release(&o->receiving);
    *moved = true;
    gw_engine_explain(gw_core_engine(o->core), status, error);
    if (status) return status;
    if (o->inbox.count > DECISIONS)
        return gw_fail_rank(error, GW_PROTOCOL, gw_team_member(o->team, 0),
                            "rank %d sent an order of %u buckets, more than a message holds",
                            gw_team_member(o->team, 0), o->inbox.count);
    return GW_OK;
}
