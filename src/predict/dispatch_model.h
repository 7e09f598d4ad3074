/* dispatch_model.h - how a bucket of a step is exchanged: the collectives that it uses, the bytes that each moves, and
 * what a rank computes in between. The route is the one that the step engine takes (arch/route.h), and so are the
 * owners of elements, the form of a coded exchange, the plans and the payload sizes of the production codecs. */
#ifndef GW_PREDICT_DISPATCH_MODEL_H
#define GW_PREDICT_DISPATCH_MODEL_H

#include "arch/route.h"
#include "arch/sfb.h"
#include "predict/machine.h"
#include "predict/team_model.h"
#include "profile/profile.h"
#include "reducer/coded_exchange.h"
#include "schedule/schedule.h"
#include "strategy/strategy.h"

#define GW_DISPATCH_STAGES 8

/* One stage of an exchange: local work, then up to two collectives at the same time. */
typedef struct gw_dispatch_stage {
    double seconds;    /* local work of a rank, before the collectives */
    gw_team_kind team; /* that runs the collectives */
    bool in_turn;      /* all ranks of a host start it in the order in which they started the halves that it ends */
    gw_plan_sim_spec specs[2]; /* their team is not set */
    int count;                 /* of specs */
} gw_dispatch_stage;

/* One partition of a bucket: workers push it, the server combines, and answers. */
typedef struct gw_dispatch_partition {
    int server; /* rank */
    int rounds; /* of pushes and answers, one after the other */
    size_t push_bytes[GW_CODING_ROUNDS_MAX], answer_bytes[GW_CODING_ROUNDS_MAX];
    double encode; /* seconds of a worker before each push */
    double take;   /* of the server for each push of a round but one */
    double finish; /* of the server for one push, and once in a round */
    double answer; /* of the server for each answer to another rank */
    double decode; /* of the worker after the last answer */
} gw_dispatch_partition;

/* The exchange of a bucket: stages one after the other, or partitions at the same time. */
typedef struct gw_dispatch {
    gw_dispatch_stage stages[GW_DISPATCH_STAGES]; /* some have no collective: decoding */
    int count;
    int halfway;                       /* stages of the first half; equal to count if the exchange is not split */
    gw_dispatch_partition *partitions; /* partition_count, owned; NULL: no servers */
    int partition_count;
} gw_dispatch;

void gw_dispatch_free(gw_dispatch *dispatch);

typedef struct gw_dispatch_model {
    const gw_strategy *strategy;
    const gw_machine *machine;
    const gw_team_model *teams;
    bool splits;
    int servers;
    int members;    /* of a coded exchange; with servers all workers */
    gw_lanes lanes; /* of a coded exchange */
    bool encodes;   /* tensors are encoded: there is a codec, and its route has a coded hop */
    gw_coding coding;
    double fill, second_fill; /* payload bytes divided by the codec's bound, for coding.setup and coding.second */
} gw_dispatch_model;

/* Measures payload sizes by encoding a sample of normally distributed values. */
gw_status gw_dispatch_model_make(gw_dispatch_model *model, const gw_strategy *strategy, const gw_machine *machine,
                                 const gw_team_model *teams, gw_error *error);

/* The tensors of a profile in forward order. The arrays are owned. */
typedef struct gw_dispatch_tensors {
    int count;
    gw_schedule_tensor *what; /* count */
    gw_coded_tensor *coded;   /* count; without state */
    gw_sfb_layer *factors;    /* count; batch 0: its gradient is sent, not factors */
    int *layer;               /* count; the layer of each tensor */
} gw_dispatch_tensors;

gw_status gw_dispatch_tensors_make(gw_dispatch_tensors *tensors, const gw_dispatch_model *model,
                                   const gw_profile *profile, gw_error *error);
void gw_dispatch_tensors_free(gw_dispatch_tensors *tensors);

/* Plans the exchange of each bucket. `dispatches` has one zeroed entry per bucket. The caller frees the entries, also
 * on failure. */
gw_status gw_dispatch_model_plan(const gw_dispatch_model *model, const gw_dispatch_tensors *tensors,
                                 const gw_schedule *schedule, gw_dispatch *dispatches, gw_error *error);

/* The parts of the above that have files of their own. */

gw_dispatch_stage *gw_dispatch_add_stage(gw_dispatch *dispatch, gw_team_kind team, double seconds);
/* Adds a collective of the stage's team, by the plan that the architecture chooses for it (NULL: `builder` says). */
void gw_dispatch_add_spec(const gw_dispatch_model *model, gw_dispatch_stage *stage, gw_collective what,
                          const char *arch, const gw_plan_builder *builder, size_t count, size_t unit);
/* coded_model.c: the stages of a coded hop. */
void gw_coded_model_add(const gw_dispatch_model *model, const gw_dispatch_tensors *tensors, const gw_schedule *schedule,
                        int bucket, gw_hop_kind kind, gw_dispatch *dispatch);
/* The most elements that any lane has of a bucket. */
size_t gw_coded_model_lane(const gw_dispatch_model *model, const gw_dispatch_tensors *tensors,
                           const gw_schedule *schedule, int bucket);
/* partition_model.c: the partitions of all buckets that go to parameter servers. */
gw_status gw_partition_model_cut(const gw_dispatch_model *model, const gw_dispatch_tensors *tensors,
                                 const gw_schedule *schedule, gw_dispatch *dispatches, gw_error *error);
/* Bytes of a range's payload as it is to be expected: of the worker's pass, or of the owner's. */
double gw_dispatch_payload(const gw_dispatch_model *model, const gw_coded_tensor *tensor, gw_codec_range range,
                           bool second);

#endif
