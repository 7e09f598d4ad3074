/* ps_client.c - the worker's side of parameter servers, and the messages of both sides. See ps.h. */
#include "ps/ps.h"

#include <stdlib.h>
#include <string.h>

#include "base/dtype.h"
#include "ps/ps_internal.h"

int gw_ps_server_rank(const gw_ps *ps, int server) { return ps->placement.rank_of[server]; }

/* Messages received. */

/* Whether this rank waits for such a message from that rank. */
static bool expects(const gw_ps *ps, int from, const gw_am_message *message, const gw_partition *p) {
    switch (message->kind) {
    case GW_PS_PUSH: return p->server == ps->own && ps->recv_buffer[from];
    case GW_PS_ANSWER:
    case GW_PS_CODED_ANSWER:
        return gw_ps_server_rank(ps, p->server) == from && ps->answers_due[from] > 0 && p->left > 0 && !p->answered;
    default:
        return gw_ps_message_kind(message) == GW_PS_COPY && p->server == ps->copy.server &&
               gw_ps_server_rank(ps, p->server) == from;
    }
}

/* Whether its payload has a length that the partition can take. */
static bool fits(const gw_ps *ps, const gw_am_message *message, const gw_partition *p) {
    bool coded_answer = message->kind == GW_PS_CODED_ANSWER;
    if (p->coded && (coded_answer || message->kind == GW_PS_PUSH))
        return gw_ps_codec_fits(ps, p, coded_answer, message->bytes);
    return !coded_answer && message->bytes == p->bytes;
}

static gw_partition *partition_of(gw_ps *ps, int from, const gw_am_message *message, gw_error *error) {
    gw_partition *p = message->partition < (uint32_t)ps->partition_count ? &ps->partitions[message->partition] : NULL;
    if (p && expects(ps, from, message, p) && fits(ps, message, p)) return p;
    int rank = gw_team_member(ps->step_engine->config.team, from);
    gw_fail_rank(error, GW_PROTOCOL, rank,
                 "rank %d sent partition %u of %llu bytes, which nobody expects: do all ranks commit the same tensors?",
                 rank, message->partition, (unsigned long long)message->bytes);
    return NULL;
}

static void *recv_buffer(void *ctx, int from, const gw_am_message *message, gw_error *error) {
    gw_ps *ps = ctx;
    const gw_partition *p = partition_of(ps, from, message, error);
    if (!p) return NULL;
    if (gw_ps_message_kind(message) == GW_PS_COPY) return ps->copy_recv_buffer + p->at;
    if (message->kind == GW_PS_PUSH) return ps->recv_buffer[from] + p->slot_at;
    return message->kind == GW_PS_ANSWER ? p->to : gw_ps_codec_slot(p);
}

static void end_received(gw_ps *ps, int from) {
    if (--ps->ends_due[from] == 0) gw_am_listen(ps->am, from, false);
}

static void arrived(void *ctx, int from, const gw_am_message *message, gw_time now, gw_error *error) {
    gw_ps *ps = ctx;
    gw_am_message over = {.kind = GW_PS_LEAVE_ACK}, closed = {.kind = GW_PS_CLOSE_ACK};
    switch (gw_ps_message_kind(message)) {
    case GW_PS_PUSH:
        if (!partition_of(ps, from, message, error)) return;
        gw_ps_codec_note(ps, from, message);
        gw_ps_pushed(ps, (int)message->partition, from, message->round, message->step, now, error);
        return;
    case GW_PS_ANSWER:
    case GW_PS_CODED_ANSWER: /* checked again: another one may have come since it was announced */
        if (!partition_of(ps, from, message, error)) return;
        ps->answers_due[from]--;
        gw_ps_answered(ps, from, message, now, error);
        return;
    case GW_PS_LEAVE:
        if (ps->own < 0 || ps->ends_due[from] == 0) break;
        gw_ps_left(ps, from, now, error);
        if (!error->status) gw_am_send(ps->am, from, &over, NULL, now, error);
        end_received(ps, from);
        return;
    case GW_PS_LEAVE_ACK:
        if (!ps->said_leave || ps->ends_due[from] == 0) break;
        end_received(ps, from);
        return;
    case GW_PS_COPY:
        if (!partition_of(ps, from, message, error)) return;
        gw_ps_replica_apply(ps, from, message, now, error);
        return;
    case GW_PS_COPY_ACK:
        if (!gw_ps_has_replica(ps) || from != ps->placement.replica_of[ps->own]) break;
        gw_ps_replica_acked(ps, message, now, error);
        return;
    case GW_PS_CLOSE:
        if (ps->copy.server < 0 || ps->ends_due[from] == 0) break;
        gw_am_send(ps->am, from, &closed, NULL, now, error);
        end_received(ps, from);
        return;
    case GW_PS_CLOSE_ACK:
        if (!ps->said_close || ps->ends_due[from] == 0) break;
        end_received(ps, from);
        return;
    case GW_PS_AT_STEP:
        if (message->partition >= (uint32_t)ps->partition_count || ps->partitions[message->partition].server != ps->own)
            break;
        gw_ps_worker_at_step(ps, (int)message->partition, from, message->step, now, error);
        return;
    }
    gw_fail_rank(error, GW_PROTOCOL, gw_team_member(ps->step_engine->config.team, from),
                 "rank %d sent a message of kind %u, which nobody expects",
                 gw_team_member(ps->step_engine->config.team, from), message->kind);
}

