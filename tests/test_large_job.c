/* test_large_job.c - a reducer on many ranks: the time of a commit, memory beside tensors and payloads, connections
 * beside those of plans, and the latency of an announcement. 64 ranks; LARGE_JOB=512 sets how many. */
#include "test.h"

#include <malloc.h>
#include <math.h>

#include "arch/announcement_tree.h"
#include "reducer/start_order.h"
#include "reducer/step_engine.h"
#include "sim/control_sim.h"

enum { MODEL_TENSORS = 60, PER_HOST = 8, WORLD_MOST = 4096 };
#define MIB (1024.0 * 1024)
#define CONTROL_MIB_MOST 8
#define PAYLOAD_MIB_MOST 64
#define COMMIT_SECONDS_MOST 2
#define CONNECTIONS_MOST 64
#define LATENCY (GW_MILLISECOND / 50)

static int world_size(void) {
    const char *text = getenv("LARGE_JOB");
    return text ? atoi(text) : 64;
}

/* Ranks of a simulated job. */

typedef struct rank {
    gw_control_sim_rank base; /* first */
    gw_team *team;
    gw_step_engine *step_engine;
    gw_start_order *order;
    gw_op *star; /* a message from rank 0 */
    gw_progress_callback callback;
    float *gradients;
    int bucket;
    gw_time told; /* when the announcement arrived; 0: not yet */
} rank;

typedef struct job {
    gw_control_sim base; /* first */
    rank *ranks;
    int *host_of;
    bool *in;
    bool ok;
    char text[400];
} job;

static gw_control_sim_rank *rank_of(gw_control_sim *sim, int r) { return &((job *)sim)->ranks[r].base; }

static void moved(void *ctx, int r) {
    job *j = ctx;
    while (gw_core_poll(j->ranks[r].base.core, gw_sim_now(j->base.net))) {}
}

static void no_failure(void *ctx, const gw_error *error) {
    const rank *self = ctx;
    CHECK_EQ(GW_ABORTED, error->status); /* by close_job */
    if (error->status != GW_ABORTED) printf("    rank %d: %s\n", self->base.rank, error->text);
}

static void no_send(void *ctx, int neighbour, const gw_control_message *message) {
    (void)ctx, (void)neighbour, (void)message;
}

/* Opens the first `count` ranks. */
static void open_ranks(job *j, int count) {
    gw_error error = {.rank = -1};
    gw_core_config core = {.deadline = 3600 * GW_SECOND, .failed = no_failure, .send = no_send};
    for (int r = 0; r < count; r++) {
        CHECK_EQ(GW_OK, gw_control_sim_open_rank(&j->ranks[r].base, &j->base, r, core, &error));
        CHECK_EQ(GW_OK, gw_control_sim_team(&j->ranks[r].base, &j->ranks[r].team, 1, j->in, j->host_of, NULL, &error));
    }
}

/* Of no ranks yet. per_host 1: every rank is alone on its host. */
static job *open_job(int world, int per_host) {
    gw_error error = {.rank = -1};
    gw_sim_config config = {.latency = LATENCY, .bytes_per_second = 125e6, .seed = 1};
    job *j = calloc(1, sizeof *j);
    *j = (job){.ranks = calloc((size_t)world, sizeof *j->ranks), .host_of = calloc((size_t)world, sizeof(int)),
               .in = calloc((size_t)world, sizeof(bool)), .ok = true};
    j->base = (gw_control_sim){.world = world, .rank_of = rank_of, .moved = moved, .timer = moved, .ok = &j->ok,
                               .text = j->text, .text_bytes = sizeof j->text};
    CHECK_EQ(GW_OK, gw_control_sim_open(&j->base, config, &error));
    for (int r = 0; r < world; r++) {
        j->host_of[r] = r / per_host;
        j->in[r] = true;
    }
    return j;
}

static void close_job(job *j) {
    gw_error over = {.status = GW_ABORTED, .rank = -1};
    for (int r = 0; r < j->base.world && j->ranks[r].base.core; r++) {
        rank *self = &j->ranks[r];
        gw_engine_fail(gw_core_engine(self->base.core), &over);
        if (self->callback.poll) gw_core_detach(self->base.core, &self->callback);
        if (self->star) gw_op_release(self->star);
        gw_start_order_close(self->order);
        gw_step_engine_close(self->step_engine);
        gw_team_close(self->team);
        gw_core_close(self->base.core);
        free(self->gradients);
    }
    gw_sim_close(j->base.net);
    free(j->ranks);
    free(j->host_of);
    free(j->in);
    free(j);
}

