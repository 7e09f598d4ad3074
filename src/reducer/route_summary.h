/* route_summary.h - the routes that the buckets of a step engine take, each once: for explain, the log and the API. */
#ifndef GW_REDUCER_ROUTE_SUMMARY_H
#define GW_REDUCER_ROUTE_SUMMARY_H

#include "reducer/step_engine.h"

#define GW_ROUTE_USES_MAX 8

typedef struct gw_route_use {
    gw_route route;
    int buckets;
    size_t bytes;             /* of them */
    size_t sent[GW_HOPS_MAX]; /* by this rank in each hop, at most */
} gw_route_use;

/* Returns how many there are. */
int gw_route_summary(const gw_step_engine *step_engine, gw_route_use uses[GW_ROUTE_USES_MAX]);
/* "6 buckets (1.04 MiB): reduce-scatter in each host (266 KiB), ..."; works like snprintf. */
int gw_route_use_text(const gw_route_use *use, char *text, size_t size);

#endif
