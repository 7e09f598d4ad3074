/* test_reducer_several.c - several reducers on one communicator, as the two models of a GAN have them: steps of both
 * are in flight at the same time, ranks make the calls of the two in different orders, one closes while the other goes
 * on, each keeps its own state, each may have a thread, and both continue after a loss. Real processes. */
#include <math.h>
#include <pthread.h>
#include <stdatomic.h>

#include "small_job.h"

#define NETS 2
#define TENSORS 4
#define STEPS 6

static const size_t counts[NETS][TENSORS] = {{300, 40001, 16, 5}, {20000, 0, 700, 64}};
static const char *const names[TENSORS] = {"conv", "weight", "bias", "norm"}; /* the same in both models */

static const char *lines[NETS]; /* strategies of the two reducers */
static const char *transport;
static int world, port;

typedef struct net {
    gw_reducer *reducer;
    gw_reducer_tensor tensors[TENSORS];
    float *gradients, *weights;
    int number, rank;
} net;

/* Small whole numbers, so that sums are exact in any order. */
static float gradient_of(int rank, const net *n, int tensor, size_t i, int step) {
    return (float)((rank + 1) * (int)(i % 11) + 3 * step + tensor - 20 * n->number);
}

static double mean_of(const net *n, int tensor, size_t i, int step) {
    double sum = 0;
    for (int r = 0; r < world; r++) sum += gradient_of(r, n, tensor, i, step);
    return sum / world;
}

static gw_comm *join(int rank) {
    gw_comm *comm = NULL;
    gw_options options = job_options(rank, world, port, transport);
    CHECK_EQ(GW_OK, gw_init(&comm, &options));
    if (!comm) printf("    %s\n", gw_last_error(NULL)), exit(1);
    return comm;
}

static void commit(net *n, gw_comm *comm, gw_reducer_update_fn *update, const char *tune) {
    gw_reducer_options options = GW_REDUCER_OPTIONS_DEFAULT;
    options.strategy = lines[n->number];
    options.update = update;
    options.tune = tune;
    CHECK_EQ(GW_OK, gw_reducer_commit(&n->reducer, comm, n->tensors, TENSORS, &options));
    if (!n->reducer) printf("    %s\n", gw_last_error(NULL)), exit(1);
}

static net make_net(gw_comm *comm, int number) {
    net n = {.number = number, .rank = gw_rank(comm)};
    size_t total = 0, at = 0;
    for (int t = 0; t < TENSORS; t++) total += counts[number][t];
    n.gradients = number ? calloc(total, sizeof(float)) : gw_alloc(comm, total * sizeof(float));
    n.weights = calloc(total, sizeof(float));
    for (int t = 0; t < TENSORS; at += counts[number][t++])
        n.tensors[t] = (gw_reducer_tensor){.name = names[t], .count = counts[number][t], .gradient = n.gradients + at,
                                           .weights = n.weights + at};
    return n;
}

static void close_net(net *n, gw_comm *comm) {
    gw_reducer_close(n->reducer);
    if (n->number) free(n->gradients);
    else gw_free(comm, n->gradients);
    free(n->weights);
}

static void run(const char *net0, const char *net1, const char *over, int ranks, void (*body)(int rank)) {
    lines[0] = net0;
    lines[1] = net1;
    transport = over;
    world = ranks;
    port = free_port();
    int before = test_failures;
    job_fork(ranks, body);
    if (test_failures != before) printf("    with %d ranks, %s and %s, %s\n", ranks, net0, net1, over);
}

static void ready(const net *n, int tensor, int step) {
    float *gradient = n->tensors[tensor].gradient;
    for (size_t i = 0; i < n->tensors[tensor].count; i++) gradient[i] = gradient_of(n->rank, n, tensor, i, step);
    CHECK_EQ(GW_OK, gw_reducer_ready(n->reducer, tensor));
}

static void hand_over(const net *n, int step) {
    for (int t = TENSORS - 1; t >= 0; t--) ready(n, t, step);
    CHECK_EQ(GW_OK, gw_reducer_end(n->reducer));
}

