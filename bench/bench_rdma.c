/* bench_rdma.c - the bandwidth of libfabric's shm provider itself between two processes, without gradwire's transport:
 * writes of 512 KiB with immediate data, both ways at once, out of and into 16 MiB of memory. An all-reduce over two
 * ranks sends as many bytes each way as it has, so this is the bound of transport=rdma:provider=shm.
 *
 *     bench_rdma [rounds]     (default 5) */
#include "base/clock.h"
#include "figures.h"
#include "transport/rdma/rdma_fabric.h"

#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define WRITE_BYTES ((size_t)512 << 10)
#define REGION_BYTES ((size_t)16 << 20)
#define WRITES 1000
#define AHEAD 8 /* writes in flight */
#define PATIENCE (20 * GW_SECOND)

/* What the two exchange at the start. */
typedef struct hello {
    uint8_t address[GW_RDMA_ADDRESS_BYTES];
    uint64_t key, at;
} hello;

static void need(bool held, const char *what) {
    if (held) return;
    fprintf(stderr, "bench_rdma: %s\n", what);
    _exit(1);
}

static hello meet(gw_rdma_fabric *f, struct fid_mr *recv_buffer, const uint8_t *at, int from_other, int to_other) {
    hello mine = {.key = fi_mr_key(recv_buffer), .at = f->virtual_addresses ? (uint64_t)(uintptr_t)at : 0}, theirs;
    memcpy(mine.address, f->address, sizeof mine.address);
    need(write(to_other, &mine, sizeof mine) == (ssize_t)sizeof mine, "the other process is gone");
    need(read(from_other, &theirs, sizeof theirs) == (ssize_t)sizeof theirs, "the other process is gone");
    return theirs;
}

/* Counts what is done here, and what has come; providers move only when this is read. */
static void look(gw_rdma_fabric *f, size_t *done, size_t *came) {
    struct fi_cq_data_entry entries[16];
    ssize_t count = fi_cq_read(f->completions, entries, 16);
    need(count != -FI_EAVAIL, "a write failed");
    for (ssize_t i = 0; i < count; i++) {
        if (entries[i].flags & FI_REMOTE_CQ_DATA) ++*came;
        else ++*done;
    }
}

static double exchange(gw_rdma_fabric *f, const uint8_t *data, fi_addr_t to, const hello *peer) {
    static struct fi_context2 contexts[AHEAD];
    size_t begun = 0, done = 0, came = 0;
    gw_time start = gw_clock_now();
    while (done < WRITES || came < WRITES) {
        size_t at = begun * WRITE_BYTES % REGION_BYTES;
        bool free = begun < WRITES && begun - done < AHEAD;
        if (free && fi_writedata(f->endpoint, data + at, WRITE_BYTES, NULL, begun, to, peer->at + at, peer->key,
                                 &contexts[begun % AHEAD]) == 0)
            begun++;
        look(f, &done, &came);
        need(gw_clock_now() - start < PATIENCE, "nothing moves");
    }
    return (double)(gw_clock_now() - start) / (double)GW_SECOND;
}

/* The other may still need us to read completions. */
static void part(gw_rdma_fabric *f, int from_other, int to_other) {
    struct pollfd other = {.fd = from_other, .events = POLLIN};
    size_t ignored = 0;
    need(write(to_other, "", 1) == 1, "the other process is gone");
    while (poll(&other, 1, 0) == 0) look(f, &ignored, &ignored);
}

static double run(int rank, int from_other, int to_other) {
    gw_rdma_fabric f;
    gw_error error = {0};
    gw_rdma_options options = {.rank = rank, .world = 2, .provider = "shm"};
    uint8_t *data = malloc(REGION_BYTES), *recv_buffer = malloc(REGION_BYTES);
    struct fid_mr *region = NULL;
    fi_addr_t to;
    need(gw_rdma_fabric_open(&f, &options, &error) == GW_OK && gw_rdma_fabric_start(&f, &error) == GW_OK, error.text);
    need(!f.register_local && !f.bind_memory && f.immediate_bytes == 8, "this shm provider demands more than we give");
    need(data && recv_buffer, "out of memory");
    memset(data, 1, REGION_BYTES);
    memset(recv_buffer, 2, REGION_BYTES);
    need(fi_mr_reg(f.domain, recv_buffer, REGION_BYTES, FI_REMOTE_WRITE, 0, 1, 0, &region, NULL) == 0,
         "no registration");
    hello peer = meet(&f, region, recv_buffer, from_other, to_other);
    need(fi_av_insert(f.peers, peer.address, 1, &to, 0, NULL) == 1, "the other's address is not taken");
    double took = exchange(&f, data, to, &peer);
    part(&f, from_other, to_other);
    fi_close(&region->fid);
    gw_rdma_fabric_close(&f);
    free(data);
    free(recv_buffer);
    return took;
}

/* GB/s each way. */
static double measure(void) {
    int there[2], back[2];
    double took = 0;
    need(pipe(there) == 0 && pipe(back) == 0, "no pipe");
    pid_t children[2];
    int result[2];
    need(pipe(result) == 0, "no pipe");
    for (int rank = 0; rank < 2; rank++) {
        children[rank] = fork(); /* libfabric is woken in processes of their own, each time */
        if (children[rank]) continue;
        double own = rank ? run(1, there[0], back[1]) : run(0, back[0], there[1]);
        need(rank || write(result[1], &own, sizeof own) == (ssize_t)sizeof own, "nobody waits");
        _exit(0);
    }
    close(result[1]);
    need(read(result[0], &took, sizeof took) == (ssize_t)sizeof took, "it did not come to its end");
    for (int rank = 0; rank < 2; rank++) waitpid(children[rank], NULL, 0);
    for (int i = 0; i < 2; i++) close(there[i]), close(back[i]);
    close(result[0]);
    return (double)WRITES * (double)WRITE_BYTES / took / 1e9;
}

int main(int argc, char **argv) {
    int rounds = argc > 1 ? atoi(argv[1]) : 5;
    double figures[101];
    if (rounds < 1 || rounds > 101) {
        fprintf(stderr, "bench_rdma: rounds is \"%s\"; choose 1 to 101\n", argv[1]);
        return 2;
    }
    for (int r = 0; r < rounds; r++) figures[r] = measure();
    printf("writes of 512 KiB by shm, both ways: %.2f GB/s\n", median(figures, rounds));
    return 0;
}
