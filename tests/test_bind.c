/* test_bind.c - binding of ranks to CPUs: a partition of all CPUs, nearly equal, by NUMA node and core; no binding
 * where ranks outnumber CPUs. */
#include "launch/cpu_bind.h"
#include "test.h"

#include <sys/stat.h>

static void shares_are_a_partition(void) {
    for (int cores = 1; cores <= 40; cores++) {
        int cpus[40];
        cpu_set_t all;
        CPU_ZERO(&all);
        for (int i = 0; i < cores; i++) CPU_SET(cpus[i] = 3 * i + 1, &all);
        for (int ranks = 1; ranks <= cores; ranks++) {
            cpu_set_t seen, share, both;
            CPU_ZERO(&seen);
            for (int r = 0; r < ranks; r++) {
                gw_bind_share(cpus, cores, r, ranks, &share);
                CPU_AND(&both, &seen, &share);
                CHECK_EQ(0, CPU_COUNT(&both));
                CHECK(CPU_COUNT(&share) >= cores / ranks && CPU_COUNT(&share) <= (cores + ranks - 1) / ranks);
                CPU_OR(&seen, &seen, &share);
            }
            CHECK(CPU_EQUAL(&seen, &all));
        }
    }
}

static void too_many_ranks_share_all(void) {
    static const int cpus[2] = {0, 5};
    cpu_set_t share;
    gw_bind_share(cpus, 2, 2, 3, &share);
    CHECK(CPU_COUNT(&share) == 2 && CPU_ISSET(0, &share) && CPU_ISSET(5, &share));
}

static void write_number(const char *directory, const char *name, int number) {
    char path[256];
    snprintf(path, sizeof path, "%s/%s", directory, name);
    FILE *file = fopen(path, "w");
    if (!file || fprintf(file, "%d\n", number) < 0 || fclose(file) != 0) abort();
}

/* Two nodes of two cores with two threads, numbered as many machines do: node 0 has 0 1 4 5, cores are 0,4 and 1,5. */
static void make_machine(const char *sys) {
    char path[200], more[240];
    for (int cpu = 0; cpu < 8; cpu++) {
        snprintf(path, sizeof path, "mkdir -p %s/devices/system/cpu/cpu%d/topology", sys, cpu);
        if (system(path) != 0) abort();
        snprintf(path, sizeof path, "%s/devices/system/cpu/cpu%d", sys, cpu);
        write_number(path, "topology/physical_package_id", cpu % 4 / 2);
        write_number(path, "topology/core_id", cpu % 2);
        snprintf(more, sizeof more, "%s/node%d", path, cpu % 4 / 2);
        if (mkdir(more, 0700) != 0) abort();
    }
}

static void nodes_and_cores_stay_together(void) {
    static const int wanted[8] = {0, 4, 1, 5, 2, 6, 3, 7};
    char sys[] = "/tmp/gradwire-bind-XXXXXX", command[64];
    int cpus[CPU_SETSIZE];
    cpu_set_t all;
    CPU_ZERO(&all);
    for (int cpu = 0; cpu < 8; cpu++) CPU_SET(cpu, &all);
    if (!mkdtemp(sys)) abort();
    make_machine(sys);
    CHECK_EQ(8, gw_bind_order(sys, &all, cpus));
    for (int i = 0; i < 8; i++) CHECK_EQ(wanted[i], cpus[i]);
    CPU_CLR(4, &all);
    CHECK_EQ(7, gw_bind_order(sys, &all, cpus));
    CHECK_EQ(1, cpus[1]);
    snprintf(command, sizeof command, "rm -r %s", sys);
    CHECK_EQ(0, system(command));
    CHECK_EQ(7, gw_bind_order(sys, &all, cpus));
    for (int i = 1; i < 7; i++) CHECK(cpus[i] > cpus[i - 1]);
}

TEST_MAIN(CASE(shares_are_a_partition), CASE(too_many_ranks_share_all), CASE(nodes_and_cores_stay_together))
