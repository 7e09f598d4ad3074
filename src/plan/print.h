/* print.h - a plan in words: its steps in an order in which one rank can carry them out, and what each does. */
#ifndef GW_PLAN_PRINT_H
#define GW_PLAN_PRINT_H

#include "plan/plan.h"

#define GW_STEP_TEXT 192

/* Goes through a plan's steps so that every wait holds, taking turns between streams; messages are taken to be there
 * when they are received, and nothing is received before it has to be. */
typedef struct gw_plan_walk {
    const gw_plan *plan;
    uint64_t *done; /* the caller's; plan->streams entries, zero to begin with */
    uint32_t turn;  /* the stream to look at first */
} gw_plan_walk;

/* The next step, false after the last one. */
bool gw_plan_walk_next(gw_plan_walk *walk, uint32_t *stream, uint64_t *index, gw_action *step);

const char *gw_flow_name(gw_flow flow);
const char *gw_space_name(gw_space space);
const char *gw_action_kind_name(gw_action_kind kind);
const char *gw_board_task_name(gw_board_task task);

/* What a step sends, receives or works on, in elements. */
size_t gw_action_count(const gw_action *step);
/* Where a step reads and writes: "out[0,64) = in[0,64) op landed, finished". Returns text. */
const char *gw_action_where_text(const gw_action *step, char text[GW_STEP_TEXT]);
/* What is waited for: "#1 >= 4, #2..5 >= 1", "-" for nothing. Returns text. */
const char *gw_waits_text(const gw_waits waits[GW_STEP_WAITS], char text[GW_STEP_TEXT]);

#endif
