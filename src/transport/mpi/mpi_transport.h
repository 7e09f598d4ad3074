/* mpi_transport.h - the transport over MPI messages, for fabrics that only MPI supports; and MPI's own all-reduce.
 *
 * Every frame is a message with a tag for frames, received with MPI_ANY_SOURCE. A payload that does not fit into it is
 * a second message, sent and received without a copy. The tags contain the generation, so that messages left over from
 * an earlier one match no receive.
 *
 * MPI has no wait object. While operations are under way the driver keeps polling, and yields its core between polls;
 * while it only waits for a peer to begin, it polls every 50 us.
 *
 * gw_mpi_open starts MPI unless the caller has (with MPI_THREAD_SERIALIZED at least; MPI_THREAD_MULTIPLE where the
 * caller goes on using it). One thread at a time, as transport.h says. reset() waits up to 100 ms for receives that
 * cannot be cancelled; if that is not enough, MPI is not called any more, and the job cannot go on. It also waits up to
 * 500 ms for living peers that may still read its messages. */
#ifndef GW_TRANSPORT_MPI_MPI_TRANSPORT_H
#define GW_TRANSPORT_MPI_MPI_TRANSPORT_H

#include "transport/transport.h"

typedef struct gw_mpi_options {
    int rank, world;     /* those of MPI's own world */
    const char *library; /* "auto", "openmpi" or "mpich" */
    gw_time deadline;    /* how long gw_mpi_open waits for the others */
} gw_mpi_options;

/* Returns when all ranks have called it. GW_UNSUPPORTED, and what is missing, where there is no MPI. */
gw_status gw_mpi_open(gw_transport **out, const gw_mpi_options *options, gw_sink sink, gw_error *error);

#endif
