/* test_plan.c - every builder, collective and world up to 17 against the reference: results, matching of sends and
 * receives, no deadlock in any order of events, messages and elements as cost() says. */
#include "plan_machine.h"

#include "engine/engine_internal.h"

enum { WORLD_MAX = 17, LARGE_WORLD_MAX = 1024 };

typedef struct setting {
    const gw_plan_builder *builder;
    gw_plan_request request;
    combine op;
    bool in_place, depths;
    uint64_t seed;
    uint32_t *sums; /* the reference of every element of a reduction */
} setting;

static size_t total_of(const gw_plan_request *q) {
    size_t total = 0;
    switch (q->collective) {
    case GW_COLL_REDUCE_SCATTER:
    case GW_COLL_ALLGATHER:
    case GW_COLL_GATHER:
    case GW_COLL_SCATTER:
    case GW_COLL_ALLTOALL:
        for (int r = 0; r < q->topology.world; r++) total += q->counts ? q->counts[r] : q->count;
        return total;
    default: return q->count;
    }
}

static size_t part_begin(const gw_plan_request *q, int rank) {
    size_t begin = 0;
    for (int r = 0; r < rank; r++) begin += q->counts ? q->counts[r] : q->count;
    return begin;
}

/* What rank puts in at element i of its IN. */
static uint32_t input(int rank, size_t i) {
    uint64_t state = (uint64_t)rank * 1000003 + i * 7919;
    return (uint32_t)machine_random(&state);
}

/* --- the references --- */

static uint32_t in_rank_order(combine op, int world, size_t i) {
    uint32_t value = input(0, i);
    for (int r = 1; r < world; r++) value = combined(op, value, input(r, i));
    return value;
}

/* Pairs fold, then halves combine, from the greatest distance to the least, lower rank first. */
static uint32_t in_halving_order(combine op, int world, size_t i) {
    static uint32_t v[LARGE_WORLD_MAX];
    int cores = 1;
    while (cores * 2 <= world) cores *= 2;
    int folded = world - cores;
    for (int c = 0; c < cores; c++)
        v[c] = c < folded ? combined(op, input(2 * c, i), input(2 * c + 1, i)) : input(c + folded, i);
    for (int hop = cores / 2; hop >= 1; hop /= 2)
        for (int c = 0; c < hop; c++) v[c] = combined(op, v[c], v[c + hop]);
    return v[0];
}

static uint32_t reduced(const setting *s, size_t i) {
    int world = s->request.topology.world;
    bool halves = s->builder == &gw_plan_halving || s->builder == &gw_plan_doubling;
    return finished(halves ? in_halving_order(s->op, world, i) : in_rank_order(s->op, world, i));
}

static void find_sums(setting *s) {
    size_t total = total_of(&s->request);
    s->sums = calloc(total + 1, sizeof *s->sums);
    for (size_t i = 0; i < total; i++) s->sums[i] = reduced(s, i);
}

static uint32_t expected(const setting *s, int rank, size_t i) {
    const gw_plan_request *q = &s->request;
    int from = 0;
    switch (q->collective) {
    case GW_COLL_ALLREDUCE:
    case GW_COLL_REDUCE: return reduced(s, i);
    case GW_COLL_REDUCE_SCATTER: return s->sums[part_begin(q, rank) + i];
    case GW_COLL_BROADCAST: return input(q->root, i);
    case GW_COLL_SCATTER: return input(q->root, part_begin(q, rank) + i);
    case GW_COLL_ALLTOALL: return input((int)(i / q->count), (size_t)rank * q->count + i % q->count);
    case GW_COLL_SEND: return input(0, i);
    default: /* gather, all-gather */
        if (!q->counts) return input((int)(i / q->count), i % q->count);
        while (part_begin(q, from + 1) <= i) from++;
        return input(from, i - part_begin(q, from));
    }
}

