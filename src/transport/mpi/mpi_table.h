/* mpi_table.h - the MPI functions that gradwire uses, as a table with an ABI of its own.
 *
 * Open MPI and MPICH have the same API but not the same ABI: handles are pointers in one and numbers in the other. So
 * everything that must be compiled against an MPI is in one small file, mpi_shim.c. It is built once for each MPI that
 * is installed, into libgradwire-mpi-openmpi.so and libgradwire-mpi-mpich.so. mpi_load.c loads the one that belongs to
 * the launcher; a program that does not use MPI never loads any.
 *
 * Functions return GW_OK, or a status with a clause in why. None blocks but open. One thread at a time. */
#ifndef GW_TRANSPORT_MPI_MPI_TABLE_H
#define GW_TRANSPORT_MPI_MPI_TABLE_H

#include "gradwire.h"

#define GW_MPI_TABLE_VERSION 3
#define GW_MPI_TABLE_SYMBOL "gw_mpi_shim"
#define GW_MPI_WHY_BYTES 256

typedef struct gw_mpi gw_mpi; /* our own communicators of all ranks of the job */

/* A request of either MPI. */
typedef union gw_mpi_request {
    void *pointer;
    int number;
} gw_mpi_request;

typedef struct gw_mpi_message {
    int source;   /* of a receive, -1: unknown */
    size_t bytes; /* of a receive */
    bool cancelled;
} gw_mpi_message;

typedef struct gw_mpi_table {
    int version; /* GW_MPI_TABLE_VERSION */
    /* Starts MPI unless it runs already, and joins the others: returns when all have called it, or after `seconds`. An
     * MPI started here is finalised when the process exits, because MPI cannot be started twice. If close() was not
     * called, it is not finalised. */
    gw_status (*open)(gw_mpi **mpi, int rank, int world, double seconds, char why[GW_MPI_WHY_BYTES]);
    void (*close)(gw_mpi *mpi);
    /* The job has failed, perhaps because a rank is gone: MPI is finalised only if all ranks exit within seconds. */
    void (*doubt)(void);
    /* MPI may hang from now on: do not finalise it when the process exits. */
    void (*abandon)(void);
    int (*tag_max)(const gw_mpi *mpi);
    gw_status (*send)(gw_mpi *mpi, const void *data, size_t bytes, int peer, int tag, gw_mpi_request *request,
                      char why[GW_MPI_WHY_BYTES]);
    /* peer -1: from anyone. */
    gw_status (*receive)(gw_mpi *mpi, void *data, size_t bytes, int peer, int tag, gw_mpi_request *request,
                         char why[GW_MPI_WHY_BYTES]);
    gw_status (*allreduce)(gw_mpi *mpi, const void *in, void *out, size_t count, gw_dtype dtype, gw_redop op,
                           gw_mpi_request *request, char why[GW_MPI_WHY_BYTES]);
    /* *done: the request is freed. An error frees it, too. */
    gw_status (*test)(gw_mpi_request *request, bool *done, gw_mpi_message *message, char why[GW_MPI_WHY_BYTES]);
    void (*cancel)(gw_mpi_request *request); /* a receive; the caller tests it until done */
} gw_mpi_table;

#endif
