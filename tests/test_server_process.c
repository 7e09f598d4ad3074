/* test_server_process.c - parameter servers in processes of their own: the same bits as all-reduce among the workers,
 * every synchronization, refusals, and ranks that cannot commit. */
#include <math.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

#include "ps/server_process.h"
#include "small_job.h"

#define TENSORS 5

static const size_t counts[TENSORS] = {300, 0, 70001, 16, 100000};
static const char *const names[TENSORS] = {"conv", "empty", "fc1.weight", "fc1.bias", "fc2.weight"};

static int workers, servers, port;
static const char *line;
static void (*body_of_worker)(gw_comm *comm);

typedef struct model {
    gw_reducer_tensor tensors[TENSORS];
    float *gradients, *weights;
    size_t total;
} model;

static void make_model(model *m) {
    m->total = 0;
    for (int t = 0; t < TENSORS; t++) m->total += counts[t];
    m->gradients = calloc(m->total, sizeof(float));
    m->weights = calloc(m->total, sizeof(float));
    for (size_t t = 0, at = 0; t < TENSORS; at += counts[t++])
        m->tensors[t] = (gw_reducer_tensor){.name = names[t], .count = counts[t], .dtype = GW_F32,
                                         .gradient = m->gradients + at, .weights = m->weights + at};
}

static void free_model(model *m) {
    free(m->gradients);
    free(m->weights);
}

/* Workers learn from the options where they are, a server from its environment alone. */
static void process(int rank) {
    char text[4][16];
    int values[] = {rank, workers, servers, port};
    static const char *const variables[] = {"RANK", "WORLD_SIZE", "GRADWIRE_SERVERS", "MASTER_PORT"};
    for (int i = 0; i < 4; i++) {
        snprintf(text[i], sizeof text[i], "%d", values[i]);
        setenv(variables[i], text[i], 1);
    }
    setenv("GRADWIRE_TOKEN", "a token for the tests, of some length", 1);
    setenv("GRADWIRE_DEADLINE", "20", 1);
    if (rank >= workers) {
        gw_error error = {.rank = -1};
        CHECK_EQ(GW_OK, gw_serve(&error));
        if (error.status) printf("    server %d: %s\n", rank - workers, error.text);
        return;
    }
    gw_comm *comm = NULL;
    gw_options options = job_options(rank, workers, port, NULL);
    CHECK_EQ(GW_OK, gw_init(&comm, &options));
    if (!comm) printf("    %s\n", gw_last_error(NULL)), exit(1);
    CHECK_EQ(rank, gw_rank(comm));
    CHECK_EQ(workers, gw_size(comm));
    CHECK_EQ(workers, gw_local_size(comm));
    body_of_worker(comm);
    CHECK_EQ(GW_OK, gw_finalize(comm));
}

static void run(const char *strategy, int n, int s, void (*body)(gw_comm *comm)) {
    line = strategy;
    workers = n;
    servers = s;
    port = free_port();
    body_of_worker = body;
    int before = test_failures;
    job_fork(n + s, process);
    if (test_failures != before) printf("    with %d workers, %d servers, %s\n", n, s, strategy);
}

/* Values whose sum depends on the order. */
static float noisy(int rank, size_t i, int step) {
    uint32_t x = (uint32_t)i * 2654435761u + (uint32_t)rank * 40503u + (uint32_t)step * 7u;
    x ^= x >> 13;
    x *= 2246822519u;
    x ^= x >> 16;
    return ((float)(x & 0xffffff) / 8388608.0f - 1.0f) * ldexpf(1, (int)(x >> 28) - 8);
}

static void descend(void *ctx, const gw_reducer_update *u) {
    float *weights = u->weights;
    const float *gradient = u->gradient;
    (void)ctx;
    for (size_t i = 0; i < u->count; i++) weights[i] -= 0.25f * (float)(u->rate_scale * u->scale) * gradient[i];
}

static gw_reducer *commit(gw_comm *comm, model *m, bool updates) {
    gw_reducer *reducer = NULL;
    gw_reducer_options options = GW_REDUCER_OPTIONS_DEFAULT;
    options.strategy = line;
    if (updates) options.update = descend;
    CHECK_EQ(GW_OK, gw_reducer_commit(&reducer, comm, m->tensors, TENSORS, &options));
    if (!reducer) printf("    %s\n", gw_last_error(NULL)), exit(1);
    return reducer;
}

static void take_step(gw_reducer *reducer, model *m) {
    for (int t = 0; t < TENSORS; t++) CHECK_EQ(GW_OK, gw_reducer_wait(reducer, t));
    for (int t = TENSORS - 1; t >= 0; t--) CHECK_EQ(GW_OK, gw_reducer_ready(reducer, t));
    CHECK_EQ(GW_OK, gw_reducer_end(reducer));
    CHECK_EQ(GW_OK, gw_reducer_flush(reducer));
    (void)m;
}