/* Between the parts OUT stays as it was. */
static uint32_t expected_alltoallv(const gw_plan_request *q, int rank, size_t i) {
    int world = q->topology.world;
    const size_t *own = q->counts + rank * GW_ALLTOALLV_ARRAYS * world;
    for (int from = 0; from < world; from++) {
        size_t begin = own[GW_ALLTOALLV_OUT_OFFSETS * world + from];
        const size_t *theirs = q->counts + from * GW_ALLTOALLV_ARRAYS * world;
        if (i >= begin && i < begin + own[GW_ALLTOALLV_OUT_COUNTS * world + from])
            return input(from, theirs[GW_ALLTOALLV_IN_OFFSETS * world + rank] + i - begin);
    }
    return UINT32_C(0xCCCCCCCC);
}

/* --- buffers --- */

static unsigned char *fresh(size_t count) {
    unsigned char *memory = malloc(4 * count + 4);
    memset(memory, 0xCC, 4 * count + 4);
    return memory;
}

static void give_buffers(machine *m, const setting *s, unsigned char **keep) {
    for (int r = 0; r < m->world; r++) {
        member *own = &m->members[r];
        bool shares = s->in_place && own->in_count && own->out_count;
        size_t small = own->in_count < own->out_count ? own->in_count : own->out_count;
        size_t large = own->in_count + own->out_count - small;
        if (shares) {
            size_t offset = 4 * (small == large ? 0 : part_begin(&s->request, r));
            keep[2 * r] = fresh(large);
            keep[2 * r + 1] = NULL;
            own->in = keep[2 * r] + (own->in_count == small ? offset : 0);
            own->out = keep[2 * r] + (own->out_count == small ? offset : 0);
        } else {
            own->in = keep[2 * r] = fresh(own->in_count);
            own->out = keep[2 * r + 1] = fresh(own->out_count);
        }
        for (size_t i = 0; i < own->in_count; i++) store(own->in, false, i, input(r, i));
    }
}

static void describe(const setting *s) {
    const gw_plan_request *q = &s->request;
    printf("    %s %s world %d count %zu%s chunk %zu pipeline %d root %d%s%s %s seed %" PRIu64 "\n",
           s->builder->technique.name, gw_collective_name(q->collective), q->topology.world, q->count,
           q->counts ? " (uneven)" : "", q->chunk_count, q->pipeline, q->root, s->in_place ? " in place" : "",
           q->topology.coll ? " board" : "", s->op == COMBINE_SUM ? "sum" : "order", s->seed);
}

/* Only orders that do not depend on the position can be compared exactly; the others must agree between ranks. */
static bool fixed_order(const setting *s) {
    return s->op == COMBINE_SUM || s->builder == &gw_plan_halving || s->builder == &gw_plan_pairwise ||
           s->builder == &gw_plan_oneshot || s->builder == &gw_plan_doubling || s->builder == &gw_plan_direct ||
           s->builder == &gw_plan_alltoallv;
}

static void check_results(machine *m, const setting *s) {
    for (int r = 0; r < m->world; r++)
        for (size_t i = 0; i < m->members[r].out_count; i++) {
            uint32_t got = load(m, m->members[r].out, false, i);
            if (fixed_order(s))
                ENSURE(m, got == (s->request.collective == GW_COLL_ALLTOALLV ? expected_alltoallv(&s->request, r, i)
                                                                             : expected(s, r, i)));
            else if (s->request.collective == GW_COLL_ALLREDUCE) ENSURE(m, got == load(m, m->members[0].out, false, i));
        }
    for (int r = 0; r < m->world && !s->in_place; r++)
        for (size_t i = 0; i < m->members[r].in_count; i++)
            ENSURE(m, load(m, m->members[r].in, false, i) == input(r, i));
}

static void check_cost(machine *m, const setting *s) {
    gw_cost said = gw_plan_cost(s->builder, &s->request);
    ENSURE(m, said.messages == m->spent.messages);
    ENSURE(m, said.elements == m->spent.elements);
    ENSURE(m, said.wide_elements == m->spent.wide_elements);
    ENSURE(m, said.coll_elements == m->spent.coll_elements);
    if (s->depths) ENSURE(m, said.start_ups == m->spent.start_ups);
}

