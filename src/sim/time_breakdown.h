/* time_breakdown.h - the parts of the critical path up to an event. Every event of a prediction has such a path: a
 * chain from the beginning to the event, in which each part ends with the event that was waited for last. The time
 * of the chain is divided by kind of work. The parts add up to the event's time. */
#ifndef GW_SIM_TIME_BREAKDOWN_H
#define GW_SIM_TIME_BREAKDOWN_H

typedef enum gw_time_part {
    GW_TIME_FORWARD,  /* compute */
    GW_TIME_BACKWARD, /* compute */
    GW_TIME_LATENCY,  /* alpha of messages */
    GW_TIME_TRANSFER, /* bytes over links, at the rate of the slowest link of the route */
    GW_TIME_SHARING,  /* additional transfer time because links were shared */
    GW_TIME_QUEUE,    /* waiting behind other messages */
    GW_TIME_REDUCE,   /* reductions and copies */
    GW_TIME_CODEC,    /* encoding and decoding */
    GW_TIME_PARTS
} gw_time_part;

const char *gw_time_part_name(gw_time_part part);

typedef struct gw_time_breakdown {
    double seconds[GW_TIME_PARTS];
} gw_time_breakdown;

static inline gw_time_breakdown gw_time_breakdown_plus(gw_time_breakdown path, gw_time_part part, double seconds) {
    path.seconds[part] += seconds;
    return path;
}

#endif
