/* mpi_shim.c - see mpi_table.h: the only file that is compiled against an MPI. Not part of libgradwire. */
#include "transport/mpi/mpi_table.h"

#include <dlfcn.h>
#include <limits.h>
#include <mpi.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct gw_mpi {
    MPI_Comm comm;
    MPI_Comm whole; /* for MPI's own collectives, so that their messages are not matched against our receives */
    int tag_max;
};

#define FAREWELL_S 3.0 /* after a failure, an exiting process waits this long for all others to exit */

/* Whether MPI can still be finalised (mpi_table.h: abandon, doubt). Both belong to the process, as MPI does. */
static _Atomic bool abandoned, doubted;
static _Atomic int users; /* opened and not closed */
static MPI_Comm farewell; /* for the barrier at exit; made by the first open() */
static bool has_farewell;
static pid_t owner; /* the process that started MPI; a forked child exits without it */

typedef int ucs_setter(const char *name, const char *value); /* of libucs, which is not linked */

/* A request of this MPI lies at the beginning of ours. */
_Static_assert(sizeof(MPI_Request) <= sizeof(gw_mpi_request), "a request has room");

static void put_request(gw_mpi_request *request, MPI_Request theirs) { memcpy(request, &theirs, sizeof theirs); }

static MPI_Request get_request(const gw_mpi_request *request) {
    MPI_Request theirs;
    memcpy(&theirs, request, sizeof theirs);
    return theirs;
}

static gw_status explain(int code, const char *what, char why[GW_MPI_WHY_BYTES]) {
    char text[MPI_MAX_ERROR_STRING] = "";
    int length = 0;
    if (code == MPI_SUCCESS) return GW_OK;
    MPI_Error_string(code, text, &length);
    snprintf(why, GW_MPI_WHY_BYTES, "%s: %.200s", what, text);
    return GW_PEER_LOST;
}

/* Waits for all ranks before MPI_Finalize, which would wait forever for a dead rank. limited: for FAREWELL_S at most. A
 * rank that left before anything failed waits without a limit, as it would in MPI_Finalize: a limit would end a job
 * whose other ranks are still working. */
static bool all_come(bool limited) {
    MPI_Request request;
    int over = 0;
    if (MPI_Ibarrier(farewell, &request) != MPI_SUCCESS) return false;
    for (double until = MPI_Wtime() + FAREWELL_S; !over && (!limited || MPI_Wtime() < until);) {
        if (MPI_Test(&request, &over, MPI_STATUS_IGNORE) != MPI_SUCCESS) return false;
        if (!over) usleep(200);
    }
    return over;
}

/* UCX, where this MPI uses it, prints a line for every message that an error left unfinished. The error itself has been
 * reported already. */
static void hush_ucx(void) {
    void *set = dlsym(RTLD_DEFAULT, "ucs_global_opts_set_value");
    ucs_setter *value;
    memcpy(&value, &set, sizeof value);
    if (set && !getenv("UCX_LOG_LEVEL")) value("LOG_LEVEL", "error");
}

/* Finalises MPI at exit, but not while a transport is open: the other ranks must notice a process that exits without
 * gw_finalize, not wait for it. */
static void end_mpi(void) {
    int ended = 0;
    if (getpid() != owner) return;
    MPI_Finalized(&ended);
    if (ended || atomic_load(&abandoned) || atomic_load(&users) > 0) return;
    bool failed = atomic_load(&doubted);
    if (failed) hush_ucx();
    if (all_come(failed)) MPI_Finalize();
}

