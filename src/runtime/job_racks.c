/* job_racks.c - see job_racks.h. */
#include "runtime/job_racks.h"

#include <stdlib.h>

#include "arch/racks.h"
#include "base/file.h"
#include "runtime/link_costs.h"

gw_status gw_job_racks_read(const gw_context *context, char **bytes, size_t *size, gw_error *error) {
    const char *path = getenv("GRADWIRE_RACKS");
    *bytes = NULL;
    *size = 0;
    if (context->rank != 0 || !path || !*path) return GW_OK;
    return gw_file_read(path, GW_RACKS_FILE_BYTES_MAX, bytes, size, error);
}

static gw_status from_file(gw_context *context, const char *bytes, size_t size, gw_error *error) {
    size_t world = (size_t)context->world;
    gw_rack_host *hosts = calloc(world, sizeof *hosts);
    char(*addresses)[GW_ADDRESS_TEXT] = calloc(world, sizeof *addresses);
    gw_status status = hosts && addresses ? GW_OK : gw_fail(error, GW_MEMORY, "out of memory for the racks of a job");
    for (size_t r = 0; !status && r < world; r++)
        hosts[r] = (gw_rack_host){context->endpoints[r].host,
                                  gw_address_host_text(&context->endpoints[r].address, addresses[r])};
    if (!status)
        status =
            gw_racks_parse(bytes, size, "the file of GRADWIRE_RACKS", hosts, context->world, context->rack_of, error);
    free(addresses);
    free(hosts);
    return status;
}

static gw_status from_links(gw_context *context, gw_error *error) {
    const gw_job_links *links = context->job_links;
    gw_link_costs wires = {links->table.count, links->table.alpha, links->table.beta};
    int *rack_of = calloc((size_t)wires.count, sizeof *rack_of);
    if (!rack_of) return gw_fail(error, GW_MEMORY, "out of memory for the racks of a job");
    gw_status status = gw_racks_of_links(&wires, rack_of, error);
    for (int r = 0; r < context->world; r++) context->rack_of[r] = rack_of[links->place_of[r]];
    free(rack_of);
    return status;
}

gw_status gw_job_racks_find(gw_context *context, const char *bytes, size_t size, gw_error *error) {
    if (!size && !context->job_links) return GW_OK;
    context->rack_of = calloc((size_t)context->world, sizeof *context->rack_of);
    if (!context->rack_of) return gw_fail(error, GW_MEMORY, "out of memory for the racks of a job");
    return size ? from_file(context, bytes, size, error) : from_links(context, error);
}
