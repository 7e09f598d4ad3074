/* test_reducer_faults.c - ranks die and abort in the middle of training steps: no call returns GW_OK for a tensor that
 * was not reduced, nothing is updated after a failure, and after gw_shrink and gw_reducer_resume the survivors hold the
 * same bits and continue, also if one more dies while it sends tensors to others. Jobs of real processes, each with
 * a forked child that lives on; every schedule, codec, architecture and synchronization in turn, the rest by a seed.
 * STEP_KILLS sets how many faults (default 24), STEP_FIRST the first of them. */
#include <math.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>

#include "base/clock.h"
#include "free_port.h"
#include "gradwire/reducer.h"
#include "strategy/combine.h"
#include "sync/sync.h"
#include "test.h"

#define TENSORS 6
#define STEPS_MAX 4096
#define RANKS_MAX 5
#define AFTER 5 /* steps that survivors make */

static const size_t counts[TENSORS] = {300, 20000, 0, 16, 9000, 40};
static const size_t rows[TENSORS] = {0, 100, 0, 0, 90, 0};
static const char *const names[TENSORS] = {"conv", "fc1", "empty", "norm", "fc2", "bias"};

static const char *const transports[] = {"auto", "tcp"};

#define PICK(list, n) list[(n) % (sizeof list / sizeof *list)]

typedef enum fault { KILL_BETWEEN, KILL_IN_WAIT, KILL_IN_UPDATE, KILL_ANY_TIME, ABORT_BETWEEN, FAULTS } fault;

/* What happens in one job. */
typedef struct scene {
    int world, victim, step, tensor;
    fault fault;
    bool updates, exact, periodic, grouped;
    bool again; /* whoever is first to pass a tensor on, or to take one, dies of it */
    char line[200];
} scene;

/* What one rank saw; written by the rank. */
typedef struct seen {
    _Atomic int committed, steps, over, died; /* died: in gw_reducer_resume */
    int refused;                              /* the strategy has no meaning */
    char text[400];                           /* what was broken first, "": nothing */
    uint64_t result[2][STEPS_MAX][TENSORS];   /* hashes, before and after the loss; 0: none */
    uint64_t moved[TENSORS], ended[TENSORS];  /* hashes of weights and momentum */
} seen;

static scene now;      /* in a rank too */
static seen *all_seen; /* shared; a rank's own is mine; after the last: what all share */
static int port;

/* In a rank. */

static seen *mine;
static int me, generation; /* 1: after the loss */
static gw_reducer *reducer;
static float *gradients, *weights, *momentum;
static size_t at[TENSORS];
static _Atomic bool failure_seen; /* a call has failed, and the reducer has not resumed since */
static uint64_t number;           /* of the step under way */
static uint64_t own[2][TENSORS];  /* hashes of the gradients given in a step, and in the one before (delayed) */

static void broken(const char *format, ...) __attribute__((format(printf, 1, 2)));
static void broken(const char *format, ...) {
    if (mine->text[0]) return;
    va_list args;
    va_start(args, format);
    vsnprintf(mine->text, sizeof mine->text, format, args);
    va_end(args);
}

static uint64_t hash_of(const float *values, size_t count) {
    const uint8_t *bytes = (const uint8_t *)values;
    uint64_t hash = 14695981039346656037u;
    for (size_t i = 0; i < count * sizeof *values; i++) hash = (hash ^ bytes[i]) * 1099511628211u;
    return hash | 1;
}

/* No rank's own is the mean of any of them. */
static float gradient_of(int rank, int tensor, size_t element, uint64_t n) {
    return (float)((rank * rank + 1) * (1 + (int)(element % 17)) + 3 * (int)(n % 50) + tensor - 20);
}

static bool survives(int rank) {
    return (now.fault == ABORT_BETWEEN || rank != now.victim) && !atomic_load(&all_seen[rank].died);
}

static bool takes_part(int rank) { return generation == 0 || survives(rank); }

static double mean_of(int tensor, size_t element, uint64_t n) {
    double sum = 0;
    int members = 0;
    for (int r = 0; r < now.world; r++)
        if (takes_part(r)) sum += gradient_of(r, tensor, element, n), members++;
    return sum / members;
}

static int members(void) {
    int count = 0;
    for (int r = 0; r < now.world; r++) count += takes_part(r);
    return count;
}

