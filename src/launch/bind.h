/* bind.h - which CPUs a rank runs on: ranks of a host that are no more than its CPUs get equal shares of them, so that
 * two ranks that wait for each other never stand in each other's way. Shares follow memory: CPUs of one NUMA node, and
 * the threads of one core, stay together. Memory needs nothing more: a rank touches its buffers first, after it was
 * bound, so their pages lie on its node, and its progress thread runs on its share too. */
#ifndef GW_LAUNCH_BIND_H
#define GW_LAUNCH_BIND_H

#include <sched.h>

/* The set bits of `all` by node, core and number, as the kernel tells under sys ("/sys"); by number where it tells
 * nothing. Returns how many. */
int gw_bind_order(const char *sys, const cpu_set_t *all, int cpus[CPU_SETSIZE]);

/* The share of rank `local` among `ranks`: a run of these CPUs. All of them where there are more ranks than CPUs. */
void gw_bind_share(const int *cpus, int count, int local, int ranks, cpu_set_t *share);

/* Binds this process and what it starts to its share, unless GRADWIRE_BIND=none. */
void gw_bind_self(int local, int ranks);

#endif
