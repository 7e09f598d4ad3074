/* peer.c - the same collectives on SimGrid (Casanova et al. 2014), as an independent opinion on how a fat-tree is
 * shared: peer PLATFORM.xml ring|alltoall BYTES HOST... prints the seconds until all ranks are done. BYTES is what one
 * message has; rank r runs on node HOST[r]. */
#include <simgrid/actor.h>
#include <simgrid/comm.h>
#include <simgrid/engine.h>
#include <simgrid/host.h>
#include <simgrid/mailbox.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int world;
static double bytes;
static int ring;

static sg_mailbox_t box(int from, int to) {
    char name[64];
    snprintf(name, sizeof name, "%d-%d", from, to);
    return sg_mailbox_by_name(name);
}

/* Receives are posted ahead, as the engine grants them; a rank sends on when it has received. */
static void around(int rank) {
    static char payload;
    static void *got;
    sg_comm_t out[2048], in[2048];
    int next = (rank + 1) % world, before = (rank + world - 1) % world, rounds = 2 * (world - 1);
    for (int round = 0; round < rounds; round++) in[round] = sg_mailbox_get_async(box(before, rank), &got);
    for (int round = 0; round < rounds; round++) {
        out[round] = sg_mailbox_put_async(box(rank, next), &payload, (uint64_t)bytes);
        sg_comm_wait(in[round]);
    }
    for (int round = 0; round < rounds; round++) sg_comm_wait(out[round]);
}

static void to_all(int rank) {
    static char payload;
    void *got[1024];
    sg_comm_t out[1024], in[1024];
    for (int i = 1; i < world; i++) {
        in[i] = sg_mailbox_get_async(box((rank + world - i) % world, rank), &got[i]);
        out[i] = sg_mailbox_put_async(box(rank, (rank + i) % world), &payload, (uint64_t)bytes);
    }
    for (int i = 1; i < world; i++) {
        sg_comm_wait(in[i]);
        sg_comm_wait(out[i]);
    }
}

static void act(int argc, char **argv) {
    int rank = atoi(argv[argc - 1]);
    if (ring) around(rank);
    else to_all(rank);
}

int main(int argc, char **argv) {
    simgrid_init(&argc, argv);
    if (argc < 5) return 2;
    simgrid_load_platform(argv[1]);
    ring = strcmp(argv[2], "ring") == 0;
    bytes = atof(argv[3]);
    world = argc - 4;
    for (int rank = 0; rank < world; rank++) {
        char host[64], number[16];
        snprintf(host, sizeof host, "node-%s", argv[4 + rank]);
        snprintf(number, sizeof number, "%d", rank);
        char *arguments[] = {host, number, NULL};
        sg_actor_create(host, sg_host_by_name(host), act, 2, arguments);
    }
    simgrid_run();
    printf("%.9f\n", simgrid_get_clock());
    return 0;
}
