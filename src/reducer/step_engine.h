/* step_engine.h - training steps as a polled state machine: the only module that knows the order of a step.
 *
 *     ready --> schedule --> bucket --> dispatch (all-reduce, codec and exchange, servers) --> arrive (sync) --> done
 *
 * A bucket is the data of one exchange: several fused tensors, or a slice of one tensor.
 *
 * Threads. The caller's thread makes the calls marked (C): it hands tensors over through a ring and reads how far each
 * has come. The driver (the thread that polls the core) does everything else. A tensor's memory belongs to the driver
 * from gw_step_engine_ready until its `done` count has risen.
 *
 * Matching. Every rank starts operations on the engine's team in the same order: as gradients become ready if that
 * order is fixed, as rank 0 decides (start_order.h) if the schedule reorders. An exchange through a codec takes several
 * operations and has a team of its own, so that operations of two exchanges may interleave differently on each rank.
 * Parameter servers need no common order: every message says what it is. */
#ifndef GW_REDUCER_STEP_ENGINE_H
#define GW_REDUCER_STEP_ENGINE_H

#include <stdatomic.h>

#include "arch/route.h"
#include "compress/compress.h"
#include "engine/rank_core.h"
#include "gradwire/reducer.h"
#include "ps/clock_table.h"
#include "ps/placement.h"
#include "reducer/coded_exchange.h"
#include "schedule/schedule.h"
#include "strategy/strategy.h"
#include "sync/sync.h"

typedef struct gw_step_engine gw_step_engine;

/* What the ranks of a host share. The lock of the context is held in all calls. */
typedef struct gw_host_sharing {
    void *ctx;
    void *(*alloc)(void *ctx, size_t bytes, gw_error *error); /* NULL on failure */
    void (*release)(void *ctx, void *memory);
    /* A shm collective of these ranks of the core for the team with this id, self being the own index; *coll stays
     * NULL if they have to send messages. Waits for the others, up to a deadline. */
    gw_status (*open_coll)(void *ctx, uint32_t id, const int *members, int count, int self, struct gw_shm_coll **coll,
                           gw_error *error);
    void (*close_coll)(struct gw_shm_coll *coll);
} gw_host_sharing;

typedef struct gw_step_engine_config {
    gw_core *core;
    gw_team *team;                  /* only for the step engine */
    uint32_t first_id;              /* of the teams it opens: gw_step_engine_teams of them, the same on all ranks */
    const gw_host_sharing *sharing; /* outlives the engine; NULL: ranks of a host share nothing */
    const char *arch;               /* of the strategy line */
    size_t chunk_bytes;
    int servers;                 /* parameter servers that reduce the buckets (ps.h); 0: collectives do */
    bool serves_only;            /* this rank makes no steps: its tensors have no memory, only addresses */
    bool factors;                /* fully connected layers may be sent as factors (factors.h) */
    const gw_ps_member *members; /* with servers, one for each rank of the team; NULL: all ranks have just started and
                                    are workers. Read only by open and rejoin */
    uint32_t serial;         /* with servers: of this reducer among those of the job; in the names of its snapshots */
    int replicas;            /* of each server: 0 or 1 */
    uint64_t snapshot_every; /* steps between two snapshots of a server; 0: none */
    const char *snapshots;   /* the directory they are written to; outlives the engine. NULL: no snapshots */
    const gw_policy *policy;
    gw_schedule_settings settings;
    gw_codec_setup codec; /* gw_codec_none: values are sent as they are */
    const gw_sync *sync;
    const double *sync_values;        /* the strategy's, which outlives the engine */
    const gw_reducer_tensor *tensors; /* copied, names too */
    int count;
    gw_reducer_options options;
    float *flat;              /* pack buffer of gw_step_engine_flat_bytes; NULL if that is 0 */
    bool watch_accuracy;      /* a tensor is sent exact while the codec leaves the range in which it is trusted */
    size_t payload_bytes_max; /* memory for payloads, unless one bucket needs more; 0: 64 MiB */
} gw_step_engine_config;

/* The sizes of the strategy's schedule among the ranks of a team. */
gw_schedule_settings gw_step_engine_sizes(const gw_strategy *strategy, const gw_team *team);
/* Fills config, which has a team, from the strategy: arch, chunk, policy, settings, codec and synchronization. The
 * strategy outlives the engine. */
gw_status gw_step_engine_config_from_strategy(gw_step_engine_config *config, const gw_strategy *strategy,
                                              gw_error *error);