/* False where the builder refuses. */
static bool run(setting *s) {
    machine m = {.op = s->op, .in_place = s->in_place, .depths = s->depths};
    if (!machine_make(&m, s->builder, s->request, s->seed)) return false;
    unsigned char **keep = calloc(2 * (size_t)m.world, sizeof *keep);
    give_buffers(&m, s, keep);
    if (!m.failures) ENSURE(&m, machine_run(&m));
    find_sums(s);
    if (!m.failures) check_results(&m, s);
    if (!m.failures) check_cost(&m, s);
    if (m.failures) describe(s);
    CHECK(!m.failures);
    for (int r = 0; r < 2 * m.world; r++) free(keep[r]);
    free(keep);
    free(s->sums);
    machine_free(&m);
    return true;
}

/* --- drawing settings --- */

static uint64_t draw(uint64_t *state, uint64_t bound) { return machine_random(state) % bound; }

static size_t draw_count(uint64_t *state) {
    static const size_t counts[] = {0, 1, 2, 3, 7, 8, 9, 16, 17, 31, 64, 97, 128, 129, 255, 300};
    return counts[draw(state, sizeof counts / sizeof counts[0])];
}

/* Hosts numbered in the order of their lowest ranks: blocks, round robin, one, or anything. */
static void draw_hosts(uint64_t *state, int world, int *host_of) {
    int kind = (int)draw(state, 4), size = 1 + (int)draw(state, (uint64_t)world), hosts = 0;
    for (int r = 0; r < world; r++) {
        switch (kind) {
        case 0: host_of[r] = r / size; break;
        case 1: host_of[r] = r % size; break;
        case 2: host_of[r] = 0; break;
        default: host_of[r] = (int)draw(state, (uint64_t)(hosts < size ? hosts + 1 : hosts));
        }
        if (host_of[r] >= hosts) hosts = host_of[r] + 1;
    }
}

/* Any order at all: plans are right in each. */
static void draw_order(uint64_t *state, int world, int *order) {
    for (int r = 0; r < world; r++) {
        int at = (int)draw(state, (uint64_t)r + 1);
        order[r] = order[at];
        order[at] = r;
    }
}

/* The arrays of all ranks, one behind the other. What a rank sends depends on the distance to the receiver, so that all
 * ranks send as much. Parts lie in the order of ranks, with gaps. */
static const size_t *draw_alltoallv(uint64_t *state, int world) {
    static size_t arrays[WORLD_MAX * GW_ALLTOALLV_ARRAYS * WORLD_MAX];
    size_t length[WORLD_MAX], gap = draw(state, 3);
    for (int d = 0; d < world; d++) length[d] = draw(state, 3) ? draw(state, 90) : 0;
    for (int r = 0; r < world; r++) {
        size_t *own = arrays + r * GW_ALLTOALLV_ARRAYS * world, sent = gap, received = 2 * gap;
        for (int q = 0; q < world; q++) {
            own[GW_ALLTOALLV_IN_COUNTS * world + q] = length[(q - r + world) % world];
            own[GW_ALLTOALLV_IN_OFFSETS * world + q] = sent;
            own[GW_ALLTOALLV_OUT_COUNTS * world + q] = length[(r - q + world) % world];
            own[GW_ALLTOALLV_OUT_OFFSETS * world + q] = received;
            sent += length[(q - r + world) % world] + gap;
            received += length[(r - q + world) % world] + 2 * gap;
        }
    }
    return arrays;
}

