/* path.h - what a moment's critical path consists of. Every event of a prediction carries one: the time from the
 * beginning to it, by what was waited for last each time. The parts add up to the moment. */
#ifndef GW_SIM_PATH_H
#define GW_SIM_PATH_H

typedef enum gw_path_part {
    GW_PATH_FORWARD,  /* computing */
    GW_PATH_BACKWARD, /* computing */
    GW_PATH_LATENCY,  /* start-ups: alpha of messages */
    GW_PATH_TRANSFER, /* bytes over links, at the speed of the slowest link of their way */
    GW_PATH_SHARING,  /* what that took longer because links were shared */
    GW_PATH_QUEUE,    /* messages behind others of the same connection */
    GW_PATH_REDUCE,   /* sums and copies */
    GW_PATH_CODEC,    /* encoding and decoding */
    GW_PATH_PARTS
} gw_path_part;

const char *gw_path_part_name(gw_path_part part);

typedef struct gw_path {
    double seconds[GW_PATH_PARTS];
} gw_path;

static inline gw_path gw_path_plus(gw_path path, gw_path_part part, double seconds) {
    path.seconds[part] += seconds;
    return path;
}

#endif
