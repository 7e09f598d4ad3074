/* test_pipeline.c - possible cuts of a model, the chosen cut, the order of work of the stages, and their results. */
#include "train/pipeline.h"

#include <math.h>

#include "base/rng.h"
#include "small_job.h"
#include "train/stage_cut.h"
#include "train/trainer.h"

/* ---- parts of a model ---- */

static int pieces_of(const char *model) {
    gw_error error = {0};
    gw_spec *spec = NULL;
    gw_model_blocks pieces = {0};
    CHECK_EQ(GW_OK, gw_model_spec(model, NULL, &spec, &error));
    CHECK_EQ(GW_OK, gw_model_blocks_find(spec, &pieces, &error));
    for (int p = 0; p < pieces.count; p++) {
        bool computes = false;
        for (int n = pieces.first[p]; n < pieces.first[p + 1]; n++) computes |= !spec->nodes[n].kind->computes_nothing;
        CHECK(computes);
        if (p) CHECK(gw_spec_can_cut(spec, pieces.first[p]));
    }
    CHECK_EQ(0, pieces.first[0]);
    CHECK_EQ(spec->node_count, pieces.first[pieces.count]);
    int count = pieces.count;
    gw_model_blocks_free(&pieces);
    gw_spec_destroy(spec);
    return count;
}

static void cuts_are_where_one_tensor_crosses(void) {
    CHECK_EQ(3, pieces_of("mlp"));       /* three dense layers; the flatten before them is no part of its own */
    CHECK_EQ(6, pieces_of("cnn"));       /* two convolutions, two pools, two dense layers */
    CHECK_EQ(13, pieces_of("resnet20")); /* conv, norm, nine blocks, pool, dense */
    CHECK_EQ(12, pieces_of("gpt"));      /* embedding, positions, four times two blocks, norm, dense */
}

/* ---- choosing ---- */

/* The cheapest most expensive stage, by trying every cut. */
static uint64_t reference(const uint64_t *costs, int pieces, int stages) {
    uint64_t sum = 0, best = UINT64_MAX;
    if (stages == 1) {
        for (int p = 0; p < pieces; p++) sum += costs[p];
        return sum;
    }
    for (int last = pieces - 1; last >= stages - 1; last--) {
        sum += costs[last];
        uint64_t rest = reference(costs, last, stages - 1), most = rest > sum ? rest : sum;
        if (most < best) best = most;
    }
    return best;
}

static void the_best_cut_is_chosen(void) {
    gw_rng rng = gw_rng_make(3, 1);
    for (int trial = 0; trial < 400; trial++) {
        uint64_t costs[10];
        int first[11], pieces = 1 + (int)gw_rng_below(&rng, 10), stages = 1 + (int)gw_rng_below(&rng, (uint64_t)pieces);
        gw_error error = {0};
        for (int p = 0; p < pieces; p++) costs[p] = gw_rng_below(&rng, 4) ? gw_rng_below(&rng, 1000) : 0;
        CHECK_EQ(GW_OK, gw_stages_choose(costs, pieces, stages, first, &error));
        uint64_t most = 0;
        CHECK_EQ(0, first[0]);
        CHECK_EQ(pieces, first[stages]);
        for (int s = 0; s < stages; s++) {
            uint64_t cost = 0;
            CHECK(first[s] < first[s + 1]);
            for (int p = first[s]; p < first[s + 1]; p++) cost += costs[p];
            if (cost > most) most = cost;
        }
        CHECK_EQ(reference(costs, pieces, stages), most);
    }
}

/* ---- order ---- */

/* Simulates all stages, a unit of time for each task, and returns the time; -1: deadlock. */
static int play(int stages, int micro) {
    static int forwards[GW_STAGES_MAX], backwards[GW_STAGES_MAX], at[GW_STAGES_MAX]; /* done, by stage */
    memset(forwards, 0, sizeof forwards);
    memset(backwards, 0, sizeof backwards);
    memset(at, 0, sizeof at);
    for (int time = 0, over = 0; time < 4 * (stages + micro); time++) {
        int had[2][GW_STAGES_MAX];
        memcpy(had[0], forwards, sizeof forwards);
        memcpy(had[1], backwards, sizeof backwards);
        for (int s = 0; s < stages; s++) {
            if (at[s] == 2 * micro) continue;
            int m = gw_pipeline_order(s, stages, micro, at[s]), back = -1 - m;
            if (m >= 0 ? s > 0 && had[0][s - 1] <= m : s < stages - 1 && had[1][s + 1] <= back) continue;
            CHECK_EQ(m >= 0 ? forwards[s]++ : backwards[s]++, m >= 0 ? m : back); /* each in its turn */
            CHECK(backwards[s] <= forwards[s]);
            CHECK(forwards[s] - backwards[s] <= stages - s);
            if (++at[s] == 2 * micro) over++;
        }
        if (over == stages) return time + 1;
    }
    return -1;
}