static void wait_and_check(const net *n, int step) {
    for (int t = 0; t < TENSORS; t++) {
        CHECK_EQ(GW_OK, gw_reducer_wait(n->reducer, t));
        const float *gradient = n->tensors[t].gradient;
        for (size_t i = 0; i < n->tensors[t].count; i++)
            if (fabs(gradient[i] - mean_of(n, t, i, step)) > 1e-3) {
                CHECK(!"a mean is wrong");
                printf("    reducer %d, %s, element %zu, step %d: %g, not %g\n", n->number, names[t], i, step,
                       (double)gradient[i], mean_of(n, t, i, step));
                return;
            }
    }
}

/* Both in flight; which comes first depends on the rank. */
static void interleaves(int rank) {
    gw_comm *comm = join(rank);
    net nets[NETS] = {make_net(comm, 0), make_net(comm, 1)};
    for (int k = 0; k < NETS; k++) commit(&nets[k], comm, NULL, NULL);
    for (int step = 0; step < STEPS; step++) {
        const net *first = &nets[(rank + step) % 2], *second = &nets[(rank + step + 1) % 2];
        for (int t = TENSORS - 1; t >= 0; t--) {
            ready(first, t, step);
            ready(second, t, step);
        }
        CHECK_EQ(GW_OK, gw_reducer_end(second->reducer));
        CHECK_EQ(GW_OK, gw_reducer_end(first->reducer));
        wait_and_check(first, step);
        wait_and_check(second, step);
    }
    for (int k = 0; k < NETS; k++) close_net(&nets[k], comm);
    gw_finalize(comm);
}

static void steps_of_both_are_in_flight(void) {
    run("", "", "transport=auto", 3, interleaves);
    run("schedule=dear", "schedule=p3:slice=16K", "transport=tcp", 3, interleaves);
    run("schedule=bytescheduler", "schedule=tictac", "transport=auto", 2, interleaves);
    run("schedule=p3:slice=16K", "schedule=p3:slice=16K", "transport=tcp", 4, interleaves);
    run("arch=ring", "arch=tree compress=fp16", "transport=auto", 3, interleaves);
    run("compress=fp16 schedule=dear", "compress=fp16", "transport=tcp", 3, interleaves);
    run("arch=ps", "arch=ring", "transport=auto", 3, interleaves);
    run("arch=ps", "arch=ps:servers=1 schedule=p3", "transport=tcp", 3, interleaves);
    run("arch=ps:replicas=1", "arch=ps:replicas=1 schedule=tictac", "transport=auto", 3, interleaves);
}

/* One model makes three steps while one of the other is in flight. */
static void alternates(int rank) {
    gw_comm *comm = join(rank);
    net nets[NETS] = {make_net(comm, 0), make_net(comm, 1)};
    for (int k = 0; k < NETS; k++) commit(&nets[k], comm, NULL, NULL);
    for (int step = 0; step < STEPS; step++) {
        hand_over(&nets[1], step);
        for (int k = 3 * step; k < 3 * step + 3; k++) {
            hand_over(&nets[0], k);
            wait_and_check(&nets[0], k);
        }
        wait_and_check(&nets[1], step);
    }
    CHECK_EQ(3 * STEPS, gw_reducer_read_counters(nets[0].reducer).steps);
    CHECK_EQ(STEPS, gw_reducer_read_counters(nets[1].reducer).steps);
    for (int k = NETS - 1; k >= 0; k--) close_net(&nets[k], comm);
    gw_finalize(comm);
}

static void one_makes_more_steps_than_the_other(void) {
    run("", "schedule=dear", "transport=auto", 2, alternates);
    run("arch=ps", "", "transport=tcp", 3, alternates);
    run("schedule=p3", "arch=ps:servers=2 compress=fp16", "transport=auto", 3, alternates);
}

/* Recuts are collective: both are tuned and measured while the other is in flight. */
static void tunes(int rank) {
    gw_comm *comm = join(rank);
    net nets[NETS] = {make_net(comm, 0), make_net(comm, 1)};
    for (int k = 0; k < NETS; k++) commit(&nets[k], comm, NULL, "on");
    for (int step = 0; step < 30; step++) {
        for (int k = 0; k < NETS; k++) hand_over(&nets[k], step);
        for (int k = 0; k < NETS; k++) wait_and_check(&nets[k], step);
    }
    for (int k = 0; k < NETS; k++) {
        CHECK(gw_reducer_read_counters(nets[k].reducer).trials > 0 || strstr(lines[k], "mgwfbp"));
        close_net(&nets[k], comm);
    }
    gw_finalize(comm);
}

