/* ps_server.c - the server of a rank: adds pushes in worker order, applies updates, sends answers. See ps.h. */
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "base/reduce.h"
#include "ps/ps_internal.h"

static size_t own_bytes(const gw_ps *ps) { return ps->own < 0 ? 0 : ps->shards.space_bytes[ps->own]; }

size_t gw_ps_serve_bytes(const gw_ps *ps) {
    size_t copied = ps->copy.server < 0 ? 0 : ps->shards.space_bytes[ps->copy.server];
    size_t copies = copied * (ps->weights_here ? 3 : 2), results = own_bytes(ps) * (ps->weights_here ? 2 : 1);
    size_t others = (size_t)ps->workers - !ps->placement.members[ps->rank].serves_only;
    return copies + ps->moved_bytes + (ps->own < 0 ? 0 : results + ps->recv_buffer_bytes * others);
}

gw_status gw_shard_store_open(gw_ps *ps, gw_shard_store *store, int server, gw_error *error) {
    size_t bytes = ps->shards.space_bytes[server] + 1;
    *store = (gw_shard_store){.server = server, .result = calloc(1, bytes)};
    if (ps->weights_here) store->weights = calloc(1, bytes);
    if (store->result && (store->weights || !ps->weights_here)) return GW_OK;
    return gw_fail(error, GW_MEMORY, "out of memory for a server that owns %zu bytes", bytes - 1);
}

void gw_shard_store_close(gw_shard_store *store) {
    gw_clock_table_close(store->clocks);
    free(store->result);
    free(store->weights);
    *store = (gw_shard_store){.server = -1};
}

void gw_ps_pack_weights(const gw_ps *ps, int server, void *space) {
    for (int i = 0; i < ps->shards.first_of[ps->shards.tensors]; i++) {
        const gw_shard *shard = &ps->shards.list[i];
        uint8_t *at = (uint8_t *)space + shard->at;
        gw_segment part = {.tensor = shard->tensor};
        for (; shard->server == server && gw_ps_next_stripe(shard, &part); at += gw_partition_message_bytes(ps, &part))
            memcpy(at, gw_ps_tensor_at(ps, &part, true), gw_partition_message_bytes(ps, &part));
    }
}

/* The server begins with the weights of its rank. */
static void take_all_weights(gw_ps *ps) {
    if (!ps->weights_here || ps->placement.members[ps->rank].serves_only) return;
    gw_ps_pack_weights(ps, ps->store.server, ps->store.weights);
    if (ps->copy.weights) gw_ps_pack_weights(ps, ps->copy.server, ps->copy.weights);
}

gw_status gw_ps_serve_open(gw_ps *ps, gw_error *error) {
    gw_status status = gw_ps_replica_open(ps, error);
    if (status || ps->own < 0) return status;
    status = gw_shard_store_open(ps, &ps->store, ps->own, error);
    if (status) return status;
    size_t bytes = own_bytes(ps) + 1;
    ps->recv_buffer_bytes = own_bytes(ps);
    ps->recv_buffer = calloc((size_t)ps->world, sizeof *ps->recv_buffer);
    ps->sources = calloc((size_t)ps->world, sizeof *ps->sources);
    bool fits = ps->recv_buffer && ps->sources;
    for (int w = 0; w < ps->world && fits; w++)
        if (w != ps->rank && !ps->placement.members[w].serves_only) fits = (ps->recv_buffer[w] = malloc(bytes)) != NULL;
    if (!fits)
        return gw_fail(error, GW_MEMORY, "out of memory for a server that owns %zu bytes of %d workers", own_bytes(ps),
                       ps->world);
    take_all_weights(ps);
    return GW_OK;
}

void gw_ps_serve_close(gw_ps *ps) {
    gw_ps_snapshot_close(ps);
    gw_ps_replica_close(ps);
    for (int w = 0; ps->recv_buffer && w < ps->world; w++) free(ps->recv_buffer[w]);
    free(ps->recv_buffer);
    free(ps->sources);
    ps->recv_buffer = NULL;
    ps->sources = NULL;
    gw_shard_store_close(&ps->store);
}

