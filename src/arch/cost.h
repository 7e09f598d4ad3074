/* cost.h - what a collective takes by each plan, in closed form: rounds that follow each other, bytes that the busiest
 * rank sends or receives, bytes that it adds, and messages that it handles (Hockney 1994; Thakur, Rabenseifner and
 * Gropp 2005). Constant time: asked for every call. A test holds rounds, bytes and messages against the cost functions
 * of the plans. */
#ifndef GW_ARCH_COST_H
#define GW_ARCH_COST_H

#include "plan/plan.h"

/* Where a collective happens. */
typedef struct gw_scene {
    gw_collective collective;
    int ranks, hosts;
    int per_host;   /* of the largest host */
    double bytes;   /* of the whole: the buffer, or all parts together */
    double message; /* seconds that a rank takes for a message */
    gw_wire wire;
} gw_scene;

/* The scene of a request: its wire as measured, else a built-in one. */
gw_scene gw_scene_of(const gw_plan_request *request, size_t element_bytes);

typedef struct gw_work {
    double rounds, bytes, messages; /* bytes: of a rank */
    double reduced;                 /* bytes, of a rank */
    double crowd;                   /* by how much sharing slows the bytes: of a wire by the ranks of a host, and of a
                                       receiver by those who all send to it */
} gw_work;

/* What a plan takes; rounds < 0: the plan is not known here. */
gw_work gw_work_of(const gw_plan_builder *builder, const gw_scene *scene);
double gw_work_seconds(const gw_work *work, const gw_scene *scene);

#endif