/* The library says that this is the combination of all ranks' gradients. */
static void check_result(int tensor, uint64_t n, const float *values) {
    if (!counts[tensor] || n >= STEPS_MAX) return;
    uint64_t hash = hash_of(values, counts[tensor]);
    mine->result[generation][n][tensor] = hash;
    if (members() > 1 && hash == own[n % 2][tensor])
        broken("step %d: %s is the rank's own gradient", (int)n, names[tensor]);
    for (size_t i = 0; now.exact && i < counts[tensor]; i++)
        if (fabs(values[i] - mean_of(tensor, i, n)) > 1e-3) {
            broken("step %d: element %zu of %s is %g, not %g", (int)n, i, names[tensor], (double)values[i],
                   mean_of(tensor, i, n));
            return;
        }
}

/* A fault before all have committed would be one of the commit. */
static void await_commits(void) {
    gw_time until = gw_clock_now() + 20 * GW_SECOND;
    for (int r = 0; r < now.world; r++)
        while (!atomic_load(&all_seen[r].committed) && gw_clock_now() < until) usleep(200);
}

static void die(void) {
    await_commits();
    kill(getpid(), SIGKILL);
    pause();
}

static bool strikes(fault what, uint64_t n, int tensor) {
    return now.fault == what && me == now.victim && generation == 0 && (int)n == now.step && tensor == now.tensor;
}

static void apply(int tensor, float *w, const float *gradient, double scale) {
    float *m = momentum + at[tensor];
    for (size_t i = 0; i < counts[tensor]; i++) {
        m[i] = 0.5f * m[i] + (float)scale * gradient[i];
        w[i] -= 0.125f * m[i];
    }
}

static void update(void *ctx, const gw_reducer_update *u) {
    (void)ctx;
    if (atomic_load(&failure_seen)) broken("step %d: %s is updated after a failure", (int)u->step, names[u->tensor]);
    if (u->temporary) {
        float *w = u->weights;
        const float *g = u->gradient;
        for (size_t i = 0; i < u->count; i++) w[i] -= 0.125f * g[i];
        return;
    }
    if (strikes(KILL_IN_UPDATE, u->step, u->tensor)) die();
    if (!now.periodic) check_result(u->tensor, u->step, u->gradient);
    apply(u->tensor, u->weights, u->gradient, u->scale);
}

/* Once for each array that is compared, then between two arrays that are passed on. */
static int asked; /* for arrays since the move began; -1: it has not */

static void die_in_move(void) {
    static const int compared = 2 * (TENSORS - 1);
    if (!now.again || asked < 0 || ++asked <= compared || atomic_exchange(&all_seen[RANKS_MAX].died, 1)) return;
    atomic_store(&mine->died, 1);
    die();
}

static float *state(void *ctx, int tensor, int which) {
    (void)ctx;
    die_in_move();
    return which == 0 ? momentum + at[tensor] : NULL;
}

static void hash_weights(uint64_t *hashes) {
    for (int t = 0; t < TENSORS; t++)
        hashes[t] =
            hash_of(weights + at[t], counts[t]) ^ (!now.periodic ? hash_of(momentum + at[t], counts[t]) * 3 : 0);
}

/* Where the caller updates by itself: which steps its weights have had. */
static uint64_t applied[TENSORS];

static void apply_arrived(int tensor) {
    if (now.updates || gw_reducer_reached(reducer, tensor) <= applied[tensor]) return;
    check_result(tensor, applied[tensor], gradients + at[tensor]);
    apply(tensor, weights + at[tensor], gradients + at[tensor], 1);
    applied[tensor]++;
}

static gw_status forward(void) {
    for (int t = 0; t < TENSORS; t++) {
        if (strikes(KILL_IN_WAIT, number, t)) die();
        gw_status status = gw_reducer_wait(reducer, t);
        if (status) return status;
        apply_arrived(t);
    }
    return GW_OK;
}

static gw_status backward(gw_comm *comm) {
    gw_status status = GW_OK;
    for (int t = TENSORS - 1; t >= 0 && !status; t--) {
        float *gradient = gradients + at[t];
        for (size_t i = 0; i < counts[t]; i++) gradient[i] = gradient_of(me, t, i, number);
        own[number % 2][t] = hash_of(gradient, counts[t]);
        status = gw_reducer_ready(reducer, t);
        if (strikes(KILL_BETWEEN, number, t)) die();
        if (strikes(ABORT_BETWEEN, number, t)) await_commits(), gw_abort(comm, "the test says so");
    }
    return status ? status : gw_reducer_end(reducer);
}