/* Ranks that only serve make no pushes. */
static gw_status open_clock_table(gw_ps *ps, gw_shard_store *store, gw_error *error) {
    gw_clock_table *clocks = NULL;
    if (store->server < 0) return GW_OK;
    gw_status status = gw_clock_table_open(&clocks, &ps->rule, ps->world, ps->partition_count, error);
    if (status) return status;
    if (store->clocks) gw_clock_table_adopt(clocks, store->clocks, 0); /* no answer is owed: no stopwatch is running */
    gw_clock_table_close(store->clocks);
    store->clocks = clocks;
    for (int w = 0; w < ps->world; w++)
        if (ps->placement.members[w].serves_only) gw_clock_table_leave(clocks, w, 0);
    return GW_OK;
}

gw_status gw_ps_open_clock_tables(gw_ps *ps, gw_error *error) {
    ps->own_partitions = 0;
    for (int i = 0; i < ps->partition_count; i++) ps->own_partitions += ps->partitions[i].server == ps->own;
    gw_ps_replica_clear(ps);
    gw_status status = open_clock_table(ps, &ps->store, error);
    return status ? status : open_clock_table(ps, &ps->copy, error);
}

float *gw_ps_weights(const gw_ps *ps, int tensor, gw_stripes *covers) {
    for (int i = ps->shards.first_of[tensor]; ps->store.weights && i < ps->shards.first_of[tensor + 1]; i++) {
        if (ps->shards.list[i].server != ps->own) continue;
        *covers = ps->shards.list[i].covers;
        return (float *)(void *)(ps->store.weights + ps->shards.list[i].at);
    }
    return NULL;
}

const uint8_t *gw_ps_pushed_by(const gw_ps *ps, const gw_partition *p, int worker) {
    if (worker == ps->rank) return p->coded ? p->slot : p->from;
    return ps->recv_buffer[worker] + p->slot_at;
}

/* Updates. */

/* The updates of all workers in a step add up: each is 1/n of what its gradient would make alone. */
static bool updates_add_up(const gw_ps *ps) {
    return ps->rule.at_once || (ps->additive && ps->step_engine->config.options.op == GW_SUM);
}

/* A caller of a header without rate_scale has to find all of it in `scale`. */
static bool knows_rate_scale(const gw_reducer_options *options) {
    return options->size >= offsetof(gw_reducer_options, whole_tensors) + sizeof options->whole_tensors;
}

/* What the updates of one gradient have in common. */
static gw_reducer_update update_of(const gw_ps *ps, uint64_t step, uint64_t updates) {
    const gw_reducer_options *options = &ps->step_engine->config.options;
    gw_reducer_update u = {.step = step, .scale = 1, .rate_scale = 1, .updates = updates};
    if (!updates_add_up(ps)) return u;
    u.rate_scale = 1.0 / ps->workers;
    if (options->op == GW_SUM) u.scale = ps->workers; /* a worker's gradient estimates the mean */
    if (knows_rate_scale(options)) return u;
    u.scale *= u.rate_scale;
    u.rate_scale = 1;
    return u;
}

static void update_segment(const gw_ps *ps, gw_reducer_update u, const gw_segment *part, void *weights,
                           const void *gradient) {
    const gw_reducer_options *options = &ps->step_engine->config.options;
    u.tensor = part->tensor;
    u.first = part->first;
    u.count = part->count;
    u.momentum = gw_step_engine_momentum(ps->step_engine, part->tensor);
    u.weights = weights;
    u.gradient = gradient;
    options->update(options->ctx, &u);
}

