/* test_decide.c - strategy=auto: what may be chosen, when steps have changed, the file of decisions, and a job that
 * chooses, whose results are the means in every step and which a file repeats bit for bit. */
#include <math.h>

#include "compress/compress.h"
#include "decide/candidates.h"
#include "decide/decision_file.h"
#include "decide/links.h"
#include "decide/ranking.h"
#include "decide/watch.h"
#include "small_job.h"

/* Candidates. */

static int list_of(const char *line, int hosts, int per_host, gw_strategy *list) {
    gw_strategy asked;
    gw_error error = {.rank = -1};
    gw_candidate_facts facts = {.hosts = hosts, .per_host = per_host};
    CHECK_EQ(GW_OK, gw_strategy_parse(line, &asked, &error));
    return gw_candidates_list(&asked, &facts, list);
}

static int with(const gw_strategy *list, int count, gw_axis axis, const char *name) {
    int found = 0;
    for (int i = 0; i < count; i++) found += gw_strategy_is(&list[i], axis, name);
    return found;
}

static void named_axes_stay(void) {
    gw_strategy list[GW_CANDIDATES_MAX];
    int count = list_of("schedule=dear", 4, 1, list);
    CHECK_EQ(count, with(list, count, GW_AXIS_SCHEDULE, "dear"));
    CHECK(with(list, count, GW_AXIS_ARCH, "ring") > 0);
    count = list_of("arch=tree", 4, 1, list);
    CHECK_EQ(count, with(list, count, GW_AXIS_ARCH, "tree"));
    CHECK(with(list, count, GW_AXIS_SCHEDULE, "p3") > 0);
    count = list_of("compress=topk accuracy=safe", 4, 1, list);
    CHECK_EQ(count, with(list, count, GW_AXIS_COMPRESS, "topk"));
}

static void exact_lists_no_codec(void) {
    gw_strategy list[GW_CANDIDATES_MAX];
    int count = list_of("", 4, 2, list);
    CHECK(count > 10 && count <= GW_CANDIDATES_MAX);
    CHECK_EQ(count, with(list, count, GW_AXIS_COMPRESS, "none"));
    CHECK(with(list, count, GW_AXIS_ARCH, "hierarchical") > 0);
    count = list_of("accuracy=safe", 4, 2, list);
    CHECK(with(list, count, GW_AXIS_COMPRESS, "none") > 0);
    CHECK(with(list, count, GW_AXIS_COMPRESS, "none") < count);
    CHECK_EQ(0, with(list, count, GW_AXIS_COMPRESS, "dgc"));
}

static void lists_have_no_doubles(void) {
    gw_strategy list[GW_CANDIDATES_MAX];
    int count = list_of("accuracy=safe", 4, 2, list);
    for (int i = 0; i < count; i++)
        for (int k = 0; k < i; k++) CHECK(!gw_strategy_equal(&list[i], &list[k]));
}

static bool applies(const char *line) {
    gw_strategy asked;
    gw_error error = {.rank = -1};
    CHECK_EQ(GW_OK, gw_strategy_parse(line, &asked, &error));
    return gw_candidates_apply(&asked);
}

static void applies_where_something_is_open(void) {
    CHECK(applies(""));
    CHECK(applies("arch=ring"));
    CHECK(!applies("arch=ring schedule=dear"));
    CHECK(applies("arch=ring schedule=dear accuracy=safe"));
    CHECK(!applies("arch=ring schedule=dear compress=int8 accuracy=safe"));
    CHECK(!applies("fixed"));
    CHECK(!applies("arch=ps"));
    CHECK(!applies("sync=periodic"));
    CHECK(!applies("sync=delayed"));
}

static double weight_of(const char *line) {
    gw_strategy strategy;
    gw_error error = {.rank = -1};
    CHECK_EQ(GW_OK, gw_strategy_parse(line, &strategy, &error));
    return gw_ranking_weight(&strategy, "sgd");
}

/* Of two that take the same time the one is chosen that has cost less accuracy. */
static void lost_accuracy_counts(void) {
    CHECK(weight_of("") == 1);
    CHECK(weight_of("compress=onebit") < weight_of("compress=powersgd:rank=2"));
    CHECK(weight_of("compress=powersgd:rank=2") < 1.5);
}

