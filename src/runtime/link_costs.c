/* link_costs.c - see link_costs.h. */
#include "runtime/link_costs.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/log.h"

gw_status gw_job_links_read(const gw_context *context, char **bytes, size_t *size, gw_error *error) {
    const char *path = getenv("GRADWIRE_LINKS");
    *bytes = NULL;
    *size = 0;
    if (context->rank != 0 || !path || !*path) return GW_OK;
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

/* The index of the rank's host in the file: by address, else by name (without the user of user@host); -1: none. */
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

static bool on_one_host(const gw_context *context) {
    for (int r = 1; r < context->world; r++)
        if (context->host_of[r] != context->host_of[0]) return false;
    return true;
}

static gw_status find_ranks(const gw_context *context, gw_job_links *links, gw_error *error) {
    for (int r = 0; r < context->world; r++) {
        char address[GW_ADDRESS_TEXT];
        links->place_of[r] = find_place(&links->table, &context->endpoints[r]);
        if (links->place_of[r] < 0)
            return gw_fail_rank(error, GW_INVALID, r,
                                "the file of GRADWIRE_LINKS does not know host %s (%s) of rank %d: run gradwire doctor "
                                "on all hosts of the job, or unset GRADWIRE_LINKS",
                                context->endpoints[r].host,
                                gw_address_host_text(&context->endpoints[r].address, address), r);
    }
    return GW_OK;
}

gw_status gw_job_links_parse(gw_context *context, const char *bytes, size_t size, gw_error *error) {
    if (on_one_host(context)) return GW_OK;
    gw_job_links *links = calloc(1, sizeof *links);
    if (!links) return gw_fail(error, GW_MEMORY, "out of memory for the links of a job");
    context->job_links = links;
    links->place_of = calloc((size_t)context->world, sizeof *links->place_of);
    gw_status status = links->place_of ? GW_OK : gw_fail(error, GW_MEMORY, "out of memory for the links of a job");
    if (!status) status = gw_doctor_parse(bytes, size, "the file of GRADWIRE_LINKS", &links->table, error);
    return status ? status : find_ranks(context, links, error);
}

void gw_job_links_free(gw_context *context) {
    if (!context->job_links) return;
    gw_doctor_table_free(&context->job_links->table);
    free(context->job_links->place_of);
    free(context->job_links);
    context->job_links = NULL;
}

static void log_ring(const gw_context *context, const gw_topology *topology) {
    char text[256];
    size_t used = 0;
    for (int i = 0; i < topology->world && used + 16 < sizeof text; i++)
        used += (size_t)snprintf(text + used, sizeof text - used, " %d", gw_topology_at(topology, i));
    gw_log(GW_LOG_INFO, context->rank, "rings go around ranks%s%s; their worst link takes %.3g us and %.4g MB/s", text,
           used + 16 < sizeof text ? "" : " ...", topology->wire.alpha * 1e6, 1e-6 / topology->wire.beta);
}

/* Hosts of different sizes cannot use racks: a loss may make them so. */
static void take_racks(const gw_context *context, const int *members, gw_topology *topology, int *rack_of) {
    int least, most;
    if (!context->rack_of) return;
    for (int r = 0; r < topology->world; r++) rack_of[r] = context->rack_of[members[r]];
    gw_topology_take_racks(topology, rack_of);
    gw_topology_local_sizes(topology, &least, &most);
    if (members[0] != context->rank) return;
    if (topology->rack_of)
        gw_log(GW_LOG_INFO, context->rank, "%d hosts in %d racks", gw_topology_hosts(topology),
               gw_topology_racks(topology));
    else if (least != most)
        gw_log(GW_LOG_WARN, context->rank, "racks are left out of account: hosts have from %d to %d ranks", least,
               most);
}

gw_status gw_comm_order_ring(const gw_context *context, const int *members, int size, int *order, int *host_of,
                             int *rack_of, gw_topology *topology, gw_error *error) {
    const gw_job_links *links = context->job_links;
    int *hosts = malloc(2 * (size_t)size * sizeof *hosts), *places = hosts + size;
    if (!hosts) return gw_fail(error, GW_MEMORY, "out of memory for a communicator of %d ranks", size);
    for (int r = 0; r < size; r++) {
        hosts[r] = context->host_of[members[r]];
        places[r] = links ? links->place_of[members[r]] : 0;
    }
    gw_link_costs wires = {0};
    if (links) wires = (gw_link_costs){links->table.count, links->table.alpha, links->table.beta};
    gw_ring_order_facts facts = {.world = size, .host_of = hosts, .wires = links ? &wires : NULL, .place_of = places};
    gw_status status = gw_ring_order_fill(&facts, order, host_of, topology, error);
    free(hosts);
    if (!status) topology->oversubscribed = context->oversubscribed;
    if (!status) take_racks(context, members, topology, rack_of);
    if (!status && topology->wire.beta > 0 && members[0] == context->rank) log_ring(context, topology);
    return status;
}