/* An update that needs whole tensors runs where servers keep the weights, so no tensor is cut. */
bool gw_step_engine_updates_whole(const gw_step_engine_config *config);
/* Bytes of the pack buffer config.flat; 0: tensors are contiguous and need no packing. */
size_t gw_step_engine_flat_bytes(const gw_step_engine_config *config);
/* How many buckets any cut of the tensors may have; how many team ids it needs at most with so many. */
size_t gw_step_engine_buckets_most(const gw_reducer_tensor *tensors, int count);
uint32_t gw_step_engine_teams(const gw_step_engine_config *config, size_t buckets_most);

gw_status gw_step_engine_open(gw_step_engine **step_engine, const gw_step_engine_config *config, gw_error *error);
void gw_step_engine_close(gw_step_engine *step_engine);

/* (C) The calls of gradwire/reducer.h, without waiting. *complete: a bucket has all of its gradients, so the driver has
 * work; else it need not be woken. Ready marks all of the tensors, or none if one of them cannot be. */
gw_status gw_step_engine_ready(gw_step_engine *step_engine, const int *tensors, int count, bool *complete,
                               gw_error *error);
/* (C) For a tensor that is sent as factors, instead of gw_step_engine_ready. */
bool gw_step_engine_wants_factors(const gw_step_engine *step_engine, int tensor);
gw_status gw_step_engine_ready_factors(gw_step_engine *step_engine, int tensor, const float *left, const float *right,
                                       size_t batch, bool *complete, gw_error *error);
gw_status gw_step_engine_absent(gw_step_engine *step_engine, int tensor, bool *complete, gw_error *error);
gw_status gw_step_engine_end(gw_step_engine *step_engine, gw_error *error);
/* (C) Between two steps. While it accumulates, the calls for a tensor only check; gw_step_engine_end is not called. */
void gw_step_engine_accumulate(gw_step_engine *step_engine, bool on);
bool gw_step_engine_accumulates(const gw_step_engine *step_engine);
bool gw_step_engine_begun(const gw_step_engine *step_engine, int tensor); /* it is ready in a step that has not ended */
/* One more than the last step whose mean or sum was applied to it; any thread. */
uint64_t gw_step_engine_reached(const gw_step_engine *step_engine, int tensor);
bool gw_step_engine_usable(const gw_step_engine *step_engine, int tensor);  /* the forward pass may use it */
bool gw_step_engine_settled(const gw_step_engine *step_engine, int tensor); /* nothing of it is in flight */
void gw_step_engine_settle(gw_step_engine *step_engine); /* all are settled: go back to the shared weights */

/* (C) Records, if there is a recording, that the caller waited for it since `begun`. */
void gw_step_engine_trace_waited(const gw_step_engine *step_engine, int tensor, gw_time begun);

/* (C) Between two steps, all settled: the gradient of a tensor is at another place from now on. Not with servers,
 * factors or a pack buffer. */
void gw_step_engine_move_tensor(gw_step_engine *step_engine, int tensor, void *gradient);

/* (C) Between two steps, all settled: cuts other buckets; the same on all ranks. */
gw_status gw_step_engine_recut(gw_step_engine *step_engine, const gw_schedule_settings *settings,
                               const gw_schedule_facts *facts, gw_error *error);

/* (C) What it was opened with, as it is now, without the list of tensors; one of its tensors. */
const gw_step_engine_config *gw_step_engine_current_config(const gw_step_engine *step_engine);
const gw_reducer_tensor *gw_step_engine_tensor_at(const gw_step_engine *step_engine, int tensor);
/* (C) Between two steps, all settled, without servers: continues with the architecture, schedule and codec of config,
 * which has the rest of its own configuration and the tensors; the same on all ranks. A codec with the same parameters
 * keeps its state. What another one has left is added to the next gradient. */
gw_status gw_step_engine_change(gw_step_engine *step_engine, const gw_step_engine_config *config, gw_error *error);

/* The driver's. True if anything moved. */
bool gw_step_engine_poll(gw_step_engine *step_engine, gw_time now);
bool gw_step_engine_in_flight(const gw_step_engine *step_engine); /* a bucket is in flight */
/* The driver has work: a bucket has all of its gradients and is not over. Tensors of an incomplete bucket wait in the
 * ring. */
bool gw_step_engine_busy(const gw_step_engine *step_engine);
bool gw_step_engine_agrees(const gw_step_engine *step_engine); /* (C) settled: all ranks hold the same weights */
/* (C) All settled: this rank makes no more steps. Its server continues until all ranks have said so. */
void gw_step_engine_leave(gw_step_engine *step_engine);
/* The driver's. A worker's times at the server of this rank; zeros if it runs none. */
gw_clock_table_times gw_step_engine_times(const gw_step_engine *step_engine, int worker, gw_time now);
/* No operation of its own is in flight: it can be closed. */
bool gw_step_engine_quiet(const gw_step_engine *step_engine);
const gw_error *gw_step_engine_error(const gw_step_engine *step_engine); /* GW_OK: none */