static gw_status start_mpi(char why[GW_MPI_WHY_BYTES]) {
    int started = 0, ended = 0, level = MPI_THREAD_SINGLE;
    MPI_Initialized(&started);
    MPI_Finalized(&ended);
    if (ended) {
        snprintf(why, GW_MPI_WHY_BYTES,
                 "MPI has been finalised in this process and cannot be started again: call "
                 "gw_finalize before MPI_Finalize");
        return GW_INVALID;
    }
    if (started) {
        MPI_Query_thread(&level);
    } else {
        /* Open MPI's MPI_Iallreduce uses a tree where MPI_Allreduce does not, which costs a fifth to a third: take
         * Rabenseifner's algorithm, unless the user has chosen. Other MPIs ignore this. */
        setenv("OMPI_MCA_coll_libnbc_iallreduce_algorithm", "3", 0);
        if (MPI_Init_thread(NULL, NULL, MPI_THREAD_SERIALIZED, &level) != MPI_SUCCESS) {
            snprintf(why, GW_MPI_WHY_BYTES, "MPI_Init_thread failed");
            return GW_SYSTEM;
        }
        owner = getpid();
        atexit(end_mpi);
    }
    if (level >= MPI_THREAD_SERIALIZED) return GW_OK;
    snprintf(why, GW_MPI_WHY_BYTES,
             "MPI was started for calls of one thread only, and gradwire has a progress thread: "
             "start it with MPI_Init_thread and MPI_THREAD_MULTIPLE");
    return GW_UNSUPPORTED;
}

static gw_status check_place(int rank, int world, char why[GW_MPI_WHY_BYTES]) {
    int own = -1, size = 0;
    MPI_Comm_rank(MPI_COMM_WORLD, &own);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    if (own == rank && size == world) return GW_OK;
    snprintf(why, GW_MPI_WHY_BYTES,
             "MPI says that this is rank %d of %d, the job says rank %d of %d: start the ranks "
             "with this MPI's own mpirun, or with srun --mpi=pmix",
             own, size, rank, world);
    return GW_MISMATCH;
}

/* Makes a communicator of all ranks, when all have called it. GW_TIMEOUT: MPI still writes to *copy later. */
static gw_status join_all(MPI_Comm *copy, double seconds, char why[GW_MPI_WHY_BYTES]) {
    MPI_Request request;
    int over = 0;
    int code = MPI_Comm_idup(MPI_COMM_WORLD, copy, &request);
    for (double until = MPI_Wtime() + seconds; code == MPI_SUCCESS && !over;) {
        code = MPI_Test(&request, &over, MPI_STATUS_IGNORE);
        if (over || code != MPI_SUCCESS) break;
        if (MPI_Wtime() > until) {
            snprintf(why, GW_MPI_WHY_BYTES,
                     "not all ranks of MPI came to gw_init within %g s: see the output of the "
                     "others, or set a longer GRADWIRE_DEADLINE",
                     seconds);
            return GW_TIMEOUT;
        }
        usleep(50);
    }
    if (code == MPI_SUCCESS) code = MPI_Comm_set_errhandler(*copy, MPI_ERRORS_RETURN);
    return explain(code, "MPI_Comm_idup", why);
}

static gw_status shim_open(gw_mpi **out, int rank, int world, double seconds, char why[GW_MPI_WHY_BYTES]) {
    int *bound = NULL, found = 0;
    gw_mpi *mpi = calloc(1, sizeof *mpi);
    if (!mpi) {
        snprintf(why, GW_MPI_WHY_BYTES, "out of memory for its communicators");
        return GW_MEMORY;
    }
    gw_status status = start_mpi(why);
    if (!status) status = check_place(rank, world, why);
    if (!status) status = join_all(&mpi->comm, seconds, why);
    if (!status) status = join_all(&mpi->whole, seconds, why);
    if (!status && !has_farewell) {
        status = join_all(&farewell, seconds, why);
        has_farewell = status == GW_OK;
    }
    if (status) {
        atomic_store(&abandoned, true); /* the others may wait here and never reach MPI_Finalize */
        if (status != GW_TIMEOUT) free(mpi);
        return status;
    }
    MPI_Comm_get_attr(mpi->comm, MPI_TAG_UB, &bound, &found);
    mpi->tag_max = found ? *bound : 32767;
    atomic_fetch_add(&users, 1);
    *out = mpi;
    return GW_OK;
}

/* The communicators stay: freeing one is collective, and ranks leave one by one. */
static void shim_close(gw_mpi *mpi) {
    atomic_fetch_sub(&users, 1);
    free(mpi);
}

static void shim_doubt(void) { atomic_store(&doubted, true); }

static void shim_abandon(void) { atomic_store(&abandoned, true); }

static int shim_tag_max(const gw_mpi *mpi) { return mpi->tag_max; }

static gw_status too_large(size_t bytes, char why[GW_MPI_WHY_BYTES]) {
    snprintf(why, GW_MPI_WHY_BYTES, "MPI takes at most %d elements at once, not %zu: choose a smaller chunk", INT_MAX,
             bytes);
    return GW_UNSUPPORTED;
}