/* Bytes that are allocated now. 0 under a sanitizer. */
static double allocated(void) {
    struct mallinfo2 info = mallinfo2();
    return (double)info.uordblks + (double)info.hblkhd;
}

/* The commit. */

static void no_update(void *ctx, const gw_reducer_update *update) { (void)ctx, (void)update; }

/* 100 MB: matrices of different sizes, each with a bias. */
static float *make_model(gw_reducer_tensor *tensors, char names[][16]) {
    size_t total = 0, counts[MODEL_TENSORS];
    for (int i = 0; i < MODEL_TENSORS; i++) total += counts[i] = i % 2 ? 2048 : 300000 + 18000 * (size_t)i;
    float *memory = calloc(total, sizeof *memory), *at = memory;
    for (int i = 0; i < MODEL_TENSORS; at += counts[i++]) {
        snprintf(names[i], 16, "tensor%d", i);
        tensors[i] = (gw_reducer_tensor){.name = names[i], .count = counts[i], .dtype = GW_F32, .gradient = at,
                                         .weights = at, .rows = i % 2 ? 0 : 100, .exact = i % 2};
    }
    return memory;
}

static gw_status open_step_engine(rank *self, const char *line, const gw_reducer_tensor *tensors, int count,
                                  gw_reducer_update_fn *update, gw_error *error) {
    static gw_strategy strategy; /* outlives the engine */
    gw_step_engine_config config = {.core = self->base.core, .team = self->team, .first_id = 2, .tensors = tensors,
                                    .count = count, .options = {.op = GW_AVG, .update = update}};
    gw_status status = gw_strategy_parse(line, &strategy, error);
    if (!status) status = gw_step_engine_config_from_strategy(&config, &strategy, error);
    return status ? status : gw_step_engine_open(&self->step_engine, &config, error);
}

static void commit_on(int world, int per_host, const char *line) {
    gw_reducer_tensor tensors[MODEL_TENSORS];
    char names[MODEL_TENSORS][16];
    gw_error error = {.rank = -1};
    float *memory = make_model(tensors, names);
    job *j = open_job(world, per_host);
    double before = allocated(), begun = test_seconds(CLOCK_THREAD_CPUTIME_ID);
    open_ranks(j, 1);
    CHECK_EQ(GW_OK, open_step_engine(&j->ranks[0], line, tensors, MODEL_TENSORS, no_update, &error));
    if (error.status) printf("    %s: %s\n", line, error.text);
    double seconds = test_seconds(CLOCK_THREAD_CPUTIME_ID) - begun, all = allocated() - before;
    const gw_step_engine *s = j->ranks[0].step_engine;
    gw_step_engine_payloads payloads = s ? gw_step_engine_payload_memory(s) : (gw_step_engine_payloads){0};
    double control = s && all ? (all - (double)gw_step_engine_memory_bytes(s)) / MIB : 0;
    double payload = (double)payloads.memory / MIB, in_flight = (double)payloads.in_flight / MIB;
    printf(
        "    %4d ranks, %d a host, %-60s commit %6.1f ms, control %5.2f MiB, payloads %5.2f MiB for %6.2f in flight\n",
        world, per_host, line, seconds * 1e3, control, payload, in_flight);
    CHECK(seconds < COMMIT_SECONDS_MOST);
    CHECK(control < CONTROL_MIB_MOST);
    CHECK(payload <= PAYLOAD_MIB_MOST && payload <= 2 * in_flight);
    close_job(j);
    free(memory);
}

static void commits_are_small(void) {
    static const char *const compress[] = {"none", "int8", "topk", "onebit", "fp16", "qsgd:elias", "threshold"};
    static const char *const schedule[] = {"wfbp", "p3", "bytescheduler", "dear"};
    char line[200];
    for (size_t c = 0; c < sizeof compress / sizeof *compress; c++)
        for (size_t s = 0; s < sizeof schedule / sizeof *schedule; s++)
            for (int hosts = 0; hosts < 2; hosts++) {
                snprintf(line, sizeof line, "arch=%s transport=sim compress=%s schedule=%s",
                         hosts ? "hierarchical" : "ring", compress[c], schedule[s]);
                commit_on(world_size(), hosts ? PER_HOST : 1, line);
            }
}

