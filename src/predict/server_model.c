/* server_model.c - see server_model.h. */
#include "predict/server_model.h"

#include <stdlib.h>

#include "engine/active_message.h"
#include "ps/clock_table.h"

enum { PUSH, ANSWER, WAYS };

/* A partition between a worker and its server. */
typedef struct exchange {
    gw_plan_sim_timer timer; /* first member: a pointer to it is one to the exchange */
    gw_server_model *model;
    int worker, bucket;
    bool same_host;        /* worker and server */
    int partition;         /* of all buckets' */
    int slot;              /* of the partition among those of its server */
    int round;             /* of the codec */
    uint64_t number, step; /* of the push */
    int ends[WAYS][2];     /* ranks: from, to */
    gw_plan_sim_team teams[WAYS];
} exchange;

/* A worker's bucket. */
typedef struct load {
    int unsent, unanswered; /* partitions */
} load;

struct gw_server_model {
    gw_server_model_config config;
    const gw_dispatch_partition **what; /* of each partition */
    int *first;                         /* partition of each bucket, and the end */
    exchange *exchanges;                /* [partition * ranks + worker] */
    load *loads;                        /* [bucket * ranks + worker] */
    int *slots;                         /* partitions of the server on each rank */
    gw_clock_table **clocks;            /* of that server; NULL: none there */
    gw_error *error;
    gw_status status;
};

static exchange *exchange_of(const gw_server_model *m, int partition, int worker) {
    return &m->exchanges[(size_t)partition * (size_t)m->config.ranks + (size_t)worker];
}

static load *load_of(const gw_server_model *m, const exchange *x) {
    return &m->loads[(size_t)x->bucket * (size_t)m->config.ranks + (size_t)x->worker];
}

static gw_clock_table *clocks_of(const gw_server_model *m, const exchange *x) {
    return m->clocks[m->what[x->partition]->server];
}

static gw_time now_of(const gw_server_model *m) { return (gw_time)(gw_plan_sim_now(m->config.sim) * GW_SECOND); }

/* Opening. */

static void name_ends(exchange *x, int server) {
    x->ends[PUSH][0] = x->ends[ANSWER][1] = x->worker;
    x->ends[PUSH][1] = x->ends[ANSWER][0] = server;
    for (int way = 0; way < WAYS; way++) x->teams[way] = (gw_plan_sim_team){{.world = 2}, x->ends[way]};
}

static gw_status list_partitions(gw_server_model *m, gw_error *error) {
    const gw_server_model_config *c = &m->config;
    m->first = calloc((size_t)c->buckets + 1, sizeof *m->first);
    if (!m->first) return gw_fail(error, GW_MEMORY, "out of memory for %d buckets", c->buckets);
    for (int b = 0; b < c->buckets; b++) m->first[b + 1] = m->first[b] + c->dispatches[b].partition_count;
    size_t ranks = (size_t)c->ranks, count = (size_t)m->first[c->buckets];
    m->what = calloc(count + 1, sizeof *m->what);
    m->exchanges = calloc(count * ranks + 1, sizeof *m->exchanges);
    m->loads = calloc((size_t)c->buckets * ranks + 1, sizeof *m->loads);
    m->slots = calloc(ranks, sizeof *m->slots);
    m->clocks = calloc(ranks, sizeof *m->clocks);
    if (!m->what || !m->exchanges || !m->loads || !m->slots || !m->clocks)
        return gw_fail(error, GW_MEMORY, "out of memory for %zu partitions of %d workers", count, c->ranks);
    for (int b = 0; b < c->buckets; b++)
        for (int p = m->first[b]; p < m->first[b + 1]; p++) {
            m->what[p] = &c->dispatches[b].partitions[p - m->first[b]];
            int slot = m->slots[m->what[p]->server]++;
            for (int w = 0; w < c->ranks; w++) {
                exchange *x = exchange_of(m, p, w);
                *x = (exchange){.model = m, .worker = w, .bucket = b, .partition = p, .slot = slot,
                                .same_host = w / c->per_host == m->what[p]->server / c->per_host};
                name_ends(x, m->what[p]->server);
            }
        }
    return GW_OK;
}

gw_status gw_server_model_open(gw_server_model **out, const gw_server_model_config *config, gw_error *error) {
    gw_server_model *m = calloc(1, sizeof *m);
    if (!m) return gw_fail(error, GW_MEMORY, "out of memory for servers");
    m->config = *config;
    gw_status status = list_partitions(m, error);
    for (int r = 0; r < config->ranks && !status; r++)
        if (m->slots[r]) status = gw_clock_table_open(&m->clocks[r], &config->rule, config->ranks, m->slots[r], error);
    if (status) gw_server_model_close(m);
    else *out = m;
    return status;
}

void gw_server_model_close(gw_server_model *m) {
    if (!m) return;
    for (int r = 0; m->clocks && r < m->config.ranks; r++) gw_clock_table_close(m->clocks[r]);
    free(m->clocks);
    free(m->slots);
    free(m->loads);
    free(m->exchanges);
    free(m->what);
    free(m->first);
    free(m);
}

/* Messages. */

