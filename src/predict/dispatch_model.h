/* dispatch_model.h - how a bucket of a step is exchanged: the collectives that it uses, the bytes that each moves, and
 * what a rank computes in between. Makes the same decisions as the reducer (reducer/dispatch.c,
 * reducer/coded_exchange.c), with the payload sizes of the production codecs. */
#ifndef GW_PREDICT_DISPATCH_MODEL_H
#define GW_PREDICT_DISPATCH_MODEL_H

#include "compress/compress.h"
#include "predict/machine.h"
#include "profile/profile.h"
#include "schedule/schedule.h"
#include "sim/plan_sim.h"
#include "strategy/strategy.h"

#define GW_DISPATCH_STAGES 4

/* One stage of an exchange: local work, then up to two collectives at the same time. */
typedef struct gw_dispatch_stage {
    double seconds; /* local work of a rank, before the collectives */
    gw_plan_sim_spec specs[2];
    int count; /* of specs */
} gw_dispatch_stage;

/* One partition of a bucket: all workers push it, the server sums, and answers all workers. */
typedef struct gw_dispatch_partition {
    int server; /* rank */
    size_t bytes;
} gw_dispatch_partition;

/* The exchange of a bucket: stages one after the other, or partitions at the same time. */
typedef struct gw_dispatch {
    gw_dispatch_stage stages[GW_DISPATCH_STAGES]; /* the last may have no collective: decoding */
    int count;
    int halfway;                       /* stages of the first half; equal to count if the exchange is not split */
    gw_dispatch_partition *partitions; /* partition_count, owned; NULL: no servers */
    int partition_count;
} gw_dispatch;

void gw_dispatch_free(gw_dispatch *dispatch);

/* The tensors of a profile in forward order. The arrays are owned. */
typedef struct gw_dispatch_tensors {
    int count;
    gw_schedule_tensor *what; /* count */
    gw_codec_tensor *named;   /* count; names belong to the profile */
    int *layer;               /* count; the layer of each tensor */
} gw_dispatch_tensors;

gw_status gw_dispatch_tensors_make(gw_dispatch_tensors *tensors, const gw_profile *profile, bool coded,
                                   gw_error *error);
void gw_dispatch_tensors_free(gw_dispatch_tensors *tensors);

typedef struct gw_dispatch_model {
    const gw_strategy *strategy;
    const gw_machine *machine;
    gw_topology topology;
    gw_codec_setup setup, second;
    double fill, second_fill; /* payload bytes divided by the codec's bound, for setup and second */
} gw_dispatch_model;

/* Measures payload sizes by encoding a sample of normally distributed values. */
gw_status gw_dispatch_model_make(gw_dispatch_model *dispatch_model, const gw_strategy *strategy,
                                 const gw_machine *machine, gw_topology topology, gw_error *error);
/* Plans the exchange of each bucket. `dispatches` has one zeroed entry per bucket. The caller frees the entries, also
 * on failure. */
gw_status gw_dispatch_model_plan(const gw_dispatch_model *dispatch_model, const gw_dispatch_tensors *tensors,
                                 const gw_schedule *schedule, gw_dispatch *dispatches, gw_error *error);
/* The same for parameter servers (partition_model.c). */
gw_status gw_dispatch_model_partitions(const gw_dispatch_model *dispatch_model, const gw_dispatch_tensors *tensors,
                                       const gw_schedule *schedule, gw_dispatch *dispatches, gw_error *error);

#endif