static setting draw_setting(const gw_plan_builder *builder, gw_collective collective, int world, uint64_t seed) {
    static int host_of[WORLD_MAX], order[WORLD_MAX];
    static size_t counts[WORLD_MAX];
    uint64_t state = seed;
    bool grouped = builder == &gw_plan_hierarchical || builder == &gw_plan_direct;
    if (builder == &gw_plan_direct) memset(host_of, 0, sizeof host_of);
    else draw_hosts(&state, world, host_of);
    setting s = {.builder = builder,
                 .request = {.collective = collective,
                             .topology = {.world = world, .host_of = grouped ? host_of : NULL},
                             .count = draw_count(&state),
                             .root = (int)draw(&state, (uint64_t)world),
                             .chunk_count = 1 + draw(&state, 40),
                             .pipeline = 1 + (int)draw(&state, 4)},
                 .op = draw(&state, 2) ? COMBINE_SUM : COMBINE_ORDER,
                 .in_place = draw(&state, 2),
                 .seed = seed};
    s.request.apart = !s.in_place && draw(&state, 2);
    s.request.topology.coll = builder == &gw_plan_direct || draw(&state, 2);
    if (builder != &gw_plan_direct && draw(&state, 2)) {
        draw_order(&state, world, order);
        s.request.topology.order = order;
    }
    if (collective == GW_COLL_ALLTOALLV) {
        s.in_place = false;
        s.request.count = 0;
        s.request.counts = draw_alltoallv(&state, world);
    }
    bool uneven = collective == GW_COLL_REDUCE_SCATTER || collective == GW_COLL_ALLGATHER ||
                  collective == GW_COLL_GATHER || collective == GW_COLL_SCATTER;
    if (uneven && draw(&state, 2)) {
        for (int r = 0; r < world; r++) counts[r] = draw(&state, 3) ? draw(&state, 40) : 0;
        s.request.counts = counts;
        s.request.count = 0;
    }
    if (total_of(&s.request) > 600 && s.request.chunk_count < 7) s.request.chunk_count = 7;
    return s;
}

static void draw_and_run(const gw_plan_builder *builder, int draws) {
    for (int collective = 0; collective < (int)GW_COLLECTIVES; collective++) {
        if (collective == GW_COLL_RECV) continue; /* the other side of send */
        gw_plan_request probe = {.collective = (gw_collective)collective, .topology = {.world = 2, .coll = true}};
        static const int one_host[2] = {0, 0};
        probe.topology.host_of = one_host;
        if (builder->refuses(&probe)) continue;
        for (int world = collective == GW_COLL_SEND ? 2 : 1; world <= WORLD_MAX; world++) {
            if (collective == GW_COLL_SEND && world > 2) break;
            for (int d = 0; d < draws && test_failures < 5; d++) {
                setting s = draw_setting(builder, (gw_collective)collective, world,
                                         (uint64_t)(collective * 100 + world) * 1000 + (uint64_t)d);
                CHECK(run(&s));
            }
        }
    }
}

static void ring(void) { draw_and_run(&gw_plan_ring, 16); }
static void halving(void) { draw_and_run(&gw_plan_halving, 16); }
static void tree(void) { draw_and_run(&gw_plan_tree, 24); }
static void direct(void) { draw_and_run(&gw_plan_direct, 12); }
static void exchange(void) { draw_and_run(&gw_plan_pairwise, 10); }
static void doubling(void) { draw_and_run(&gw_plan_doubling, 30); }
static void oneshot(void) { draw_and_run(&gw_plan_oneshot, 30); }
static void hierarchical(void) { draw_and_run(&gw_plan_hierarchical, 100); }
static void dissemination(void) { draw_and_run(&gw_plan_dissemination, 4); }
static void alltoallv(void) { draw_and_run(&gw_plan_alltoallv, 30); }
static void pair(void) { draw_and_run(&gw_plan_send_recv, 60); }