static gw_status train(gw_comm *comm, int steps) {
    gw_status status = GW_OK;
    for (int i = 0; i < steps && !status; i++) {
        number = gw_reducer_read_counters(reducer).step;
        status = forward();
        if (!status) status = backward(comm);
        if (!status) atomic_fetch_add(&mine->steps, 1);
    }
    return status ? status : gw_reducer_flush(reducer);
}

/* The caller's own repair by gw_reducer_reached: ranks that are behind get weights and momentum. */
static gw_status repair(gw_comm *comm) {
    int size = gw_size(comm), rank = gw_rank(comm);
    uint64_t all[RANKS_MAX * TENSORS];
    gw_status status = gw_allgather(comm, applied, all, TENSORS, GW_I64);
    for (int t = 0; t < TENSORS && !status; t++) {
        int ahead = 0;
        for (int r = 1; r < size; r++)
            if (all[r * TENSORS + t] > all[ahead * TENSORS + t]) ahead = r;
        status = gw_broadcast(comm, weights + at[t], weights + at[t], counts[t], GW_F32, ahead);
        if (!status) status = gw_broadcast(comm, momentum + at[t], momentum + at[t], counts[t], GW_F32, ahead);
        if (!status && rank != ahead) applied[t] = all[ahead * TENSORS + t];
    }
    return status;
}

/* Again, where another dies meanwhile. */
static gw_status shrink_and_move(gw_comm *comm, gw_comm **rest) {
    gw_status status = gw_shrink(comm, rest);
    if (status) {
        broken("gw_shrink: %s", gw_last_error(NULL));
        return status;
    }
    asked = 0;
    status = gw_reducer_resume(reducer, *rest);
    asked = -1;
    if (!status) return GW_OK;
    gw_comm *failed = *rest;
    if (atomic_load(&all_seen[RANKS_MAX].died) && status == GW_PEER_LOST) status = shrink_and_move(failed, rest);
    else broken("gw_reducer_resume: %s", gw_last_error(NULL));
    gw_finalize(failed);
    return status;
}

static gw_status go_on(gw_comm *comm, gw_comm **rest) {
    for (int t = 0; t < TENSORS; t++) apply_arrived(t);
    gw_status status = shrink_and_move(comm, rest);
    if (!status && !now.updates) status = repair(*rest);
    for (int t = 0; t < TENSORS; t++) applied[t] = gw_reducer_read_counters(reducer).step;
    generation = 1;
    atomic_store(&failure_seen, false);
    if (!now.periodic) hash_weights(mine->moved);
    else if (!status && gw_reducer_read_counters(reducer).weights_agree)
        broken("after the move ranks are said to hold the same weights");
    return status;
}

static gw_comm *join(int rank) {
    gw_comm *comm = NULL;
    gw_options options = GW_OPTIONS_DEFAULT;
    options.rank = rank;
    options.world = now.world;
    options.master_port = port;
    options.strategy = now.line;
    options.token = "a token of the tests, 0123456789";
    options.deadline_s = 20;
    if (gw_init(&comm, &options)) broken("gw_init: %s", gw_last_error(NULL));
    return comm;
}

static bool commit(gw_comm *comm) {
    gw_reducer_tensor tensors[TENSORS] = {0};
    gw_reducer_options options = GW_REDUCER_OPTIONS_DEFAULT;
    size_t total = 0;
    for (int t = 0; t < TENSORS; t++) at[t] = total, total += counts[t] + (now.grouped ? 0 : 5);
    gradients = gw_alloc(comm, total * sizeof *gradients);
    weights = calloc(total, sizeof *weights);
    momentum = calloc(total, sizeof *momentum);
    for (int t = 0; t < TENSORS; t++)
        tensors[t] = (gw_reducer_tensor){.name = names[t], .count = counts[t], .gradient = gradients + at[t],
                                      .weights = weights + at[t], .rows = rows[t]};
    options.update = now.updates ? update : NULL;
    options.state = state;
    gw_status status = gw_reducer_commit(&reducer, comm, tensors, TENSORS, &options);
    if (status == GW_UNSUPPORTED || status == GW_INVALID) mine->refused = 1;
    else if (status) broken("gw_reducer_commit: %s", gw_last_error(NULL));
    atomic_store(&mine->committed, 1);
    return status == GW_OK;
}

