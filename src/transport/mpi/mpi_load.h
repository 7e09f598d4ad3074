/* mpi_load.h - finds the shim (mpi_table.h) of the MPI that this job runs under. */
#ifndef GW_TRANSPORT_MPI_MPI_LOAD_H
#define GW_TRANSPORT_MPI_MPI_LOAD_H

#include "base/status.h"
#include "transport/mpi/mpi_table.h"

/* library: "openmpi", "mpich", or "auto": the one that the program has already loaded, else the one whose launcher
 * started the program. It stays loaded. */
gw_status gw_mpi_load(const char *library, const gw_mpi_table **table, gw_error *error);

#endif
