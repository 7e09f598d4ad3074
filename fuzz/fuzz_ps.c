/* fuzz_ps.c - a worker and server among liars: rank 0 makes steps over parameter servers on the simulated network,
 * while ranks 1 and 2 send it any message headers and payloads; at the end the state of its server is altered and
 * restored. Nothing is written beyond a buffer, nothing runs for ever, and whatever is refused has a sentence.
 *
 * The input: the strategy, then records. A record begins as a message that rank 0 may expect, of which it changes some
 * fields, so that the code behind the checks is reached. */
#include <stdlib.h>
#include <string.h>

#include "../tests/quiet_ranks.h"
#include "ps/ps_internal.h"
#include "strategy/combine.h"
#include "transport/sim_transport.h"

enum { RANKS = 3, TENSORS = 3, RECORDS_MAX = 64, EVENTS_MAX = 400, PAYLOAD_BYTES = 1 << 17, TEAM = 1 };

static const size_t counts[TENSORS] = {5000, 33, 3000}, rows[TENSORS] = {50, 0, 30};
static const char *const names[TENSORS] = {"conv", "bias", "fc"};
static const char *const lines[] = {"arch=ps:servers=2",
                                    "arch=ps:servers=3 sync=asp",
                                    "arch=ps:servers=1 sync=ssp:staleness=1",
                                    "arch=ps:servers=2,replicas=1 sync=asp",
                                    "arch=ps:servers=2,replicas=1",
                                    "arch=ps:servers=2 sync=backup:n=1",
                                    "arch=ps:servers=2,chunk=4K",
                                    "arch=ps:servers=2 compress=onebit",
                                    "arch=ps:servers=2 compress=powersgd:rank=2",
                                    "arch=ps:servers=2 compress=fp16",
                                    "arch=ps:servers=3 sync=asp compress=topk:ratio=0.1,feedback=worker",
                                    "arch=ps sync=asp compress=int8:feedback=both",
                                    "arch=ps:servers=2 compress=terngrad:shared"};

typedef struct record {
    uint8_t what, from, changes, bytes;
    uint16_t partition, worker;
    uint64_t value;
} record;

struct job;

typedef struct rank {
    struct job *job;
    int number;
    gw_core *core;
    gw_team *team;
    gw_am *am; /* of a liar */
    gw_progress_callback callback;
} rank;

typedef struct job {
    gw_sim_net *net;
    rank ranks[RANKS];
    gw_strategy strategy;
    gw_step_engine *engine; /* of rank 0 */
    float *gradients[TENSORS], *weights[TENSORS], *flat;
    uint64_t step;
    int next; /* tensor of the step */
} job;

static uint8_t payload[PAYLOAD_BYTES], received[PAYLOAD_BYTES]; /* of liars */

static void demand(bool condition) {
    if (!condition) abort();
}

/* Callbacks. */

static void failed(void *ctx, const gw_error *error) { (void)ctx, demand(error->text[0] != 0); }
static void on_moved(void *ctx, int number) {
    job *j = ctx;
    for (int i = 0; i < 20 && gw_core_poll(j->ranks[number].core, gw_sim_now(j->net)); i++) continue;
}

static void *lie_buffer(void *ctx, int from, const gw_am_message *message, gw_error *error) {
    (void)ctx;
    if (message->bytes <= PAYLOAD_BYTES) return received;
    gw_fail(error, GW_MEMORY, "rank %d", from);
    return NULL;
}
static void lie_arrived(void *ctx, int from, const gw_am_message *message, gw_time now, gw_error *error) {
    (void)ctx, (void)from, (void)message, (void)now, (void)error;
}
static void lie_sent(void *ctx, int to, const gw_am_message *message) { (void)ctx, (void)to, (void)message; }

static bool poll_rank(void *ctx, gw_time now) {
    rank *r = ctx;
    gw_error error = {.rank = -1};
    if (r->number == 0) return gw_step_engine_poll(r->job->engine, now);
    return gw_am_poll(r->am, now, &error) && !error.status;
}
static bool busy(void *ctx) {
    (void)ctx;
    return true;
}
static void update(void *ctx, const gw_reducer_update *u) {
    float *weights = u->weights;
    const float *gradient = u->gradient;
    (void)ctx;
    for (size_t i = 0; i < u->count; i++) weights[i] -= gradient[i];
}

/* Opening. */

