/* schedule.h - in what order, and in what buckets, the gradients of a step are exchanged.
 *
 * A schedule cuts the tensors of a model into buckets: it fuses neighbouring small tensors and slices large ones. The
 * caller reports when gradients are ready and when exchanges have completed; the schedule answers which bucket starts
 * next. It is pure: no clock, no allocation after gw_schedule_open, no knowledge of how buckets are sent; the same
 * calls give the same answers on every machine. One thread at a time.
 *
 * Tensors are numbered in the order in which the forward pass needs them. Backward produces them from the last to the
 * first, and buckets are listed in that order. */
#ifndef GW_SCHEDULE_H
#define GW_SCHEDULE_H

#include "base/status.h"
#include "base/technique.h"
#include "schedule/schedule_table.h"

typedef struct gw_schedule_tensor {
    size_t count;     /* elements */
    size_t element;   /* bytes of one */
    int kind;         /* only tensors of one kind are fused */
    bool whole;       /* never cut */
    size_t grain;     /* cut only at multiples of this many elements; 0: anywhere */
    size_t piece;     /* bytes: larger ones are cut, so that the hops of their parts overlap; 0: need not be */
    size_t payload;   /* bytes that all of it takes when it travels, at most; 0: as many as it has */
    const int *after; /* tensors, all before it, whose operations the operation of this tensor builds on; NULL: the
                         tensor before it. Read by gw_schedule_open only */
    int after_count;
} gw_schedule_tensor;

/* The sizes of a policy. A tuner may change them between two steps. 0: automatic, or does not apply. */
typedef struct gw_schedule_settings {
    size_t fuse_bytes;   /* small tensors are fused up to this */
    size_t slice_bytes;  /* tensors larger than this are cut */
    size_t credit_bytes; /* at most this many bytes of payload are in flight, or a single bucket */
    int parts;           /* into which an exchange cuts a bucket: automatic sizes leave a part some bytes */
    bool measured;       /* the policy needs gw_schedule_facts: buckets are cut again once these are measured */
    bool one_queue;      /* buckets are exchanged one at a time, so nothing overtakes (gw_machine.at_once) */
} gw_schedule_settings;

/* Measured times; 0 or NULL: not measured. */
typedef struct gw_schedule_facts {
    double alpha_us, us_per_byte; /* an exchange of n bytes takes alpha + n * us_per_byte */
    const double *forward_us;     /* of each tensor: the compute that needs it. Owned by the caller. */
    const double *backward_us;    /* of each tensor: from the tensor produced before it to this one. Owned by the
                                     caller. */
} gw_schedule_facts;

/* A part of one tensor. */
typedef struct gw_tensor_range {
    int tensor;
    size_t first, count; /* elements */
} gw_tensor_range;

typedef enum gw_bucket_state {
    GW_BUCKET_GATHERING, /* not all of its gradients are ready */
    GW_BUCKET_READY,
    GW_BUCKET_MOVING,    /* being exchanged; if the policy splits: in reduce-scatter */
    GW_BUCKET_HALFWAY,   /* reduced and scattered */
    GW_BUCKET_SPREADING, /* in all-gather */
} gw_bucket_state;

typedef struct gw_bucket {
    int first_range, ranges; /* tensors in forward order */
    size_t bytes;
    size_t payload; /* bytes that travel, at most: credit counts them */
    int priority;   /* lower is needed sooner */
    gw_bucket_state state;
    int missing;      /* ranges whose gradient is not ready */
    uint64_t readied; /* number of steps in which it has been ready */
    bool in_flight;   /* it holds credit */
} gw_bucket;

typedef struct gw_schedule gw_schedule;

typedef struct gw_policy {
    gw_technique technique;
    bool reorders;       /* starts the ready bucket of lowest priority. Ranks have different buckets ready, so one rank
                            decides for all. Without credit_bytes: one bucket at a time */
    bool splits;         /* reduce-scatter and all-gather are started separately */
    bool slices;         /* cuts large tensors */
    bool needs_graph;    /* `rank` uses the graph of the forward pass */
    bool after_backward; /* nothing starts before the backward pass ends: the baseline that others are compared with */
    /* From the values of the technique's parameters, in their order. */
    gw_schedule_settings (*settings)(const double *values);
    void (*cut)(gw_schedule *schedule);
    /* The bucket to start now, -1: none. */
    int (*next)(const gw_schedule *schedule);
    /* Sets priorities after a cut; NULL: forward order. */
    void (*rank)(gw_schedule *schedule);
} gw_policy;

#define GW_POLICY_DECLARE(name) extern const gw_policy gw_policy_##name;
GW_SCHEDULES(GW_POLICY_DECLARE)

/* In this order, NULL at the end. A policy begins with its technique. */
extern const gw_technique *const gw_schedule_techniques[];
const gw_policy *gw_policy_of(const gw_technique *technique);

#define GW_SLICE_BYTES_MIN (16 * 1024)

/* Copies tensors. Memory suffices for any settings with slices of at least GW_SLICE_BYTES_MIN. */
gw_status gw_schedule_open(gw_schedule **schedule, const gw_policy *policy, const gw_schedule_settings *settings,
                           const gw_schedule_tensor *tensors, int count, gw_error *error);
void gw_schedule_close(gw_schedule *schedule); /* NULL is fine */

/* Cuts again; only while nothing is ready or in flight (gw_schedule_idle). facts may be NULL. */
void gw_schedule_cut(gw_schedule *schedule, const gw_schedule_settings *settings, const gw_schedule_facts *facts);
bool gw_schedule_idle(const gw_schedule *schedule);

const gw_policy *gw_schedule_policy(const gw_schedule *schedule);
const gw_schedule_settings *gw_schedule_current_settings(const gw_schedule *schedule);
int gw_schedule_buckets(const gw_schedule *schedule);
int gw_schedule_buckets_max(const gw_schedule *schedule); /* of any cut */
const gw_bucket *gw_schedule_bucket(const gw_schedule *schedule, int bucket);
const gw_tensor_range *gw_schedule_ranges(const gw_schedule *schedule, int bucket);
/* The buckets with a part of a tensor are adjacent. */
int gw_schedule_buckets_of(const gw_schedule *schedule, int tensor, int *first);
size_t gw_schedule_in_flight(const gw_schedule *schedule); /* bytes of payload */

/* Events. */
void gw_schedule_ready(gw_schedule *schedule, int tensor);
void gw_schedule_backward_done(gw_schedule *schedule); /* every tensor has been ready in this step */
/* next: the bucket to start now, -1: none. start: reports that it has been started. A follower starts the buckets in
 * the order that the deciding rank sends, each once it is startable. */
int gw_schedule_next(const gw_schedule *schedule);
bool gw_schedule_startable(const gw_schedule *schedule, int bucket);
void gw_schedule_start(gw_schedule *schedule, int bucket);
/* How urgent the messages of a bucket are among those of other buckets in flight, 0 (not urgent) to GW_URGENCY_MAX.
 * second: those of its second half, if the policy splits. The engine lets more urgent messages overtake. */
#define GW_URGENCY_MAX 254
uint8_t gw_schedule_urgency(const gw_schedule *schedule, int bucket, bool second);
/* This rank has sent its part of the exchange, so its credit is free again. Needed with servers: ranks have no common
 * start order there, so holding the credit until the answer arrives could deadlock. */
void gw_schedule_sent(gw_schedule *schedule, int bucket);
/* Its exchange is over; if the policy splits: this half of it. True when the bucket is finished. */
bool gw_schedule_done(gw_schedule *schedule, int bucket);

#endif
