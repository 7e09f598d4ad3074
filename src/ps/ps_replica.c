/* ps_replica.c - replicas (replication after aggregation: Li et al. 2014). A server sends each push, or each sum of a
 * round, that it has used to its replica on another rank. The replica applies it too; only then are the workers
 * answered. If the server is lost, workers repeat the pushes that were not answered, so nothing is lost.
 *
 * Copies of one partition are sent one at a time, in the order of use. Cost: a message and its reply for each push (at
 * once) or each round, with values as they are, also of pushes that were encoded. */
#include <stdlib.h>
#include <string.h>

#include "ps/ps_internal.h"

static int copy_rank(const gw_ps *ps) { return ps->own < 0 ? -1 : ps->placement.replica_of[ps->own]; }

bool gw_ps_has_replica(const gw_ps *ps) { return copy_rank(ps) >= 0; }

gw_status gw_ps_replica_open(gw_ps *ps, gw_error *error) {
    int server = gw_placement_replica(&ps->placement, ps->rank);
    if (gw_ps_has_replica(ps) && !(ps->scratch = malloc(ps->shards.space_bytes[ps->own] + 1)))
        return gw_fail(error, GW_MEMORY, "out of memory for the replica of a server");
    if (server < 0) return GW_OK;
    gw_status status = gw_shard_store_open(ps, &ps->copy, server, error);
    if (status) return status;
    ps->copy_recv_buffer = malloc(ps->shards.space_bytes[server] + 1);
    return ps->copy_recv_buffer ? GW_OK : gw_fail(error, GW_MEMORY, "out of memory for the replica of a server");
}

void gw_ps_replica_close(gw_ps *ps) {
    gw_shard_store_close(&ps->copy);
    free(ps->copy_recv_buffer);
    free(ps->scratch);
    ps->scratch = NULL;
    ps->copy_recv_buffer = NULL;
    gw_ps_replica_clear(ps);
}

void gw_ps_replica_clear(gw_ps *ps) {
    free(ps->copy_queue);
    free(ps->copy_step);
    free(ps->copy_waiting);
    ps->copy_queue = ps->copy_waiting = NULL;
    ps->copy_step = NULL;
    ps->copies_due = 0;
}

/* The server. */

/* For each partition, the workers whose pushes are to be copied. Made with the first copy, for the current
 * partitions. */
static bool make_queues(gw_ps *ps) {
    if (ps->copy_queue) return true;
    ps->copy_queue = calloc((size_t)ps->partition_count * (size_t)ps->world + 1, sizeof *ps->copy_queue);
    ps->copy_step = calloc((size_t)ps->partition_count * (size_t)ps->world + 1, sizeof *ps->copy_step);
    ps->copy_waiting = calloc((size_t)ps->partition_count + 1, sizeof *ps->copy_waiting);
    return ps->copy_queue && ps->copy_step && ps->copy_waiting;
}

static void send_first(gw_ps *ps, int partition, uint64_t number, uint64_t step, gw_time now, gw_error *error) {
    const gw_partition *p = &ps->partitions[partition];
    int worker = ps->copy_queue[(size_t)partition * (size_t)ps->world];
    gw_am_message message = {.kind = gw_ps_message_of(GW_PS_COPY, worker),
                             .partition = (uint32_t)partition,
                             .round = number,
                             .step = step,
                             .joined = (uint32_t)gw_clock_table_joined(ps->store.clocks, partition),
                             .bytes = p->bytes};
    const uint8_t *what = worker < 0 ? ps->store.result + p->at : gw_ps_pushed_by(ps, p, worker);
    gw_am_send(ps->am, copy_rank(ps), &message, what, now, error);
}