static void send(exchange *x, int way, size_t bytes) {
    gw_server_model *m = x->model;
    int at = x->partition * m->config.ranks + x->worker;
    gw_plan_sim_spec spec = {.team = &x->teams[way], .collective = GW_COLL_BROADCAST, .builder = &gw_plan_pairwise,
                             .count = bytes, .unit_bytes = 1, .root = 0, .announced = true,
                             .chunk_bytes = x->same_host ? 0 : GW_AM_SLICE_BYTES, .tag = -1 - (WAYS * at + way)};
    gw_plan_sim_op *op;
    gw_status status = gw_plan_sim_prepare(m->config.sim, &spec, &op, m->error);
    if (status && !m->status) m->status = status;
    for (int member = 0; !status && member < 2; member++) gw_plan_sim_start(m->config.sim, op, member);
}

/* Goes on after so much work of a rank, and all that it has to do before. */
static void after(exchange *x, int rank, double seconds, void (*act)(gw_plan_sim_timer *, void *)) {
    const gw_dispatch_partition *p = x->model->what[x->partition];
    gw_plan_sim *sim = x->model->config.sim;
    x->timer.act = act;
    if (gw_plan_sim_occupy(sim, rank, 0) + seconds > gw_plan_sim_now(sim))
        gw_plan_sim_busy(sim, rank, &x->timer, seconds, p->encode > 0 ? GW_TIME_CODEC : GW_TIME_REDUCE);
    else act(&x->timer, NULL);
}

/* The server. */

static void answer_came(exchange *x);

static void send_answer(gw_plan_sim_timer *timer, void *ctx) {
    exchange *x = (exchange *)timer;
    const gw_dispatch_partition *p = x->model->what[x->partition];
    (void)ctx;
    if (p->server == x->worker) answer_came(x);
    else send(x, ANSWER, p->answer_bytes[x->round]);
}

static void answer_due(gw_server_model *m, const exchange *pushed) {
    const gw_dispatch_partition *p = m->what[pushed->partition];
    int worker;
    while ((worker = gw_clock_table_due(clocks_of(m, pushed), pushed->slot, now_of(m))) >= 0) {
        exchange *x = exchange_of(m, pushed->partition, worker);
        x->number = gw_clock_table_number(clocks_of(m, pushed), x->slot, worker);
        after(x, p->server, worker == p->server ? 0 : p->answer, send_answer);
    }
}

/* Pushes of the round that has just become complete. */
static int count_in(const gw_server_model *m, const exchange *x) {
    int in = 0;
    for (int w = 0; w < m->config.ranks; w++) in += gw_clock_table_in(clocks_of(m, x), x->slot, w);
    return in;
}

static void push_came(exchange *x) {
    gw_server_model *m = x->model;
    const gw_dispatch_partition *p = m->what[x->partition];
    gw_time now = now_of(m);
    switch (gw_clock_table_push(clocks_of(m, x), x->slot, x->worker, x->number, x->step, now)) {
    case GW_PUSH_LAST:
        gw_plan_sim_occupy(m->config.sim, p->server, (count_in(m, x) - 1) * p->take + p->finish);
        gw_clock_table_next(clocks_of(m, x), x->slot, now);
        break;
    case GW_PUSH_APPLY: gw_plan_sim_occupy(m->config.sim, p->server, p->finish); break;
    case GW_PUSH_KEPT:
    case GW_PUSH_LATE:
    case GW_PUSH_AGAIN:
    case GW_PUSH_WRONG: break;
    }
    answer_due(m, x);
}

/* The worker. */

static void left(exchange *x) {
    gw_server_model *m = x->model;
    if (x->round + 1 == m->what[x->partition]->rounds && --load_of(m, x)->unsent == 0)
        m->config.sent(m->config.ctx, x->worker, x->bucket);
}

static void send_push(gw_plan_sim_timer *timer, void *ctx) {
    exchange *x = (exchange *)timer;
    const gw_dispatch_partition *p = x->model->what[x->partition];
    (void)ctx;
    if (p->server != x->worker) {
        send(x, PUSH, p->push_bytes[x->round]);
        return;
    }
    left(x);
    push_came(x);
}

static void decoded(gw_plan_sim_timer *timer, void *ctx) {
    exchange *x = (exchange *)timer;
    gw_server_model *m = x->model;
    (void)ctx;
    if (--load_of(m, x)->unanswered == 0) m->config.answered(m->config.ctx, x->worker, x->bucket);
}

static void answer_came(exchange *x) {
    const gw_dispatch_partition *p = x->model->what[x->partition];
    if (++x->round < p->rounds) after(x, x->worker, p->encode, send_push);
    else after(x, x->worker, p->decode, decoded);
}

gw_status gw_server_model_push(gw_server_model *m, int worker, int bucket, uint64_t step, gw_error *error) {
    m->error = error;
    int count = m->first[bucket + 1] - m->first[bucket];
    *load_of(m, exchange_of(m, m->first[bucket], worker)) = (load){count, count};
    for (int p = m->first[bucket]; p < m->first[bucket + 1]; p++) {
        exchange *x = exchange_of(m, p, worker);
        x->round = 0;
        x->step = step;
        after(x, worker, m->what[p]->encode, send_push);
    }
    return m->status;
}

gw_status gw_server_model_done(gw_server_model *m, int rank, int tag, gw_error *error) {
    int at = -1 - tag, way = at % WAYS;
    exchange *x = &m->exchanges[at / WAYS];
    m->error = error;
    bool sender = rank == x->ends[way][0];
    if (sender && way == PUSH) left(x);
    if (!sender && way == PUSH) push_came(x);
    if (!sender && way == ANSWER) answer_came(x);
    return m->status;
}
