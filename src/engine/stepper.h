/* stepper.h - one training step after the other, as a polled machine: the only room that knows the order of a step.
 *
 *     ready --> schedule --> piece --> carrier (all-reduce, or codec and exchange) --> arrive (synchrony) --> done
 *
 * Two threads meet here. The caller's thread makes the gw_stepper_* calls marked (C): it hands tensors over through a
 * ring and reads how far each has come. The driver (whoever polls the core) does all else. A tensor's memory belongs
 * to the driver from gw_stepper_ready until its `done` count has risen.
 *
 * Matching. Every rank starts operations on the stepper's team in the same order: as produced where that is fixed, as
 * rank 0 publishes it (publish.h) where a policy reorders. Exchanges through a codec take several operations, and each
 * has a team of its own, so that theirs cannot overtake each other differently from rank to rank. Parameter servers
 * need no common order: what goes to them says what it is. */
#ifndef GW_ENGINE_STEPPER_H
#define GW_ENGINE_STEPPER_H

#include <stdatomic.h>

#include "compress/compress.h"
#include "engine/core.h"
#include "engine/exchange.h"
#include "schedule/schedule.h"
#include "server/desk.h"
#include "server/placement.h"
#include "strategy/strategy.h"
#include "sync/sync.h"

typedef struct gw_stepper gw_stepper;

typedef struct gw_stepper_config {
    gw_core *core;
    gw_team *team;           /* the stepper's alone */
    uint32_t first_id;       /* of the teams it opens itself: gw_stepper_teams of them, the same on all ranks */
    const char *arch;        /* of the strategy line */
    size_t chunk_bytes;
    int servers;             /* parameter servers carry the pieces (stepper_ps.h); 0: collectives do */
    bool serves_only;        /* this rank makes no steps: its tensors have no memory, only addresses */
    bool factors;            /* fully connected layers may travel as factors (stepper_factors.h) */
    const gw_attendant *attendants; /* of each rank of the team, for servers; NULL: all have just been started, and
                                       work. Read while opening and moving only */
    int replicas;            /* of each server: 0 or 1 */
    uint64_t snapshot_every; /* steps between two snapshots of a server; 0: none */
    const char *snapshots;   /* the directory they are written to; outlives the stepper. NULL: none are */
    const gw_policy *policy;
    gw_schedule_settings settings;
    gw_codec_setup codec;    /* gw_codec_none: values travel as they are */
    const gw_sync *sync;
    const double *sync_values; /* the strategy's, which outlives the stepper */
    const gw_step_tensor *tensors;  /* copied, names too */
    int count;
    gw_step_options options;
    float *flat;             /* gw_stepper_flat floats where that is not 0: what travels is packed into it */
} gw_stepper_config;

/* What the strategy says: arch, chunk, policy, settings, codec and synchrony. The strategy outlives the stepper. */
gw_status gw_stepper_follow(gw_stepper_config *config, const gw_strategy *strategy, gw_error *error);
/* Whether tensors have to be copied together before they travel: bytes of config.flat, 0 where they lie well. */
size_t gw_stepper_flat_bytes(const gw_stepper_config *config);
/* How many team ids it needs at most. */
uint32_t gw_stepper_teams(const gw_stepper_config *config);

gw_status gw_stepper_open(gw_stepper **stepper, const gw_stepper_config *config, gw_error *error);
void gw_stepper_close(gw_stepper *stepper);

/* (C) The calls of gradwire.h, without waiting. *complete: the driver has something to do now, because a piece has all
 * of its gradients; else it need not be woken. */
gw_status gw_stepper_ready(gw_stepper *stepper, int tensor, bool *complete, gw_error *error);
/* (C) Of a tensor that travels as factors, instead of gw_stepper_ready. */
bool gw_stepper_wants_factors(const gw_stepper *stepper, int tensor);
gw_status gw_stepper_ready_factors(gw_stepper *stepper, int tensor, const float *left, const float *right, size_t batch,
                                   bool *complete, gw_error *error);
gw_status gw_stepper_end(gw_stepper *stepper, gw_error *error);
bool gw_stepper_begun(const gw_stepper *stepper, int tensor);   /* it is ready in a step that has not ended */
/* The step after the last one whose combination was applied to it; any thread. */
uint64_t gw_stepper_reached(const gw_stepper *stepper, int tensor);
bool gw_stepper_usable(const gw_stepper *stepper, int tensor);  /* the forward pass may use it */
bool gw_stepper_settled(const gw_stepper *stepper, int tensor); /* nothing of it is under way */
void gw_stepper_settle(gw_stepper *stepper);                    /* all are settled: stand on the shared weights */

