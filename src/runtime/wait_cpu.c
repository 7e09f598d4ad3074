/* wait_cpu.c - the CPU that a rank waits on, where ranks outnumber the cores of a machine.
 *
 * Ranks are not pinned, so a computing rank may use any idle core. But the kernel often wakes three of four ranks on
 * one of two cores, and does not migrate a thread that keeps yielding, so calls take longer. So a rank moves to its
 * wait CPU when it begins to wait, and restores its affinity mask at once.
 *
 * Neighbouring ranks of one host share a wait CPU: when a rank yields, the rank that sends its next message can run
 * (four ranks all-reduce 16 B over tcp in 50 us instead of 65). Where containers or namespaces act as hosts on one
 * machine, ranks are assigned round-robin instead (4 KiB in 101 us instead of 121). */
#include <sched.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/context.h"

static bool same_machine(const gw_context *context, int rank) {
    return memcmp(context->endpoints[rank].identity, context->endpoints[context->rank].identity, GW_ENDPOINT_MACHINE) ==
           0;
}

int gw_context_ranks_of_machine(const gw_context *context, int below) {
    int count = 0;
    for (int r = 0; r < below; r++) count += same_machine(context, r);
    return count;
}

static bool hosts_share_machine(const gw_context *context) {
    int rank = 0;
    while (rank < context->world &&
           (!same_machine(context, rank) || gw_context_same_host(context, rank, context->rank)))
        rank++;
    return rank < context->world;
}

int gw_context_wait_cpu(const gw_context *context) {
    const char *bind = getenv("GRADWIRE_BIND");
    cpu_set_t all;
    if (!context->spin_yield || (bind && strcmp(bind, "none") == 0)) return -1;
    if (sched_getaffinity(0, sizeof all, &all) != 0) return -1;
    int cpus = CPU_COUNT(&all), ranks = gw_context_ranks_of_machine(context, context->world);
    if (cpus < 2 || ranks % cpus != 0) return -1; /* no even split: the kernel may do better */
    int before = gw_context_ranks_of_machine(context, context->rank), cpu = 0;
    int index = hosts_share_machine(context) ? before % cpus : before * cpus / ranks;
    while (!CPU_ISSET(cpu, &all) || index-- > 0) cpu++;
    return cpu;
}

void gw_context_go_to_wait_cpu(const gw_context *context) {
    cpu_set_t all, wait_cpu;
    if (context->wait_cpu < 0 || sched_getcpu() == context->wait_cpu || sched_getaffinity(0, sizeof all, &all) != 0)
        return;
    if (!CPU_ISSET(context->wait_cpu, &all)) return; /* the affinity mask has changed since */
    CPU_ZERO(&wait_cpu);
    CPU_SET(context->wait_cpu, &wait_cpu);
    if (sched_setaffinity(0, sizeof wait_cpu, &wait_cpu) == 0) sched_setaffinity(0, sizeof all, &all);
}