static void both_are_tuned(void) {
    run("schedule=wfbp", "schedule=bytescheduler", "transport=auto", 2, tunes);
    run("schedule=mgwfbp", "schedule=p3 arch=ps", "transport=tcp", 2, tunes);
}

/* One closes and another begins, while the first is in the middle of a step. */
static void closes_one(int rank) {
    gw_comm *comm = join(rank);
    net nets[NETS] = {make_net(comm, 0), make_net(comm, 1)};
    for (int k = 0; k < NETS; k++) commit(&nets[k], comm, NULL, NULL);
    for (int step = 0; step < STEPS; step++) {
        for (int t = TENSORS - 1; t > 1; t--) ready(&nets[0], t, step);
        hand_over(&nets[1], step);
        gw_reducer_close(nets[1].reducer);
        for (int t = 1; t >= 0; t--) ready(&nets[0], t, step);
        CHECK_EQ(GW_OK, gw_reducer_end(nets[0].reducer));
        commit(&nets[1], comm, NULL, NULL);
        wait_and_check(&nets[0], step);
    }
    for (int k = 0; k < NETS; k++) close_net(&nets[k], comm);
    gw_finalize(comm);
}

static void one_closes_while_the_other_goes_on(void) {
    run("", "", "transport=auto", 3, closes_one);
    run("arch=ps", "arch=ps:servers=1", "transport=tcp", 2, closes_one);
    run("schedule=dear", "compress=topk arch=ps", "transport=auto", 3, closes_one);
}

/* The state of each, restored, repeats the bits of a step. */
static void saves(int rank) {
    gw_comm *comm = join(rank);
    net nets[NETS] = {make_net(comm, 0), make_net(comm, 1)};
    void *state[NETS];
    size_t bytes[NETS];
    float *results[NETS];
    for (int k = 0; k < NETS; k++) commit(&nets[k], comm, NULL, NULL);
    for (int step = 0; step < 5; step++) { /* saved after two; steps 2, 3 and 4 give the same gradients */
        for (int k = 0; k < NETS; k++) hand_over(&nets[k], step < 2 ? step : 2);
        for (int k = 0; k < NETS; k++) CHECK_EQ(GW_OK, gw_reducer_flush(nets[k].reducer));
        for (int k = 0; k < NETS; k++) {
            gw_reducer *reducer = nets[k].reducer;
            size_t size = (counts[k][0] + counts[k][1]) * sizeof(float);
            if (step == 1) {
                bytes[k] = gw_reducer_state_bytes(reducer);
                state[k] = malloc(bytes[k]);
                CHECK_EQ(GW_OK, gw_reducer_state_save(reducer, state[k]));
                results[k] = malloc(size);
            }
            if (step == 2) memcpy(results[k], nets[k].gradients, size);
            if (step == 3) CHECK(memcmp(results[k], nets[k].gradients, size) != 0); /* the residual has changed */
            if (step == 3) CHECK_EQ(GW_MISMATCH, gw_reducer_state_restore(reducer, state[1 - k], bytes[1 - k]));
            if (step == 3) CHECK_EQ(GW_OK, gw_reducer_state_restore(reducer, state[k], bytes[k]));
            if (step == 4) CHECK_EQ(0, memcmp(results[k], nets[k].gradients, size));
        }
    }
    for (int k = 0; k < NETS; k++) {
        free(state[k]);
        free(results[k]);
        close_net(&nets[k], comm);
    }
    gw_finalize(comm);
}

static void each_keeps_its_own_state(void) {
    run("compress=topk:ratio=0.1", "compress=topk:ratio=0.1", "transport=auto", 2, saves);
    run("compress=onebit arch=ps", "compress=topk:ratio=0.1 arch=ps", "transport=tcp", 2, saves);
}

/* A thread for each. */
static void *train_alone(void *ctx) {
    const net *n = ctx;
    for (int step = 0; step < 4 * STEPS; step++) {
        hand_over(n, step);
        wait_and_check(n, step);
    }
    return NULL;
}