static gw_status shim_send(gw_mpi *mpi, const void *data, size_t bytes, int peer, int tag, gw_mpi_request *request,
                           char why[GW_MPI_WHY_BYTES]) {
    MPI_Request theirs;
    if (bytes > INT_MAX) return too_large(bytes, why);
    int code = MPI_Isend(data, (int)bytes, MPI_BYTE, peer, tag, mpi->comm, &theirs);
    if (code == MPI_SUCCESS) put_request(request, theirs);
    return explain(code, "MPI_Isend", why);
}

static gw_status shim_receive(gw_mpi *mpi, void *data, size_t bytes, int peer, int tag, gw_mpi_request *request,
                              char why[GW_MPI_WHY_BYTES]) {
    MPI_Request theirs;
    if (bytes > INT_MAX) return too_large(bytes, why);
    int code = MPI_Irecv(data, (int)bytes, MPI_BYTE, peer < 0 ? MPI_ANY_SOURCE : peer, tag, mpi->comm, &theirs);
    if (code == MPI_SUCCESS) put_request(request, theirs);
    return explain(code, "MPI_Irecv", why);
}

static MPI_Datatype type_of(gw_dtype dtype) {
    switch (dtype) {
    case GW_F32: return MPI_FLOAT;
    case GW_F64: return MPI_DOUBLE;
    case GW_I32: return MPI_INT32_T;
    case GW_I64: return MPI_INT64_T;
    default: return MPI_DATATYPE_NULL;
    }
}

static MPI_Op op_of(gw_redop op) {
    switch (op) {
    case GW_SUM: return MPI_SUM;
    case GW_MIN: return MPI_MIN;
    case GW_MAX: return MPI_MAX;
    case GW_PROD: return MPI_PROD;
    case GW_BAND: return MPI_BAND;
    case GW_BOR: return MPI_BOR;
    case GW_BXOR: return MPI_BXOR;
    default: return MPI_OP_NULL;
    }
}

static gw_status shim_allreduce(gw_mpi *mpi, const void *in, void *out, size_t count, gw_dtype dtype, gw_redop op,
                                gw_mpi_request *request, char why[GW_MPI_WHY_BYTES]) {
    MPI_Request theirs;
    if (count > INT_MAX) return too_large(count, why);
    int code =
        MPI_Iallreduce(in == out ? MPI_IN_PLACE : in, out, (int)count, type_of(dtype), op_of(op), mpi->whole, &theirs);
    if (code == MPI_SUCCESS) put_request(request, theirs);
    return explain(code, "MPI_Iallreduce", why);
}

static gw_status shim_test(gw_mpi_request *request, bool *done, gw_mpi_message *message, char why[GW_MPI_WHY_BYTES]) {
    MPI_Request theirs = get_request(request);
    MPI_Status status = {.MPI_SOURCE = -1};
    int over = 0, cancelled = 0, bytes = 0;
    int code = MPI_Test(&theirs, &over, &status);
    put_request(request, theirs);
    *done = over || code != MPI_SUCCESS;
    if (!over || code != MPI_SUCCESS || !message) return explain(code, "MPI_Test", why);
    MPI_Test_cancelled(&status, &cancelled);
    if (!cancelled) MPI_Get_count(&status, MPI_BYTE, &bytes);
    *message = (gw_mpi_message){.source = status.MPI_SOURCE, .bytes = bytes > 0 ? (size_t)bytes : 0,
                                .cancelled = cancelled != 0};
    return GW_OK;
}

static void shim_cancel(gw_mpi_request *request) {
    MPI_Request theirs = get_request(request);
    MPI_Cancel(&theirs);
    put_request(request, theirs);
}

GW_API extern const gw_mpi_table gw_mpi_shim;

const gw_mpi_table gw_mpi_shim = {
    .version = GW_MPI_TABLE_VERSION, .open = shim_open, .close = shim_close, .doubt = shim_doubt,
    .abandon = shim_abandon, .tag_max = shim_tag_max, .send = shim_send, .receive = shim_receive,
    .allreduce = shim_allreduce, .test = shim_test, .cancel = shim_cancel,
};