/* Connections that no plan asks for: those of the control plane and of announcements. */
static void connections_are_few(void) {
    int host_of[WORLD_MOST], world = world_size(), most = 0, neighbours[GW_CONTROL_LINKS_MAX];
    for (int per_host = 1; per_host <= PER_HOST; per_host += PER_HOST - 1) {
        for (int r = 0; r < world; r++) host_of[r] = r / per_host;
        for (int r = 0; r < world; r++) {
            gw_announcement_tree tree =
                gw_announcement_tree_of(&(gw_topology){.world = world, .host_of = host_of}, r);
            int links = gw_control_neighbours(r, world, neighbours) + tree.count + (tree.parent >= 0);
            if (links > most) most = links;
        }
    }
    printf("    %d ranks: at most %d connections beside those of plans\n", world, most);
    CHECK(most < CONNECTIONS_MOST);
}

/* Announcements. */

static bool follow_order(void *ctx, gw_time now) {
    rank *self = ctx;
    bool any = false;
    gw_error error = {.rank = -1};
    bool leads = gw_start_order_leads(self->order);
    CHECK_EQ(GW_OK, gw_start_order_poll(self->order, !leads && !self->told, now, &any, &error));
    if (leads || self->told || gw_start_order_next(self->order) < 0) return any;
    CHECK_EQ(42, gw_start_order_next(self->order));
    gw_start_order_take(self->order);
    self->told = now;
    return true;
}

static bool always(void *ctx) {
    (void)ctx;
    return true;
}

static gw_time last_told(const job *j) {
    gw_time last = 0;
    for (int r = 1; r < j->base.world; r++) {
        CHECK(j->ranks[r].told > 0);
        if (j->ranks[r].told > last) last = j->ranks[r].told;
    }
    return last;
}

static void run(job *j) {
    for (int r = 0; r < j->base.world; r++) gw_sim_timer(j->base.net, r, 1);
    while (j->ok && gw_sim_step(j->base.net)) {}
}

static gw_time announce_by_tree(int world, int per_host) {
    job *j = open_job(world, per_host);
    gw_error error = {.rank = -1};
    open_ranks(j, world);
    for (int r = 0; r < world; r++) {
        rank *self = &j->ranks[r];
        CHECK_EQ(GW_OK, gw_start_order_open(&self->order, self->base.core, self->team, &error));
        self->callback = (gw_progress_callback){.ctx = self, .poll = follow_order, .busy = always};
        gw_core_attach(self->base.core, &self->callback);
    }
    gw_start_order_decide(j->ranks[0].order, 42);
    run(j);
    gw_time last = last_told(j);
    for (int r = 0; r < world; r++) CHECK(gw_start_order_quiet(j->ranks[r].order));
    close_job(j);
    return last;
}

static bool await_star(void *ctx, gw_time now) {
    rank *self = ctx;
    if (!self->told && gw_op_done(self->star)) self->told = now;
    return false;
}

/* What it would take if rank 0 told everyone itself. */
static gw_time announce_by_star(int world) {
    static uint8_t message[64];
    job *j = open_job(world, 1);
    gw_error error = {.rank = -1};
    open_ranks(j, world);
    gw_op **sends = calloc((size_t)world, sizeof *sends);
    for (int r = 1; r < world; r++) {
        rank *self = &j->ranks[r];
        gw_op_spec spec = {.builder = &gw_plan_send_recv, .count = sizeof message, .dtype = GW_U8};
        spec.collective = GW_COLL_RECV;
        spec.out = message;
        CHECK_EQ(GW_OK, gw_core_start(self->base.core, &self->star, self->team, &spec, 1, &error));
        spec.collective = GW_COLL_SEND;
        spec.in = message;
        spec.root = r;
        CHECK_EQ(GW_OK, gw_core_start(j->ranks[0].base.core, &sends[r], j->ranks[0].team, &spec, 1, &error));
        self->callback = (gw_progress_callback){.ctx = self, .poll = await_star, .busy = always};
        gw_core_attach(self->base.core, &self->callback);
    }
    run(j);
    gw_time last = last_told(j);
    for (int r = 1; r < world; r++) gw_op_release(sends[r]);
    free(sends);
    close_job(j);
    return last;
}

