/* test_coded_parts.c - reduce-scatters and all-gathers through codecs over the simulated network: every codec, flat and
 * in two levels on even and uneven hosts, against plain loops; bytes between hosts; saved state; broken payloads. */
#include "coded_reference.h"
#include "quiet_ranks.h"
#include "reducer/coded_parts.h"
#include "transport/sim_transport.h"

#define RUNS 3

typedef struct rank_state {
    gw_core *core;
    gw_team *host, *lanes[REFERENCE_WORLD], *all;
    gw_coded_parts *parts;
    float *in, *out, *expected;
    void *by_lane;
    gw_error error;
} rank_state;

typedef struct job {
    gw_sim_net *net;
    int world;
    coded_scene scene;
    rank_state ranks[REFERENCE_WORLD];
} job;

/* The simulated network. */

static void failed(void *ctx, const gw_error *error) { ((rank_state *)ctx)->error = *error; }
static void on_moved(void *ctx, int rank) {
    job *j = ctx;
    gw_core_poll(j->ranks[rank].core, gw_sim_now(j->net));
    gw_coded_parts_poll(j->ranks[rank].parts, gw_sim_now(j->net));
}

/* A job. */

static gw_team *open_team(job *j, int self, uint32_t id, const int *members, const int *hosts, int size) {
    gw_error error = {0};
    gw_team *team = NULL;
    gw_topology topology = {.world = size, .host_of = hosts};
    int place = 0;
    while (members[place] != self) place++;
    CHECK_EQ(GW_OK,
             gw_team_open(&team, gw_core_engine(j->ranks[self].core), id, place, members, &topology, NULL, &error));
    return team;
}

/* The rank's lanes and its host, or all ranks. */
static void open_teams(job *j, int r, const gw_lanes *lanes) {
    const gw_topology *t = &j->scene.topology;
    rank_state *self = &j->ranks[r];
    int members[REFERENCE_WORLD], hosts[REFERENCE_WORLD] = {0}, locals = 0;
    for (int lane = lanes->first; lane < lanes->last; lane++) {
        for (int h = 0; h < lanes->hosts; h++) {
            members[h] = gw_lane_rank(lanes, t, lane, h);
            hosts[h] = j->scene.two_levels ? h : t->host_of[h];
        }
        self->lanes[lane - lanes->first] = open_team(j, r, 100 + (uint32_t)lane, members, hosts, lanes->hosts);
    }
    if (!j->scene.two_levels) return;
    for (int q = 0; q < t->world; q++)
        if (t->host_of[q] == t->host_of[r]) members[locals] = q, hosts[locals++] = 0;
    self->host = open_team(j, r, 1 + (uint32_t)lanes->host, members, hosts, locals);
}

static void open_rank(job *j, int r) {
    const coded_scene *s = &j->scene;
    rank_state *self = &j->ranks[r];
    gw_error error = {0};
    gw_core_config core = {.rank = r, .world = j->world, .deadline = 30 * GW_SECOND, .ctx = self,
                           .host_name = host_name, .send = send_control, .failed = failed, .slow = slow};
    CHECK_EQ(GW_OK, gw_core_open(&self->core, &core, 0, &error));
    gw_transport *transport = gw_sim_transport(j->net, r, gw_engine_sink(gw_core_engine(self->core)));
    for (int q = 0; q < j->world; q++)
        if (q != r) gw_engine_route(gw_core_engine(self->core), q, transport);
    gw_lanes lanes = gw_lanes_of(&s->topology, r, !s->two_levels);
    open_teams(j, r, &lanes);
    gw_coded_parts_config config = {.collective = s->collective, .counts = s->counts, .columns = s->columns,
                                    .dtype = GW_F32, .redop = s->average ? GW_AVG : GW_SUM, .name = s->name,
                                    .arch = "auto", .coded = s->coded, .setup = s->setup, .seed = s->seed,
                                    .core = self->core, .rank = r, .topology = &s->topology, .lanes = lanes,
                                    .lane_teams = self->lanes, .host_team = self->host};
    config.by_lane = self->by_lane = malloc(gw_coded_parts_by_lane_bytes(&config) + 4);
    CHECK_EQ(GW_OK, gw_coded_parts_open(&self->parts, &config, &error));
    CHECK_STR("", error.text);
    self->in = calloc(scene_total(s) + 1, sizeof(float));
    self->out = calloc(scene_total(s) + 1, sizeof(float));
    self->expected = calloc(scene_total(s) + 1, sizeof(float));
}

static void open_job(job *j, const coded_scene *scene) {
    gw_error error = {0};
    *j = (job){.world = scene->topology.world, .scene = *scene};
    gw_sim_config net = {.world = j->world, .latency = 20000, .bytes_per_second = 1e9, .jitter = 50000, .seed = 7};
    gw_sim_events events = {.ctx = j, .message = on_message, .hang_up = on_hang_up, .timer = on_moved,
                            .moved = on_moved};
    CHECK_EQ(GW_OK, gw_sim_open(&j->net, &net, &events, &error));
    for (int r = 0; r < j->world; r++) open_rank(j, r);
}