/* bsp: the bits of arch=direct, which plain all-reduces of such a job have. */

static void compare_means(gw_comm *comm) {
    model m;
    make_model(&m);
    gw_reducer *reducer = commit(comm, &m, false);
    float *sum = malloc(m.total * sizeof *sum);
    for (int number = 0; number < (strstr(line, "mgwfbp") ? 8 : 3); number++) { /* buckets are cut again after 5 */
        for (size_t i = 0; i < m.total; i++) m.gradients[i] = noisy(gw_rank(comm), i, number);
        for (size_t i = 0; i < m.total; i++) {
            sum[i] = noisy(0, i, number);
            for (int r = 1; r < workers; r++) sum[i] += noisy(r, i, number);
            sum[i] /= (float)workers;
        }
        take_step(reducer, &m);
        CHECK(memcmp(sum, m.gradients, m.total * sizeof *sum) == 0);
    }
    gw_reducer_worker_stats times[8];
    CHECK_EQ(GW_OK, gw_reducer_workers(reducer, times));
    for (int w = 0; w < workers && !strstr(line, "direct"); w++) CHECK(times[w].pushes > 0);
    gw_reducer_close(reducer);
    free(sum);
    free_model(&m);
}

static void bsp_over_server_processes_equals_direct(void) {
    static const int jobs[][2] = {{1, 1}, {2, 1}, {4, 2}, {3, 4}};
    for (size_t i = 0; i < sizeof jobs / sizeof jobs[0]; i++) run("sync=bsp", jobs[i][0], jobs[i][1], compare_means);
    run("schedule=p3", 4, 2, compare_means);
    run("schedule=mgwfbp", 3, 2, compare_means);
}

/* Gradients of -1 are counted by the weights: 0.25 a step of all workers. Under backup the last worker is slow and
 * left behind, and makes its steps while the others wait for it in a collective call. */

static void count_steps(gw_comm *comm) {
    bool leaves_behind = strstr(line, "backup") != NULL, slow = leaves_behind && gw_rank(comm) == workers - 1;
    model m;
    make_model(&m);
    for (size_t i = 0; i < m.total; i++) m.weights[i] = 100;
    gw_reducer *reducer = commit(comm, &m, true);
    for (int number = 0; number < 8; number++) {
        if (slow) nanosleep(&(struct timespec){.tv_nsec = 15000000}, NULL);
        for (size_t i = 0; i < m.total; i++) m.gradients[i] = -1;
        take_step(reducer, &m);
    }
    CHECK_EQ(GW_OK, gw_barrier(comm)); /* all have been answered: one more push, of nothing, brings all of it */
    memset(m.gradients, 0, m.total * sizeof(float));
    take_step(reducer, &m);
    int wrong = 0;
    for (size_t i = 0; i < m.total; i++)
        wrong += leaves_behind ? m.weights[i] < 100 || m.weights[i] > 102.05f : fabsf(m.weights[i] - 102) > 0.05f;
    if (wrong) printf("    %g, not 102\n", (double)m.weights[0]);
    CHECK_EQ(0, wrong);
    gw_reducer_close(reducer);
    free_model(&m);
}

static void every_synchronization_over_server_processes(void) {
    static const char *const lines[] = {"sync=asp",
                                        "sync=ssp:staleness=0",
                                        "sync=ssp:staleness=1",
                                        "sync=backup:n=1",
                                        "sync=delayed:warmup=2",
                                        "sync=periodic:every=2",
                                        "arch=ps:servers=2,replicas=1 sync=asp",
                                        "sync=asp compress=topk:ratio=1,feedback=both",
                                        "compress=fp16",
                                        "sync=asp schedule=mgwfbp",
                                        "sync=ssp compress=topk:ratio=1,feedback=both schedule=mgwfbp",
                                        "sync=ssp:staleness=3 schedule=bytescheduler"};
    for (size_t i = 0; i < sizeof lines / sizeof lines[0]; i++) run(lines[i], 3, 2, count_steps);
}

/* Norms of layers: an update gets whole tensors, and the servers know it. */

static void descend_whole(void *ctx, const gw_reducer_update *u) {
    CHECK_EQ(0, (int)u->first);
    CHECK_EQ((int)counts[u->tensor], (int)u->count);
    descend(ctx, u);
}

