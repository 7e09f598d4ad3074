/* bench_straggler.c - one of four workers five times slower: how many steps a second the others make under each
 * synchronization over two servers, and which worker waited for which. Computing is a sleep (10 ms,
 * 50 ms), the model has 1 MiB.
 *
 *     build/bench/bench_straggler [SECONDS]     of each synchronization (default 3) */
#include <arpa/inet.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "gradwire/reducer.h"

#define RANKS 4
#define SLOW 3
#define TENSORS 4
#define COUNT 65536

typedef struct tally {
    double steps_a_second[RANKS];
    gw_reducer_worker_stats workers[RANKS];
} tally;

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static int free_port(void) {
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t length = sizeof address;
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    if (fd < 0 || bind(fd, (struct sockaddr *)&address, length) != 0 ||
        getsockname(fd, (struct sockaddr *)&address, &length) != 0)
        abort();
    close(fd);
    return ntohs(address.sin_port);
}

static void descend(void *ctx, const gw_reducer_update *u) {
    float *weights = u->weights;
    const float *gradient = u->gradient;
    (void)ctx;
    for (size_t i = 0; i < u->count; i++) weights[i] -= 0.01f * (float)(u->rate_scale * u->scale) * gradient[i];
}

static void check(gw_status status) {
    if (!status) return;
    fprintf(stderr, "%s\n", gw_last_error(NULL));
    exit(1);
}

static void work(int rank, int port, const char *line, double seconds, tally *result) {
    static float gradients[TENSORS][COUNT], weights[TENSORS][COUNT];
    static const char *const names[TENSORS] = {"a", "b", "c", "d"};
    gw_reducer_tensor tensors[TENSORS];
    gw_comm *comm = NULL;
    gw_reducer *reducer = NULL;
    gw_options options = GW_OPTIONS_DEFAULT;
    gw_reducer_options how = GW_REDUCER_OPTIONS_DEFAULT;
    options.rank = rank;
    options.world = RANKS;
    options.master_port = port;
    options.strategy = line;
    options.token = "one of four is slow";
    how.update = descend;
    for (int t = 0; t < TENSORS; t++)
        tensors[t] = (gw_reducer_tensor){.name = names[t], .count = COUNT, .dtype = GW_F32, .gradient = gradients[t],
                                      .weights = weights[t]};
    check(gw_init(&comm, &options));
    check(gw_reducer_commit(&reducer, comm, tensors, TENSORS, &how));
    check(gw_barrier(comm));
    double begun = now();
    /* As many as it could make alone; all the same number where they wait for each other. */
    bool wait = strstr(line, "sync=bsp") || strstr(line, "sync=ssp");
    int steps = 0, planned = (int)(seconds * (rank == SLOW || wait ? 20 : 100));
    for (; steps < planned; steps++) {
        for (int t = 0; t < TENSORS; t++) check(gw_reducer_wait(reducer, t));
        usleep(rank == SLOW ? 50000 : 10000);
        for (int t = TENSORS - 1; t >= 0; t--) check(gw_reducer_ready(reducer, t));
        check(gw_reducer_end(reducer));
    }
    check(gw_reducer_flush(reducer));
    result->steps_a_second[rank] = steps / (now() - begun);
    gw_reducer_worker_stats workers[RANKS];
    check(gw_reducer_workers(reducer, workers));
    if (rank == 0)
        for (int w = 0; w < RANKS; w++) result->workers[w] = workers[w];
    gw_reducer_close(reducer);
    gw_finalize(comm);
}

static void measure(const char *line, double seconds, tally *result) {
    int port = free_port();
    pid_t ranks[RANKS];
    for (int r = 0; r < RANKS; r++) {
        ranks[r] = fork();
        if (ranks[r] < 0) abort();
        if (ranks[r]) continue;
        work(r, port, line, seconds, result);
        exit(0);
    }
    for (int r = 0; r < RANKS; r++) {
        int status = 0;
        waitpid(ranks[r], &status, 0);
        if (status) exit(1);
    }
}

int main(int argc, char **argv) {
    static const char *const lines[] = {"arch=ps:servers=2 sync=bsp", "arch=ps:servers=2 sync=ssp:staleness=3",
                                        "arch=ps:servers=2 sync=backup:n=1", "arch=ps:servers=2 sync=asp"};
    double seconds = argc > 1 ? atof(argv[1]) : 3, bsp = 0;
    tally *result = mmap(NULL, sizeof *result, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (result == MAP_FAILED) return 1;
    setvbuf(stdout, NULL, _IONBF, 0);
    printf("%-34s %14s %8s %12s %20s\n", "one of four five times slower", "others steps/s", "by bsp", "others wait",
           "because of the slow");
    for (size_t i = 0; i < sizeof lines / sizeof *lines; i++) {
        measure(lines[i], seconds, result);
        double others = (result->steps_a_second[0] + result->steps_a_second[1] + result->steps_a_second[2]) / 3;
        if (i == 0) bsp = others;
        printf("%-34s %14.1f %7.2fx %10.2f s %18.2f s\n", lines[i], others, others / bsp,
               (double)result->workers[0].held_ns / 1e9, (double)result->workers[SLOW].held_others_ns / 1e9);
    }
    return 0;
}