static void splits_threads(int rank) {
    gw_comm *comm = join(rank);
    net nets[NETS] = {make_net(comm, 0), make_net(comm, 1)};
    pthread_t thread;
    for (int k = 0; k < NETS; k++) commit(&nets[k], comm, NULL, NULL);
    if (pthread_create(&thread, NULL, train_alone, &nets[1])) abort();
    train_alone(&nets[0]);
    pthread_join(thread, NULL);
    for (int k = 0; k < NETS; k++) close_net(&nets[k], comm);
    gw_finalize(comm);
}

static void each_may_have_a_thread(void) {
    run("", "schedule=dear", "transport=auto", 3, splits_threads);
    run("arch=ps", "schedule=p3", "transport=tcp", 2, splits_threads);
}

/* A loss. */

static _Atomic bool failure_seen; /* in a rank: a call has failed, and the reducers have not resumed since */

static void descend(void *ctx, const gw_reducer_update *u) {
    float *weights = u->weights;
    const float *gradient = u->gradient;
    (void)ctx;
    CHECK(!atomic_load(&failure_seen));
    for (size_t i = 0; i < u->count; i++) weights[i] -= 0.5f * (float)(u->rate_scale * u->scale) * gradient[i];
}

static bool dies(const net *n, int tensor, int step) {
    return world - 1 == n->rank && step == 3 && tensor == 1 && n->number == 1;
}

static gw_status try_step(const net *n, int step) {
    gw_status status = GW_OK;
    for (int t = 0; t < TENSORS && !status; t++) status = gw_reducer_wait(n->reducer, t);
    for (int t = TENSORS - 1; t >= 0 && !status; t--) {
        float *gradient = n->tensors[t].gradient;
        for (size_t i = 0; i < n->tensors[t].count; i++) gradient[i] = gradient_of(n->rank, n, t, i, step);
        status = gw_reducer_ready(n->reducer, t);
        if (dies(n, t, step)) kill(getpid(), SIGKILL);
    }
    return status ? status : gw_reducer_end(n->reducer);
}

static int next_step(const net *n) { return (int)gw_reducer_read_counters(n->reducer).step; }

/* Steps of both until each has made so many. */
static gw_status train(net *nets, int steps) {
    gw_status status = GW_OK;
    while (!status && (next_step(&nets[0]) < steps || next_step(&nets[1]) < steps))
        for (int k = 0; k < NETS && !status; k++)
            if (next_step(&nets[k]) < steps) status = try_step(&nets[k], next_step(&nets[k]));
    for (int k = 0; k < NETS && !status; k++) status = gw_reducer_flush(nets[k].reducer);
    return status;
}

/* The largest difference between the ranks' weights. */
static double disagreement(gw_comm *comm, const net *n) {
    size_t total = 0;
    double worst = 0;
    for (int t = 0; t < TENSORS; t++) total += n->tensors[t].count;
    float *most = malloc(total * sizeof *most), *least = malloc(total * sizeof *least);
    CHECK_EQ(GW_OK, gw_allreduce(comm, n->weights, most, total, GW_F32, GW_MAX));
    CHECK_EQ(GW_OK, gw_allreduce(comm, n->weights, least, total, GW_F32, GW_MIN));
    for (size_t i = 0; i < total; i++) worst = fmax(worst, most[i] - least[i]);
    free(most);
    free(least);
    return worst;
}

static void loses_one(int rank) {
    gw_comm *comm = join(rank), *rest = NULL;
    net nets[NETS] = {make_net(comm, 0), make_net(comm, 1)};
    for (int k = 0; k < NETS; k++) commit(&nets[k], comm, descend, NULL);
    CHECK_EQ(GW_PEER_LOST, train(nets, 1000));
    atomic_store(&failure_seen, true);
    CHECK_EQ(GW_OK, gw_shrink(comm, &rest));
    for (int k = NETS - 1; k >= 0; k--) CHECK_EQ(GW_OK, gw_reducer_resume(nets[k].reducer, rest));
    atomic_store(&failure_seen, false);
    for (int k = 0; k < NETS; k++) CHECK(disagreement(rest, &nets[k]) == 0);
    CHECK_EQ(GW_OK, train(nets, 10));
    for (int k = 0; k < NETS; k++) {
        CHECK(disagreement(rest, &nets[k]) == 0 && nets[k].weights[0] != 0);
        CHECK_EQ(10, next_step(&nets[k]));
        close_net(&nets[k], comm);
    }
    gw_finalize(rest);
    gw_finalize(comm);
}