static void announcements_are_fast(void) {
    static const int worlds[] = {2, 8, 64, 512, 4096};
    for (size_t i = 0; i < sizeof worlds / sizeof *worlds && worlds[i] <= world_size(); i++) {
        int world = worlds[i], per_host = world < 64 ? 1 : PER_HOST;
        double star = (double)announce_by_star(world) / 1e3, flat = (double)announce_by_tree(world, 1) / 1e3;
        double hosts = (double)announce_by_tree(world, per_host) / 1e3;
        printf("    %4d ranks, links of 20 us and 1 Gbit/s: star %6.1f us, tree %6.1f us, tree of hosts %6.1f us\n",
               world, star, flat, hosts);
        CHECK(flat < 1.01 * star && (world < 512 || flat < star / 3));
    }
}

/* Steps. */

enum { STEP_TENSORS = 4, STEP_COUNT = 3000 };

static bool poll_step_engine(void *ctx, gw_time now) { return gw_step_engine_poll(((rank *)ctx)->step_engine, now); }
static bool step_engine_busy(void *ctx) { return gw_step_engine_busy(((rank *)ctx)->step_engine); }

static void make_step(rank *self) {
    static const int tensors[] = {3, 2, 1, 0};
    gw_error error = {.rank = -1};
    bool complete;
    for (int i = 0; i < STEP_TENSORS * STEP_COUNT; i++) self->gradients[i] = (float)(self->base.rank % 4 + i % 3);
    CHECK_EQ(GW_OK, gw_step_engine_ready(self->step_engine, tensors, STEP_TENSORS, &complete, &error));
    CHECK_EQ(GW_OK, gw_step_engine_end(self->step_engine, &error));
}

static void join_steps(rank *self, const char *line) {
    gw_reducer_tensor tensors[STEP_TENSORS];
    static const char *const names[] = {"a", "b", "c", "d"};
    gw_error error = {.rank = -1};
    self->gradients = calloc(STEP_TENSORS * STEP_COUNT, sizeof *self->gradients);
    for (int i = 0; i < STEP_TENSORS; i++)
        tensors[i] = (gw_reducer_tensor){.name = names[i], .count = STEP_COUNT, .dtype = GW_F32,
                                         .gradient = self->gradients + i * STEP_COUNT};
    CHECK_EQ(GW_OK, open_step_engine(self, line, tensors, STEP_TENSORS, NULL, &error));
    self->callback = (gw_progress_callback){.ctx = self, .poll = poll_step_engine, .busy = step_engine_busy};
    gw_core_attach(self->base.core, &self->callback);
}

/* The mean of rank % 4 is 1.5 in every world of a multiple of four. */
static void check_mean(const rank *self, double tolerance) {
    bool right = true;
    for (int i = 0; i < STEP_TENSORS * STEP_COUNT; i++)
        right &= fabs((double)self->gradients[i] - (1.5 + i % 3)) <= tolerance;
    CHECK(right && gw_step_engine_quiet(self->step_engine));
}

static void step_on(int world, int per_host, const char *line, double tolerance) {
    job *j = open_job(world, per_host);
    double before = allocated(), data = 0;
    open_ranks(j, world);
    for (int r = 0; r < world; r++) join_steps(&j->ranks[r], line);
    for (int r = 0; r < world; r++) make_step(&j->ranks[r]);
    run(j);
    for (int r = 0; r < world; r++) check_mean(&j->ranks[r], tolerance);
    for (int r = 0; r < world; r++)
        data +=
            (double)gw_step_engine_memory_bytes(j->ranks[r].step_engine) + STEP_TENSORS * STEP_COUNT * sizeof(float);
    double control = allocated() > before ? (allocated() - before - data) / world / MIB : 0;
    printf("    %4d ranks, %d a host, %-60s %7.3f ms, control %5.2f MiB\n", world, per_host, line,
           (double)gw_sim_now(j->base.net) / 1e6, control);
    CHECK(control < CONTROL_MIB_MOST);
    close_job(j);
}

static void steps_are_right(void) {
    int world = world_size();
    step_on(world, 1, "transport=sim arch=ring schedule=bytescheduler:slice=16K,credit=64K", 1e-5);
    step_on(world, PER_HOST, "transport=sim arch=hierarchical schedule=dear:fuse=1", 1e-5);
    step_on(world, 1, "transport=sim arch=ring compress=int8:feedback=none schedule=wfbp:fuse=1", 0.05);
    step_on(world, PER_HOST, "transport=sim arch=hierarchical compress=int8:feedback=none schedule=p3", 0.05);
}

TEST_MAIN(CASE(commits_are_small), CASE(connections_are_few), CASE(announcements_are_fast), CASE(steps_are_right))
