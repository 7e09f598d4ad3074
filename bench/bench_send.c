/* bench_send.c - one-way bandwidth of gw_send between two ranks, for bench/networks.sh.
 *
 *     bench_send SECONDS [MIB [DEPTH]]     messages of this size (default 8), so many at a time (default 2)
 *
 * Rank 1 prints Mbit/s from the first send to the last arrival. */
#include <stdio.h>
#include <stdlib.h>

#include "base/clock.h"
#include "gradwire.h"

#define DEPTH_MAX 16

typedef struct pipe {
    gw_comm *comm;
    float *memory[DEPTH_MAX];
    gw_request *requests[DEPTH_MAX];
    size_t count; /* elements of a message; the first tells whether it is the last message */
    int depth;
} pipe;

static void stop(gw_status status, const char *text) {
    if (!status) return;
    fprintf(stderr, "bench_send: %s\n", text);
    exit(1);
}

static void begin(pipe *p, int slot) {
    bool sends = gw_rank(p->comm) == 0;
    gw_status status = sends ? gw_send_start(p->comm, p->memory[slot], p->count, GW_F32, 1, &p->requests[slot])
                             : gw_recv_start(p->comm, p->memory[slot], p->count, GW_F32, 0, &p->requests[slot]);
    stop(status, gw_last_error(p->comm));
}

static void finish(pipe *p, int slot) { stop(gw_wait(p->requests[slot]), gw_last_error(p->comm)); }

/* Marks one message when the time is over. The receiver has begun `depth - 1` more by then, so that many follow it. */
static uint64_t send_all(pipe *p, gw_time end) {
    uint64_t k = 0, last = UINT64_MAX, depth = (uint64_t)p->depth;
    for (; k < last; k++) {
        int slot = (int)(k % depth);
        if (k >= depth) finish(p, slot);
        bool marked = last == UINT64_MAX && gw_clock_now() >= end;
        if (marked) last = k + depth;
        p->memory[slot][0] = marked;
        begin(p, slot);
    }
    for (uint64_t i = k < depth ? 0 : k - depth; i < k; i++) finish(p, (int)(i % depth));
    return k;
}

static uint64_t receive_all(pipe *p) {
    uint64_t k = 0, last = UINT64_MAX, depth = (uint64_t)p->depth;
    for (; k < depth; k++) begin(p, (int)k);
    for (k = 0; k < last; k++) {
        int slot = (int)(k % depth);
        finish(p, slot);
        if (last == UINT64_MAX && p->memory[slot][0] == 1) last = k + depth;
        if (k + depth < last) begin(p, slot);
    }
    return k;
}

int main(int argc, char **argv) {
    pipe p = {.depth = argc > 3 ? atoi(argv[3]) : 2};
    double seconds = argc > 1 ? atof(argv[1]) : 5;
    p.count = (size_t)(argc > 2 ? atoi(argv[2]) : 8) << 18;
    stop(gw_init(&p.comm, NULL), gw_last_error(NULL));
    for (int i = 0; i < p.depth; i++) p.memory[i] = calloc(p.count, sizeof(float));
    stop(gw_barrier(p.comm), gw_last_error(p.comm));
    gw_time first = gw_clock_now();
    uint64_t messages = gw_rank(p.comm) == 0 ? send_all(&p, first + (gw_time)(seconds * 1e9)) : receive_all(&p);
    double bits = (double)messages * (double)p.count * 32, took = (double)(gw_clock_now() - first) / 1e3;
    if (gw_rank(p.comm) == 1) printf("%.1f\n", bits / took);
    return gw_finalize(p.comm) != GW_OK;
}
