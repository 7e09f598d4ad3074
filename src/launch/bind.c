/* bind.c - see bind.h. */
#include "launch/bind.h"

#include <dirent.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct place {
    int node, package, core, cpu;
} place;

/* A whole number in a file of cpuN, -1 where there is none. */
static int fact(const char *sys, int cpu, const char *name) {
    char path[PATH_MAX];
    int value = -1;
    snprintf(path, sizeof path, "%s/devices/system/cpu/cpu%d/%s", sys, cpu, name);
    FILE *file = fopen(path, "re");
    if (file && fscanf(file, "%d", &value) != 1) value = -1;
    if (file) fclose(file);
    return value;
}

/* cpuN has a link to its node. */
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

static int by_place(const void *a, const void *b) {
    const place *x = a, *y = b;
    if (x->node != y->node) return x->node < y->node ? -1 : 1;
    if (x->package != y->package) return x->package < y->package ? -1 : 1;
    if (x->core != y->core) return x->core < y->core ? -1 : 1;
    return (x->cpu > y->cpu) - (x->cpu < y->cpu);
}

int gw_bind_order(const char *sys, const cpu_set_t *all, int cpus[CPU_SETSIZE]) {
    place places[CPU_SETSIZE];
    int count = 0;
    for (int cpu = 0; cpu < CPU_SETSIZE; cpu++)
        if (CPU_ISSET(cpu, all))
            places[count++] = (place){.node = node_of(sys, cpu), .cpu = cpu,
                                      .package = fact(sys, cpu, "topology/physical_package_id"),
                                      .core = fact(sys, cpu, "topology/core_id")};
    qsort(places, (size_t)count, sizeof *places, by_place);
    for (int i = 0; i < count; i++) cpus[i] = places[i].cpu;
    return count;
}

void gw_bind_share(const int *cpus, int count, int local, int ranks, cpu_set_t *share) {
    int first = ranks > count ? 0 : count * local / ranks, end = ranks > count ? count : count * (local + 1) / ranks;
    CPU_ZERO(share);
    for (int i = first; i < end; i++) CPU_SET(cpus[i], share);
}

/* A rank that cannot be bound runs all the same. */
void gw_bind_self(int local, int ranks) {
    const char *how = getenv("GRADWIRE_BIND");
    int cpus[CPU_SETSIZE];
    cpu_set_t all, share;
    if (how && strcmp(how, "none") == 0) return;
    if (sched_getaffinity(0, sizeof all, &all) != 0) return; /* more CPUs than the set has room for */
    if (ranks > CPU_COUNT(&all)) return;
    gw_bind_share(cpus, gw_bind_order("/sys", &all, cpus), local, ranks, &share);
    sched_setaffinity(0, sizeof share, &share);
}
