/* arrange.h - what the doctor's file (GRADWIRE_LINKS) says of a job's links, and the order it gives to rings.
 *
 * Only rank 0 reads the file; the others get it from there, so that all of them choose alike. */
#ifndef GW_ENGINE_ARRANGE_H
#define GW_ENGINE_ARRANGE_H

#include "arch/order.h"
#include "doctor/file.h"
#include "engine/node.h"

/* A job's links. Constant after gw_init. */
typedef struct gw_job_links {
    gw_doctor_table table;
    int *place_of; /* world entries, owned: the host of the table where a rank is */
} gw_job_links;

/* Rank 0's file as it is, NULL where there is none; the caller's. */
gw_status gw_job_links_file(const gw_node *node, char **bytes, size_t *size, gw_error *error);
/* Finds the job's ranks in the text of a file. Leaves node->job_links NULL where all ranks are on one host. */
gw_status gw_job_links_learn(gw_node *node, const char *bytes, size_t size, gw_error *error);
void gw_job_links_forget(gw_node *node);

/* The topology of a communicator of these ranks; order and host_of have room for size entries. */
gw_status gw_comm_arrange(const gw_node *node, const int *members, int size, int *order, int *host_of,
                          gw_topology *topology, gw_error *error);

#endif
