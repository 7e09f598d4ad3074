/* arrange.c - see arrange.h. */
#include "engine/arrange.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/log.h"

gw_status gw_job_links_file(const gw_node *node, char **bytes, size_t *size, gw_error *error) {
    const char *path = getenv("GRADWIRE_LINKS");
    *bytes = NULL;
    *size = 0;
    if (node->rank != 0 || !path || !*path) return GW_OK;
    gw_doctor_table checked = {0};
    gw_status status = gw_file_read(path, GW_DOCTOR_FILE_BYTES_MAX, bytes, size, error);
    if (!status) status = gw_doctor_parse(*bytes, *size, path, &checked, error);
    gw_doctor_table_free(&checked);
    if (status) {
        free(*bytes);
        *bytes = NULL;
    }
    return status;
}

/* A host of the file has the rank's address, or else its name, whoever is to log in there. */
static int find_place(const gw_doctor_table *table, const gw_endpoint *endpoint) {
    char address[GW_ADDRESS_TEXT];
    gw_address_host_text(&endpoint->address, address);
    for (int i = 0; i < table->count; i++)
        if (strcmp(table->nodes[i].address, address) == 0) return i;
    for (int i = 0; i < table->count; i++) {
        const char *name = table->nodes[i].name, *login = strchr(name, '@');
        if (strcmp(login ? login + 1 : name, endpoint->host) == 0) return i;
    }
    return -1;
}

static bool on_one_host(const gw_node *node) {
    for (int r = 1; r < node->world; r++)
        if (node->host_of[r] != node->host_of[0]) return false;
    return true;
}

static gw_status find_ranks(const gw_node *node, gw_job_links *links, gw_error *error) {
    for (int r = 0; r < node->world; r++) {
        char address[GW_ADDRESS_TEXT];
        links->place_of[r] = find_place(&links->table, &node->endpoints[r]);
        if (links->place_of[r] < 0)
            return gw_fail_rank(error, GW_INVALID, r,
                                "the file of GRADWIRE_LINKS does not know host %s (%s) of rank %d: run gradwire doctor "
                                "on all hosts of the job, or unset GRADWIRE_LINKS",
                                node->endpoints[r].host, gw_address_host_text(&node->endpoints[r].address, address), r);
    }
    return GW_OK;
}

gw_status gw_job_links_learn(gw_node *node, const char *bytes, size_t size, gw_error *error) {
    if (on_one_host(node)) return GW_OK;
    gw_job_links *links = calloc(1, sizeof *links);
    if (!links) return gw_fail(error, GW_MEMORY, "out of memory for the links of a job");
    node->job_links = links;
    links->place_of = calloc((size_t)node->world, sizeof *links->place_of);
    gw_status status = links->place_of ? GW_OK : gw_fail(error, GW_MEMORY, "out of memory for the links of a job");
    if (!status) status = gw_doctor_parse(bytes, size, "the file of GRADWIRE_LINKS", &links->table, error);
    return status ? status : find_ranks(node, links, error);
}

void gw_job_links_forget(gw_node *node) {
    if (!node->job_links) return;
    gw_doctor_table_free(&node->job_links->table);
    free(node->job_links->place_of);
    free(node->job_links);
    node->job_links = NULL;
}

static void tell(const gw_node *node, const gw_topology *topology) {
    char text[256];
    size_t used = 0;
    for (int i = 0; i < topology->world && used + 16 < sizeof text; i++)
        used += (size_t)snprintf(text + used, sizeof text - used, " %d", gw_topology_at(topology, i));
    gw_log(GW_LOG_INFO, node->rank, "rings go around ranks%s%s; their worst link takes %.3g us and %.4g MB/s", text,
           used + 16 < sizeof text ? "" : " ...", topology->wire.alpha * 1e6, 1e-6 / topology->wire.beta);
}

gw_status gw_comm_arrange(const gw_node *node, const int *members, int size, int *order, int *host_of,
                          gw_topology *topology, gw_error *error) {
    const gw_job_links *links = node->job_links;
    int *hosts = malloc(2 * (size_t)size * sizeof *hosts), *places = hosts + size;
    if (!hosts) return gw_fail(error, GW_MEMORY, "out of memory for a communicator of %d ranks", size);
    for (int r = 0; r < size; r++) {
        hosts[r] = node->host_of[members[r]];
        places[r] = links ? links->place_of[members[r]] : 0;
    }
    gw_wires wires = {0};
    if (links) wires = (gw_wires){links->table.count, links->table.alpha, links->table.beta};
    gw_order_facts facts = {.world = size, .host_of = hosts, .wires = links ? &wires : NULL, .place_of = places};
    gw_status status = gw_order_arrange(&facts, order, host_of, topology, error);
    free(hosts);
    if (!status) topology->crowded = node->crowded;
    if (!status && topology->wire.beta > 0 && members[0] == node->rank) tell(node, topology);
    return status;
}
