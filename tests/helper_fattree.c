/* helper_fattree.c - a collective on a fat-tree by the simulator, for tests/simgrid.sh: ring|alltoall BYTES LEAF UP
 * LATENCY RATE HOST... prints the seconds until all ranks are done. BYTES is what one message has; rank r runs on
 * HOST[r]. */
#include "run_alone.h"

int main(int argc, char **argv) {
    (void)test_main; /* of test.h: this is not a test by itself */
    if (argc < 8) return 2;
    bool ring = strcmp(argv[1], "ring") == 0;
    int world = argc - 7;
    char text[64];
    snprintf(text, sizeof text, "fattree:hosts=%s,up=%s", argv[3], argv[4]);
    alone a = alone_make(text, world, 1);
    a.fabric.latency = atof(argv[5]);
    a.fabric.rate = atof(argv[6]);
    for (int rank = 0; rank < world; rank++) a.hosts[rank] = atoi(argv[7 + rank]);
    size_t part = (size_t)atol(argv[2]) / 4;
    gw_plan_sim_spec spec = {.collective = ring ? GW_COLL_ALLREDUCE : GW_COLL_ALLTOALL,
                        .builder = ring ? &gw_plan_ring : &gw_plan_pairwise,
                        .count = ring ? part * (size_t)world : part, .unit_bytes = 4, .chunk_bytes = 1 << 30,
                        .root = -1};
    alone_run(&a, &spec);
    printf("%.9f\n", a.last);
    alone_free(&a);
    return test_failures > 0;
}
