/* bench_shm_coll.c - all-reduce of f32 among the ranks of one host: microseconds by size, ranks and kind of memory.
 *
 *     bench_shm_coll [--quick] [--best]
 *
 * Every rank is a process. Before each call every rank writes its whole buffer, so that the data is in its own cache or
 * in memory, as after a backward pass, and waits for the others. The call is timed on each rank. Prints the mean over
 * ranks of the median over calls; with --best of the tenth percentile, for a busy machine. Results are checked. */
#include "base/clock.h"
#include "shm/shm_coll.h"
#include "transport/shm/shm_transport.h"

#include <poll.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#define RANKS_MAX 8
#define SPINS 2000  /* polls without progress before yielding, where there is a core for each rank */
#define YIELDS 6000 /* before sleeping */

/* Memory that the processes share besides the collectives under test. */
typedef struct common {
    _Atomic uint32_t ready, arrived[2], failed;
    uint8_t endpoints[RANKS_MAX][GW_SHM_ENDPOINT_BYTES];
    double micros[RANKS_MAX];
} common;

typedef struct bench {
    common *all;
    int rank, ranks;
    bool oversubscribed; /* more ranks than cores */
    bool quick, best;
    gw_transport *transport;
    gw_shm_coll *coll;
    uint32_t barriers;
} bench;

static void pause_cpu(bool yield) {
    if (yield) sched_yield();
    else __builtin_ia32_pause();
}

static void meet(bench *b) {
    _Atomic uint32_t *counter = &b->all->arrived[0];
    uint32_t target = ++b->barriers * (uint32_t)b->ranks;
    atomic_fetch_add(counter, 1);
    for (int spins = 0; atomic_load(counter) < target; spins++) pause_cpu(b->oversubscribed || spins > SPINS);
}

static void give_up(bench *b, const gw_error *error) {
    fprintf(stderr, "rank %d: %s\n", b->rank, error->text);
    atomic_store(&b->all->failed, 1);
    exit(1);
}

static void *no_recv_buffer(void *ctx, int peer, const gw_frame *frame) {
    (void)ctx, (void)peer, (void)frame;
    return NULL;
}

static void set_up(bench *b) {
    gw_error error = {.status = GW_OK};
    gw_shm_config config = {
        .rank = b->rank, .world = b->ranks, .generation = 1, .sink = {.recv_buffer = no_recv_buffer}};
    int members[RANKS_MAX];
    if (gw_shm_open(&b->transport, &config, &error)) give_up(b, &error);
    gw_shm_endpoint(b->transport, b->all->endpoints[b->rank]);
    meet(b);
    for (int r = 0; r < b->ranks; r++) {
        members[r] = r;
        if (r != b->rank && gw_shm_attach(b->transport, r, b->all->endpoints[r], &error)) give_up(b, &error);
    }
    if (gw_shm_coll_open(&b->coll, gw_shm_peer_map(b->transport), members, b->ranks, b->rank, 7, &error))
        give_up(b, &error);
    for (bool attached = false; !attached;) {
        if (gw_shm_coll_attach(b->coll, &attached, &error)) give_up(b, &error);
        sched_yield();
    }
}

static void sleep_once(bench *b, uint64_t *completed, gw_error *error) {
    bool moved;
    b->transport->ops->arm(b->transport, true);
    if (gw_shm_coll_poll(b->coll, completed, &moved, error)) give_up(b, error);
    struct pollfd bell = {.fd = b->transport->ops->wait_fd(b->transport), .events = POLLIN};
    if (!moved) poll(&bell, 1, 1000);
    b->transport->ops->arm(b->transport, false);
}

/* As an engine waits: spins (yields where cores are short), then sleeps. */
static void allreduce(bench *b, float *data, size_t count, uint64_t number) {
    gw_error error = {.status = GW_OK};
    gw_shm_coll_op op = {.task = GW_SHM_TASK_ALLREDUCE, .number = number, .signature = {count}, .in = data, .out = data,
                      .count = count, .reduction = {.dtype = GW_F32, .op = GW_SUM, .world = b->ranks}};
    uint64_t completed = 0;
    int idle = 0;
    gw_shm_coll_start(b->coll, &op);
    for (;;) {
        bool moved;
        if (gw_shm_coll_poll(b->coll, &completed, &moved, &error)) give_up(b, &error);
        if (completed == number) return;
        idle = moved ? 0 : idle + 1;
        if (idle > YIELDS) {
            sleep_once(b, &completed, &error);
            if (completed == number) return;
        } else if (idle) {
            pause_cpu(b->oversubscribed || idle > SPINS);
        }
    }
}

