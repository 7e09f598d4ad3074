/* native_mpi.c - the cost of arch=mpi beside bare MPI_Allreduce and MPI_Iallreduce, in the same processes, in turns:
 * native.sh runs it under mpirun. Prints the median over the rounds of the slowest rank's time, and its ratio to
 * both. */
#include "gradwire.h"

#include "../figures.h"

#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

enum { ROUNDS_MAX = 400, WARM_UP = 5 };
#define ROUND_BYTES ((size_t)256 << 20) /* as many rounds as move so much, 20 at least */

typedef struct contest {
    gw_comm *comm;
    float *in, *out;
    size_t count;
} contest;

static void by_mpi(const contest *c) {
    MPI_Allreduce(c->in, c->out, (int)c->count, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
}

static void by_request(const contest *c) {
    MPI_Request request;
    MPI_Iallreduce(c->in, c->out, (int)c->count, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD, &request);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
}

static void by_gradwire(const contest *c) {
    if (gw_allreduce(c->comm, c->in, c->out, c->count, GW_F32, GW_SUM) == GW_OK) return;
    fprintf(stderr, "native_mpi: %s\n", gw_last_error(c->comm));
    MPI_Abort(MPI_COMM_WORLD, 1);
}

/* Microseconds of the slowest rank; the buffers are written before. */
static double timed(const contest *c, void (*call)(const contest *)) {
    for (size_t i = 0; i < c->count; i++) c->in[i] = (float)(i % 64);
    MPI_Barrier(MPI_COMM_WORLD);
    double start = MPI_Wtime();
    call(c);
    double own = (MPI_Wtime() - start) * 1e6, slowest;
    MPI_Allreduce(&own, &slowest, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
    return slowest;
}

static void meet(contest *c, size_t bytes, int ranks, int rank) {
    double mpi[ROUNDS_MAX], request[ROUNDS_MAX], ours[ROUNDS_MAX];
    size_t fit = ROUND_BYTES / bytes;
    int rounds = fit > ROUNDS_MAX ? ROUNDS_MAX : fit < 20 ? 20 : (int)fit;
    c->count = bytes / sizeof *c->in;
    for (int i = 0; i < WARM_UP; i++) timed(c, by_mpi), timed(c, by_request), timed(c, by_gradwire);
    for (int i = 0; i < rounds; i++) {
        mpi[i] = timed(c, by_mpi);
        request[i] = timed(c, by_request);
        ours[i] = timed(c, by_gradwire);
        if (c->out[c->count - 1] != (float)(ranks * (int)((c->count - 1) % 64))) MPI_Abort(MPI_COMM_WORLD, 1);
    }
    double bare = median(mpi, rounds), started = median(request, rounds), own = median(ours, rounds);
    if (rank == 0)
        printf("%10zu  %13.1f  %14.1f  %13.1f  %6.3f  %6.3f\n", bytes, bare, started, own, own / bare, own / started);
}

int main(int argc, char **argv) {
    int rank, ranks, level;
    MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &level);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    size_t largest = (size_t)16 << 20;
    contest c = {.in = malloc(largest), .out = malloc(largest)};
    gw_options options = GW_OPTIONS_DEFAULT;
    options.strategy = "transport=mpi arch=mpi";
    if (!c.in || !c.out || gw_init(&c.comm, &options) != GW_OK) {
        fprintf(stderr, "native_mpi: %s\n", gw_last_error(NULL));
        MPI_Abort(MPI_COMM_WORLD, 1);
    }
    if (rank == 0)
        printf("%10s  %13s  %14s  %13s  %6s  %6s\n", "bytes", "Allreduce, us", "Iallreduce, us", "arch=mpi, us",
               "ratio", "ratio");
    for (size_t bytes = 4096; bytes <= largest; bytes *= 4) meet(&c, bytes, ranks, rank);
    gw_finalize(c.comm);
    MPI_Finalize();
    free(c.in);
    free(c.out);
    return 0;
}
