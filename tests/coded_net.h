/* coded_net.h - ranks with one coded exchange each, of a matrix and a bias, over the simulated network. */
#ifndef GW_TEST_CODED_NET_H
#define GW_TEST_CODED_NET_H

#include "quiet_ranks.h"
#include "reducer/coded_exchange.h"
#include "transport/sim_transport.h"

#define MINI_WORLD_MAX 9

typedef struct rank_state {
    struct mini *mini;
    gw_core *core;
    gw_team *team;
    gw_coded_exchange *exchange;
    gw_coded_watched watched; /* if the mini is watched */
    gw_coded_tensor coded[2];
    gw_status status;
    gw_error error;
    bool over;
    float *gradient[2], *result[2];
} rank_state;

typedef struct mini {
    gw_sim_net *net;
    int world;
    bool watches, halves; /* of its exchanges */
    rank_state ranks[MINI_WORLD_MAX];
} mini;

static void failed(void *ctx, const gw_error *error) { ((rank_state *)ctx)->error = *error; }

static void step_rank(mini *m, int r) {
    rank_state *self = &m->ranks[r];
    gw_op *op;
    if (!self->over)
        self->over = gw_coded_exchange_next(self->exchange, gw_sim_now(m->net), &op, &self->status, &self->error);
}

static void on_moved(void *ctx, int rank) {
    mini *m = ctx;
    gw_core_poll(m->ranks[rank].core, gw_sim_now(m->net));
    step_rank(m, rank);
}
static void on_timer(void *ctx, int rank) { on_moved(ctx, rank); }

static const gw_codec_tensor *tensors(size_t count) {
    static gw_codec_tensor two[2];
    two[0] = gw_codec_tensor_make("layer.weight", 64, count / 64);
    two[1] = gw_codec_tensor_make("layer.bias", 1, 33);
    return two;
}

static void open_tensors(rank_state *self, const gw_topology *topology, int r, const gw_codec_tensor *what,
                         const gw_coded_exchange_config *config) {
    gw_error error = {0};
    gw_coding coding;
    bool two_pass = gw_coded_form_of(&config->setup, topology->world, config->halves) == GW_FORM_TWO_PASS;
    gw_lanes lanes = gw_lanes_of(topology, r, true);
    CHECK_EQ(GW_OK, gw_coding_open(&coding, &config->setup, config->seed, r, topology->world, &error));
    for (int t = 0; t < 2; t++)
        CHECK_EQ(GW_OK, gw_coding_tensor_open(&coding, &self->coded[t], &what[t], false, &lanes, two_pass, &error));
}

/* With what is set in m. form AUTO: as the codec says. */
static void open_mini_as(mini *m, int world, const char *arch, const char *codec, size_t count, gw_coded_form form) {
    gw_error error = {0};
    m->world = world;
    gw_sim_config net = {.world = world, .latency = 20000, .bytes_per_second = 1e9, .jitter = 50000, .seed = 7};
    gw_sim_events events = {.ctx = m, .message = on_message, .hang_up = on_hang_up, .timer = on_timer,
                            .moved = on_moved};
    CHECK_EQ(GW_OK, gw_sim_open(&m->net, &net, &events, &error));
    int members[MINI_WORLD_MAX], hosts[MINI_WORLD_MAX];
    for (int r = 0; r < world; r++) members[r] = hosts[r] = r;
    gw_topology topology = {.world = world, .host_of = hosts};
    const gw_codec_tensor *what = tensors(count);
    gw_coded_exchange_config config = {.count = 2, .ranks = world, .arch = arch, .seed = 42,
                                       .halves = m->halves};
    CHECK_EQ(GW_OK, gw_codec_parse(codec, &config.setup, &error));
    if (form) config.setup.form = form;
    for (int r = 0; r < world; r++) {
        rank_state *self = &m->ranks[r];
        self->mini = m;
        gw_core_config core = {.rank = r, .world = world, .deadline = 30 * GW_SECOND, .ctx = self,
                               .host_name = host_name, .send = send_control, .failed = failed, .slow = slow};
        CHECK_EQ(GW_OK, gw_core_open(&self->core, &core, 0, &error));
        gw_engine *engine = gw_core_engine(self->core);
        gw_transport *transport = gw_sim_transport(m->net, r, gw_engine_sink(engine));
        for (int q = 0; q < world; q++)
            if (q != r) gw_engine_route(engine, q, transport);
        CHECK_EQ(GW_OK, gw_team_open(&self->team, engine, 1, r, members, &topology, NULL, &error));
        open_tensors(self, &topology, r, what, &config);
        gw_coded_part parts[2] = {{&self->coded[0], 0, what[0].count}, {&self->coded[1], 0, what[1].count}};
        config.parts = parts;
        config.watched = m->watches ? &self->watched : NULL;
        CHECK_EQ(GW_OK, gw_coded_exchange_open(&self->exchange, self->core, self->team, &config, &error));
        for (int t = 0; t < 2; t++) {
            self->gradient[t] = calloc(what[t].count, sizeof(float));
            self->result[t] = calloc(what[t].count, sizeof(float));
        }
    }
    if (error.text[0]) printf("    %s\n", error.text);
}

static void open_mini(mini *m, int world, const char *arch, const char *codec, size_t count, gw_coded_form form) {
    *m = (mini){0};
    open_mini_as(m, world, arch, codec, count, form);
}

static void close_mini(mini *m) {
    for (int r = 0; r < m->world; r++) {
        rank_state *self = &m->ranks[r];
        gw_coded_exchange_close(self->exchange);
        for (int t = 0; t < 2; t++) gw_coding_tensor_free(&self->coded[t]);
        gw_team_close(self->team);
        gw_core_close(self->core);
        for (int t = 0; t < 2; t++) free(self->gradient[t]), free(self->result[t]);
    }
    gw_sim_close(m->net);
}

/* What has begun on all ranks, or a half of it. */
static void run_begun(mini *m) {
    for (int r = 0; r < m->world; r++) {
        m->ranks[r].over = false;
        gw_sim_timer(m->net, r, gw_sim_now(m->net) + 1);
    }
    for (bool all = false; !all;) {
        if (!gw_sim_step(m->net)) break;
        all = true;
        for (int r = 0; r < m->world; r++) all &= m->ranks[r].over;
    }
    for (int r = 0; r < m->world; r++) {
        CHECK(m->ranks[r].over);
        CHECK_EQ(GW_OK, m->ranks[r].status);
        if (m->ranks[r].status && test_failures < 5) printf("    %s\n", m->ranks[r].error.text);
    }
}

static void run_step(mini *m, uint64_t step) {
    for (int r = 0; r < m->world; r++)
        gw_coded_exchange_begin(m->ranks[r].exchange, step, (const float *const *)m->ranks[r].gradient,
                                m->ranks[r].result, true);
    run_begun(m);
    for (int r = 0; m->halves && r < m->world; r++) gw_coded_exchange_go_on(m->ranks[r].exchange);
    if (m->halves) run_begun(m);
}

#endif