/* (C) Gradients that were handed over and not finite: how many, and step and tensor of the last. */
typedef struct gw_step_engine_nonfinite {
    uint64_t count, step;
    int tensor;
} gw_step_engine_nonfinite;
gw_step_engine_nonfinite gw_step_engine_nonfinites(const gw_step_engine *step_engine);

const char *gw_step_engine_name(const gw_step_engine *step_engine, int tensor);
/* That the codec applies to a tensor's gradients; 0: none, or the tensor is sent exact. */
double gw_step_engine_momentum(const gw_step_engine *step_engine, int tensor);
const gw_schedule *gw_step_engine_schedule(const gw_step_engine *step_engine);
int gw_step_engine_buckets(const gw_step_engine *step_engine);
/* The route of a bucket, and the bytes that this rank sends in a hop of it, at most. */
const gw_route *gw_step_engine_route(const gw_step_engine *step_engine, int bucket);
size_t gw_step_engine_hop_bytes(const gw_step_engine *step_engine, int bucket, int hop);
gw_coded_form gw_step_engine_form(const gw_step_engine *step_engine, int bucket); /* AUTO: not coded */
size_t gw_step_engine_sent_bytes(const gw_step_engine *step_engine);              /* by this rank in a step, at most */
size_t gw_step_engine_memory_bytes(const gw_step_engine *step_engine); /* allocated at commit, codec state included */
size_t gw_step_engine_codec_bytes(const gw_step_engine *step_engine);  /* of that, codec state */

/* The driver's. The share of this rank's coded elements that the watch over the codec's accuracy sends exact. */
double gw_step_engine_exact_share(const gw_step_engine *step_engine);

/* How many tensors a codec leaves exact, and their bytes; 0 without a codec. Some are marked so, some are too small to
 * pay, some the codec cannot take. */
int gw_step_engine_exact_tensors(const gw_step_engine *step_engine, size_t *bytes);

/* Memory for payloads, and what the busiest rank sends and receives, at most, in the coded hops of buckets that hold it
 * at the same time. */
typedef struct gw_step_engine_payloads {
    size_t memory, in_flight; /* bytes */
} gw_step_engine_payloads;

gw_step_engine_payloads gw_step_engine_payload_memory(const gw_step_engine *step_engine);

/* (C) Moves it to another team, while no thread drives it. part keeps this rank's state and releases the old team,
 * which may then be closed. rejoin takes core, team, first_id, flat, settings and members (team size entries) from
 * config. Then, with servers, their state is transferred (ps.h) and the interrupted step continues; without, the
 * interrupted step is over, and ranks make their tensors equal with the calls below. resume ends the move. After a
 * failure in between, begin with part again. */
struct gw_ps *gw_step_engine_servers(gw_step_engine *step_engine); /* NULL: it has none */
gw_status gw_step_engine_suspend(gw_step_engine *step_engine, gw_error *error);
gw_status gw_step_engine_rejoin(gw_step_engine *step_engine, const gw_step_engine_config *config, gw_error *error);
void gw_step_engine_resume(gw_step_engine *step_engine);
/* One more than the last step that any tensor has made. */
uint64_t gw_step_engine_furthest(const gw_step_engine *step_engine);
/* If the reducer updates: the arrays of a tensor that ranks share (weights, outer momentum, the optimiser's arrays), by
 * number `which`. Returns the number of floats, 0: no more arrays. gives: the array is read, to be sent to a rank that
 * is behind. */
size_t gw_step_engine_shared(const gw_step_engine *step_engine, int tensor, int which, bool gives, float **array);
void gw_step_engine_caught_up(gw_step_engine *step_engine, int tensor, uint64_t step); /* all of it has been received */
void gw_step_engine_begin_at(gw_step_engine *step_engine, uint64_t step); /* sets the number of its first step */

/* (C) All settled: the state that is kept from step to step (residuals, anchors, outer momentum), bit by bit. */
size_t gw_step_engine_state_bytes(const gw_step_engine *step_engine);
void gw_step_engine_state_save(const gw_step_engine *step_engine, void *memory);
/* any_codec: residuals, of any codec, are added to the next gradient instead. */
gw_status gw_step_engine_state_restore(gw_step_engine *step_engine, const void *memory, size_t bytes, bool any_codec,
                                       gw_error *error);
gw_status gw_step_engine_state_take_over(gw_step_engine *step_engine, const void *memory, size_t bytes,
                                         gw_error *error);

#endif
