/* bind.h - which cores a rank runs on: ranks of a host that are no more than its cores get equal shares of them, in
 * order, so that two ranks that wait for each other never stand in each other's way. */
#ifndef GW_LAUNCH_BIND_H
#define GW_LAUNCH_BIND_H

#include <sched.h>

/* The share of rank `local` among `ranks`: a run of the set bits of `all`, which neighbours in number and so usually
 * in cache and memory too. All of them where there are more ranks than cores. */
void gw_bind_share(const cpu_set_t *all, int local, int ranks, cpu_set_t *share);

/* Binds this process and what it starts to its share, unless GRADWIRE_BIND=none. */
void gw_bind_self(int local, int ranks);

#endif
