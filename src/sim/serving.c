/* serving.c - processes and their programs: see serving.h. */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "sim/serving_internal.h"

#define TEAM 1
#define LIMIT (600 * GW_SECOND) /* of virtual time, between two losses */

typedef gw_serving_job job;
typedef gw_serving_process process;

void gw_serving_broken(job *j, const char *format, ...) {
    char what[400], line[GW_STRATEGY_PRINT_BYTES];
    if (!j->outcome->ok) return;
    j->outcome->ok = false;
    va_list args;
    va_start(args, format);
    vsnprintf(what, sizeof what, format, args);
    va_end(args);
    gw_strategy_print(&j->serving->strategy, line, sizeof line);
    snprintf(j->outcome->text, sizeof j->outcome->text, "%.300s (round %d, %d workers, %d apart, %.200s)", what,
             j->round, j->serving->workers, j->serving->apart, line);
}

/* A worker's program: each part returns false while it waits. */

static void compute(process *p, gw_serving_phase next, gw_time at_most) {
    p->phase = next;
    p->until = gw_sim_now(p->job->net) + gw_rng_below(&p->rng, at_most + 1);
    gw_sim_timer(p->job->net, gw_team_rank(p->team), p->until);
}

static bool pull(process *p) {
    if (!gw_stepper_usable(p->stepper, p->tensor)) return false;
    if (++p->tensor == p->job->serving->tensors) compute(p, GW_SERVING_COMPUTE, p->job->serving->pace[p->seat]);
    return true;
}

static void end_step(process *p) {
    gw_error error = {.rank = -1};
    if (gw_stepper_end(p->stepper, &error)) gw_serving_broken(p->job, "seat %d: %s", p->seat, error.text);
    p->made++;
    p->job->outcome->pushes++;
    p->tensor = 0;
    p->phase = p->first + (uint64_t)p->made < (uint64_t)p->job->serving->steps ? GW_SERVING_PULL : GW_SERVING_FLUSH;
}

static bool hand(process *p) {
    job *j = p->job;
    int t = p->tensor - 1;
    gw_error error = {.rank = -1};
    bool complete;
    if (!gw_stepper_settled(p->stepper, t)) return false; /* it had run ahead */
    for (size_t i = 0; i < j->serving->count[t]; i++)
        p->gradients[j->at[t] + i] = gw_serving_gradient(j, p->seat, j->at[t] + i);
    p->now.begun[t]++;
    p->now.begun_in[t] = (uint32_t)j->round;
    if (gw_stepper_ready(p->stepper, t, &complete, &error))
        gw_serving_broken(j, "seat %d: %s", p->seat, error.text);
    p->tensor--;
    if (p->tensor == 0) end_step(p);
    else if (gw_rng_below(&p->rng, 2)) compute(p, GW_SERVING_HAND, j->serving->pace[p->seat] / 8);
    return true;
}

static bool flush(process *p) {
    for (int t = 0; t < p->job->serving->tensors; t++)
        if (!gw_stepper_settled(p->stepper, t)) return false;
    gw_stepper_settle(p->stepper);
    p->phase = GW_SERVING_MEET;
    return true;
}

static bool all_reached(const job *j, gw_serving_phase phase) {
    for (int r = 0; r < j->world; r++) {
        const process *p = &j->seats[j->seat_of[r]];
        if (gw_serving_works(p) && p->lives && p->phase < phase) return false;
    }
    return true;
}

static bool meet(process *p) {
    job *j = p->job;
    if (j->serving->meets && !all_reached(j, GW_SERVING_MEET)) return false;
    p->phase = GW_SERVING_LEAVE;
    gw_stepper_leave(p->stepper);
    for (int r = 0; r < j->world; r++) gw_sim_timer(j->net, r, gw_sim_now(j->net)); /* those who wait look again */
    return true;
}

static bool leave(process *p) {
    if (!gw_stepper_quiet(p->stepper)) return false;
    p->phase = GW_SERVING_OVER;
    return true;
}

static bool go_on(process *p) {
    bool computed = gw_sim_now(p->job->net) >= p->until;
    switch (p->phase) {
    case GW_SERVING_PULL: return pull(p);
    case GW_SERVING_COMPUTE:
        if (computed) p->phase = GW_SERVING_HAND;
        return computed;
    case GW_SERVING_HAND: return computed && hand(p);
    case GW_SERVING_FLUSH: return flush(p);
    case GW_SERVING_MEET: return meet(p);
    case GW_SERVING_LEAVE: return leave(p);
    case GW_SERVING_OVER: break;
    }
    return false;
}