/* By rounds the mean is taken when a round is complete, over the workers in it. */
void gw_ps_take_difference(gw_ps *ps, const gw_partition *p, uint64_t step) {
    gw_reducer_update common = update_of(ps, step, step + 1);
    float *moved = (float *)(void *)ps->moved;
    for (int i = 0; i < p->segments; i++) {
        const gw_segment *part = &ps->segments[p->first + i];
        float *gradient = (float *)(void *)gw_ps_tensor_at(ps, part, false);
        const float *weights = (const float *)(const void *)gw_ps_tensor_at(ps, part, true);
        memcpy(moved, weights, part->count * sizeof *moved);
        update_segment(ps, common, part, moved, gradient);
        for (size_t k = 0; k < part->count; k++) gradient[k] = moved[k] - weights[k];
    }
}

static void add_difference(gw_shard_store *store, const gw_partition *p, const uint8_t *difference) {
    float *weights = (float *)(void *)(store->weights + p->at);
    const float *by = (const float *)(const void *)difference;
    for (size_t i = 0; i < p->count; i++) weights[i] += by[i];
}

/* By rounds one a step, at once one for each push. */
static uint64_t count_updates(const gw_ps *ps, const gw_shard_store *store, int partition, uint64_t step) {
    uint64_t count = ps->base * (uint64_t)ps->workers;
    if (!ps->rule.at_once) return step + 1;
    for (int w = 0; w < ps->world; w++) count += gw_clock_table_clock(store->clocks, partition, w);
    return count;
}

void gw_ps_update(gw_ps *ps, gw_shard_store *store, int partition, const uint8_t *gradient, uint64_t step) {
    const gw_partition *p = &ps->partitions[partition];
    if (ps->additive) {
        add_difference(store, p, gradient);
        return;
    }
    if (ps->scratch && store == &ps->store) /* an update may overwrite it before it is sent to the replica */
        gradient = memcpy(ps->scratch, gradient, p->bytes);
    gw_reducer_update common = update_of(ps, step, count_updates(ps, store, partition, step));
    size_t at = 0;
    for (int i = 0; i < p->segments; i++) {
        const gw_segment *part = &ps->segments[p->first + i];
        update_segment(ps, common, part, store->weights + p->at + at, gradient + at);
        at += gw_partition_message_bytes(ps, part);
    }
}

/* A round is complete. The result's memory is free: every worker that got the last result has pushed since, or was
 * late and got its answer from its own receive buffer. */
static void finish_round(gw_ps *ps, int partition, gw_time now, gw_error *error) {
    const gw_partition *p = &ps->partitions[partition];
    uint64_t round = gw_clock_table_round(ps->store.clocks, partition), step = ps->base + round;
    int in = 0;
    for (int w = 0; w < ps->world; w++)
        if (gw_clock_table_in(ps->store.clocks, partition, w)) ps->sources[in++] = gw_ps_pushed_by(ps, p, w);
    gw_reduction sum = {.dtype = p->dtype, .op = ps->step_engine->config.options.op, .world = in};
    if (!p->coded) gw_reduce_many(sum, ps->store.result + p->at, ps->sources, in, p->count);
    else if (gw_ps_codec_sum(ps, partition, in, error)) return;
    if (ps->weights_here) gw_ps_update(ps, &ps->store, partition, ps->store.result + p->at, step);
    gw_clock_table_next(ps->store.clocks, partition, now);
    gw_ps_replicate(ps, partition, -1, round, step, now, error);
    gw_ps_snapshot_count_used(ps);
}

/* The answer to this rank's own worker needs no message. */
static void answer_self(gw_ps *ps, gw_am_message *message, const uint8_t *what, gw_time now, gw_error *error) {
    gw_partition *p = &ps->partitions[message->partition];
    memcpy(message->kind == GW_PS_CODED_ANSWER ? gw_ps_codec_slot(p) : p->to, what, message->bytes);
    gw_ps_answered(ps, ps->rank, message, now, error);
}

