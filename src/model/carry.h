/* carry.h - what becomes of a piece of a step: the collectives that carry it, how many bytes each moves, and what a
 * rank computes in between. The same decisions as the engine makes (engine/stepper_carry.c, engine/exchange.c), with
 * the payload sizes of the production codecs. */
#ifndef GW_MODEL_CARRY_H
#define GW_MODEL_CARRY_H

#include "compress/compress.h"
#include "model/machine.h"
#include "model/profile.h"
#include "schedule/schedule.h"
#include "sim/run.h"
#include "strategy/strategy.h"

#define GW_CARRY_STAGES 4

/* Something to compute, then collectives side by side. */
typedef struct gw_carry_stage {
    double seconds; /* of a rank's time, before */
    gw_run_spec specs[2];
    int count; /* of specs */
} gw_carry_stage;

/* Through a server: all push, it adds up, all are answered. */
typedef struct gw_carry_parcel {
    int server; /* rank */
    size_t bytes;
} gw_carry_parcel;

/* Stages, or parcels that go side by side. */
typedef struct gw_carry {
    gw_carry_stage stages[GW_CARRY_STAGES]; /* the last may have no collective: decoding */
    int count;
    int halfway; /* stages of the first half; count where it is not split */
    gw_carry_parcel *parcels; /* parcel_count, owned; NULL: no servers */
    int parcel_count;
} gw_carry;

void gw_carry_free(gw_carry *carry);

/* The tensors of a profile in forward order, with their memory. */
typedef struct gw_carry_tensors {
    int count;
    gw_schedule_tensor *what; /* count */
    gw_codec_tensor *named;   /* count; names belong to the profile */
    int *layer;               /* count: whose it is */
} gw_carry_tensors;

gw_status gw_carry_tensors_make(gw_carry_tensors *tensors, const gw_profile *profile, bool coded, gw_error *error);
void gw_carry_tensors_free(gw_carry_tensors *tensors);

typedef struct gw_carrier {
    const gw_strategy *strategy;
    const gw_machine *machine;
    gw_topology topology;
    gw_codec_setup setup, second;
    double fill, second_fill; /* of the longest payload, what a payload really takes */
} gw_carrier;

/* Finds out how long payloads are by encoding a sample of normally distributed values. */
gw_status gw_carrier_make(gw_carrier *carrier, const gw_strategy *strategy, const gw_machine *machine,
                          gw_topology topology, gw_error *error);
/* What carries each piece: carries has an entry for each, zeroed, and is the caller's to free, on failure too. */
gw_status gw_carrier_plan(const gw_carrier *carrier, const gw_carry_tensors *tensors, const gw_schedule *schedule,
                          gw_carry *carries, gw_error *error);
/* The same through servers (parcels.c). */
gw_status gw_carrier_parcels(const gw_carrier *carrier, const gw_carry_tensors *tensors, const gw_schedule *schedule,
                             gw_carry *carries, gw_error *error);

#endif