void gw_ps_partition_gone(gw_ps *ps, int partition) {
    int bucket = ps->partitions[partition].bucket;
    if (ps->partitions[partition].gone) return;
    ps->partitions[partition].gone = true;
    if (--ps->bucket_here[bucket] == 0) gw_schedule_sent(ps->step_engine->schedule, bucket);
}

static void sent(void *ctx, int to, const gw_am_message *message) {
    (void)to;
    gw_ps *ps = ctx;
    if (gw_ps_message_kind(message) != GW_PS_PUSH) return;
    uint32_t rounds = ps->partitions[message->partition].rounds;
    if (message->round % rounds + 1 == rounds) gw_ps_partition_gone(ps, (int)message->partition);
    gw_ps_partition_event_done(ps, (int)message->partition);
}

/* Set-up. */

static gw_status make_shards(gw_ps *ps, gw_error *error) {
    int count = ps->step_engine->config.count;
    gw_shard_tensor *described = calloc((size_t)count + 1, sizeof *described);
    if (!described) return gw_fail(error, GW_MEMORY, "out of memory for shards");
    for (int i = 0; i < count; i++) {
        const gw_reducer_tensor *t = &ps->step_engine->tensors[i].what;
        size_t own = ps->step_engine->tensors[i].factors ? 0 : t->count; /* factors do not go to servers */
        described[i] = (gw_shard_tensor){.count = own, .element = gw_dtype_bytes(t->dtype), .kind = (int)t->dtype,
                                         .grain = gw_ps_grain(ps, i, GW_PS_GRAIN)};
    }
    gw_status status = gw_shards_open(&ps->shards, described, count, ps->servers, error);
    free(described);
    for (int s = 0; !status && s < ps->servers; s++) {
        ps->space_at[s] = ps->staging_bytes;
        ps->staging_bytes += (ps->shards.space_bytes[s] + GW_PS_GRAIN - 1) / GW_PS_GRAIN * GW_PS_GRAIN;
    }
    return status;
}

static gw_status take_memory(gw_ps *ps, gw_error *error) {
    size_t buckets = (size_t)gw_schedule_buckets_max(ps->step_engine->schedule) + 1;
    ps->space_at = calloc((size_t)ps->servers, sizeof *ps->space_at);
    ps->first_partition = calloc(buckets, sizeof *ps->first_partition);
    ps->bucket_left = calloc(buckets, sizeof *ps->bucket_left);
    ps->bucket_here = calloc(buckets, sizeof *ps->bucket_here);
    if (ps->space_at && ps->first_partition && ps->bucket_left && ps->bucket_here) return GW_OK;
    return gw_fail(error, GW_MEMORY, "out of memory for %d servers", ps->servers);
}

/* Counts the last messages that are due from each rank: LEAVE if this rank serves, LEAVE_ACK from a server, CLOSE_ACK
 * from this server's replica, CLOSE from the server whose replica is here. */
void gw_ps_listen(gw_ps *ps) {
    int copy = ps->own < 0 ? -1 : ps->placement.replica_of[ps->own];
    int original = ps->copy.server < 0 ? -1 : gw_ps_server_rank(ps, ps->copy.server);
    for (int r = 0; r < ps->world; r++) {
        bool serves = gw_placement_server(&ps->placement, r) >= 0;
        ps->ends_due[r] = r == ps->rank ? 0 : (ps->own >= 0) + serves + (r == copy) + (r == original);
        gw_am_listen(ps->am, r, ps->ends_due[r] > 0);
    }
}

