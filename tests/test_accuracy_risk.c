/* test_accuracy_risk.c - what measured accuracies say about a strategy; docs/explanation/accuracy.md says the same. */
#include "test.h"

#include <stdlib.h>
#include <string.h>

#include "compress/compress.h"
#include "strategy/accuracy_risk.h"

static gw_strategy parsed(const char *line) {
    gw_strategy strategy;
    gw_error error = {.rank = -1};
    CHECK_EQ(GW_OK, gw_strategy_parse(line, &strategy, &error));
    return strategy;
}

static gw_accuracy_risk risk_by(const gw_accuracy_row *rows, const char *line) {
    gw_strategy strategy = parsed(line);
    return rows ? gw_accuracy_risk_by(rows, &strategy, NULL) : gw_accuracy_risk_of(&strategy, NULL);
}

static void prints(const char *expected, const gw_accuracy_row *rows, const char *line) {
    gw_accuracy_risk risk = risk_by(rows, line);
    char text[GW_ACCURACY_RISK_TEXT];
    gw_accuracy_risk_print(&risk, text);
    if (strcmp(expected, text) != 0) printf("    %s: %s\n", line, text);
    CHECK(strcmp(expected, text) == 0);
}

#define RUN(model, seed, line, accuracy)                                                                               \
    { model, "digits", 4, 3, seed, "sgd", line, accuracy }
/* Three seeds each, of which the mean has lost as many points. */
#define RUNS(model, line, points)                                                                                      \
    RUN(model, 1, line, 0.9 - (points) / 100), RUN(model, 2, line, 0.91 - (points) / 100),                             \
        RUN(model, 3, line, 0.92 - (points) / 100)

static void exact_is_safe_unmeasured_is_not(void) {
    static const gw_accuracy_row none[] = {{0}};
    prints("exact", none, "arch=ring schedule=p3");
    prints("exact", none, "arch=ps:servers=2");
    prints("not measured", none, "compress=fp16");
    prints("not measured", none, "arch=ps:servers=2 sync=asp");
    CHECK(risk_by(none, "arch=tree").safe && !risk_by(none, "compress=fp16").safe);
}

static void safe_takes_two_models_and_three_seeds(void) {
    static const gw_accuracy_row rows[] = {
        RUNS("a", "sync=bsp", 0),
        RUNS("b", "arch=ring", 0), /* exact, too */
        RUNS("a", "compress=fp16", 0.2),
        RUNS("b", "compress=fp16", 0.4),
        RUNS("a", "compress=bf16", 0.1),
        RUNS("a", "compress=int8", 0.1),
        RUN("b", 1, "compress=int8", 0.891),
        RUN("b", 2, "compress=int8", 0.901),
        RUNS("a", "compress=onebit", -0.3),
        RUNS("b", "compress=onebit", 0.6),
        RUNS("c", "compress=qsgd", 50), /* nothing exact beside it */
        {0},
    };
    prints("safe, 0.4 points", rows, "compress=fp16 schedule=dear");
    CHECK_EQ(6, risk_by(rows, "compress=fp16").runs);
    prints("0.1 points", rows, "compress=bf16");
    prints("0.9 points", rows, "compress=int8");
    prints("0.6 points", rows, "compress=onebit");
    prints("not measured", rows, "compress=qsgd");
    prints("not measured", rows, "compress=fp16 sync=periodic:every=8");
}

static void parameters_count_and_a_limit_does_not(void) {
    static const gw_accuracy_row rows[] = {RUNS("a", "sync=bsp", 0),
                                           RUNS("b", "sync=bsp", 0),
                                           RUNS("a", "compress=topk:ratio=0.01", 0),
                                           RUNS("b", "compress=topk", 0),
                                           {0}};
    prints("safe, 0.0 points", rows, "compress=topk");
    prints("safe, 0.0 points", rows, "compress=topk:limit=0.9");
    prints("not measured", rows, "compress=topk:ratio=0.001");
    prints("not measured", rows, "compress=topk:feedback=worker");
}

/* One task each: other lengths and optimisers are not compared with each other, and the worst of them counts. */
static void tasks_are_apart(void) {
    static const gw_accuracy_row rows[] = {{"a", "digits", 4, 3, 1, "sgd", "sync=bsp", 0.9},
                                           {"a", "digits", 4, 9, 1, "sgd", "sync=bsp", 0.95},
                                           {"a", "digits", 4, 3, 1, "adam", "sync=bsp", 0.7},
                                           {"a", "digits", 4, 3, 1, "sgd", "compress=fp16", 0.89},
                                           {"a", "digits", 4, 9, 1, "sgd", "compress=fp16", 0.93},
                                           {"a", "digits", 4, 3, 1, "adam", "compress=fp16", 0.7},
                                           {0}};
    prints("2.0 points", rows, "compress=fp16");
    CHECK_EQ(3, risk_by(rows, "compress=fp16").runs);
}

