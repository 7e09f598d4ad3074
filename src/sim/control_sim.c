/* control_sim.c - see control_sim.h. */
#include "sim/control_sim.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

void gw_control_sim_broken(gw_control_sim *sim, const char *format, ...) {
    if (!*sim->ok) return;
    *sim->ok = false;
    va_list args;
    va_start(args, format);
    vsnprintf(sim->text, sim->text_bytes, format, args);
    va_end(args);
}

/* Events of the network. */

static void on_message(void *ctx, int from, int to, const void *bytes, size_t length) {
    gw_control_sim *sim = ctx;
    gw_control_message message;
    gw_error error = {.rank = -1};
    if (length != GW_CONTROL_BYTES || gw_control_read(&message, bytes, sim->world, &error)) {
        gw_control_sim_broken(sim, "rank %d got a bad control message: %s", to, error.text);
        return;
    }
    gw_core_receive(sim->rank_of(sim, to)->core, from, &message, gw_sim_now(sim->net));
    sim->moved(sim, to);
}

static void on_hang_up(void *ctx, int rank, int gone) {
    gw_control_sim *sim = ctx;
    gw_core_link_lost(sim->rank_of(sim, rank)->core, gone, "connection closed", gw_sim_now(sim->net));
}

static void on_connected(void *ctx, int rank, int peer) {
    gw_control_sim *sim = ctx;
    gw_core_link_up(sim->rank_of(sim, rank)->core, peer, gw_sim_now(sim->net));
    sim->moved(sim, rank);
}

static void on_refused(void *ctx, int rank, int peer) {
    gw_control_sim *sim = ctx;
    gw_core_died(sim->rank_of(sim, rank)->core, peer, "its port is closed", gw_sim_now(sim->net));
    sim->moved(sim, rank);
}

gw_status gw_control_sim_open(gw_control_sim *sim, gw_sim_config config, gw_error *error) {
    config.world = sim->world;
    gw_sim_events events = {.ctx = sim, .message = on_message, .hang_up = on_hang_up, .timer = sim->timer,
                            .moved = sim->moved, .connected = on_connected, .refused = on_refused};
    return gw_sim_open(&sim->net, &config, &events, error);
}

void gw_control_sim_beat(gw_control_sim *sim, gw_time period, gw_time *next) {
    if (gw_sim_now(sim->net) < *next) return;
    *next = gw_sim_now(sim->net) + period;
    for (int r = 0; r < sim->world; r++) gw_sim_timer(sim->net, r, *next);
}

/* Callbacks of the core. */

static const char *host_name(void *ctx, int rank) {
    (void)ctx, (void)rank;
    return "host";
}

void gw_control_sim_send(void *ctx, int neighbour, const gw_control_message *message) {
    gw_control_sim_rank *self = ctx;
    uint8_t bytes[GW_CONTROL_BYTES];
    gw_control_write(message, bytes);
    gw_sim_message(self->sim->net, self->rank, neighbour, bytes, sizeof bytes);
}

static void dial(void *ctx, int rank) {
    gw_control_sim_rank *self = ctx;
    gw_sim_dial(self->sim->net, self->rank, rank);
}

static void slow(void *ctx, const char *sentence) { (void)ctx, (void)sentence; }

/* Ranks. */

gw_status gw_control_sim_open_rank(gw_control_sim_rank *self, gw_control_sim *sim, int rank, gw_core_config config,
                                   gw_error *error) {
    self->sim = sim;
    self->rank = rank;
    config.rank = rank;
    config.world = sim->world;
    config.ctx = self;
    config.slow = slow;
    if (!config.host_name) config.host_name = host_name;
    if (!config.send) config.send = gw_control_sim_send;
    if (!config.dial) config.dial = dial;
    gw_status status = gw_core_open(&self->core, &config, 0, error);
    if (status) return status;
    gw_engine *engine = gw_core_engine(self->core);
    gw_transport *transport = gw_sim_transport(sim->net, rank, gw_engine_sink(engine));
    for (int r = 0; r < sim->world; r++)
        if (r != rank) gw_engine_route(engine, r, transport);
    return GW_OK;
}

gw_status gw_control_sim_team(gw_control_sim_rank *self, gw_team **team, uint32_t id, const bool *in,
                              const int *host_of, const int *rack_of, gw_error *error) {
    int world = self->sim->world, count = 0, place = -1, last = -1, hosts = 0;
    int *members = malloc(3 * (size_t)world * sizeof *members), *host = members + world, *rack = host + world;
    if (!members) return gw_fail(error, GW_MEMORY, "out of memory for %d simulated ranks", world);
    for (int r = 0; r < world; r++) {
        if (!in[r]) continue;
        if (r == self->rank) place = count;
        if (!host_of || host_of[r] != last) hosts++;
        last = host_of ? host_of[r] : last;
        host[count] = hosts - 1;
        rack[count] = rack_of ? rack_of[r] : 0;
        members[count++] = r;
    }
    gw_topology topology = {.world = count, .host_of = host};
    gw_topology_take_racks(&topology, rack);
    gw_status status = place < 0
                           ? gw_fail(error, GW_INVALID, "it is not one of the %d members", count)
                           : gw_team_open(team, gw_core_engine(self->core), id, place, members, &topology, NULL, error);
    free(members);
    return status;
}