static void open_engine(job *j, bool apart) {
    gw_ps_member who[RANKS];
    gw_reducer_tensor tensors[TENSORS];
    gw_error error = {0};
    for (int r = 0; r < RANKS; r++)
        who[r] = (gw_ps_member){.member = r, .serves = -1, .copies = -1, .fresh = 1,
                                .serves_only = apart && r == RANKS - 1};
    gw_step_engine_config config = {.core = j->ranks[0].core, .team = j->ranks[0].team, .first_id = TEAM + 1,
                                    .tensors = tensors, .count = TENSORS, .members = who,
                                    .options = GW_REDUCER_OPTIONS_DEFAULT};
    config.options.update = update;
    for (int t = 0; t < TENSORS; t++) {
        j->gradients[t] = calloc(counts[t], sizeof(float));
        j->weights[t] = calloc(counts[t], sizeof(float));
        tensors[t] = (gw_reducer_tensor){.name = names[t], .count = counts[t], .rows = rows[t], .dtype = GW_F32,
                                         .gradient = j->gradients[t], .weights = j->weights[t]};
    }
    gw_status status = gw_step_engine_config_from_strategy(&config, &j->strategy, &error);
    size_t bytes = status ? 0 : gw_step_engine_flat_bytes(&config);
    config.flat = j->flat = bytes ? malloc(bytes) : NULL;
    if (apart) config.servers = 1;
    if (!status) status = gw_step_engine_open(&j->engine, &config, &error);
    if (status) { /* not every strategy works with servers apart */
        j->engine = NULL;
        demand(apart && error.text[0]);
        return;
    }
    gw_ps_transfer_done(gw_step_engine_servers(j->engine), &error);
}

static void open_rank(job *j, int number) {
    static const int hosts[RANKS] = {0, 1, 2};
    const int members[RANKS] = {0, 1, 2};
    rank *r = &j->ranks[number];
    gw_error error = {0};
    *r = (rank){.job = j, .number = number};
    gw_core_config config = {.rank = number, .world = RANKS, .deadline = 1000 * GW_SECOND, .ctx = r,
                             .host_name = host_name, .send = send_control, .failed = failed, .slow = slow};
    demand(gw_core_open(&r->core, &config, 0, &error) == GW_OK);
    gw_engine *engine = gw_core_engine(r->core);
    gw_transport *transport = gw_sim_transport(j->net, number, gw_engine_sink(engine));
    for (int p = 0; p < RANKS; p++)
        if (p != number) gw_engine_route(engine, p, transport);
    gw_topology topology = {.world = RANKS, .host_of = hosts};
    demand(gw_team_open(&r->team, engine, TEAM, number, members, &topology, NULL, &error) == GW_OK);
}

static void open_liar(rank *r) {
    gw_error error = {0};
    gw_am_events events = {.ctx = r, .recv_buffer = lie_buffer, .arrived = lie_arrived, .sent = lie_sent};
    demand(gw_am_open(&r->am, r->core, r->team, &events, &error) == GW_OK);
    gw_am_listen(r->am, 0, true);
}

static void open_job(job *j, uint8_t choice, bool apart) {
    gw_error error = {0};
    gw_sim_config config = {.world = RANKS, .latency = 1000, .bytes_per_second = 1e9, .jitter = 5000, .seed = choice};
    gw_sim_events events = {.ctx = j, .message = on_message, .hang_up = on_hang_up, .timer = on_moved,
                            .moved = on_moved};
    demand(gw_strategy_resolve(lines[choice % (sizeof lines / sizeof lines[0])], &j->strategy, &error) == GW_OK);
    demand(gw_sim_open(&j->net, &config, &events, &error) == GW_OK);
    for (int r = 0; r < RANKS; r++) open_rank(j, r);
    for (int r = 1; r < RANKS; r++) open_liar(&j->ranks[r]);
    open_engine(j, apart);
    for (int r = 0; j->engine && r < RANKS; r++) {
        j->ranks[r].callback = (gw_progress_callback){.ctx = &j->ranks[r], .poll = poll_rank, .busy = busy};
        gw_core_attach(j->ranks[r].core, &j->ranks[r].callback);
    }
}

static void close_job(job *j) {
    gw_error over = {.status = GW_ABORTED, .rank = -1};
    for (int r = 0; r < RANKS; r++) {
        gw_engine_fail(gw_core_engine(j->ranks[r].core), &over);
        if (j->ranks[r].callback.ctx) gw_core_detach(j->ranks[r].core, &j->ranks[r].callback);
    }
    if (j->engine) gw_step_engine_close(j->engine);
    for (int r = 0; r < RANKS; r++) {
        gw_am_close(j->ranks[r].am);
        gw_team_close(j->ranks[r].team);
        gw_core_close(j->ranks[r].core);
    }
    gw_sim_close(j->net);
    for (int t = 0; t < TENSORS; t++) free(j->gradients[t]), free(j->weights[t]);
    free(j->flat);
}

/* What happens. */

static bool refused(const job *j) {
    const gw_error *error = gw_step_engine_error(j->engine);
    if (!error->status) return false;
    demand(error->text[0] && strlen(error->text) < sizeof error->text && error->rank >= -1 && error->rank < RANKS);
    return true;
}

static void run_events(job *j) {
    for (int r = 0; r < RANKS; r++) gw_sim_timer(j->net, r, gw_sim_now(j->net) + 1);
    for (int i = 0; i < EVENTS_MAX && gw_sim_step(j->net); i++) continue;
}

/* Rank 0 goes on with its step as far as it can. */
static void make_step(job *j) {
    gw_error error = {.rank = -1};
    bool complete;
    for (; j->next < TENSORS; j->next++) {
        int t = TENSORS - 1 - j->next;
        if (!gw_step_engine_settled(j->engine, t)) return;
        for (size_t i = 0; i < counts[t]; i++) j->gradients[t][i] = (float)(i % 17) - 8;
        if (gw_step_engine_ready(j->engine, &t, 1, &complete, &error)) return;
    }
    if (gw_step_engine_end(j->engine, &error)) return;
    j->next = 0;
    j->step++;
}

