/* print.h - a plan as text: its steps in an order in which one rank can run them, with a description of each. */
#ifndef GW_PLAN_PRINT_H
#define GW_PLAN_PRINT_H

#include "plan/plan.h"

#define GW_ACTION_TEXT 192

/* Goes through the steps of a plan in an order in which every wait holds, taking turns between streams. It assumes that
 * a message is there when it is received, and receives as late as possible. */
typedef struct gw_plan_walk {
    const gw_plan *plan;
    uint64_t *done; /* the caller's; plan->streams entries, zero to begin with */
    uint32_t turn;  /* the stream to look at first */
} gw_plan_walk;

/* The next step, false after the last one. */
bool gw_plan_walk_next(gw_plan_walk *walk, uint32_t *stream, uint64_t *index, gw_action *step);

const char *gw_stream_kind_name(gw_stream_kind flow);
const char *gw_space_name(gw_space space);
const char *gw_action_kind_name(gw_action_kind kind);
const char *gw_shm_coll_task_name(gw_shm_task task);

/* The number of elements that a step sends, receives or works on. */
size_t gw_action_count(const gw_action *step);
/* Where a step reads and writes: "out[0,64) = in[0,64) op landed, finished". Returns text. */
const char *gw_action_where_text(const gw_action *step, char text[GW_ACTION_TEXT]);
/* The waits of a step: "#1 >= 4, #2..5 >= 1", "-" for nothing. Returns text. */
const char *gw_waits_text(const gw_waits waits[GW_ACTION_WAITS], char text[GW_ACTION_TEXT]);

#endif