static void update_whole_tensors(gw_comm *comm) {
    model m;
    gw_reducer *reducer = NULL;
    gw_reducer_options options = GW_REDUCER_OPTIONS_DEFAULT;
    make_model(&m);
    options.strategy = line;
    options.update = descend_whole;
    options.whole_tensors = true;
    CHECK_EQ(GW_OK, gw_reducer_commit(&reducer, comm, m.tensors, TENSORS, &options));
    if (!reducer) printf("    %s\n", gw_last_error(NULL)), exit(1);
    for (int number = 0; number < 3; number++) {
        for (size_t i = 0; i < m.total; i++) m.gradients[i] = -1;
        take_step(reducer, &m);
    }
    for (size_t i = 0; i < m.total; i += 97) CHECK(m.weights[i] > 0.24f && m.weights[i] < 1.01f);
    gw_reducer_close(reducer);
    free_model(&m);
}

static void whole_tensors_are_not_cut(void) {
    static const char *const lines[] = {"sync=asp schedule=p3:slice=16K", "sync=backup:n=1",
                                        "sync=ssp compress=int8:feedback=none"};
    for (size_t i = 0; i < sizeof lines / sizeof lines[0]; i++) {
        char beside[128];
        snprintf(beside, sizeof beside, "arch=ps:servers=2 %s", lines[i]);
        run(beside, 3, 0, update_whole_tensors);
        run(lines[i], 3, 2, update_whole_tensors);
    }
}

/* A server's residual follows the learning rate, of which a process of its own hears with the pushes: the same bits as
 * from servers beside workers. */

static uint64_t *weights_hash; /* shared with the ranks */

static double falling_rate(void *ctx, uint64_t step) {
    (void)ctx;
    return 1.0 / (double)(1 + step);
}

static void hash_weights(gw_comm *comm) {
    model m;
    gw_reducer *reducer = NULL;
    gw_reducer_options options = GW_REDUCER_OPTIONS_DEFAULT;
    make_model(&m);
    options.strategy = line;
    options.update = descend;
    options.rate = falling_rate;
    CHECK_EQ(GW_OK, gw_reducer_commit(&reducer, comm, m.tensors, TENSORS, &options));
    if (!reducer) printf("    %s\n", gw_last_error(NULL)), exit(1);
    for (int number = 0; number < 4; number++) {
        for (size_t i = 0; i < m.total; i++) m.gradients[i] = noisy(gw_rank(comm), i, number);
        take_step(reducer, &m);
    }
    uint64_t hash = 14695981039346656037u;
    for (size_t i = 0; i < m.total * sizeof(float); i++) hash = (hash ^ ((uint8_t *)m.weights)[i]) * 1099511628211u;
    if (gw_rank(comm) == 0) *weights_hash = hash;
    gw_reducer_close(reducer);
    free_model(&m);
}

