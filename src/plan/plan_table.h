/* plan_table.h - the table of plans. */
#ifndef GW_PLAN_PLAN_TABLE_H
#define GW_PLAN_PLAN_TABLE_H

/* The only table of plans: to add a plan, add a line here and a file. ARCH(name, id) defines gw_plan_<name> that a
 * strategy may ask for (arch=...); PLAN(name, id) one that is only chosen by others. The id stands for the plan in
 * messages: it never changes and is never reused; the order of the lines is that of `gradwire list`. */
#define GW_PLANS(ARCH, PLAN)                                                                                           \
    ARCH(ring, 1)                                                                                                      \
    ARCH(halving, 2)                                                                                                   \
    ARCH(tree, 3)                                                                                                      \
    ARCH(direct, 4)                                                                                                    \
    PLAN(pairwise, 5)                                                                                                  \
    ARCH(hierarchical, 6)                                                                                              \
    PLAN(dissemination, 7)                                                                                             \
    PLAN(send_recv, 8)                                                                                                 \
    ARCH(transport_allreduce, 9)                                                                                       \
    PLAN(oneshot, 10)                                                                                                  \
    PLAN(doubling, 11)                                                                                                 \
    PLAN(alltoallv, 12)

#endif