/* Over servers the interrupted step continues: calls that failed are made again. */
static gw_comm *present;
static net *resumed;

static void recover(void) {
    gw_comm *next = NULL;
    CHECK_EQ(GW_OK, gw_shrink(present, &next));
    if (!next) printf("    %s\n", gw_last_error(NULL)), exit(1);
    present = next;
    for (int k = 0; k < NETS; k++)
        if (gw_reducer_resume(resumed[k].reducer, next)) printf("    %s\n", gw_last_error(NULL)), exit(1);
}

static void try_again(const net *n, int step) {
    for (int t = 0; t < TENSORS; t++)
        while (gw_reducer_wait(n->reducer, t)) recover();
    for (int t = TENSORS - 1; t >= 0; t--) {
        float *gradient = n->tensors[t].gradient;
        for (size_t i = 0; i < n->tensors[t].count; i++) gradient[i] = gradient_of(n->rank, n, t, i, step);
        while (gw_reducer_ready(n->reducer, t)) recover();
        if (dies(n, t, step)) kill(getpid(), SIGKILL);
    }
    while (gw_reducer_end(n->reducer)) recover();
}

static void loses_a_server(int rank) {
    gw_comm *first = join(rank);
    net nets[NETS] = {make_net(first, 0), make_net(first, 1)};
    present = first;
    resumed = nets;
    for (int k = 0; k < NETS; k++) commit(&nets[k], first, descend, NULL);
    for (int step = 0; step < 10; step++)
        for (int k = 0; k < NETS; k++) try_again(&nets[k], step);
    for (int k = 0; k < NETS; k++)
        while (gw_reducer_flush(nets[k].reducer)) recover();
    CHECK(present != first);
    for (int k = 0; k < NETS; k++) {
        CHECK(disagreement(present, &nets[k]) == 0 && nets[k].weights[0] != 0);
        gw_reducer_close(nets[k].reducer);
        nets[k].reducer = NULL;
        close_net(&nets[k], first);
    }
    if (present != first) gw_finalize(present);
    gw_finalize(first);
}

/* The last rank is killed, so its own result is not one that counts. */
static void run_with_loss(const char *net0, const char *net1, const char *over, void (*body)(int rank)) {
    pid_t ranks[3];
    int before = test_failures;
    lines[0] = net0;
    lines[1] = net1;
    transport = over;
    world = 3;
    port = free_port();
    fflush(stdout);
    for (int r = 0; r < world; r++) {
        ranks[r] = fork();
        if (ranks[r] < 0) abort();
        if (ranks[r] > 0) continue;
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        test_failures = 0;
        body(r);
        exit(test_failures != 0);
    }
    for (int r = 0; r < world; r++) {
        int result = -1;
        waitpid(ranks[r], &result, 0);
        CHECK(r == world - 1 ? WIFSIGNALED(result) : result == 0);
    }
    if (test_failures != before) printf("    with a loss, %s and %s, %s\n", net0, net1, over);
}

static void both_continue_after_a_loss(void) {
    char folder[] = "/tmp/gradwire-test-XXXXXX", command[64];
    if (!mkdtemp(folder)) abort();
    setenv("GRADWIRE_FLIGHT_DIR", folder, 1);
    run_with_loss("", "schedule=dear", "transport=auto", loses_one);
    run_with_loss("schedule=p3", "schedule=wfbp", "transport=tcp", loses_one);
    run_with_loss("compress=topk", "compress=onebit schedule=dear", "transport=auto", loses_one);
    run_with_loss("arch=ps:replicas=1", "arch=ps:replicas=1", "transport=tcp", loses_a_server);
    run_with_loss("arch=ps:replicas=1", "arch=ps:servers=1,replicas=1", "transport=auto", loses_a_server);
    snprintf(command, sizeof command, "rm -r %s", folder);
    CHECK_EQ(0, system(command));
}

TEST_MAIN(CASE(steps_of_both_are_in_flight), CASE(one_makes_more_steps_than_the_other), CASE(both_are_tuned),
          CASE(one_closes_while_the_other_goes_on), CASE(each_keeps_its_own_state), CASE(each_may_have_a_thread),
          CASE(both_continue_after_a_loss))
