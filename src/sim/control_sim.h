/* control_sim.h - connects the cores of simulated ranks with the simulated network (transport/sim_transport.h): control
 * messages, lost links, dials and their answers. The simulators share this; each adds its program, timers and
 * faults. */
#ifndef GW_SIM_CONTROL_SIM_H
#define GW_SIM_CONTROL_SIM_H

#include "engine/rank_core.h"
#include "transport/sim_transport.h"

typedef struct gw_control_sim gw_control_sim;

/* The first member of a simulator's rank, so that a pointer to it is one to that rank. */
typedef struct gw_control_sim_rank {
    gw_control_sim *sim;
    int rank;
    gw_core *core; /* owned by the simulator */
} gw_control_sim_rank;

/* The first member of a simulator, which sets all fields but net. */
struct gw_control_sim {
    gw_sim_net *net;
    int world;
    gw_control_sim_rank *(*rank_of)(gw_control_sim *sim, int rank);
    void (*moved)(void *sim, int rank); /* polls a rank and runs its program */
    void (*timer)(void *sim, int rank);
    bool *ok;   /* of the outcome: every check passed */
    char *text; /* of the outcome: the first that failed */
    size_t text_bytes;
};

/* Opens sim->net. The caller closes it: gw_sim_close. */
gw_status gw_control_sim_open(gw_control_sim *sim, gw_sim_config config, gw_error *error);
/* A check failed: the first failure is the outcome. */
void gw_control_sim_broken(gw_control_sim *sim, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* If the next period has begun, sets a timer for every rank, so that heartbeats are sent and checked. */
void gw_control_sim_beat(gw_control_sim *sim, gw_time period, gw_time *next);

/* Opens the core of a rank, with routes to all others. The caller sets deadline, any_side and failed. Callbacks that
 * are NULL get a default. The ctx of all callbacks is self. */
gw_status gw_control_sim_open_rank(gw_control_sim_rank *self, gw_control_sim *sim, int rank, gw_core_config config,
                                   gw_error *error);
/* The default of gw_core_config.send. */
void gw_control_sim_send(void *self, int neighbour, const gw_control_message *message);
/* Opens a team of the ranks in `in` (world entries; self is one of them). host_of: by rank, ascending; NULL: each rank
 * on its own host. rack_of: by rank; NULL: no racks. */
gw_status gw_control_sim_team(gw_control_sim_rank *self, gw_team **team, uint32_t id, const bool *in,
                              const int *host_of, const int *rack_of, gw_error *error);

#endif
