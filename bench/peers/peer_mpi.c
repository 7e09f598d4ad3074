/* peer_mpi.c - an MPI library as a baseline: `gradwire bench --against` starts it under mpirun. Built
 * once with each library's mpicc. Only f32 sums. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

#include "bench/side_channel.h"

static int carry_out(const gw_bench_case *c, const gw_bench_buffers *b, int rank) {
    int count = (int)c->count;
    const void *in = b->in == b->out ? MPI_IN_PLACE : b->in;
    MPI_Comm comm = MPI_COMM_WORLD;
    switch (c->collective) {
    case GW_COLL_ALLREDUCE: return MPI_Allreduce(in, b->out, count, MPI_FLOAT, MPI_SUM, comm);
    case GW_COLL_REDUCE:
        return MPI_Reduce(rank == c->root ? MPI_IN_PLACE : b->in, b->out, count, MPI_FLOAT, MPI_SUM, c->root, comm);
    case GW_COLL_BROADCAST: return MPI_Bcast(b->out, count, MPI_FLOAT, c->root, comm);
    case GW_COLL_REDUCE_SCATTER: return MPI_Reduce_scatter_block(b->in, b->out, count, MPI_FLOAT, MPI_SUM, comm);
    case GW_COLL_ALLGATHER: return MPI_Allgather(MPI_IN_PLACE, 0, MPI_FLOAT, b->out, count, MPI_FLOAT, comm);
    case GW_COLL_GATHER: return MPI_Gather(b->in, count, MPI_FLOAT, b->out, count, MPI_FLOAT, c->root, comm);
    case GW_COLL_SCATTER: return MPI_Scatter(b->in, count, MPI_FLOAT, b->out, count, MPI_FLOAT, c->root, comm);
    case GW_COLL_ALLTOALL: return MPI_Alltoall(b->in, count, MPI_FLOAT, b->out, count, MPI_FLOAT, comm);
    case GW_COLL_BARRIER: return MPI_Barrier(comm);
    default: return MPI_ERR_OTHER;
    }
}

static gw_status call(void *ctx, const gw_bench_case *c, const gw_bench_buffers *b, gw_error *error) {
    int code = carry_out(c, b, *(const int *)ctx), length;
    char text[MPI_MAX_ERROR_STRING];
    if (code == MPI_SUCCESS) return GW_OK;
    MPI_Error_string(code, text, &length);
    return gw_fail(error, GW_SYSTEM, "%s", text);
}

int main(int argc, char **argv) {
    static const gw_bench_library library = {.call = call};
    const char *directory = getenv("GRADWIRE_BENCH");
    gw_error error = {0};
    int rank, world;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &world);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    if (!directory) {
        fputs("this program is started by gradwire bench --against\n", stderr);
        return 2;
    }
    gw_status status = gw_side_channel_run(directory, &library, &rank, rank, world, &error);
    if (status) fprintf(stderr, "%s\n", error.text);
    MPI_Finalize();
    return status != GW_OK;
}