/* Until the weights of all ranks are the same again, which they are not after each step. */
static gw_status end_together(gw_comm *comm) {
    gw_status status = train(comm, AFTER);
    for (int i = 0; i < 8 && !status && !gw_reducer_read_counters(reducer).weights_agree; i++) status = train(comm, 1);
    for (int t = 0; t < TENSORS && !status; t++) apply_arrived(t);
    return status;
}

static void run_rank(int rank) {
    char path[] = "/dev/null";
    gw_comm *rest = NULL;
    me = rank;
    mine = &all_seen[rank];
    asked = -1;
    setpgid(0, 0); /* with its children */
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    alarm(60);
    if (!freopen(path, "w", stderr)) abort();
    gw_comm *comm = join(rank);
    if (comm && fork() == 0) {
        alarm(60);
        for (;;) pause();
    }
    if (comm && commit(comm)) {
        gw_status status = train(comm, STEPS_MAX);
        atomic_store(&failure_seen, true);
        if (!status) broken("%d steps were made, and nobody died", STEPS_MAX);
        usleep(2000); /* a late update would be seen */
        if (go_on(comm, &rest) == GW_OK) {
            if (end_together(rest)) broken("after the loss: %s", gw_last_error(rest));
            else hash_weights(mine->ended);
        }
        gw_reducer_close(reducer);
        gw_finalize(rest);
    }
    atomic_store(&mine->over, 1);
    gw_free(comm, gradients);
    gw_finalize(comm);
    _exit(0);
}

/* The test. */

static bool is_possible(gw_axis axis, const gw_technique *t) {
    if (axis == GW_AXIS_SYNC) return !gw_sync_of(t)->rule; /* no servers here */
    return axis != GW_AXIS_ARCH || (strcmp(t->name, "ps") != 0 && strcmp(t->name, "mpi") != 0);
}

/* Example n, modulo how many there are, of the techniques of an axis. Returns text. */
static const char *example(gw_axis axis, uint64_t n, char text[GW_TECHNIQUE_TEXT_BYTES]) {
    for (;;) {
        uint64_t count = 0;
        for (const gw_technique *const *t = gw_techniques(axis); *t; t++)
            for (int i = 0; is_possible(axis, *t) && gw_technique_example(*t, i, text); i++)
                if (count++ == n) return text;
        n %= count;
    }
}

static scene scene_of(uint64_t seed) {
    uint64_t a = seed * UINT64_C(0x9E3779B97F4A7C15), b;
    a = (a ^ (a >> 29)) * UINT64_C(0xBF58476D1CE4E5B9);
    b = (a ^ (a >> 32)) * UINT64_C(0x94D049BB133111EB);
    scene s = {.world = 2 + (int)(a % 4), .fault = (fault)((a >> 8) % FAULTS), .step = (int)((a >> 16) % 9),
               .tensor = (int)((a >> 24) % TENSORS), .updates = b % 3 != 0, .grouped = (b >> 8) % 2};
    char codec[GW_TECHNIQUE_TEXT_BYTES] = "none", sync[GW_TECHNIQUE_TEXT_BYTES] = "bsp";
    char schedule[GW_TECHNIQUE_TEXT_BYTES], arch[GW_TECHNIQUE_TEXT_BYTES];
    gw_strategy strategy;
    if (seed % 7) example(GW_AXIS_COMPRESS, seed, codec);
    if ((b >> 16) % 2) example(GW_AXIS_SYNC, b >> 17, sync);
    snprintf(s.line, sizeof s.line, "schedule=%s compress=%s arch=%s sync=%s transport=%s",
             example(GW_AXIS_SCHEDULE, seed, schedule), codec, example(GW_AXIS_ARCH, seed, arch), sync,
             PICK(transports, b >> 40));
    CHECK_EQ(GW_OK, gw_strategy_parse(s.line, &strategy, NULL));
    if (gw_sync_of(strategy.axes[GW_AXIS_SYNC].technique)->needs_update) s.updates = true;
    s.again = s.updates && s.world > 3 && (b >> 48) % 2;
    if (s.fault == KILL_IN_UPDATE && !s.updates) s.fault = KILL_BETWEEN;
    s.victim = (int)((b >> 24) % (uint64_t)s.world);
    s.exact = !gw_strategy_compresses(&strategy);
    s.periodic = gw_sync_of(strategy.axes[GW_AXIS_SYNC].technique)->local;
    return s;
}