/* (C) Tells a recording, if there is one, that the caller waited for it. */
void gw_stepper_trace_waited(const gw_stepper *stepper, int tensor, gw_time begun);

/* (C) Between two steps, all settled: other pieces from now on; the same on all ranks. */
gw_status gw_stepper_recut(gw_stepper *stepper, const gw_schedule_settings *settings, const gw_schedule_facts *facts,
                           gw_error *error);

/* The driver's. True if anything moved. */
bool gw_stepper_poll(gw_stepper *stepper, gw_time now);
bool gw_stepper_carries(const gw_stepper *stepper); /* a piece is on its way */
/* The driver has something to do: a piece has all of its gradients and is not over. What is less than a piece waits in
 * the ring for the rest. */
bool gw_stepper_busy(const gw_stepper *stepper);
bool gw_stepper_agrees(const gw_stepper *stepper); /* (C) settled: all ranks hold the same weights */
/* (C) All settled: no more steps will be made. A server goes on until all ranks have said so. */
void gw_stepper_leave(gw_stepper *stepper);
/* The driver's. What the server of this rank knows of a worker; zeros where it runs none. */
gw_desk_times gw_stepper_times(const gw_stepper *stepper, int worker, gw_time now);
bool gw_stepper_quiet(const gw_stepper *stepper); /* no operation of its own is under way: it can be closed */
const gw_error *gw_stepper_error(const gw_stepper *stepper); /* GW_OK: none */

const char *gw_stepper_name(const gw_stepper *stepper, int tensor);
const gw_schedule *gw_stepper_schedule(const gw_stepper *stepper);
int gw_stepper_pieces(const gw_stepper *stepper);
gw_exchange_form gw_stepper_form(const gw_stepper *stepper, int piece); /* AUTO: not coded */
size_t gw_stepper_sent_bytes(const gw_stepper *stepper); /* by this rank in a step, at most */
size_t gw_stepper_memory_bytes(const gw_stepper *stepper);              /* taken at commit, codec state included */
size_t gw_stepper_codec_bytes(const gw_stepper *stepper);               /* of that, codec state */

/* (C) Nobody drives it: it goes on over another team. part keeps what this rank knows and lets go of the old team,
 * which may be closed then; rejoin sits down at another: core, team, first_id, flat and attendants (team size entries)
 * of the config count. Then, with servers, what they knew is handed over (stepper_ps.h), and steps under way go on;
 * without, the step under way is over, and members make their tensors equal by the calls below. resume lets it go on.
 * After a failure in between it begins with part again. */
struct gw_ps *gw_stepper_servers(gw_stepper *stepper); /* NULL: it has none */
gw_status gw_stepper_part(gw_stepper *stepper, gw_error *error);
gw_status gw_stepper_rejoin(gw_stepper *stepper, const gw_stepper_config *config, gw_error *error);
void gw_stepper_resume(gw_stepper *stepper);
uint64_t gw_stepper_furthest(const gw_stepper *stepper); /* the step after the last that any tensor has made */
/* Array number `which` of what ranks share of a tensor, if anything is applied here: weights, outer momentum, the
 * optimiser's arrays. How many floats, 0: there are no more. gives: to be sent to a rank that is behind. */
size_t gw_stepper_shared(const gw_stepper *stepper, int tensor, int which, bool gives, float **array);
void gw_stepper_caught_up(gw_stepper *stepper, int tensor, uint64_t step); /* all of it has been received */
void gw_stepper_begin_at(gw_stepper *stepper, uint64_t step); /* before its first step: the number of that */

/* (C) Settled: residuals and what else is kept from step to step, exactly. */
size_t gw_stepper_state_bytes(const gw_stepper *stepper);
void gw_stepper_state_save(const gw_stepper *stepper, void *memory);
gw_status gw_stepper_state_restore(gw_stepper *stepper, const void *memory, size_t bytes, gw_error *error);
gw_status gw_stepper_state_take_over(gw_stepper *stepper, const void *memory, size_t bytes, gw_error *error);

#endif
