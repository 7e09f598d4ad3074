/* start_order.c - see start_order.h. */
#include "reducer/start_order.h"

#include <stdlib.h>

#include "arch/announcement_tree.h"

#define DECISIONS 15 /* in one message */
#define MESSAGES 16  /* kept at a time */

typedef struct message {
    uint32_t count;
    uint32_t buckets[DECISIONS];
} message;

/* A message, until it has been followed here and passed on. */
typedef struct entry {
    message message;
    gw_op *ops[GW_ANNOUNCEMENT_CHILDREN_MAX]; /* its sends to the children; NULL: over */
} entry;

struct gw_start_order {
    gw_core *core;
    gw_team *team;
    gw_announcement_tree tree;
    message draft;                  /* rank 0: not sent yet */
    entry entries[MESSAGES];        /* a ring, from `oldest` to before `end` */
    uint64_t oldest, followed, end; /* followed: the one with the next decision */
    uint32_t taken;                 /* decisions of that one that were followed */
    gw_op *receiving;               /* the message that will be at `end`; NULL: none */
};

gw_status gw_start_order_open(gw_start_order **out, gw_core *core, gw_team *team, gw_error *error) {
    gw_start_order *o = calloc(1, sizeof *o);
    if (!o) return gw_fail(error, GW_MEMORY, "out of memory for the start order of buckets");
    o->core = core;
    o->team = team;
    o->tree = gw_announcement_tree_of(gw_team_topology(team), gw_team_rank(team));
    *out = o;
    return GW_OK;
}

static void release(gw_op **op) {
    if (*op) gw_op_release(*op);
    *op = NULL;
}

void gw_start_order_close(gw_start_order *o) {
    if (!o) return;
    for (int i = 0; i < MESSAGES; i++)
        for (int c = 0; c < o->tree.count; c++) release(&o->entries[i].ops[c]);
    release(&o->receiving);
    free(o);
}

bool gw_start_order_leads(const gw_start_order *o) { return o->tree.parent < 0; }

static const entry *entry_at(const gw_start_order *o, uint64_t number) { return &o->entries[number % MESSAGES]; }

bool gw_start_order_quiet(const gw_start_order *o) {
    if (o->receiving && !gw_op_done(o->receiving)) return false;
    for (uint64_t i = o->oldest; i < o->end; i++)
        for (int c = 0; c < o->tree.count; c++)
            if (entry_at(o, i)->ops[c] && !gw_op_done(entry_at(o, i)->ops[c])) return false;
    return o->draft.count == 0;
}

/* Messages. */

static gw_status reap(const gw_start_order *o, gw_op **op, gw_error *error) {
    gw_status status = gw_op_status(*op);
    release(op);
    gw_engine_explain(gw_core_engine(o->core), status, error);
    return status;
}

/* Frees the oldest entries that have been followed and passed on. */
static gw_status retire(gw_start_order *o, gw_error *error) {
    for (; o->oldest < o->followed; o->oldest++) {
        bool sent = true;
        for (int c = 0; c < o->tree.count; c++) {
            gw_op **op = &o->entries[o->oldest % MESSAGES].ops[c];
            if (*op && gw_op_done(*op)) {
                gw_status status = reap(o, op, error);
                if (status) return status;
            }
            sent &= !*op;
        }
        if (!sent) break;
    }
    return GW_OK;
}

/* The message at `end` is complete. */
static gw_status pass_on(gw_start_order *o, gw_time now, gw_error *error) {
    entry *e = &o->entries[o->end++ % MESSAGES];
    gw_status status = GW_OK;
    for (int c = 0; !status && c < o->tree.count; c++) {
        gw_op_spec spec = {.collective = GW_COLL_SEND, .builder = &gw_plan_send_recv, .in = &e->message,
                           .count = sizeof(message), .dtype = GW_U8, .root = o->tree.children[c]};
        status = gw_core_start(o->core, &e->ops[c], o->team, &spec, now, error);
    }
    return status;
}

static bool has_entry(const gw_start_order *o) { return o->end - o->oldest < MESSAGES; }

/* If no entry is free, the next poll tries again. */
static gw_status send_draft(gw_start_order *o, gw_time now, gw_error *error) {
    if (o->draft.count == 0 || !has_entry(o)) return GW_OK;
    o->entries[o->end % MESSAGES].message = o->draft;
    o->draft.count = 0;
    o->followed = o->end + 1;
    return pass_on(o, now, error);
}

static gw_status receive(gw_start_order *o, gw_time now, gw_error *error) {
    gw_op_spec spec = {.collective = GW_COLL_RECV, .builder = &gw_plan_send_recv,
                       .out = &o->entries[o->end % MESSAGES].message, .count = sizeof(message), .dtype = GW_U8,
                       .root = o->tree.parent};
    return gw_core_start(o->core, &o->receiving, o->team, &spec, now, error);
}

static gw_status received(gw_start_order *o, gw_time now, gw_error *error) {
    gw_status status = reap(o, &o->receiving, error);
    if (status) return status;
    uint32_t count = entry_at(o, o->end)->message.count;
    int from = gw_team_member(o->team, o->tree.parent);
    if (count == 0 || count > DECISIONS)
        return gw_fail_rank(error, GW_PROTOCOL, from, "rank %d sent an order of %u buckets; a message holds 1 to %d",
                            from, count, DECISIONS);
    return pass_on(o, now, error);
}

gw_status gw_start_order_poll(gw_start_order *o, bool wanted, gw_time now, bool *moved, gw_error *error) {
    gw_status status = retire(o, error);
    if (status) return status;
    if (o->tree.parent < 0) return send_draft(o, now, error);
    if (!o->receiving && wanted && has_entry(o)) status = receive(o, now, error);
    if (status || !o->receiving || !gw_op_done(o->receiving)) return status;
    *moved = true;
    return received(o, now, error);
}

/* Decisions. */

bool gw_start_order_has_space(const gw_start_order *o) { return o->draft.count < DECISIONS; }

void gw_start_order_decide(gw_start_order *o, int bucket) { o->draft.buckets[o->draft.count++] = (uint32_t)bucket; }

int gw_start_order_next(const gw_start_order *o) {
    return o->followed < o->end ? (int)entry_at(o, o->followed)->message.buckets[o->taken] : -1;
}

void gw_start_order_take(gw_start_order *o) {
    if (++o->taken < entry_at(o, o->followed)->message.count) return;
    o->taken = 0;
    o->followed++;
}