static void close_job(job *j) {
    for (int r = 0; r < j->world; r++) {
        rank_state *self = &j->ranks[r];
        gw_coded_parts_close(self->parts);
        for (int l = 0; l < REFERENCE_WORLD; l++) gw_team_close(self->lanes[l]);
        gw_team_close(self->host);
        gw_core_close(self->core);
        free(self->by_lane);
        free(self->in);
        free(self->out);
        free(self->expected);
    }
    gw_sim_close(j->net);
}

static bool all_over(const job *j) {
    bool all = true;
    for (int r = 0; r < j->world; r++) all &= gw_coded_parts_over(j->ranks[r].parts);
    return all;
}

/* in_place: the rank's own part of the large buffer, as in the plain calls. */
static void run(job *j, uint64_t step, bool in_place) {
    const coded_scene *s = &j->scene;
    for (int r = 0; r < j->world; r++) {
        rank_state *self = &j->ranks[r];
        bool reduces = s->collective == GW_COLL_REDUCE_SCATTER;
        float *in = in_place && !reduces ? self->out + scene_offset(s, r) : self->in;
        scene_fill(s, r, step, in);
        gw_coded_parts_begin(self->parts, step, in, in_place && reduces ? in + scene_offset(s, r) : self->out);
        gw_sim_timer(j->net, r, gw_sim_now(j->net) + 1);
    }
    while (!all_over(j) && gw_sim_step(j->net)) continue;
    CHECK(all_over(j));
    for (int r = 0; r < j->world; r++) CHECK_STR("", gw_coded_parts_error(j->ranks[r].parts)->text);
}

static void compare(job *j, coded_reference *reference, uint64_t step, bool in_place) {
    const coded_scene *s = &j->scene;
    float *expected[REFERENCE_WORLD];
    for (int r = 0; r < j->world; r++) expected[r] = j->ranks[r].expected;
    reference_run(reference, step, expected);
    for (int r = 0; r < j->world; r++) {
        bool reduces = s->collective == GW_COLL_REDUCE_SCATTER;
        size_t count = reduces ? s->counts[r] : scene_total(s);
        const float *got = in_place && reduces ? j->ranks[r].in + scene_offset(s, r) : j->ranks[r].out;
        CHECK(memcmp(got, expected[r], count * sizeof(float)) == 0);
    }
}

/* Scenes. */

static const int one_each[] = {0, 1, 2, 3}, even[] = {0, 0, 1, 1}, uneven[] = {0, 0, 0, 1},
                 mixed[] = {1, 0, 0, 2, 0, 1};

typedef struct layout {
    const int *hosts;
    int world;
    bool two_levels;
} layout;

static const layout layouts[] = {{one_each, 2, false}, {one_each, 3, false}, {one_each, 4, false}, {even, 4, false},
                                 {even, 4, true},      {uneven, 4, true},    {mixed, 6, true}};

static coded_scene make_scene(gw_collective what, const layout *l, const char *codec) {
    coded_scene s = {.collective = what, .topology = {.world = l->world, .host_of = l->hosts},
                     .two_levels = l->two_levels, .average = what == GW_COLL_REDUCE_SCATTER && l->world != 6,
                     .columns = 16, .name = "layer", .seed = 11};
    gw_error error = {0};
    static const size_t counts[] = {4096, 1024, 0, 4112, 512, 2048}; /* some too small to be encoded */
    memcpy(s.counts, counts, sizeof counts);
    s.coded = strcmp(codec, "none") != 0;
    CHECK_EQ(GW_OK, gw_codec_parse(codec, &s.setup, &error));
    if (l->world == 3) s.average = s.coded && s.average; /* a plan divides by 3, a codec multiplies by its inverse */
    return s;
}

static void one_scene_matches(const coded_scene *scene) {
    job j;
    open_job(&j, scene);
    coded_reference *reference = reference_open(scene);
    for (uint64_t step = 0; step < RUNS; step++) {
        run(&j, step, step == 1);
        compare(&j, reference, step, step == 1);
    }
    reference_close(reference);
    close_job(&j);
}

/* gw_coded_open refuses these. */
static bool refused(const gw_codec_setup *setup) { return gw_codec_has_need(setup, GW_NEEDS_SAME_STEP); }

static void every_codec_matches_plain_loops(void) {
    char text[GW_TECHNIQUE_TEXT_BYTES];
    for (const gw_technique *const *t = gw_compress_techniques; *t; t++)
        for (int i = 0; gw_technique_example(*t, i, text); i++)
            for (size_t l = 0; l < sizeof layouts / sizeof *layouts; l++)
                for (int what = GW_COLL_REDUCE_SCATTER; what <= GW_COLL_ALLGATHER; what++) {
                    int before = test_failures;
                    coded_scene s = make_scene((gw_collective)what, &layouts[l], text);
                    if (!refused(&s.setup)) one_scene_matches(&s);
                    if (test_failures != before) printf("    %s, layout %zu, collective %d\n", text, l, what);
                }
}