/* A codec that is sent exact takes longer than predicted: what is slower than its prediction may still be faster. */
static void a_distrusted_codec_is_judged_by_its_steps(void) {
    CHECK(gw_ranking_worth_trying(1.0, 1.0, 1.0, false));
    CHECK(!gw_ranking_worth_trying(1.2, 1.0, 4.0, false));
    CHECK(gw_ranking_worth_trying(1.2, 1.0, 4.0, true));
    CHECK(!gw_ranking_worth_trying(5.0, 1.0, 4.0, true));
    CHECK(!gw_ranking_worth_trying(1.2, 1.0, 0.5, true));
    CHECK(gw_ranking_worth_trying(9.0, 0, 1.0, false)); /* the present one cannot be predicted */
}

/* Watching. */

static void steady_steps_stay(void) {
    gw_watch watch = {.fruitless = 0};
    gw_watch_begin(&watch, false);
    for (int i = 0; i < 100; i++) {
        double noise = 1 + 0.15 * sin(i);
        CHECK_EQ(GW_WATCH_STEADY, gw_watch_look(&watch, (gw_watch_window){0.1 * noise, 0.06 * noise, 0}));
    }
}

static void a_slower_network_is_seen_at_once(void) {
    gw_watch watch = {.fruitless = 0};
    gw_watch_begin(&watch, false);
    gw_watch_look(&watch, (gw_watch_window){0.1, 0.06, 0});
    CHECK_EQ(GW_WATCH_NETWORK, gw_watch_look(&watch, (gw_watch_window){0.64, 0.6, 0}));
    gw_watch_begin(&watch, false);
    gw_watch_look(&watch, (gw_watch_window){0.64, 0.6, 0});
    CHECK_EQ(GW_WATCH_NETWORK, gw_watch_look(&watch, (gw_watch_window){0.1, 0.06, 0}));
}

static void small_changes_have_to_last(void) {
    gw_watch watch = {.fruitless = 0};
    gw_watch_begin(&watch, false);
    gw_watch_look(&watch, (gw_watch_window){0.1, 0.06, 0});
    CHECK_EQ(GW_WATCH_STEADY, gw_watch_look(&watch, (gw_watch_window){0.13, 0.09, 0}));
    CHECK_EQ(GW_WATCH_STEADY, gw_watch_look(&watch, (gw_watch_window){0.1, 0.06, 0}));
    CHECK_EQ(GW_WATCH_STEADY, gw_watch_look(&watch, (gw_watch_window){0.13, 0.09, 0}));
    CHECK_EQ(GW_WATCH_NETWORK, gw_watch_look(&watch, (gw_watch_window){0.13, 0.09, 0}));
}

static void compute_counts_where_waits_do(void) {
    gw_watch watch = {.fruitless = 0};
    gw_watch_begin(&watch, false);
    gw_watch_look(&watch, (gw_watch_window){0.1, 0.03, 0});
    CHECK_EQ(GW_WATCH_COMPUTE, gw_watch_look(&watch, (gw_watch_window){0.2, 0.03, 0}));
    gw_watch_begin(&watch, false);
    gw_watch_look(&watch, (gw_watch_window){0.1, 0.001, 0});
    CHECK_EQ(GW_WATCH_STEADY, gw_watch_look(&watch, (gw_watch_window){0.2, 0.001, 0}));
}

/* Steps that are longer because a codec is trusted less are no other network. */
static void exact_parts_explain_longer_steps(void) {
    gw_watch watch = {.fruitless = 0};
    gw_watch_begin(&watch, false);
    gw_watch_look(&watch, (gw_watch_window){0.1, 0.06, 0});
    CHECK_EQ(GW_WATCH_STEADY, gw_watch_look(&watch, (gw_watch_window){0.15, 0.1, 0.05}));
    for (int i = 0; i < 4; i++) CHECK_EQ(GW_WATCH_STEADY, gw_watch_look(&watch, (gw_watch_window){0.13, 0.08, 0.05}));
    CHECK_EQ(GW_WATCH_STEADY, gw_watch_look(&watch, (gw_watch_window){0.2, 0.1, 0.1}));
    CHECK_EQ(GW_WATCH_STEADY, gw_watch_look(&watch, (gw_watch_window){0.2, 0.1, 0.1}));
    CHECK_EQ(GW_WATCH_CODEC, gw_watch_look(&watch, (gw_watch_window){0.2, 0.1, 0.1}));
    for (int i = 0; i < 3; i++) CHECK_EQ(GW_WATCH_STEADY, gw_watch_look(&watch, (gw_watch_window){0.2, 0.1, 0.05}));
    for (int i = 0; i < 2; i++) CHECK_EQ(GW_WATCH_STEADY, gw_watch_look(&watch, (gw_watch_window){0.1, 0.06, 0}));
    CHECK_EQ(GW_WATCH_NETWORK, gw_watch_look(&watch, (gw_watch_window){0.1, 0.06, 0}));
}

