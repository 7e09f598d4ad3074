/* A reduce-scatter through a codec: every rank has a gradient, and gets its shard of the average. One byte a value
 * travels. */
#include <gradwire/coded.h>
#include <stdio.h>
#include <stdlib.h>

#define SHARD 65536

static int failed(const gw_comm *comm) { return fprintf(stderr, "%s\n", gw_last_error(comm)), 1; }

int main(void) {
    gw_comm *comm;
    gw_coded *coded;
    gw_coded_options options = GW_CODED_OPTIONS_DEFAULT;
    options.collective = GW_COLL_REDUCE_SCATTER;
    options.strategy = "compress=int8";
    options.name = "layer3";
    options.count = SHARD;
    if (gw_init(&comm, NULL) != GW_OK) return failed(NULL);
    if (gw_coded_open(&coded, comm, &options) != GW_OK) return failed(comm);
    size_t count = (size_t)gw_size(comm) * SHARD;
    float *gradient = gw_alloc(comm, count * sizeof *gradient), *shard = gw_alloc(comm, SHARD * sizeof *shard);
    if (!gradient || !shard) return failed(NULL);
    for (size_t i = 0; i < count; i++) gradient[i] = (float)gw_rank(comm);
    if (gw_coded_run(coded, gradient, shard) != GW_OK) return failed(comm);
    printf("rank %d of %d: the average is %.2f\n", gw_rank(comm), gw_size(comm), shard[0]);
    gw_coded_close(coded);
    gw_free(comm, gradient);
    gw_free(comm, shard);
    return gw_finalize(comm) != GW_OK;
}
