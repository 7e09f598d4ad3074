/* helper_network.c - for tests/bad_networks.sh: one rank of a job on a bad network. Collectives and messages of several
 * sizes, back to back, with every value checked. The last line of rank 0 says how many values were wrong. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include "gradwire.h"

enum { COUNT_MAX = 60000, SIZES = 4 };
static const size_t counts[SIZES] = {1, 1000, 12345, COUNT_MAX};

static float in[COUNT_MAX], out[COUNT_MAX];
static uint64_t wrong;

/* Small whole numbers: their sums are exact. */
static float value(int rank, size_t i, int round) {
    uint32_t x = (uint32_t)rank * 40503u + (uint32_t)i * 2654435761u + (uint32_t)round * 7919u;
    return (float)((x >> 20) % 1000);
}

static gw_status all_reduce(gw_comm *comm, size_t count, int round) {
    int world = gw_size(comm);
    for (size_t i = 0; i < count; i++) in[i] = value(gw_rank(comm), i, round);
    gw_status status = gw_allreduce(comm, in, out, count, GW_F32, GW_SUM);
    for (size_t i = 0; !status && i < count; i++) {
        float sum = 0;
        for (int r = 0; r < world; r++) sum += value(r, i, round);
        wrong += out[i] != sum;
    }
    return status;
}

/* Everyone sends to the next rank. */
static gw_status pass_on(gw_comm *comm, size_t count, int round) {
    int world = gw_size(comm), rank = gw_rank(comm), before = (rank + world - 1) % world;
    gw_request *sent, *received;
    for (size_t i = 0; i < count; i++) in[i] = value(rank, i, -round);
    gw_status status = gw_recv_start(comm, out, count, GW_F32, before, &received);
    if (status) return status;
    status = gw_send_start(comm, in, count, GW_F32, (rank + 1) % world, &sent);
    if (!status) status = gw_wait(sent);
    gw_status arrived = gw_wait(received);
    for (size_t i = 0; !status && !arrived && i < count; i++) wrong += out[i] != value(before, i, -round);
    return status ? status : arrived;
}

int main(int argc, char **argv) {
    gw_comm *comm;
    int rounds = argc > 1 ? atoi(argv[1]) : 2;
    gw_status status = gw_init(&comm, NULL);
    if (status) return fprintf(stderr, "%s\n", gw_last_error(NULL)), 1;
    for (int round = 1; round <= rounds && !status; round++) {
        for (int s = 0; s < SIZES && !status; s++) {
            status = all_reduce(comm, counts[s], round);
            if (!status) status = pass_on(comm, counts[s], round);
        }
    }
    float mine = (float)wrong, all = 0;
    if (!status) status = gw_allreduce(comm, &mine, &all, 1, GW_F32, GW_SUM);
    if (status) fprintf(stderr, "%s\n", gw_last_error(comm));
    else if (gw_rank(comm) == 0) printf("%.0f wrong\n", (double)all);
    if (wrong) fprintf(stderr, "rank %d: %llu wrong values\n", gw_rank(comm), (unsigned long long)wrong);
    int code = status || wrong;
    return gw_finalize(comm) != GW_OK || code;
}