static int compare(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static void check(bench *b, const float *data, size_t count, uint64_t number) {
    float scale = (float)(b->ranks * (b->ranks + 1) / 2);
    for (size_t i = 0; i < count; i++) {
        float expected = (float)((i + number) % 1021) * scale;
        if (data[i] == expected) continue;
        fprintf(stderr, "rank %d: element %zu is %g, not %g\n", b->rank, i, data[i], expected);
        atomic_store(&b->all->failed, 1);
        exit(1);
    }
}

static void measure(bench *b, float *data, size_t count, int calls, uint64_t *number) {
    double *micros = malloc((size_t)calls * sizeof *micros);
    for (int c = 0; c < calls; c++) {
        ++*number;
        for (size_t i = 0; i < count; i++) data[i] = (float)((i + *number) % 1021) * (float)(b->rank + 1);
        meet(b);
        gw_time begin = gw_clock_now();
        allreduce(b, data, count, *number);
        micros[c] = (double)(gw_clock_now() - begin) / 1000;
        if (count < 1 << 16 || c % 8 == 0) check(b, data, count, *number);
    }
    qsort(micros, (size_t)calls, sizeof *micros, compare);
    b->all->micros[b->rank] = micros[b->best ? calls / 10 : calls / 2];
    free(micros);
    meet(b);
}

static const size_t sizes[] = {4 << 10, 64 << 10, 1 << 20, 16 << 20, 100 << 20};
static const int calls_of[] = {4001, 2001, 401, 41, 11};
#define SIZES (int)(sizeof sizes / sizeof sizes[0])

/* What prototypes reached on two cores of an Ice Lake server: the same columns, by ranks (2, 4) and memory (shared,
 * private). */
static const double goals[2][2][SIZES] = {
    {{0.8, 2.8, 41, 1690, 9720}, {1.2, 9.8, 134, 3514, 18500}},
    {{9.2, 15.9, 161, 4920, 22200}, {10, 30, 568, 9460, 50500}},
};

static void print_goal(int ranks, int shared, int columns) {
    printf("    %-13s", "goal");
    for (int s = 0; s < columns; s++) printf(" %10.1f", goals[ranks > 2][!shared][s]);
    printf("\n");
}

static void run_rank(bench *b) {
    uint64_t number = 0;
    int columns = SIZES - (b->quick ? 1 : 0);
    set_up(b);
    for (int shared = 1; shared >= 0; shared--) {
        if (b->rank == 0) printf("p=%d %-13s", b->ranks, shared ? "gw_alloc" : "malloc");
        for (int s = 0; s < columns; s++) {
            gw_error error = {.status = GW_OK};
            float *data = shared ? gw_shm_alloc(b->transport, sizes[s], &error) : malloc(sizes[s]);
            if (!data) give_up(b, &error);
            measure(b, data, sizes[s] / sizeof(float), b->quick ? calls_of[s] / 10 + 1 : calls_of[s], &number);
            double mean = 0;
            for (int r = 0; r < b->ranks; r++) mean += b->all->micros[r] / b->ranks;
            if (b->rank == 0) printf(" %10.2f", mean), fflush(stdout);
            meet(b);
            if (shared) gw_shm_free(b->transport, data);
            else free(data);
        }
        if (b->rank == 0) {
            printf("\n");
            print_goal(b->ranks, shared, columns);
            fflush(stdout);
        }
    }
    meet(b);
    gw_shm_coll_close(b->coll);
    b->transport->ops->close(b->transport);
}

static int run(int ranks, bool quick, bool best) {
    common *all = mmap(NULL, sizeof *all, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    int failed = 0;
    fflush(stdout);
    for (int r = 0; r < ranks; r++) {
        if (fork()) continue;
        alarm(300);
        bench b = {.all = all, .rank = r, .ranks = ranks, .oversubscribed = ranks > sysconf(_SC_NPROCESSORS_ONLN),
                   .quick = quick, .best = best};
        run_rank(&b);
        exit(0);
    }
    for (int r = 0; r < ranks; r++) {
        int status;
        wait(&status);
        failed |= status != 0;
    }
    munmap(all, sizeof *all);
    return failed;
}

int main(int argc, char **argv) {
    bool quick = false, best = false;
    for (int a = 1; a < argc; a++) {
        quick = quick || strcmp(argv[a], "--quick") == 0;
        best = best || strcmp(argv[a], "--best") == 0;
    }
    printf("all-reduce f32, us    4 KiB     64 KiB      1 MiB     16 MiB%s\n", quick ? "" : "    100 MiB");
    return run(2, quick, best) | run(4, quick, best);
}