/* Such steps are long: none is wasted on certainty. What is tolerated afterwards is what is usual. */
static void what_costs_three_times_as_much_is_seen_at_once(void) {
    gw_watch watch = {.fruitless = 0};
    gw_watch_begin(&watch, false);
    gw_watch_look(&watch, (gw_watch_window){0.1, 0.06, 0});
    CHECK_EQ(GW_WATCH_CODEC, gw_watch_look(&watch, (gw_watch_window){0.5, 0.46, 0.5}));
    CHECK_EQ(GW_WATCH_STEADY, gw_watch_look(&watch, (gw_watch_window){0.5, 0.46, 0.5}));
    CHECK_EQ(GW_WATCH_NETWORK, gw_watch_look(&watch, (gw_watch_window){5, 4.96, 0.5}));

    gw_watch_begin(&watch, false);
    gw_watch_look(&watch, (gw_watch_window){0.1, 0.06, 0});
    CHECK_EQ(3, gw_watch_steps(&watch, 0.1));
    CHECK_EQ(GW_WATCH_STEADY, gw_watch_look(&watch, (gw_watch_window){0.1, 0.06, 0.5}));
    CHECK_EQ(1, gw_watch_steps(&watch, 0.1));
    CHECK_EQ(GW_WATCH_CODEC, gw_watch_look(&watch, (gw_watch_window){0.5, 0.46, 0.5}));
}

static void fruitless_decisions_get_rarer(void) {
    gw_watch watch = {.fruitless = 0};
    int before = 0;
    for (int turn = 0; turn < 4; turn++) {
        int windows = 0;
        gw_watch_begin(&watch, turn > 0);
        gw_watch_look(&watch, (gw_watch_window){0.1, 0.06, 0});
        while (gw_watch_look(&watch, (gw_watch_window){0.3, 0.2, 0}) == GW_WATCH_STEADY) {
            gw_watch_look(&watch, (gw_watch_window){0.1, 0.06, 0});
            windows++;
        }
        CHECK(turn == 0 ? windows == 0 : windows >= 2 * before);
        before = windows;
    }
}

/* After fruitless decisions a change that lasts is still seen soon. */
static void a_lasting_change_ends_the_rest(void) {
    gw_watch watch = {.fruitless = 5};
    gw_watch_begin(&watch, true);
    gw_watch_look(&watch, (gw_watch_window){0.1, 0.06, 0});
    CHECK_EQ(GW_WATCH_STEADY, gw_watch_look(&watch, (gw_watch_window){0.3, 0.26, 0}));
    CHECK_EQ(GW_WATCH_NETWORK, gw_watch_look(&watch, (gw_watch_window){0.3, 0.26, 0}));
}

static void windows_are_short_and_few(void) {
    const gw_watch watch = {.fruitless = 0};
    CHECK_EQ(3, gw_watch_steps(&watch, 10));
    CHECK_EQ(5, gw_watch_steps(&watch, 0.01));
    CHECK_EQ(64, gw_watch_steps(&watch, 0));
}

/* The file. */

static void write_text(const char *path, const char *text) {
    FILE *file = fopen(path, "w");
    fputs(text, file);
    fclose(file);
}

static void decisions_read_back(void) {
    char path[] = "/tmp/gw_decide_XXXXXX";
    gw_decisions made = {.model = "4 ranks", .count = 0}, read;
    gw_strategy first, second;
    gw_error error = {.rank = -1};
    close(mkstemp(path));
    CHECK_EQ(GW_OK, gw_strategy_parse("", &first, &error));
    CHECK_EQ(GW_OK, gw_strategy_parse("schedule=dear:fuse=2M compress=int8 accuracy=safe", &second, &error));
    gw_decisions_add(&made, 0, &first, NULL);
    gw_decisions_add(&made, 18, &second, "because\nof this");
    CHECK_EQ(GW_OK, gw_decisions_write(&made, path, &error));
    CHECK_EQ(GW_OK, gw_decisions_read(&read, path, &error));
    CHECK_EQ(2, read.count);
    CHECK_STR("4 ranks", read.model);
    CHECK_EQ(18, read.entries[1].step);
    CHECK(gw_strategy_equal(&second, &read.entries[1].strategy));
    gw_decisions_free(&read);
    gw_decisions_free(&made);
    unlink(path);
}

