/* job_racks.h - the racks of a job's hosts: from the file of GRADWIRE_RACKS, else from its link costs (GRADWIRE_LINKS).
 * Only rank 0 reads the file and broadcasts it, so that all ranks see the same racks. */
#ifndef GW_RUNTIME_JOB_RACKS_H
#define GW_RUNTIME_JOB_RACKS_H

#include "runtime/context.h"

/* Reads rank 0's file; *bytes: NULL if there is none, else the caller frees it. */
gw_status gw_job_racks_read(const gw_context *context, char **bytes, size_t *size, gw_error *error);
/* Finds the rack of every rank's host; size 0: there is no file. context->rack_of stays NULL if nothing is known, or
 * all ranks are on one host. */
gw_status gw_job_racks_find(gw_context *context, const char *bytes, size_t size, gw_error *error);

#endif