/* A codec may be safe with one optimiser and not with another. */
static void optimisers_are_apart(void) {
    static const gw_accuracy_row rows[] = {RUNS("a", "sync=bsp", 0),
                                           RUNS("b", "sync=bsp", 0),
                                           RUNS("a", "compress=onebit", 0.1),
                                           RUNS("b", "compress=onebit", 0.2),
                                           {"c", "words", 4, 1, 1, "adamw", "sync=bsp", 0.54},
                                           {"c", "words", 4, 1, 1, "adamw", "compress=onebit", 0.44},
                                           {0}};
    gw_strategy onebit = parsed("compress=onebit");
    CHECK(gw_accuracy_risk_by(rows, &onebit, "sgd").safe);
    CHECK(!gw_accuracy_risk_by(rows, &onebit, "adam").safe);
    CHECK(gw_accuracy_risk_by(rows, &onebit, "adam").points > 9);
    CHECK(!gw_accuracy_risk_by(rows, &onebit, NULL).safe);
    CHECK(!gw_accuracy_risk_by(rows, &onebit, "adafactor").safe); /* not measured */
}

/* The table of docs/explanation/accuracy.md, a row for each strategy that was measured beside an exact one. */

static bool is_earlier(const gw_accuracy_row *run) {
    gw_strategy strategy = parsed(run->line);
    for (const gw_accuracy_row *row = gw_accuracy_rows; row < run; row++) {
        gw_strategy earlier = parsed(row->line);
        if (gw_strategy_equal(&strategy, &earlier)) return true;
    }
    return false;
}

static char *contents(const char *path) {
    FILE *file = fopen(path, "r");
    CHECK(file != NULL);
    char *text = calloc(1, 1 << 20);
    if (file && fread(text, 1, (1 << 20) - 1, file) == 0) CHECK(false);
    if (file) fclose(file);
    return text;
}

static char *accuracy_page(void) {
    char path[1024];
    snprintf(path, sizeof path, "%s", __FILE__);
    snprintf(strstr(path, "tests/test_accuracy_risk.c"), 40, "docs/explanation/accuracy.md");
    return contents(path);
}

static void the_docs_say_the_same(void) {
    char *docs = accuracy_page();
    for (const gw_accuracy_row *row = gw_accuracy_rows; row->model; row++) {
        gw_strategy strategy = parsed(row->line);
        gw_accuracy_risk all = risk_by(NULL, row->line), sgd = gw_accuracy_risk_of(&strategy, "sgd"),
                         adamw = gw_accuracy_risk_of(&strategy, "adamw");
        char plain[GW_ACCURACY_RISK_TEXT], adaptive[GW_ACCURACY_RISK_TEXT], line[300];
        if (all.exact || is_earlier(row)) continue;
        gw_accuracy_risk_print(&sgd, plain);
        gw_accuracy_risk_print(&adamw, adaptive);
        snprintf(line, sizeof line, "| `%s` | %s | %s | %d |\n", row->line, plain, adaptive, all.runs);
        CHECK(strstr(docs, line) != NULL);
        if (!strstr(docs, line)) printf("    docs/explanation/accuracy.md lacks: %s", line);
    }
    free(docs);
}

static void the_docs_have_the_trusted_ranges(void) {
    char *docs = accuracy_page(), *watch = strstr(docs, "## The watch");
    CHECK(watch != NULL);
    for (const gw_codec *const *c = gw_codecs; watch && *c; c++) {
        char begins[60], ends[60];
        snprintf(begins, sizeof begins, "\n| `%s` | ", (*c)->technique.name);
        snprintf(ends, sizeof ends, " | %g | %g |\n", (*c)->trusted.error, (*c)->trusted.aligned);
        const char *row = strstr(watch, begins), *end = row ? strstr(row, ends) : NULL;
        bool same = (*c)->trusted.error == 0 || (end && !memchr(row + 1, '\n', (size_t)(end - row)));
        if (!same) printf("    docs/explanation/accuracy.md: %s has other ranges than%s", (*c)->technique.name, ends);
        CHECK(same);
    }
    free(docs);
}

TEST_MAIN(CASE(exact_is_safe_unmeasured_is_not), CASE(safe_takes_two_models_and_three_seeds),
          CASE(parameters_count_and_a_limit_does_not), CASE(tasks_are_apart), CASE(optimisers_are_apart),
          CASE(the_docs_say_the_same), CASE(the_docs_have_the_trusted_ranges))