/* The state is saved before a run, which is then made twice. */
static void saved_state_continues(const char *codec, const layout *l, gw_collective what, uint64_t before) {
    coded_scene s = make_scene(what, l, codec);
    job whole, broken;
    void *saved[REFERENCE_WORLD];
    size_t bytes[REFERENCE_WORLD];
    open_job(&whole, &s);
    open_job(&broken, &s);
    for (uint64_t step = 0; step <= before; step++) run(&whole, step, false);
    for (uint64_t step = 0; step < before; step++) run(&broken, step, false);
    for (int r = 0; r < broken.world; r++) {
        bytes[r] = gw_coded_parts_state_bytes(broken.ranks[r].parts);
        saved[r] = malloc(bytes[r] + 1);
        gw_coded_parts_state_save(broken.ranks[r].parts, saved[r]);
    }
    run(&broken, before, false);
    for (int r = 0; r < broken.world; r++) {
        gw_error error = {0};
        CHECK_EQ(GW_OK, gw_coded_parts_state_restore(broken.ranks[r].parts, saved[r], bytes[r], &error));
        CHECK_EQ(GW_MISMATCH, gw_coded_parts_state_restore(broken.ranks[r].parts, saved[r], bytes[r] + 1, &error));
        free(saved[r]);
    }
    run(&broken, before, false);
    for (int r = 0; r < broken.world; r++)
        CHECK(memcmp(whole.ranks[r].out, broken.ranks[r].out, scene_total(&s) * sizeof(float)) == 0);
    close_job(&whole);
    close_job(&broken);
}

static void saved_states_continue_with_the_same_bits(void) {
    static const char *const codecs[] = {"topk:ratio=0.01", "onebit", "powersgd", "randomk",
                                         "dgc:momentum=0.9,warmup=2"};
    for (size_t c = 0; c < sizeof codecs / sizeof *codecs; c++)
        for (uint64_t before = 0; before <= 2; before += 2) {
            saved_state_continues(codecs[c], &layouts[2], GW_COLL_REDUCE_SCATTER, before);
            saved_state_continues(codecs[c], &layouts[5], GW_COLL_REDUCE_SCATTER, before);
            saved_state_continues(codecs[c], &layouts[5], GW_COLL_ALLGATHER, before);
        }
}

/* Between hosts each part crosses once to each other host, encoded. */
static void only_payloads_cross_hosts(void) {
    for (int what = GW_COLL_REDUCE_SCATTER; what <= GW_COLL_ALLGATHER; what++) {
        coded_scene s = make_scene((gw_collective)what, &layouts[4], "int8");
        for (int r = 0; r < 4; r++) s.counts[r] = 16384;
        job j;
        uint64_t across = 0;
        open_job(&j, &s);
        run(&j, 0, false);
        for (int a = 0; a < 2; a++)
            for (int b = 2; b < 4; b++) across += gw_sim_sent_bytes(j.net, a, b);
        CHECK(across > 2 * 16384 && across < 2 * 16384 * 1.05);
        CHECK(gw_coded_parts_sent_bytes(j.ranks[0].parts) > 16384);
        close_job(&j);
    }
}

/* Rank 2 believes that the part of rank 0 is shorter. */
static void a_payload_of_another_length_is_refused(void) {
    coded_scene s = make_scene(GW_COLL_REDUCE_SCATTER, &layouts[1], "fp16");
    job j;
    open_job(&j, &s);
    s.counts[0] -= 16;
    gw_coded_parts *mine = j.ranks[2].parts;
    gw_error error = {0};
    gw_lanes lanes = gw_lanes_of(&s.topology, 2, true);
    gw_coded_parts_config config = {.collective = s.collective, .counts = s.counts, .columns = s.columns,
                                    .dtype = GW_F32, .redop = GW_SUM, .name = s.name, .arch = "auto", .coded = true,
                                    .setup = s.setup, .seed = s.seed, .core = j.ranks[2].core, .rank = 2,
                                    .topology = &s.topology, .lanes = lanes, .lane_teams = j.ranks[2].lanes};
    CHECK_EQ(GW_OK, gw_coded_parts_open(&j.ranks[2].parts, &config, &error));
    for (int r = 0; r < j.world; r++) {
        scene_fill(&s, r, 0, j.ranks[r].in);
        gw_coded_parts_begin(j.ranks[r].parts, 0, j.ranks[r].in, j.ranks[r].out);
        gw_sim_timer(j.net, r, gw_sim_now(j.net) + 1);
    }
    while (!gw_coded_parts_over(j.ranks[0].parts) && gw_sim_step(j.net)) continue;
    CHECK(gw_coded_parts_error(j.ranks[0].parts)->status != GW_OK);
    gw_coded_parts_close(j.ranks[2].parts);
    j.ranks[2].parts = mine;
    close_job(&j);
}

TEST_MAIN(CASE(every_codec_matches_plain_loops), CASE(saved_states_continue_with_the_same_bits),
          CASE(only_payloads_cross_hosts), CASE(a_payload_of_another_length_is_refused))