/* Answers are looked at when they come, before anybody can be lost. */
static void look_at_answers(process *p) {
    for (int t = 0; t < p->job->serving->tensors; t++) {
        if (p->now.answered[t] == p->now.begun[t] || !gw_stepper_settled(p->stepper, t)) continue;
        p->now.answered[t] = p->now.begun[t];
        gw_serving_check_pull(p, t);
    }
}

/* The network's events. */

static void on_moved(void *ctx, int rank) {
    job *j = ctx;
    process *p = &j->seats[j->seat_of[rank]];
    bool moved = true;
    while (moved && j->outcome->ok && !p->failed) {
        moved = gw_core_poll(p->core, gw_sim_now(j->net));
        const gw_error *error = gw_stepper_error(p->stepper);
        if (error->status && !p->failed) gw_serving_broken(j, "seat %d: %s", p->seat, error->text);
        if (p->failed || !j->outcome->ok) return;
        look_at_answers(p);
        moved |= go_on(p);
    }
}

static void on_message(void *ctx, int from, int to, const void *bytes, size_t length) {
    job *j = ctx;
    process *p = &j->seats[j->seat_of[to]];
    gw_control_message message;
    gw_error error = {.rank = -1};
    if (length != GW_CONTROL_BYTES || gw_control_read(&message, bytes, j->world, &error)) {
        gw_serving_broken(j, "seat %d got a bad control message: %s", p->seat, error.text);
        return;
    }
    gw_core_receive(p->core, from, &message, gw_sim_now(j->net));
    on_moved(ctx, to);
}

static void on_hang_up(void *ctx, int rank, int gone) {
    job *j = ctx;
    int neighbours[GW_CONTROL_LINKS_MAX], count = gw_control_neighbours(rank, j->world, neighbours);
    for (int i = 0; i < count; i++)
        if (neighbours[i] == gone)
            gw_core_link_lost(j->seats[j->seat_of[rank]].core, gone, "connection closed", gw_sim_now(j->net));
}

static void on_timer(void *ctx, int rank) {
    job *j = ctx;
    gw_core_poll_control(j->seats[j->seat_of[rank]].core, gw_sim_now(j->net));
    on_moved(ctx, rank);
}

/* What the core asks for. */

static const char *host_name(void *ctx, int rank) {
    (void)ctx, (void)rank;
    return "host";
}

static void send_control(void *ctx, int neighbour, const gw_control_message *message) {
    process *p = ctx;
    uint8_t bytes[GW_CONTROL_BYTES];
    gw_control_write(message, bytes);
    gw_sim_message(p->job->net, gw_team_rank(p->team), neighbour, bytes, sizeof bytes);
}

static void failed(void *ctx, const gw_error *error) {
    process *p = ctx;
    p->failed = true;
    if (!p->job->dying) gw_serving_broken(p->job, "seat %d: %s", p->seat, error->text);
}

static void slow(void *ctx, const char *sentence) { (void)ctx, (void)sentence; }

/* Processes. */

gw_status gw_serving_start_process(job *j, int seat, gw_error *error) {
    process *p = &j->seats[seat];
    uint64_t stream = 100 + (uint64_t)seat + 16 * (uint64_t)j->round;
    *p = (process){.job = j, .seat = seat, .lives = true, .fresh = true, .born = (uint32_t)j->round, .past = p->past,
                   .rng = gw_rng_make(j->serving->seed, stream)};
    p->gradients = calloc(j->total + 1, sizeof *p->gradients);
    p->weights = calloc(j->total + 1, sizeof *p->weights);
    p->now.before = calloc(j->total + 1, sizeof *p->now.before);
    if (p->gradients && p->weights && p->now.before) return GW_OK;
    return gw_fail(error, GW_MEMORY, "out of memory for a simulated process");
}

void gw_serving_disconnect(process *p) {
    gw_error over = {.status = GW_ABORTED, .rank = -1};
    if (!p->core) return;
    gw_engine_fail(gw_core_engine(p->core), &over);
    if (p->rider.ctx) gw_core_drop(p->core, &p->rider);
    p->rider.ctx = NULL;
}

/* A stepper lets go of its team before that is closed. */
static void close_links(process *p) {
    gw_team_close(p->team);
    gw_core_close(p->core);
    p->team = NULL;
    p->core = NULL;
}