/* A message that rank 0 may expect of that rank. */
static gw_am_message likely(const job *j, const gw_ps *ps, const record *r, int from) {
    static const gw_ps_message kinds[] = {GW_PS_PUSH,     GW_PS_PUSH,    GW_PS_ANSWER, GW_PS_CODED_ANSWER, GW_PS_COPY,
                                          GW_PS_COPY_ACK, GW_PS_AT_STEP, GW_PS_LEAVE,  GW_PS_CLOSE};
    gw_ps_message kind = kinds[r->what / 8 % (sizeof kinds / sizeof kinds[0])];
    int partition = ps->partition_count ? r->partition % ps->partition_count : 0;
    const gw_partition *p = &ps->partitions[partition];
    gw_am_message message = {.kind = kind, .partition = (uint32_t)partition, .step = j->step, .joined = 1};
    if (kind == GW_PS_COPY || kind == GW_PS_COPY_ACK) message.kind = gw_ps_message_of(kind, r->worker % 5 - 1);
    if (kind <= GW_PS_CODED_ANSWER || kind == GW_PS_COPY) message.bytes = p->bytes;
    if (p->coded && (kind == GW_PS_PUSH || kind == GW_PS_CODED_ANSWER))
        message.bytes = r->bytes & 1 ? p->slot_bytes : p->second_at ? p->second_at : p->push_bytes;
    if (kind == GW_PS_PUSH && ps->store.clocks)
        message.round = gw_clock_table_number(ps->store.clocks, partition, from);
    if (kind == GW_PS_ANSWER || kind == GW_PS_CODED_ANSWER) message.round = p->round + 1;
    return message;
}

static void change(gw_am_message *message, const record *r) {
    if (r->changes & 1) message->kind = (uint32_t)r->value;
    if (r->changes & 2) message->partition = (uint32_t)r->value;
    if (r->changes & 4) message->round += r->value;
    if (r->changes & 8) message->step = r->value;
    if (r->changes & 16) message->joined = (uint32_t)r->value;
    if (r->changes & 32) message->bytes = r->value % (PAYLOAD_BYTES + 1);
    if (r->changes & 64) message->kind |= (uint32_t)r->worker << 8;
    if (r->changes & 128) memcpy(&message->growth, &r->value, sizeof message->growth);
}

static void lie(job *j, const record *r, const uint8_t *rest, size_t size) {
    gw_error error = {.rank = -1};
    int from = 1 + r->from % (RANKS - 1);
    gw_am_message message = likely(j, gw_step_engine_servers(j->engine), r, from);
    change(&message, r);
    if (size > 256) size = 256;
    if (size) memcpy(payload, rest, size); /* in flight or not: a liar's payload may change at any time */
    gw_am_send(j->ranks[from].am, 0, &message, payload, gw_sim_now(j->net), &error);
}

/* Also after an error: a state is restored into a server that does nothing else. */
static void restore_state(const job *j, const uint8_t *data, size_t size) {
    gw_ps *ps = gw_step_engine_servers(j->engine);
    gw_error error = {.rank = -1};
    if (ps->store.server < 0 || !ps->store.clocks) return;
    size_t bytes = gw_ps_state_bytes(ps, &ps->store), kept = bytes;
    uint8_t *saved = malloc(bytes);
    demand(saved != NULL);
    gw_ps_state_save(ps, &ps->store, saved);
    for (; size >= sizeof(record); data += sizeof(record), size -= sizeof(record)) {
        record r;
        memcpy(&r, data, sizeof r);
        size_t at = r.what & 1   ? r.partition % 80 / 8 * 8
                    : r.what & 2 ? bytes - 8 - (size_t)r.partition % (bytes - 8)
                                 : 0;
        if (r.what & 3) memcpy(saved + at, &r.value, sizeof r.value);
        else if (r.what & 4) kept = r.value % (bytes + 1);
    }
    uint8_t *exact = malloc(kept ? kept : 1); /* of just this size: reading on is seen */
    demand(exact != NULL);
    memcpy(exact, saved, kept);
    if (gw_ps_state_restore(ps, &ps->store, exact, kept, size & 1, &error)) demand(error.text[0] != 0);
    free(saved);
    free(exact);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    job j = {0};
    if (size < 2) return 0;
    open_job(&j, data[0], data[1] & 1);
    bool restores = data[1] & 2;
    data += 2, size -= 2;
    for (int i = 0; j.engine && i < RECORDS_MAX && size >= sizeof(record) && !refused(&j); i++) {
        record r;
        memcpy(&r, data, sizeof r);
        data += sizeof r, size -= sizeof r;
        if (restores && r.what == 255) break;
        if (r.what % 8 < 5) lie(&j, &r, data, size);
        if (r.what % 4 != 1) run_events(&j);
        if (r.what % 8 > 3) make_step(&j);
    }
    if (j.engine && restores) restore_state(&j, data, size);
    close_job(&j);
    return 0;
}
