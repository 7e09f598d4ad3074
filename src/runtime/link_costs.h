/* link_costs.h - the link costs of a job, from the doctor's file (GRADWIRE_LINKS), and the ring order derived from
 * them.
 *
 * Only rank 0 reads the file and broadcasts it, so that all ranks choose the same order. */
#ifndef GW_RUNTIME_LINK_COSTS_H
#define GW_RUNTIME_LINK_COSTS_H

#include "arch/link_file.h"
#include "arch/ring_order.h"
#include "runtime/context.h"

/* The link costs of a job. Constant after gw_init. */
typedef struct gw_job_links {
    gw_doctor_table table;
    int *place_of; /* world entries, owned: index of each rank's host in the table */
} gw_job_links;

/* Reads rank 0's file; *bytes: NULL if there is none, else the caller frees it. */
gw_status gw_job_links_read(const gw_context *context, char **bytes, size_t *size, gw_error *error);
/* Parses the file and finds the job's ranks in it. context->job_links stays NULL if all ranks are on one host. */
gw_status gw_job_links_parse(gw_context *context, const char *bytes, size_t size, gw_error *error);
void gw_job_links_free(gw_context *context);

/* Builds the topology of a communicator of these ranks; order, host_of and rack_of have size entries. */
gw_status gw_comm_order_ring(const gw_context *context, const int *members, int size, int *order, int *host_of,
                             int *rack_of, gw_topology *topology, gw_error *error);

#endif