/* The rounds of each collective when every message is one chunk. */
static void start_ups(void) {
    for (int b = 0; gw_plan_builders[b]; b++)
        for (int collective = 0; collective < GW_COLL_SEND; collective++)
            for (int world = 2; world <= WORLD_MAX; world++) {
                setting s = draw_setting(gw_plan_builders[b], (gw_collective)collective, world, (uint64_t)world);
                int host_of[WORLD_MAX];
                for (int r = 0; r < world; r++) host_of[r] = world % 3 ? world % 2 ? 0 : r % 2 : r / 3;
                s.request.count = 40;
                s.request.counts = NULL;
                s.request.chunk_count = 1000;
                if (s.builder == &gw_plan_hierarchical) s.request.topology.host_of = host_of;
                s.depths = true;
                run(&s);
            }
}

/* While a rank has not entered a barrier, no rank leaves it. */
static void barrier_holds(void) {
    for (int world = 2; world <= WORLD_MAX; world++)
        for (int absent = 0; absent < world; absent++) {
            machine m = {0};
            gw_plan_request request = {.collective = GW_COLL_BARRIER,
                                       .topology = {.world = world},
                                       .root = -1,
                                       .chunk_count = 1,
                                       .pipeline = 1};
            CHECK(machine_make(&m, &gw_plan_dissemination, request, (uint64_t)(world * 100 + absent)));
            m.absent = &m.members[absent];
            CHECK(!machine_run(&m));
            CHECK(!m.failures);
            for (int r = 0; r < world; r++) {
                bool left = true;
                for (uint32_t i = 0; i < m.members[r].plan.streams; i++)
                    left &= m.members[r].cursors[i].done == m.members[r].cursors[i].stream.actions;
                CHECK(!left);
            }
            machine_free(&m);
        }
}

/* Worlds as large as they come, with little data. */
static void large_worlds(void) {
    static const struct {
        const gw_plan_builder *builder;
        gw_collective collective;
        int world;
    } cases[] = {
        {&gw_plan_ring, GW_COLL_ALLREDUCE, 150},         {&gw_plan_halving, GW_COLL_ALLREDUCE, 1000},
        {&gw_plan_tree, GW_COLL_ALLREDUCE, 1024},        {&gw_plan_tree, GW_COLL_BROADCAST, 1023},
        {&gw_plan_dissemination, GW_COLL_BARRIER, 1024}, {&gw_plan_pairwise, GW_COLL_REDUCE_SCATTER, 100},
        {&gw_plan_hierarchical, GW_COLL_ALLREDUCE, 256}, {&gw_plan_pairwise, GW_COLL_GATHER, 1024},
        {&gw_plan_halving, GW_COLL_REDUCE_SCATTER, 200},
    };
    static int host_of[LARGE_WORLD_MAX];
    for (int r = 0; r < LARGE_WORLD_MAX; r++) host_of[r] = r / 16;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        bool parts = cases[i].collective == GW_COLL_REDUCE_SCATTER || cases[i].collective == GW_COLL_GATHER;
        setting s = {.builder = cases[i].builder,
                     .request = {.collective = cases[i].collective,
                                 .topology = {.world = cases[i].world, .host_of = host_of, .coll = i % 2},
                                 .count = parts ? 2 : 260,
                                 .root = 3,
                                 .chunk_count = 100,
                                 .pipeline = 2},
                     .seed = i};
        CHECK(run(&s));
    }
}

/* Nothing overflows or is stored for each step: a terabyte is laid out like a kilobyte. */
static void large_counts(void) {
    for (int b = 0; gw_plan_builders[b]; b++) {
        static const int host_of[6] = {0, 0, 0, 0, 0, 0};
        gw_plan_request request = {.collective = GW_COLL_ALLREDUCE,
                                   .topology = {.world = 6, .host_of = host_of, .coll = true},
                                   .rank = 5,
                                   .count = (size_t)1 << 40,
                                   .root = -1,
                                   .chunk_count = 1 << 16,
                                   .pipeline = 4};
        gw_plan plan;
        if (gw_plan_make(&plan, gw_plan_builders[b], &request, NULL) != GW_OK) continue;
        CHECK(plan.work_count < (size_t)100 << 16);
        for (uint32_t i = 0; i < plan.streams; i++) {
            gw_stream stream;
            gw_action step;
            gw_plan_stream(&plan, i, &stream);
            if (stream.actions == 0) continue;
            gw_plan_action(&plan, i, stream.actions - 1, &step);
            CHECK(step.dst.offset + step.dst.count <= request.count);
            CHECK(step.src.offset + step.src.count <= request.count);
        }
    }
}