/* Without config.members all ranks have just started and are workers. */
static gw_status place_all(gw_ps *ps, gw_error *error) {
    const gw_step_engine_config *c = &ps->step_engine->config;
    gw_ps_member *who = calloc((size_t)ps->world, sizeof *who);
    if (!who) return gw_fail(error, GW_MEMORY, "out of memory for %d ranks", ps->world);
    for (int r = 0; r < ps->world; r++)
        who[r] = c->members ? c->members[r] : (gw_ps_member){.member = r, .serves = -1, .copies = -1, .fresh = 1};
    gw_status status = gw_placement_open(&ps->placement, who, ps->world, ps->servers, c->replicas, error);
    free(who);
    return status;
}

gw_status gw_ps_open_team(gw_ps *ps, gw_error *error) {
    const gw_step_engine_config *c = &ps->step_engine->config;
    gw_am_events events = {.ctx = ps, .recv_buffer = recv_buffer, .arrived = arrived, .sent = sent};
    ps->rank = gw_team_rank(c->team);
    ps->world = gw_team_size(c->team);
    gw_status status = place_all(ps, error);
    if (status) return status;
    ps->own = gw_placement_server(&ps->placement, ps->rank);
    ps->workers = gw_placement_workers(&ps->placement);
    ps->base = ps->placement.all_fresh ? c->options.first_step : gw_placement_first_step(&ps->placement);
    ps->answers_due = calloc((size_t)ps->world, sizeof *ps->answers_due);
    ps->ends_due = calloc((size_t)ps->world, sizeof *ps->ends_due);
    if (!ps->answers_due || !ps->ends_due) return gw_fail(error, GW_MEMORY, "out of memory for %d ranks", ps->world);
    status = gw_ps_codec_serve(ps, error);
    if (!status) status = gw_am_open(&ps->am, c->core, c->team, &events, error);
    if (!status) status = gw_ps_serve_open(ps, error);
    return status;
}

void gw_ps_close_team(gw_ps *ps) {
    gw_am_close(ps->am);
    gw_ps_serve_close(ps);
    gw_placement_close(&ps->placement);
    free(ps->answers_due);
    free(ps->ends_due);
    ps->am = NULL;
    ps->answers_due = ps->ends_due = NULL;
    ps->leaving = ps->said_leave = ps->said_close = false;
}

static int servers_only(const gw_step_engine_config *c, int world) {
    int count = 0;
    for (int r = 0; c->members && r < world; r++) count += c->members[r].serves_only != 0;
    return count;
}

gw_status gw_ps_open(gw_ps **out, gw_step_engine *step_engine, gw_error *error) {
    const gw_step_engine_config *c = &step_engine->config;
    gw_ps *ps = calloc(1, sizeof *ps);
    if (!ps) return gw_fail(error, GW_MEMORY, "out of memory for servers");
    *ps = (gw_ps){.step_engine = step_engine, .rank = gw_team_rank(c->team), .world = gw_team_size(c->team),
                  .servers = c->servers, .own = -1, .store.server = -1, .copy.server = -1,
                  .kept = {{.server = -1}, {.server = -1}}, .weights_here = c->sync->rule != NULL,
                  .whole = gw_step_engine_updates_whole(c)};
    if (ps->weights_here) ps->rule = c->sync->rule(c->sync_values);
    ps->workers = ps->world - servers_only(c, ps->world);
    ps->additive = ps->weights_here && ps->workers < ps->world;
    gw_status status = take_memory(ps, error);
    if (!status) status = gw_ps_codec_open(ps, error);
    if (!status) ps->partition_bytes = c->chunk_bytes ? c->chunk_bytes : gw_ps_codec_partition(ps);
    if (!status) status = make_shards(ps, error);
    if (!status) status = gw_ps_open_team(ps, error);
    if (!status) status = gw_ps_bind(ps, error);
    if (status) {
        gw_ps_close(ps);
        return status;
    }
    gw_ps_listen(ps);
    ps->repeats = ps->rule.spare && !ps->placement.all_fresh;
    *out = ps;
    return GW_OK;
}

void gw_ps_close(gw_ps *ps) {
    if (!ps) return;
    gw_ps_close_team(ps);
    gw_ps_free_kept(ps);
    gw_ps_codec_close(ps);
    gw_shards_close(&ps->shards);
    free(ps->space_at);
    free(ps->first_partition);
    free(ps->bucket_left);
    free(ps->bucket_here);
    free(ps->partitions);
    free(ps->segments);
    free(ps->staging);
    free(ps->moved);
    free(ps);
}

