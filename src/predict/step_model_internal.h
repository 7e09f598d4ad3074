/* step_model_internal.h - shared by step_model.c (computing) and step_flights.c (buckets in flight). */
#ifndef GW_PREDICT_STEP_MODEL_INTERNAL_H
#define GW_PREDICT_STEP_MODEL_INTERNAL_H

#include "predict/server_model.h"
#include "predict/step_model.h"

enum { TAGS = 2 * GW_DISPATCH_STAGES }; /* most operations of an entry */

typedef enum step_phase { FORWARD_WAITS, FORWARD, BACKWARD, BACKWARD_WAITS, OVER } step_phase;

/* The computing part of a rank. */
typedef struct step_worker {
    gw_plan_sim_timer timer; /* first member: a pointer to it is one to the worker */
    int rank;
    step_phase phase;
    int layer;
    int step;
    int exchanged;       /* steps whose gradients were all handed to the schedule */
    int produced;        /* the lowest tensor handed over in this step */
    int cursor;          /* entries of the order that it has started */
    int known;           /* entries of the order that have reached it */
    int in_flight;       /* entries that its own schedule has started and not finished */
    double owed;         /* seconds that exchanges add to the next layer */
    int turn, next_turn; /* of stages that the ranks of a host start in turn: the next to start, the next to give out */
    double began, ended; /* of the measured steps */
    gw_time_breakdown began_path, ended_path;
} step_worker;

/* A bucket in flight, on one rank. */
typedef struct step_flight {
    gw_plan_sim_timer timer; /* first */
    int rank, bucket, entry;
    int stage, stage_end;
    int pending; /* unfinished collectives of the stage */
    int uses;    /* finished exchanges */
    bool half;   /* the first half of the next exchange is finished */
    int turn;    /* of its stage that has to wait for its turn */
    bool waits;  /* for that */
} step_flight;

/* Entries of the order that rank 0 has chosen and not yet sent. */
typedef struct step_decision {
    gw_plan_sim_timer timer; /* first */
    int entries;             /* of the order, as far as it is decided */
} step_decision;

/* One entry of the start order, for all ranks. */
typedef struct step_entry {
    int bucket;
    bool second;
    int use;                 /* number of this exchange of the bucket, from 0 */
    gw_plan_sim_op **ops;    /* [tag * teams + team], each NULL until the first member starts it; owned */
    step_decision *decision; /* up to this entry; NULL: it was sent at once; owned */
} step_entry;

typedef struct step_run {
    const gw_step_model_config *config;
    gw_plan_sim *sim;
    step_worker *workers;
    step_flight *flights; /* [rank * buckets + bucket] */
    int ranks, buckets;
    bool splits;
    gw_server_model *servers; /* NULL: none. With servers every rank has a schedule of its own. */
    bool open_ended;          /* workers are in different steps: all go on until the slowest has made its steps */
    int reached;              /* workers that have made theirs */
    int teams;                /* most teams of a stage */
    int *first_tensor;        /* of each layer, and the end */
    step_entry *order;
    int entries, entry_room;
    int *started; /* of each bucket: exchanges started */
    gw_status status;
    gw_error *error;
} step_run;

/* step_model.c */
void gw_step_run_fail(step_run *s, gw_status status);
void gw_step_go_on(step_run *s, step_worker *w); /* advances a worker until it computes or waits */
/* A rank begins to exchange so many bytes, and computes more slowly if it computes. */
void gw_step_interfere(step_run *s, step_worker *w, double bytes);

/* step_flights.c */
step_flight *gw_step_flight_of(step_run *s, int rank, int bucket);
gw_schedule *gw_step_schedule_of(const step_run *s, int rank);
bool gw_step_decides(const step_run *s, int rank); /* whether a rank's own schedule decides what it starts */
/* Whether a worker has the results that its layer needs. */
bool gw_step_layer_settled(step_run *s, const step_worker *w);
void gw_step_pump(step_run *s, step_worker *w); /* starts all buckets that the rank's schedule lets start */
void gw_step_follow(step_run *s, int rank);     /* starts what the order says and the rank has */

/* Callbacks of the simulation and of the servers. */
void gw_step_collective_over(void *ctx, int rank, int tag);
void gw_step_order_arrived(void *ctx, int to, int entries);
void gw_step_bucket_sent(void *ctx, int rank, int bucket);
void gw_step_bucket_answered(void *ctx, int rank, int bucket);

#endif