void gw_serving_kill_process(process *p) {
    if (p->fresh) {
        free(p->now.before); /* it has pushed nothing */
    } else if (p->lives) {
        free(p->past.before);
        p->past = p->now;
    }
    p->now.before = NULL;
    gw_serving_disconnect(p);
    gw_stepper_close(p->stepper);
    close_links(p);
    free(p->flat);
    free(p->weights);
    free(p->gradients);
    p->stepper = NULL;
    p->flat = p->weights = p->gradients = NULL;
    p->lives = false;
}

gw_status gw_serving_connect(process *p, int rank, gw_error *error) {
    job *j = p->job;
    int members[GW_SERVING_SEATS_MAX];
    gw_core_config config = {.rank = rank, .world = j->world, .deadline = GW_SERVING_DEADLINE, .ctx = p,
                             .host_name = host_name, .send = send_control, .failed = failed, .slow = slow};
    close_links(p);
    p->failed = false;
    gw_status status = gw_core_open(&p->core, &config, 0, error);
    if (status) return status;
    gw_engine *engine = gw_core_engine(p->core);
    gw_transport *transport = gw_sim_transport(j->net, rank, gw_engine_sink(engine));
    for (int r = 0; r < j->world; r++) {
        members[r] = r;
        if (r != rank) gw_engine_route(engine, r, transport);
    }
    gw_topology topology = {.world = j->world, .host_of = members}; /* each on a host of its own */
    return gw_team_open(&p->team, engine, TEAM, rank, members, &topology, NULL, error);
}

static void update(void *ctx, const gw_step_update *u) {
    float *weights = u->weights;
    const float *gradient = u->gradient;
    (void)ctx;
    for (size_t i = 0; i < u->count; i++) weights[i] -= (float)u->scale * gradient[i];
}

gw_status gw_serving_commit(process *p, const gw_attendant *who, gw_error *error) {
    job *j = p->job;
    char names[GW_SERVING_TENSORS_MAX][24];
    gw_step_tensor tensors[GW_SERVING_TENSORS_MAX];
    const gw_sync *sync = gw_sync_of(j->serving->strategy.axes[GW_AXIS_SYNC].technique);
    bool sums = sync->rule || sync == &gw_sync_bsp;
    gw_stepper_config config = {.core = p->core, .team = p->team, .first_id = TEAM + 1, .tensors = tensors,
                                .count = j->serving->tensors, .serves_only = !gw_serving_works(p), .attendants = who,
                                .options = {.op = sums ? GW_SUM : GW_AVG, .seed = j->serving->seed, .update = update}};
    for (int t = 0; t < j->serving->tensors; t++) {
        snprintf(names[t], sizeof names[t], "tensor%d", t);
        tensors[t] = (gw_step_tensor){.name = names[t], .count = j->serving->count[t], .dtype = GW_F32,
                                      .gradient = p->gradients + j->at[t], .weights = p->weights + j->at[t]};
    }
    gw_status status = gw_stepper_follow(&config, &j->serving->strategy, error);
    if (status) return status;
    size_t bytes = gw_stepper_flat_bytes(&config);
    if (bytes && !(p->flat = malloc(bytes))) return gw_fail(error, GW_MEMORY, "out of memory for a simulated process");
    config.flat = p->flat;
    return gw_stepper_open(&p->stepper, &config, error);
}

static bool poll_stepper(void *ctx, gw_time now) { return gw_stepper_poll(((process *)ctx)->stepper, now); }
static bool stepper_busy(void *ctx) { return gw_stepper_busy(((process *)ctx)->stepper); }

void gw_serving_carry_on(process *p) {
    p->rider = (gw_rider){.ctx = p, .poll = poll_stepper, .busy = stepper_busy};
    gw_core_carry(p->core, &p->rider);
    gw_sim_timer(p->job->net, gw_team_rank(p->team), 1);
    if (p->fresh && !gw_serving_works(p)) {
        p->phase = GW_SERVING_LEAVE; /* it makes no steps: it ends when all workers have left */
        gw_stepper_leave(p->stepper);
    } else if (p->fresh && p->first >= (uint64_t)p->job->serving->steps) {
        p->phase = GW_SERVING_FLUSH;
    }
    if (p->phase == GW_SERVING_COMPUTE || p->phase == GW_SERVING_HAND)
        compute(p, p->phase, p->job->serving->pace[p->seat]);
    p->fresh = false;
}

/* A job. */

