/* cpu_bind.h - CPU affinity of ranks. If a host has at least as many CPUs as ranks, each rank gets an equal share of
 * the CPUs, so two ranks that wait for each other never compete for a core. Shares follow the topology: CPUs of one
 * NUMA node and the hardware threads of one core stay together. Memory needs no binding of its own: a rank is bound
 * before it first touches its buffers, so their pages lie on its NUMA node. The rank's progress thread runs on the same
 * share. */
#ifndef GW_LAUNCH_CPU_BIND_H
#define GW_LAUNCH_CPU_BIND_H

#include <sched.h>

/* Lists the CPUs of `all`, sorted by NUMA node, package, core and number as found under sys ("/sys"); by number alone
 * if sys has no topology. Returns their count. */
int gw_bind_order(const char *sys, const cpu_set_t *all, int cpus[CPU_SETSIZE]);

/* The share of rank `local` among `ranks`: consecutive entries of cpus. All CPUs if there are more ranks than CPUs. */
void gw_bind_share(const int *cpus, int count, int local, int ranks, cpu_set_t *share);

/* Binds this process and its future children to its share, unless GRADWIRE_BIND=none. */
void gw_bind_self(int local, int ranks);

#endif