static void no_stage_waits_for_ever(void) {
    for (int stages = 1; stages <= 8; stages++)
        for (int micro = 1; micro <= 20; micro++) CHECK_EQ(2 * (micro + stages - 1), play(stages, micro));
}

/* ---- results ---- */

static int port;
static int stages_of_job, world_of_job;

static const char model[] = "input 8 8 1\nconv 4 3 relu as a\nconv 4 3\nadd a relu\nmaxpool 2\nflatten\ndense 12 relu\n"
                            "dense 10\n";
static char model_path[] = "/tmp/gradwire-pipeline-XXXXXX.model";

static gw_trainer *open_trainer(gw_comm **comm, int rank, int world, int stages, int micro) {
    gw_error error = {0};
    gw_trainer *trainer = NULL;
    gw_options options = job_options(rank, world, port ? port : free_port(), NULL);
    gw_train_settings settings = {.model = model_path, .data = "synthetic:count=118,height=8,width=8", .batch = 23,
                                  .accumulate = 2, .epochs = 2, .optimiser = &gw_lars, .tuning = gw_lars.defaults,
                                  .rate = 0.1, .clip = 0.5, .seed = 5,
                                  .pipeline = {.stages = stages, .micro = micro}};
    CHECK_EQ(GW_OK, gw_init(comm, &options));
    CHECK_EQ(GW_OK, gw_trainer_create(*comm, &settings, &trainer, &error));
    CHECK_STR("", error.text);
    return trainer;
}

/* Two epochs, uneven to the last micro-batch: 5 batches of 23 and one of 3, in windows of two; then a test. */
static void train(gw_trainer *t, gw_train_work *work, gw_loss *test) {
    gw_error error = {0};
    for (int i = 0; i < 6; i++) CHECK_EQ(GW_OK, gw_trainer_step(t, &error));
    CHECK_EQ(GW_OK, gw_trainer_gather_work(t, work, &error));
    CHECK_EQ(GW_OK, gw_trainer_evaluate(t, NULL, NULL, test, &error));
    CHECK_STR("", error.text);
}

static gw_train_work alone_work;
static gw_loss alone_test;
static float alone_weights[4096];

static void stage_rank(int rank) {
    gw_comm *comm = NULL;
    gw_train_work work = {0};
    gw_loss test = {0};
    gw_trainer *t = open_trainer(&comm, rank, world_of_job, stages_of_job, 4);
    if (!t) return;
    train(t, &work, &test);
    CHECK_EQ(alone_work.counted, work.counted);
    CHECK(fabs(alone_work.loss_sum - work.loss_sum) < 1e-4 * alone_work.loss_sum);
    CHECK_EQ(alone_test.counted, test.counted);
    CHECK(fabs(alone_test.sum - test.sum) < 1e-4 * alone_test.sum);
    const float *expected = alone_weights + gw_spec_parameters_before(t->spec, t->model->first);
    for (size_t i = 0; i < t->model->count; i++) CHECK(fabsf(t->model->weights[i] - expected[i]) < 1e-4f);
    gw_trainer_destroy(t);
    gw_finalize(comm);
}

static void stages_compute_the_whole(void) {
    static const int jobs[][2] = {{2, 2}, {4, 4}, {4, 2}, {3, 1}}; /* ranks, stages */
    gw_comm *comm = NULL;
    FILE *file = fdopen(mkstemps(model_path, 6), "w");
    fputs(model, file);
    fclose(file);
    gw_trainer *t = open_trainer(&comm, 0, 1, 0, 0);
    train(t, &alone_work, &alone_test);
    CHECK(t->model->count <= sizeof alone_weights / sizeof alone_weights[0]);
    memcpy(alone_weights, t->model->weights, t->model->count * sizeof(float));
    gw_trainer_destroy(t);
    gw_finalize(comm);
    for (size_t k = 0; k < sizeof jobs / sizeof jobs[0]; k++) {
        port = free_port();
        world_of_job = jobs[k][0];
        stages_of_job = jobs[k][1];
        job_fork(world_of_job, stage_rank);
    }
    unlink(model_path);
}

TEST_MAIN(CASE(cuts_are_where_one_tensor_crosses), CASE(the_best_cut_is_chosen), CASE(no_stage_waits_for_ever),
          CASE(stages_compute_the_whole))