/* By each worker at the own server: between two cuts all have made the same. */
static uint64_t steps_since_cut(const gw_ps *ps) {
    uint64_t most = 0;
    for (int i = 0; ps->weights_here && ps->store.clocks && i < ps->partition_count; i++)
        for (int w = 0; ps->partitions[i].server == ps->own && w < ps->world; w++) {
            uint64_t made = gw_clock_table_number(ps->store.clocks, i, w);
            if (made > most) most = made;
        }
    return most;
}

gw_status gw_ps_bind(gw_ps *ps, gw_error *error) {
    ps->base += steps_since_cut(ps); /* pushes are numbered from 0 again */
    gw_status status = gw_ps_cut(ps, error);
    return status ? status : gw_ps_open_clock_tables(ps, error);
}

/* Sending a bucket. */

static void pack(const gw_ps *ps, const gw_partition *p) {
    uint8_t *at = p->from;
    for (int i = 0; i < p->segments; i++) {
        const gw_segment *part = &ps->segments[p->first + i];
        size_t bytes = gw_partition_message_bytes(ps, part);
        memcpy(at, gw_ps_tensor_at(ps, part, false), bytes);
        at += bytes;
    }
}

static void unpack(const gw_ps *ps, const gw_partition *p) {
    const uint8_t *at = p->to;
    for (int i = 0; i < p->segments; i++) {
        const gw_segment *part = &ps->segments[p->first + i];
        size_t bytes = gw_partition_message_bytes(ps, part);
        memcpy(gw_ps_tensor_at(ps, part, ps->weights_here), at, bytes);
        at += bytes;
    }
}

void gw_ps_partition_event_done(gw_ps *ps, int partition) {
    gw_partition *p = &ps->partitions[partition];
    if (--p->left == 0) ps->bucket_left[p->bucket]--;
}

static void push(gw_ps *ps, int partition, gw_time now, gw_error *error) {
    gw_partition *p = &ps->partitions[partition];
    const uint8_t *data = p->coded ? gw_ps_codec_slot(p) : p->from;
    size_t bytes = p->bytes;
    if (p->coded && gw_ps_codec_encode(ps, p, p->step, &bytes, error)) return;
    if (p->packs && !p->coded) pack(ps, p);
    p->answered = false;
    gw_am_message message = {.kind = GW_PS_PUSH, .partition = (uint32_t)partition, .round = p->round, .step = p->step,
                        .bytes = bytes, .growth = p->coded ? gw_dispatch_rate_growth(ps->step_engine, p->step) : 0};
    if (p->server == ps->own) {
        if (p->round % p->rounds + 1 == p->rounds) gw_ps_partition_gone(ps, partition);
        gw_ps_codec_note(ps, ps->rank, &message);
        gw_ps_pushed(ps, partition, ps->rank, p->round, p->step, now, error);
        return;
    }
    ps->answers_due[gw_ps_server_rank(ps, p->server)]++;
    gw_am_send(ps->am, gw_ps_server_rank(ps, p->server), &message, data, now, error);
}

void gw_ps_answered(gw_ps *ps, int from, const gw_am_message *message, gw_time now, gw_error *error) {
    gw_partition *p = &ps->partitions[message->partition];
    bool more = message->kind == GW_PS_CODED_ANSWER && p->round % p->rounds + 1 < p->rounds;
    if (message->kind == GW_PS_ANSWER && p->unpacks) unpack(ps, p);
    if (message->kind == GW_PS_CODED_ANSWER && !more) gw_ps_codec_answered(ps, p, from, message, error);
    p->round = message->round;
    p->answered = !more;
    gw_ps_partition_event_done(ps, (int)message->partition);
    if (more && !error->status) push(ps, (int)message->partition, now, error);
}

void gw_ps_start(gw_ps *ps, int bucket, uint64_t step, gw_time now, gw_error *error) {
    int first = ps->first_partition[bucket], count = ps->first_partition[bucket + 1] - first;
    ps->bucket_left[bucket] = ps->bucket_here[bucket] = count;
    for (int i = first; ps->additive && i < first + count; i++) gw_ps_take_difference(ps, &ps->partitions[i], step);
    gw_ps_codec_begin(ps, bucket, step);
    for (int i = first; i < first + count && !error->status; i++) {
        gw_partition *p = &ps->partitions[i];
        p->step = step;
        p->gone = p->answered = false;
        p->left = (int)p->rounds * (p->server == ps->own ? 1 : 2); /* answers, and pushes sent */
        push(ps, i, now, error);
    }
    gw_ps_codec_begun(ps, bucket);
}