static void check_refusal(gw_plan_request request, const gw_plan_builder *builder, gw_status status, const char *text) {
    gw_plan plan;
    gw_error error = {0};
    CHECK_EQ(status, gw_plan_make(&plan, builder, &request, &error));
    CHECK_STR(text, error.text);
}

static void refusals(void) {
    gw_plan_request good = {.collective = GW_COLL_ALLREDUCE,
                            .topology = {.world = 4},
                            .root = -1,
                            .count = 1,
                            .chunk_count = 1,
                            .pipeline = 1};
    gw_plan_request bad = good;
    bad.rank = 4;
    check_refusal(bad, &gw_plan_ring, GW_INVALID, "allreduce: rank 4 is not in a world of 4");
    bad = good;
    bad.collective = GW_COLL_REDUCE;
    check_refusal(bad, &gw_plan_tree, GW_INVALID, "reduce: root or peer -1 is not in a world of 4");
    bad.root = 0;
    check_refusal(bad, &gw_plan_ring, GW_UNSUPPORTED,
                  "reduce is not supported by ring, which supports only allreduce, reduce_scatter and allgather");
    bad.collective = GW_COLL_SEND;
    check_refusal(bad, &gw_plan_send_recv, GW_INVALID, "send: rank 0 names itself as its peer");
    bad.collective = GW_COLL_ALLTOALL;
    bad.count = SIZE_MAX / 2;
    check_refusal(bad, &gw_plan_pairwise, GW_INVALID,
                  "alltoall: the parts of 4 ranks together exceed the address space");
    check_refusal(good, &gw_plan_direct, GW_UNSUPPORTED,
                  "allreduce is not supported by direct, which needs ranks that share memory");
    bad = good;
    bad.pipeline = 0;
    check_refusal(bad, &gw_plan_ring, GW_INVALID, "allreduce: the chunk and the pipeline depth must be at least 1");
}

static size_t cut_bytes(gw_collective collective, size_t bytes, size_t asked) {
    static const int hosts[2] = {0, 1};
    gw_team team = {.size = 2, .topology = {.world = 2, .host_of = hosts}};
    gw_op_spec spec = {.collective = collective, .dtype = GW_F32, .count = bytes / 4, .root = 1, .chunk_bytes = asked};
    return gw_op_request(&team, &spec, 4).chunk_count * 4;
}

/* A pair's eight messages in flight must fill a long path. */
static void large_sends_go_in_larger_messages(void) {
    CHECK_EQ(256 << 10, cut_bytes(GW_COLL_SEND, 1 << 20, 0));
    CHECK_EQ(512 << 10, cut_bytes(GW_COLL_SEND, 4 << 20, 0));
    CHECK_EQ(1 << 20, cut_bytes(GW_COLL_SEND, 64 << 20, 0));
    CHECK_EQ(1 << 20, cut_bytes(GW_COLL_RECV, 64 << 20, 0));
    CHECK_EQ(128 << 10, cut_bytes(GW_COLL_SEND, 64 << 20, 128 << 10));
    CHECK_EQ(256 << 10, cut_bytes(GW_COLL_ALLREDUCE, 64 << 20, 0));
}

TEST_MAIN(CASE(ring), CASE(halving), CASE(tree), CASE(direct), CASE(exchange), CASE(oneshot), CASE(doubling),
          CASE(hierarchical), CASE(dissemination), CASE(alltoallv), CASE(pair), CASE(start_ups), CASE(barrier_holds),
          CASE(large_worlds), CASE(large_counts), CASE(refusals), CASE(large_sends_go_in_larger_messages))
