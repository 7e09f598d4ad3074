/* mpi.h - the transport over the messages of MPI, for fabrics that only MPI knows; and MPI's own all-reduce.
 *
 * Every frame is a message with a tag of its own, received from anyone; a payload too large to ride along is a second
 * message, straight from and to where it lies. The generation is in the tags, so what is left of an earlier one never
 * meets anything.
 *
 * MPI cannot be slept on. While something is under way the driver keeps asking, and gives its core away between
 * questions; while it only waits for a peer to begin, it looks every 50 us.
 *
 * MPI is started by gw_mpi_open unless the caller has (with MPI_THREAD_SERIALIZED at least; MPI_THREAD_MULTIPLE where
 * the caller goes on using it). One thread at a time, as transport.h says. reset() waits up to 100 ms for receives that
 * cannot be taken back, and if that is not enough nothing calls MPI any more, and the job cannot go on; and up to 500
 * ms for living peers that may still read what was sent. */
#ifndef GW_TRANSPORT_MPI_H
#define GW_TRANSPORT_MPI_H

#include "transport/transport.h"

typedef struct gw_mpi_options {
    int rank, world;     /* those of MPI's own world */
    const char *library; /* "auto", "openmpi" or "mpich" */
    gw_time deadline;    /* how long gw_mpi_open waits for the others */
} gw_mpi_options;

/* Returns when all ranks have called it. GW_UNSUPPORTED, and what is missing, where there is no MPI. */
gw_status gw_mpi_open(gw_transport **out, const gw_mpi_options *options, gw_sink sink, gw_error *error);

#endif