/* Ranks whose call returned GW_OK for a tensor all got the same values. */
static bool same_results(int g, int n, int t) {
    uint64_t first = 0;
    for (int r = 0; r < now.world; r++) {
        uint64_t hash = all_seen[r].result[g][n][t];
        if (hash && first && hash != first) return false;
        if (hash) first = hash;
    }
    return true;
}

static void check_results(void) {
    int different = 0;
    for (int g = 0; g < 2; g++)
        for (int n = 0; n < STEPS_MAX; n++)
            for (int t = 0; t < TENSORS; t++) different += !same_results(g, n, t);
    CHECK_EQ(0, different);
}

static void check_weights(void) {
    int first = -1;
    for (int r = 0; r < now.world; r++) {
        const seen *s = &all_seen[r];
        if (!survives(r)) continue;
        CHECK_STR("", s->text);
        for (int t = 0; t < TENSORS && first >= 0; t++) {
            CHECK(s->moved[t] == all_seen[first].moved[t]);
            CHECK(s->ended[t] == all_seen[first].ended[t]);
        }
        if (first < 0) first = r;
        CHECK(s->ended[0] != 0);
    }
}

static void kill_any_time(const pid_t *pids, uint64_t seed) {
    await_commits();
    gw_time until = gw_clock_now() + 20 * GW_SECOND;
    for (int r = 0; r < now.world; r++)
        while (atomic_load(&all_seen[r].steps) < now.step && !all_seen[r].refused && !all_seen[r].over &&
               gw_clock_now() < until)
            usleep(200);
    usleep((useconds_t)(seed * 7919 % 5000));
    if (!all_seen[0].refused) kill(pids[now.victim], SIGKILL);
}

/* False: this strategy has no meaning, and nothing happened. */
static bool play(uint64_t seed) {
    pid_t pids[RANKS_MAX];
    int before = test_failures;
    now = scene_of(seed);
    port = free_port();
    memset(all_seen, 0, sizeof *all_seen * (RANKS_MAX + 1));
    fflush(stdout);
    for (int r = 0; r < now.world; r++) {
        pids[r] = fork();
        if (pids[r] < 0) abort();
        if (pids[r] == 0) run_rank(r);
    }
    if (now.fault == KILL_ANY_TIME) kill_any_time(pids, seed);
    for (int r = 0; r < now.world; r++) {
        int status = -1;
        waitpid(pids[r], &status, 0);
        if (survives(r)) CHECK_EQ(0, status);
    }
    for (int r = 0; r < now.world; r++) kill(-pids[r], SIGKILL); /* their forked children */
    if (all_seen[0].refused) return false;
    check_results();
    check_weights();
    if (test_failures != before)
        printf("    fault %d (kind %d, rank %d of %d, step %d, tensor %d%s): %s\n", (int)seed, (int)now.fault,
               now.victim, now.world, now.step, now.tensor, now.updates ? ", updates" : "", now.line);
    return true;
}

static void results_stay_right_when_a_rank_dies(void) {
    const char *text = getenv("STEP_KILLS"), *from = getenv("STEP_FIRST");
    int kills = text ? atoi(text) : 24, played = 0, refused = 0, failed = 0, twice = 0;
    char folder[] = "/tmp/gradwire-test-XXXXXX", command[64];
    if (!mkdtemp(folder)) abort();
    setenv("GRADWIRE_FLIGHT_DIR", folder, 1);
    size_t shared = sizeof *all_seen * (RANKS_MAX + 1);
    all_seen = mmap(NULL, shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (all_seen == MAP_FAILED) abort();
    for (uint64_t seed = from ? strtoull(from, NULL, 10) : 1; played < kills && failed < 10; seed++) {
        int before = test_failures;
        if (play(seed)) played++;
        else refused++;
        failed += test_failures != before;
        twice += atomic_load(&all_seen[RANKS_MAX].died);
    }
    printf("    %d faults, %d with a second one in gw_reducer_resume, %d lines without a meaning, %d failed\n", played,
           twice, refused, failed);
    munmap(all_seen, shared);
    snprintf(command, sizeof command, "rm -r %s", folder);
    CHECK_EQ(0, system(command));
}

TEST_MAIN(CASE(results_stay_right_when_a_rank_dies))