bool gw_ps_over(const gw_ps *ps, int bucket) { return ps->bucket_left[bucket] == 0; }
bool gw_ps_moves_weights(const gw_ps *ps) { return ps->additive; }

/* Ranks that are waited for: a server that owes this worker answers, a worker that holds others back. */
static void expect(gw_ps *ps, gw_time now) {
    for (int r = 0; r < ps->world; r++)
        if (r != ps->rank) {
            bool holds_up = ps->store.clocks && gw_clock_table_awaits(ps->store.clocks, r);
            gw_am_expect(ps->am, r, ps->answers_due[r] > 0 || holds_up, now);
        }
}

static void send_leave(gw_ps *ps, gw_time now, gw_error *error) {
    gw_am_message message = {.kind = GW_PS_LEAVE};
    ps->said_leave = true;
    if (ps->own >= 0) gw_ps_left(ps, ps->rank, now, error);
    for (int s = 0; s < ps->servers && !error->status; s++)
        if (s != ps->own) gw_am_send(ps->am, gw_ps_server_rank(ps, s), &message, NULL, now, error);
}

/* A server that releases stragglers (sync=backup) must know how far each worker is: the step that it pushes next. */
static void send_made(gw_ps *ps, int partition, gw_time now, gw_error *error) {
    const gw_partition *p = &ps->partitions[partition];
    uint64_t next = p->answered ? p->step + 1 : ps->step_engine->config.options.first_step;
    gw_am_message message = {.kind = GW_PS_AT_STEP, .partition = (uint32_t)partition, .step = next};
    if (!ps->rule.spare || ps->step_engine->config.serves_only) return;
    if (p->server == ps->own) gw_ps_worker_at_step(ps, partition, ps->rank, next, now, error);
    else gw_am_send(ps->am, gw_ps_server_rank(ps, p->server), &message, NULL, now, error);
}

/* Pushes that were not answered before ranks were lost. */
static void push_again(gw_ps *ps, gw_time now, gw_error *error) {
    for (int i = 0; ps->repeats && i < ps->partition_count && !error->status; i++) {
        if (!ps->partitions[i].again) {
            send_made(ps, i, now, error);
            continue;
        }
        ps->partitions[i].again = false;
        ps->partitions[i].left = ps->partitions[i].server == ps->own ? 1 : 2;
        push(ps, i, now, error);
    }
    ps->repeats = false;
}

bool gw_ps_poll(gw_ps *ps, gw_time now, gw_error *error) {
    push_again(ps, now, error);
    bool moved = gw_am_poll(ps->am, now, error);
    if (ps->leaving && !ps->said_leave && !error->status) {
        send_leave(ps, now, error);
        moved = true;
    }
    if (!error->status) moved |= gw_ps_replica_end(ps, now, error);
    expect(ps, now);
    return moved;
}

void gw_ps_leave(gw_ps *ps) { ps->leaving = true; }
bool gw_ps_quiet(const gw_ps *ps) {
    return ps->said_leave && gw_am_idle(ps->am) && (!gw_ps_has_replica(ps) || ps->said_close);
}

size_t gw_ps_sent_bytes(const gw_ps *ps) {
    size_t bytes = 0;
    for (int i = 0; i < ps->partition_count; i++) {
        const gw_partition *p = &ps->partitions[i];
        if (p->server != ps->own && !ps->step_engine->config.serves_only) bytes += p->push_bytes;
        for (int w = 0; p->server == ps->own && w < ps->world; w++)
            if (w != ps->rank && !ps->placement.members[w].serves_only)
                bytes += gw_ps_codec_answers(ps, p, w) && !ps->weights_here ? p->answer_bytes : p->bytes;
    }
    return bytes;
}

size_t gw_ps_memory_bytes(const gw_ps *ps) {
    return gw_ps_serve_bytes(ps) + (ps->staging ? ps->staging_bytes : 0) + gw_ps_codec_memory(ps);
}

gw_clock_table_times gw_ps_times(const gw_ps *ps, int worker, gw_time now) {
    return ps->store.clocks ? gw_clock_table_timed(ps->store.clocks, worker, now) : (gw_clock_table_times){0};
}
