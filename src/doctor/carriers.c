/* carriers.c - see carriers.h. */
#include "doctor/carriers.h"

#include "transport/mpi_load.h"
#include "transport/rdma.h"
#include "transport/zmq.h"

#include <stdio.h>
#include <string.h>

static void say(gw_carrier *carrier, bool usable, const char *detail) {
    carrier->usable = usable;
    snprintf(carrier->detail, sizeof carrier->detail, "%s", detail);
}

static int find_providers(gw_carrier *list) {
    gw_rdma_provider providers[GW_RDMA_PROVIDERS_MAX];
    gw_error error = {0};
    int count = gw_rdma_providers(providers, &error);
    for (int i = 0; i < count; i++) {
        snprintf(list[i].name, sizeof list[i].name, "rdma:provider=%s", providers[i].name);
        say(&list[i], providers[i].usable, providers[i].detail);
    }
    if (count) return count;
    strcpy(list[0].name, "rdma");
    say(&list[0], false, error.text);
    return 1;
}

static void find_zmq(gw_carrier *carrier) {
    gw_error error = {0};
    strcpy(carrier->name, "zmq");
    bool usable = gw_zmq_usable(&error) == GW_OK;
    say(carrier, usable, usable ? "across and within hosts" : error.text);
}

static void find_mpi(gw_carrier *carrier, const char *library) {
    const gw_mpi_table *table;
    gw_error error = {0};
    snprintf(carrier->name, sizeof carrier->name, "mpi:library=%s", library);
    bool usable = gw_mpi_load(library, &table, &error) == GW_OK;
    char *aside = strstr(error.text, " ("); /* the loader's own words do not fit into a table */
    if (aside) *aside = '\0';
    say(carrier, usable, usable ? "where its mpirun or srun starts the ranks" : error.text);
}

int gw_carriers_find(gw_carrier list[GW_CARRIERS_MAX]) {
    int count = 0;
    strcpy(list[count].name, "tcp");
    say(&list[count++], true, "across and within hosts");
    strcpy(list[count].name, "shm");
    say(&list[count++], true, "within a host");
    count += find_providers(&list[count]);
    find_zmq(&list[count++]);
    find_mpi(&list[count++], "openmpi");
    find_mpi(&list[count++], "mpich");
    return count;
}