static void residuals_follow_the_rate(void) {
    static const char *const codecs[] = {"compress=onebit:feedback=both", "compress=topk:ratio=0.01,feedback=both",
                                         "compress=topk:ratio=0.01,feedback=worker"};
    weights_hash = mmap(NULL, sizeof *weights_hash, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    for (size_t i = 0; i < sizeof codecs / sizeof codecs[0]; i++) {
        char beside[128];
        snprintf(beside, sizeof beside, "arch=ps:servers=2 %s", codecs[i]);
        run(beside, 3, 0, hash_weights);
        uint64_t expected = *weights_hash;
        run(codecs[i], 3, 2, hash_weights);
        CHECK(*weights_hash == expected);
    }
    munmap(weights_hash, sizeof *weights_hash);
}

static void commit_two(gw_comm *comm) {
    model a, b;
    make_model(&a);
    make_model(&b);
    gw_reducer *first = commit(comm, &a, false), *second = commit(comm, &b, false);
    for (size_t i = 0; i < a.total; i++) a.gradients[i] = 1, b.gradients[i] = 2;
    take_step(first, &a);
    take_step(second, &b);
    CHECK(a.gradients[5] == 1 && b.gradients[5] == 2);
    gw_reducer_close(first);
    gw_reducer *third = commit(comm, &a, false);
    take_step(third, &a);
    gw_reducer_close(third);
    gw_reducer_close(second);
    free_model(&a);
    free_model(&b);
}

static void servers_serve_several_reducers(void) { run("sync=bsp", 2, 2, commit_two); }

/* A refusal leaves the job unchanged. */

static void refuse(gw_comm *comm, const char *strategy, const char *why) {
    model m;
    gw_reducer *reducer = NULL;
    gw_reducer_options options = GW_REDUCER_OPTIONS_DEFAULT;
    options.strategy = strategy;
    options.update = descend;
    make_model(&m);
    CHECK(gw_reducer_commit(&reducer, comm, m.tensors, TENSORS, &options) != GW_OK);
    CHECK(reducer == NULL);
    if (!strstr(gw_last_error(NULL), why)) {
        printf("    %s: \"%s\" lacks \"%s\"\n", strategy, gw_last_error(NULL), why);
        CHECK(false);
    }
    free_model(&m);
}

static void refuse_all(gw_comm *comm) {
    refuse(comm, "arch=ring", "which are for arch=ps");
    refuse(comm, "arch=sfb:servers=1", "which are for arch=ps");
    refuse(comm, "arch=ps:servers=3", "but the job has 1 server process");
    refuse(comm, "arch=ps:replicas=1", "a second server process");
    refuse(comm, "sync=asp compress=dgc:momentum=0.9", "differences of weights travel here");
    compare_means(comm);
}

static void refusals(void) { run("sync=bsp", 2, 1, refuse_all); }

/* One rank cannot commit: the others get the error at once, and the job continues. */

static double seconds(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

static void fail_alone(gw_comm *comm) {
    model m;
    gw_reducer *reducer = NULL;
    gw_reducer_options options = GW_REDUCER_OPTIONS_DEFAULT;
    double begun = seconds();
    make_model(&m);
    options.strategy = gw_rank(comm) == 1 ? "compress=nonsense" : line;
    CHECK(gw_reducer_commit(&reducer, comm, m.tensors, TENSORS, &options) != GW_OK);
    if (gw_rank(comm) != 1) CHECK(strstr(gw_last_error(NULL), "rank 1 on ") != NULL);
    CHECK(strstr(gw_last_error(NULL), "nonsense") != NULL);
    options.strategy = line;
    if (gw_rank(comm) == 0) m.tensors[2].gradient = NULL; /* found out only after the ranks have come together */
    CHECK(gw_reducer_commit(&reducer, comm, m.tensors, TENSORS, &options) != GW_OK);
    if (gw_rank(comm) != 0) CHECK(strstr(gw_last_error(NULL), "rank 0 on ") != NULL);
    CHECK(strstr(gw_last_error(NULL), "has no memory for its gradient") != NULL);
    CHECK(seconds() - begun < 10);
    compare_means(comm);
    free_model(&m);
}

static void a_failed_commit_reaches_all_ranks(void) {
    run("sync=bsp", 3, 1, fail_alone);
    run("arch=ps:servers=2", 3, 0, fail_alone);
    run("arch=direct", 3, 0, fail_alone);
}

/* A server that is lost ends the step of all. */

static _Atomic int *under_way; /* workers that have made a step; in memory that they share with the test */

static void lose_server(gw_comm *comm) {
    model m;
    make_model(&m);
    gw_reducer *reducer = commit(comm, &m, false);
    take_step(reducer, &m);
    atomic_fetch_add(under_way, 1);
    gw_status status = GW_OK;
    for (double begun = seconds(); !status && seconds() - begun < TEST_PATIENCE_S;) {
        for (int t = 0; t < TENSORS && !status; t++) status = gw_reducer_ready(reducer, t);
        if (!status) status = gw_reducer_end(reducer);
        if (!status) status = gw_reducer_flush(reducer);
    }
    CHECK(status != GW_OK);
    CHECK(strstr(gw_last_error(NULL), "rank 2") != NULL);
    gw_reducer_close(reducer);
    free_model(&m);
    gw_finalize(comm);
    exit(test_failures != 0);
}

static void kill_when_under_way(pid_t server) {
    for (double begun = seconds(); atomic_load(under_way) < workers && seconds() - begun < TEST_PATIENCE_S;)
        usleep(1000);
    CHECK_EQ(workers, atomic_load(under_way));
    kill(server, SIGKILL);
}

static void a_lost_server_is_reported(void) {
    char folder[] = "/tmp/gradwire-test-XXXXXX", command[64];
    if (!mkdtemp(folder)) abort();
    setenv("GRADWIRE_FLIGHT_DIR", folder, 1);
    line = "sync=bsp";
    workers = 2;
    servers = 1;
    port = free_port();
    body_of_worker = lose_server;
    under_way = mmap(NULL, sizeof *under_way, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (under_way == MAP_FAILED) abort();
    pid_t pids[3];
    fflush(stdout);
    for (int r = 0; r < 3; r++)
        if ((pids[r] = fork()) == 0) {
            test_failures = 0;
            process(r);
            exit(test_failures != 0);
        }
    kill_when_under_way(pids[2]);
    for (int r = 0; r < 3; r++) {
        int result = -1;
        waitpid(pids[r], &result, 0);
        if (r < 2) CHECK_EQ(0, result);
        else CHECK(WIFSIGNALED(result));
    }
    munmap(under_way, sizeof *under_way);
    snprintf(command, sizeof command, "rm -r %s", folder);
    CHECK_EQ(0, system(command));
}

TEST_MAIN(CASE(bsp_over_server_processes_equals_direct), CASE(every_synchronization_over_server_processes),
          CASE(whole_tensors_are_not_cut), CASE(residuals_follow_the_rate), CASE(servers_serve_several_reducers),
          CASE(refusals), CASE(a_failed_commit_reaches_all_ranks), CASE(a_lost_server_is_reported))