static bool all_failed(const job *j) {
    for (int r = 0; r < j->world; r++) {
        const process *p = &j->seats[j->seat_of[r]];
        if (p->lives && !p->fresh && !p->failed) return false;
    }
    return true;
}

static bool all_over(const job *j) {
    for (int r = 0; r < j->world; r++)
        if (j->seats[j->seat_of[r]].lives && j->seats[j->seat_of[r]].phase != GW_SERVING_OVER) return false;
    return true;
}

static bool any_over(const job *j) {
    for (int r = 0; r < j->world; r++)
        if (j->seats[j->seat_of[r]].phase == GW_SERVING_OVER) return true;
    return false;
}

/* Until all are over, or all know that somebody is lost. */
static void drive(job *j) {
    gw_time beat = GW_SERVING_DEADLINE / 30, next_beat = 0;
    while (j->outcome->ok && !all_over(j) && !(j->dying && all_failed(j)) && gw_sim_now(j->net) < LIMIT) {
        if (gw_sim_now(j->net) >= next_beat) {
            next_beat = gw_sim_now(j->net) + beat;
            for (int r = 0; r < j->world; r++) gw_sim_timer(j->net, r, next_beat);
        }
        if (!gw_sim_step(j->net)) break;
        j->outcome->events++;
        if (j->patience-- == 0 && !any_over(j)) gw_serving_strike(j);
    }
    for (int r = 0; r < j->world && j->outcome->ok && !j->dying; r++) {
        const process *p = &j->seats[j->seat_of[r]];
        if (p->phase != GW_SERVING_OVER)
            gw_serving_broken(j, "seat %d still waits: step %d, tensor %d, phase %d", p->seat, p->made, p->tensor,
                              p->phase);
        if (gw_engine_pending(gw_core_engine(p->core)))
            gw_serving_broken(j, "seat %d: operations are left behind", p->seat);
    }
}

static gw_status open_net(job *j, gw_error *error) {
    const gw_serving *s = j->serving;
    gw_sim_config config = {.world = j->world, .latency = s->latency, .bytes_per_second = s->bytes_per_second,
                            .jitter = s->jitter, .seed = s->seed + (uint64_t)j->round};
    gw_sim_events events = {.ctx = j, .message = on_message, .hang_up = on_hang_up, .timer = on_timer,
                            .moved = on_moved};
    return gw_sim_open(&j->net, &config, &events, error);
}

/* Everybody who lives, with fresh links, until they are over or another is lost. */
static gw_status play_round(job *j, gw_error *error) {
    gw_sim_net *old = j->net;
    j->world = 0;
    for (int s = 0; s < gw_serving_seats(j->serving); s++)
        if (j->seats[s].lives) j->seat_of[j->world++] = s;
    j->dying = false;
    gw_status status = open_net(j, error);
    if (!status) status = gw_serving_meet(j, error);
    gw_sim_close(old);
    if (!status && !j->dying) drive(j);
    return status;
}

gw_status gw_serving_run(const gw_serving *s, gw_serving_outcome *outcome, gw_error *error) {
    gw_status status = GW_OK;
    job *j = calloc(1, sizeof *j);
    if (!j) return gw_fail(error, GW_MEMORY, "out of memory for a simulated job");
    *outcome = (gw_serving_outcome){.ok = true};
    *j = (job){.serving = s, .outcome = outcome, .rng = gw_rng_make(s->seed, 23), .budget = -1};
    j->patience = (int)gw_rng_below(&j->rng, 300);
    for (int t = 0; t < s->tensors; t++) {
        j->at[t] = j->total;
        j->total += s->count[t];
    }
    j->counts = gw_strategy_is(&s->strategy, GW_AXIS_COMPRESS, "none") &&
                (gw_serving_keeps(j) || gw_strategy_is(&s->strategy, GW_AXIS_SYNC, "bsp"));
    for (int seat = 0; seat < gw_serving_seats(s) && !status; seat++) status = gw_serving_start_process(j, seat, error);
    do {
        if (!status) status = play_round(j, error);
        j->round++;
    } while (!status && outcome->ok && j->dying && !any_over(j));
    if (!status && outcome->ok && j->counts && !j->dying) gw_serving_check_end(j);
    for (int seat = 0; seat < gw_serving_seats(s); seat++) {
        gw_serving_kill_process(&j->seats[seat]);
        free(j->seats[seat].past.before);
    }
    gw_sim_close(j->net);
    free(j);
    return status;
}