static void damaged_files_are_named(void) {
    static const struct {
        const char *text, *part;
    } files[] = {
        {"", "is not a file of decisions"},
        {"gradwire-decisions 2\n", "is not a file of decisions"},
        {"gradwire-decisions 1\n", "names no model"},
        {"gradwire-decisions 1\nmodel x\n", "names no model, or no strategy"},
        {"gradwire-decisions 1\nmodel x\nstep 3\n", "line 3: it is not \"step NUMBER STRATEGY\""},
        {"gradwire-decisions 1\nmodel x\nstep 3 arch=rign\n", "line 3: unknown arch"},
        {"gradwire-decisions 1\nmodel x\nstep 3 arch=ring\nstep 3 arch=ring\n", "line 4: step 3 does not come after"},
        {"gradwire-decisions 1\nwhat\n", "line 2: it begins with neither"},
    };
    char path[] = "/tmp/gw_decide_XXXXXX";
    close(mkstemp(path));
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        gw_decisions read;
        gw_error error = {.rank = -1};
        write_text(path, files[i].text);
        CHECK_EQ(GW_INVALID, gw_decisions_read(&read, path, &error));
        CHECK(strstr(error.text, files[i].part));
        if (!strstr(error.text, files[i].part)) printf("    %s\n", error.text);
    }
    unlink(path);
}

/* Jobs. */

#define RANKS 3
#define TENSORS 4
#define COUNT 40000
#define STEPS 40

static int port;
static char file[] = "/tmp/gw_decisions_XXXXXX", results[] = "/tmp/gw_results_XXXXXX";
static const char *job_line;

/* Fractions whose sum depends on the order. */
static float value(int rank, int tensor, int step, size_t i) {
    return (float)sin((double)(rank + 1) * (double)(i % 97 + 1) + tensor + step) * (rank == 1 ? 1e4f : 1);
}

static float mean(int tensor, int step, size_t i) {
    double sum = 0;
    for (int r = 0; r < RANKS; r++) sum += value(r, tensor, step, i);
    return (float)(sum / RANKS);
}

static void make_step(gw_reducer *reducer, float *gradients, int rank, int step, FILE *out) {
    int wrong = 0;
    for (int t = 0; t < TENSORS; t++) {
        CHECK_EQ(GW_OK, gw_reducer_wait(reducer, t));
        for (size_t i = 0; i < COUNT; i++) gradients[(size_t)t * COUNT + i] = value(rank, t, step, i);
    }
    for (int t = TENSORS - 1; t >= 0; t--) CHECK_EQ(GW_OK, gw_reducer_ready(reducer, t));
    CHECK_EQ(GW_OK, gw_reducer_end(reducer));
    CHECK_EQ(GW_OK, gw_reducer_flush(reducer));
    for (int t = 0; t < TENSORS; t++)
        for (size_t i = 0; i < COUNT; i += 101)
            wrong += !(fabsf(gradients[(size_t)t * COUNT + i] - mean(t, step, i)) <= 2e-2f);
    CHECK_EQ(0, wrong);
    if (out) fwrite(gradients, sizeof *gradients, (size_t)TENSORS * COUNT, out);
}

static void member(int rank) {
    static const char *const names[TENSORS] = {"a", "b", "c", "d"};
    gw_comm *comm = NULL;
    gw_reducer *reducer = NULL;
    gw_reducer_tensor tensors[TENSORS];
    gw_reducer_options options = GW_REDUCER_OPTIONS_DEFAULT;
    gw_options joining = job_options(rank, RANKS, port, job_line);
    FILE *out = rank == 0 ? fopen(results, "w") : NULL;
    CHECK_EQ(GW_OK, gw_init(&comm, &joining));
    float *gradients = gw_alloc(comm, (size_t)TENSORS * COUNT * sizeof *gradients);
    for (int t = 0; t < TENSORS; t++)
        tensors[t] = (gw_reducer_tensor){.name = names[t], .count = COUNT, .gradient = gradients + (size_t)t * COUNT};
    options.decisions = file;
    CHECK_EQ(GW_OK, gw_reducer_commit(&reducer, comm, tensors, TENSORS, &options));
    for (int step = 0; step < STEPS; step++) make_step(reducer, gradients, rank, step, out);
    gw_reducer_close(reducer);
    gw_free(comm, gradients);
    gw_finalize(comm);
    if (out) fclose(out);
}