/* Weights change while answers are in flight: each worker gets a copy, made in the receive buffer of its push. */
static void answer(gw_ps *ps, int partition, int worker, gw_time now, gw_error *error) {
    gw_partition *p = &ps->partitions[partition];
    const uint8_t *what = (ps->weights_here ? ps->store.weights : ps->store.result) + p->at;
    gw_am_message message = {.kind = GW_PS_ANSWER, .partition = (uint32_t)partition, .bytes = p->bytes,
                        .round = gw_clock_table_number(ps->store.clocks, partition, worker),
                        .joined = (uint32_t)gw_clock_table_joined(ps->store.clocks, partition)};
    bool coded = gw_ps_codec_answers(ps, p, worker);
    if (coded) what = gw_ps_codec_answer(ps, partition, worker, &message, error);
    if (error->status) return;
    if (worker == ps->rank) {
        answer_self(ps, &message, what, now, error);
        return;
    }
    if (ps->weights_here && !coded) what = memcpy(ps->recv_buffer[worker] + p->slot_at, what, p->bytes);
    gw_am_send(ps->am, worker, &message, what, now, error);
}

void gw_ps_answer_due(gw_ps *ps, int partition, gw_time now, gw_error *error) {
    int worker;
    while (!error->status && (worker = gw_clock_table_due(ps->store.clocks, partition, now)) >= 0)
        answer(ps, partition, worker, now, error);
}

void gw_ps_pushed(gw_ps *ps, int partition, int worker, uint64_t round, uint64_t step, gw_time now, gw_error *error) {
    const gw_partition *p = &ps->partitions[partition];
    switch (gw_clock_table_push(ps->store.clocks, partition, worker, round, step, now)) {
    case GW_PUSH_LAST: finish_round(ps, partition, now, error); break;
    case GW_PUSH_APPLY:
        if (p->coded && gw_ps_codec_decode(ps, partition, worker, error)) break;
        gw_ps_update(ps, &ps->store, partition, p->coded ? ps->store.result + p->at : gw_ps_pushed_by(ps, p, worker),
                     step);
        gw_ps_replicate(ps, partition, worker, round, step, now, error);
        gw_ps_snapshot_count_used(ps);
        break;
    case GW_PUSH_KEPT:
    case GW_PUSH_LATE:
    case GW_PUSH_AGAIN: break;
    case GW_PUSH_WRONG:
        gw_fail_rank(error, GW_PROTOCOL, gw_team_member(ps->step_engine->config.team, worker),
                     "rank %d pushed partition %d twice, or of a round that has not begun",
                     gw_team_member(ps->step_engine->config.team, worker), partition);
        return;
    }
    gw_ps_snapshot_log_lost(ps);
    gw_ps_answer_due(ps, partition, now, error);
}

void gw_ps_worker_at_step(gw_ps *ps, int partition, int worker, uint64_t next, gw_time now, gw_error *error) {
    gw_clock_table_worker_at_step(ps->store.clocks, partition, worker, next, now);
    gw_ps_answer_due(ps, partition, now, error);
}

void gw_ps_left(gw_ps *ps, int worker, gw_time now, gw_error *error) {
    bool all_needed = !ps->rule.at_once && !ps->rule.spare && !ps->placement.members[worker].serves_only;
    if (all_needed && !gw_clock_table_idle(ps->store.clocks)) {
        int rank = gw_team_member(ps->step_engine->config.team, worker);
        gw_fail_rank(error, GW_MISMATCH, rank,
                     "rank %d closed its reducer while others wait for its gradients: under sync=%s every rank makes "
                     "the same number of steps",
                     rank, ps->step_engine->config.sync->technique.name);
        return;
    }
    gw_clock_table_leave(ps->store.clocks, worker, now);
    for (int i = 0; i < ps->partition_count && !error->status; i++) {
        if (ps->partitions[i].server != ps->own) continue;
        if (gw_clock_table_complete(ps->store.clocks, i)) finish_round(ps, i, now, error);
        gw_ps_answer_due(ps, i, now, error);
    }
}