void gw_ps_replicate(gw_ps *ps, int partition, int worker, uint64_t number, uint64_t step, gw_time now,
                     gw_error *error) {
    if (!gw_ps_has_replica(ps)) return;
    if (!make_queues(ps)) {
        gw_fail(error, GW_MEMORY, "out of memory for the replica of a server");
        return;
    }
    if (ps->copy_waiting[partition] == ps->world) {
        gw_fail(error, GW_PROTOCOL, "workers of server %d pushed partition %d before their last pushes were answered",
                ps->own, partition);
        return;
    }
    gw_clock_table_unsafe(ps->store.clocks, partition, worker);
    int *queue = &ps->copy_queue[(size_t)partition * (size_t)ps->world];
    if (worker >= 0) ps->copy_step[(size_t)partition * (size_t)ps->world + (size_t)worker] = step;
    queue[ps->copy_waiting[partition]++] = worker;
    ps->copies_due++;
    if (ps->copy_waiting[partition] == 1) send_first(ps, partition, number, step, now, error);
}

/* worker -1: the last complete round. */
static void send_next(gw_ps *ps, int partition, int worker, gw_time now, gw_error *error) {
    uint64_t round = gw_clock_table_round(ps->store.clocks, partition) - 1;
    if (worker < 0) send_first(ps, partition, round, ps->base + round, now, error);
    else
        send_first(ps, partition, gw_clock_table_clock(ps->store.clocks, partition, worker) - 1,
                   ps->copy_step[(size_t)partition * (size_t)ps->world + (size_t)worker], now, error);
}

void gw_ps_replica_acked(gw_ps *ps, const gw_am_message *message, gw_time now, gw_error *error) {
    int partition = (int)message->partition, worker = gw_ps_message_worker(message);
    bool known =
        message->partition < (uint32_t)ps->partition_count && ps->copy_waiting && ps->copy_waiting[partition] > 0;
    int *queue = known ? &ps->copy_queue[(size_t)partition * (size_t)ps->world] : NULL;
    if (!known || queue[0] != worker) {
        gw_fail(error, GW_PROTOCOL, "the replica of server %d has a copy of partition %d, which nobody sent", ps->own,
                partition);
        return;
    }
    ps->copies_due--;
    ps->copy_waiting[partition]--;
    memmove(queue, queue + 1, (size_t)ps->copy_waiting[partition] * sizeof *queue);
    gw_clock_table_safe(ps->store.clocks, partition, worker);
    if (ps->copy_waiting[partition]) send_next(ps, partition, queue[0], now, error);
    if (!error->status) gw_ps_answer_due(ps, partition, now, error);
}

static bool all_left(const gw_ps *ps) {
    for (int w = 0; w < ps->world; w++)
        if (!gw_clock_table_left(ps->store.clocks, w)) return false;
    return true;
}

bool gw_ps_replica_end(gw_ps *ps, gw_time now, gw_error *error) {
    int to = copy_rank(ps);
    if (to < 0 || ps->said_close || !ps->said_leave || ps->copies_due || !all_left(ps)) return false;
    gw_am_message message = {.kind = GW_PS_CLOSE};
    ps->said_close = true;
    gw_am_send(ps->am, to, &message, NULL, now, error);
    return true;
}

/* The replica. */

void gw_ps_replica_apply(gw_ps *ps, int from, const gw_am_message *message, gw_time now, gw_error *error) {
    int partition = (int)message->partition, worker = gw_ps_message_worker(message);
    const gw_partition *p = &ps->partitions[partition];
    const uint8_t *came = ps->copy_recv_buffer + p->at;
    if (worker >= ps->world) {
        gw_fail(error, GW_PROTOCOL, "rank %d copied a push of worker %d of %d",
                gw_team_member(ps->step_engine->config.team, from), worker, ps->world);
        return;
    }
    if (worker < 0) memcpy(ps->copy.result + p->at, came, p->bytes);
    gw_clock_table_used(ps->copy.clocks, partition, worker, message->round, (int)message->joined);
    if (ps->weights_here) gw_ps_update(ps, &ps->copy, partition, came, message->step);
    gw_am_message reply = {.kind = gw_ps_message_of(GW_PS_COPY_ACK, worker), .partition = message->partition};
    gw_am_send(ps->am, from, &reply, NULL, now, error);
}
