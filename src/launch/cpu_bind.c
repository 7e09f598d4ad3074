/* cpu_bind.c - see cpu_bind.h. */
#include "launch/cpu_bind.h"

#include <dirent.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct location {
    int node, package, core, cpu;
} location;

/* The number in a sysfs file of cpuN; -1: there is none. */
static int read_number(const char *sys, int cpu, const char *name) {
    char path[PATH_MAX];
    int value = -1;
    snprintf(path, sizeof path, "%s/devices/system/cpu/cpu%d/%s", sys, cpu, name);
    FILE *file = fopen(path, "re");
    if (file && fscanf(file, "%d", &value) != 1) value = -1;
    if (file) fclose(file);
    return value;
}

/* The directory of cpuN has a link named after its NUMA node. */
static int node_of(const char *sys, int cpu) {
    char path[PATH_MAX];
    int node = -1;
    snprintf(path, sizeof path, "%s/devices/system/cpu/cpu%d", sys, cpu);
    DIR *directory = opendir(path);
    if (!directory) return -1;
    for (struct dirent *entry; node < 0 && (entry = readdir(directory));)
        if (sscanf(entry->d_name, "node%d", &node) != 1) node = -1;
    closedir(directory);
    return node;
}

static int by_location(const void *a, const void *b) {
    const location *x = a, *y = b;
    if (x->node != y->node) return x->node < y->node ? -1 : 1;
    if (x->package != y->package) return x->package < y->package ? -1 : 1;
    if (x->core != y->core) return x->core < y->core ? -1 : 1;
    return (x->cpu > y->cpu) - (x->cpu < y->cpu);
}

int gw_bind_order(const char *sys, const cpu_set_t *all, int cpus[CPU_SETSIZE]) {
    location locations[CPU_SETSIZE];
    int count = 0;
    for (int cpu = 0; cpu < CPU_SETSIZE; cpu++)
        if (CPU_ISSET(cpu, all))
            locations[count++] = (location){.node = node_of(sys, cpu), .cpu = cpu,
                                      .package = read_number(sys, cpu, "topology/physical_package_id"),
                                      .core = read_number(sys, cpu, "topology/core_id")};
    qsort(locations, (size_t)count, sizeof *locations, by_location);
    for (int i = 0; i < count; i++) cpus[i] = locations[i].cpu;
    return count;
}

void gw_bind_share(const int *cpus, int count, int local, int ranks, cpu_set_t *share) {
    int first = ranks > count ? 0 : count * local / ranks, end = ranks > count ? count : count * (local + 1) / ranks;
    CPU_ZERO(share);
    for (int i = first; i < end; i++) CPU_SET(cpus[i], share);
}

/* A rank that cannot be bound runs unbound. */
void gw_bind_self(int local, int ranks) {
    const char *how = getenv("GRADWIRE_BIND");
    int cpus[CPU_SETSIZE];
    cpu_set_t all, share;
    if (how && strcmp(how, "none") == 0) return;
    if (sched_getaffinity(0, sizeof all, &all) != 0) return; /* the machine has more than CPU_SETSIZE CPUs */
    if (ranks > CPU_COUNT(&all)) return;
    gw_bind_share(cpus, gw_bind_order("/sys", &all, cpus), local, ranks, &share);
    sched_setaffinity(0, sizeof share, &share);
}