static void run_job(const char *line) {
    job_line = line;
    port = free_port();
    setenv("GRADWIRE_LOG", "error", 1);
    job_fork(RANKS, member);
}

static uint64_t sum_of_results(void) {
    uint64_t sum = 14695981039346656037u;
    FILE *in = fopen(results, "r");
    for (int c; (c = fgetc(in)) != EOF;) sum = (sum ^ (uint64_t)c) * 1099511628211u;
    CHECK_EQ((long)(sizeof(float) * TENSORS * COUNT * STEPS), ftell(in));
    fclose(in);
    return sum;
}

/* Over TCP between the ranks of this host, where there is something to choose. */
static void a_job_chooses_and_its_file_repeats_it(void) {
    gw_decisions made;
    gw_error error = {.rank = -1};
    close(mkstemp(file));
    close(mkstemp(results));
    unlink(file);
    run_job("transport=tcp");
    uint64_t first = sum_of_results();
    CHECK_EQ(GW_OK, gw_decisions_read(&made, file, &error));
    CHECK(made.count > 1); /* at least one was tried */
    gw_decisions_free(&made);
    run_job("transport=tcp");
    CHECK_EQ(first, sum_of_results());
    unlink(results);
}

/* Steps of microseconds: windows are as long as they can be, and end after the same step on all ranks. */
static void short_steps(int rank) {
    gw_comm *comm = NULL;
    gw_reducer *reducer = NULL;
    gw_options joining = job_options(rank, RANKS, port, "");
    CHECK_EQ(GW_OK, gw_init(&comm, &joining));
    float gradient[2] = {1, 2};
    gw_reducer_tensor tensor = {.name = "short", .count = 2, .gradient = gradient};
    gw_reducer_options options = GW_REDUCER_OPTIONS_DEFAULT;
    gw_status status = gw_reducer_commit(&reducer, comm, &tensor, 1, &options);
    for (int step = 0; step < 20000 && !status; step++) {
        status = gw_reducer_ready(reducer, 0);
        if (!status) status = gw_reducer_end(reducer);
        if (!status) status = gw_reducer_wait(reducer, 0);
    }
    CHECK_EQ(GW_OK, status);
    gw_reducer_close(reducer);
    gw_finalize(comm);
}

static void steps_of_microseconds_are_watched_in_step(void) {
    setenv("GRADWIRE_LOG", "error", 1);
    port = free_port();
    job_fork(RANKS, short_steps);
}

static void refused(int rank) {
    gw_comm *comm = NULL;
    gw_reducer *reducer = NULL;
    float gradient[8] = {0};
    gw_reducer_tensor tensor = {.name = "other", .count = 8, .gradient = gradient};
    gw_reducer_options options = GW_REDUCER_OPTIONS_DEFAULT;
    gw_options joining = job_options(rank, RANKS, port, "");
    CHECK_EQ(GW_OK, gw_init(&comm, &joining));
    options.decisions = file;
    CHECK_EQ(GW_INVALID, gw_reducer_commit(&reducer, comm, &tensor, 1, &options));
    CHECK(strstr(gw_last_error(comm), rank ? "rank 0 cannot use the file" : "holds decisions for another job"));
    gw_finalize(comm);
}

static void decisions_of_another_model_are_refused(void) {
    port = free_port();
    job_fork(RANKS, refused);
    unlink(file);
}

TEST_MAIN(CASE(named_axes_stay), CASE(exact_lists_no_codec), CASE(lists_have_no_doubles),
          CASE(applies_where_something_is_open), CASE(lost_accuracy_counts),
          CASE(a_distrusted_codec_is_judged_by_its_steps), CASE(steady_steps_stay),
          CASE(a_slower_network_is_seen_at_once), CASE(small_changes_have_to_last), CASE(compute_counts_where_waits_do),
          CASE(exact_parts_explain_longer_steps), CASE(what_costs_three_times_as_much_is_seen_at_once),
          CASE(fruitless_decisions_get_rarer), CASE(a_lasting_change_ends_the_rest), CASE(windows_are_short_and_few),
          CASE(decisions_read_back), CASE(damaged_files_are_named), CASE(a_job_chooses_and_its_file_repeats_it),
          CASE(steps_of_microseconds_are_watched_in_step), CASE(decisions_of_another_model_are_refused))
