/* test_insight.c - the analysis of recordings whose answers are known: steps, waiting, runs, the critical path, the
 * page. */
#include "capture_files.h"
#include "insight/page.h"

#define US 1000

static void span(gw_trace *t, gw_trace_kind kind, const char *name, gw_time begin_us, gw_time end_us) {
    gw_trace_span(t, kind, 0, gw_trace_name(t, name), 0, 0, 1000 + begin_us * US, 1000 + end_us * US);
}

static void put(gw_trace *t, gw_trace_kind kind, int peer, uint64_t number, gw_time begin_us, gw_time end_us) {
    gw_trace_put(t, &(gw_trace_event){.begin = 1000 + begin_us * US, .end = 1000 + end_us * US, .number = number,
                                      .kind = (uint8_t)kind, .peer = peer, .comm = 2, .bytes = 1000,
                                      .name = gw_trace_name(t, "allreduce, ring")});
}

/* Rank 0 computes for 100 us, rank 1 for 300; each then sends the other a message that takes 50 us. */
static void write_scene(void) {
    gw_trace *a = begin(0, 2, 0, false, 0), *b = begin(1, 2, 0, false, 0);
    span(a, GW_TRACE_FORWARD, "conv1", 0, 40);
    span(a, GW_TRACE_BACKWARD, "conv1", 40, 100);
    put(a, GW_TRACE_SENT, 1, 7, 100, 110);
    put(a, GW_TRACE_ARRIVED, 1, 7, 340, 350);
    put(a, GW_TRACE_OPERATION, -1, 7, 100, 355);
    put(a, GW_TRACE_WAITED, -1, 7, 101, 355);
    span(a, GW_TRACE_APPLIED, "conv1", 355, 365);
    span(a, GW_TRACE_STEP, "", 0, 365);
    span(b, GW_TRACE_FORWARD, "conv1", 0, 100);
    span(b, GW_TRACE_BACKWARD, "conv1", 100, 300);
    put(b, GW_TRACE_ARRIVED, 0, 7, 140, 150);
    put(b, GW_TRACE_SENT, 0, 7, 300, 310);
    put(b, GW_TRACE_OPERATION, -1, 7, 300, 312);
    put(b, GW_TRACE_WAITED, -1, 7, 301, 312);
    span(b, GW_TRACE_STEP, "", 0, 315);
    gw_trace_close(a);
    gw_trace_close(b);
}

static void a_known_scene(void) {
    gw_error error = {.rank = -1};
    gw_critical_path path;
    write_scene();
    gw_view v = look();
    CHECK_EQ(2, v.messages.count);
    const gw_message *m = &v.messages.list[0];
    CHECK(m->src == 0 && m->dst == 1 && m->seen_sent && m->seen_arrived);
    CHECK_EQ(100 * US, m->handed);
    CHECK_EQ(150 * US, m->arrived);
    CHECK_EQ(1, v.operations.count);
    CHECK_EQ(1, v.operations.list[0].last_rank);
    CHECK_EQ(199 * US, v.waiting.matrix[0 * 2 + 1]); /* rank 0 for rank 1, from its wait on */
    CHECK_EQ(0, v.waiting.matrix[1 * 2 + 0]);
    CHECK_EQ(1, v.steps.count);
    const gw_step_part *p = &v.steps.list[0].ranks[0];
    CHECK_EQ(110 * US, p->compute);
    CHECK_EQ(254 * US, p->waiting);
    CHECK_EQ(199 * US, p->for_ranks);
    CHECK_EQ(55 * US, p->exposed);
    CHECK_EQ(1 * US, p->other);
    CHECK_EQ(GW_OK, gw_view_path(&v, &v.steps.list[0], &path, &error));
    CHECK_EQ(100 * US, path.total[GW_PATH_FORWARD]); /* of rank 1 */
    CHECK_EQ(200 * US, path.total[GW_PATH_BACKWARD]);
    CHECK_EQ(50 * US, path.total[GW_PATH_WIRE]);
    CHECK_EQ(5 * US, path.total[GW_PATH_HANDLING]);
    CHECK_EQ(10 * US, path.total[GW_PATH_UPDATE]);
    CHECK_EQ(365 * US, path.end - path.begin);
    gw_time at = path.begin;
    for (size_t i = 0; i < path.count; i++) { /* without holes */
        CHECK_EQ(at, path.list[i].begin);
        at = path.list[i].end;
    }
    CHECK_EQ(path.end, at);
    gw_critical_path_free(&path);
    CHECK_EQ(2, v.links.count);
    CHECK_EQ(50 * US, v.links.list[0].busy);
    double bytes = 0;
    for (size_t b = 0; b < v.links.bin_count; b++) bytes += v.links.bins[b];
    CHECK(bytes > 999.99 && bytes < 1000.01);
    gw_view_free(&v);
}

/* Without messages, through shared memory, the path goes over to the rank that came last. */
static void a_scene_without_messages(void) {
    gw_error error = {.rank = -1};
    gw_critical_path path;
    gw_trace *a = begin(0, 2, 0, false, 0), *b = begin(1, 2, 0, false, 0);
    span(a, GW_TRACE_BACKWARD, "x", 0, 100);
    put(a, GW_TRACE_OPERATION, -1, 7, 100, 320);
    put(a, GW_TRACE_WAITED, -1, 7, 100, 320);
    span(a, GW_TRACE_STEP, "", 0, 320);
    span(b, GW_TRACE_BACKWARD, "x", 0, 300);
    put(b, GW_TRACE_OPERATION, -1, 7, 300, 320);
    gw_trace_span(b, GW_TRACE_WAITED, 0, gw_trace_name(b, "x"), 0, 0, 1000 + 300 * US, 1000 + 320 * US);
    span(b, GW_TRACE_STEP, "", 0, 320);
    gw_trace_close(a);
    gw_trace_close(b);
    gw_view v = look();
    CHECK_EQ(200 * US, v.steps.list[0].ranks[0].for_ranks);
    CHECK_EQ(220 * US, v.steps.list[0].ranks[0].waiting);
    CHECK_EQ(20 * US, v.steps.list[0].ranks[0].exposed);
    CHECK_EQ(20 * US, v.steps.list[0].ranks[1].exposed);
    CHECK_EQ(GW_OK, gw_view_path(&v, &v.steps.list[0], &path, &error));
    CHECK_EQ(300 * US, path.total[GW_PATH_BACKWARD]);
    CHECK_EQ(20 * US, path.total[GW_PATH_MEMORY]);
    gw_critical_path_free(&path);
    gw_view_free(&v);
}

/* A wait in another thread counts only where no layer is computed: before 20, from 50 to 60, and from 90 on. */
static void a_wait_beside_the_layers(void) {
    gw_trace *t = begin(0, 1, 0, false, 0);
    span(t, GW_TRACE_FORWARD, "x", 20, 50);
    span(t, GW_TRACE_BACKWARD, "x", 60, 90);
    gw_trace_put(t, &(gw_trace_event){.begin = 1000 + 10 * US, .end = 1000 + 95 * US, .kind = GW_TRACE_WAITED,
                                      .peer = -1, .channel = 1});
    span(t, GW_TRACE_STEP, "", 0, 100);
    gw_trace_close(t);
    gw_view v = look();
    const gw_step_part *p = &v.steps.list[0].ranks[0];
    CHECK_EQ(25 * US, p->waiting);
    CHECK_EQ(60 * US, p->compute);
    CHECK_EQ(15 * US, p->other);
    gw_view_free(&v);
}

/* Rank 1 begins the operation at 300, but waits for another one from 150 on: only until then it holds rank 0 up. */
static void a_rank_that_waits_holds_nobody_up(void) {
    gw_trace *a = begin(0, 2, 0, false, 0), *b = begin(1, 2, 0, false, 0);
    put(a, GW_TRACE_OPERATION, -1, 7, 100, 320);
    put(a, GW_TRACE_WAITED, -1, 7, 100, 320);
    span(a, GW_TRACE_STEP, "", 0, 320);
    put(b, GW_TRACE_OPERATION, -1, 7, 300, 320);
    put(b, GW_TRACE_WAITED, -1, 6, 150, 300);
    gw_trace_close(a);
    gw_trace_close(b);
    gw_view v = look();
    const gw_step_part *p = &v.steps.list[0].ranks[0];
    CHECK_EQ(220 * US, p->waiting);
    CHECK_EQ(50 * US, p->for_ranks);
    CHECK_EQ(170 * US, p->exposed);
    CHECK_EQ(50 * US, v.waiting.matrix[0 * 2 + 1]);
    gw_view_free(&v);
}

static void step(gw_trace *t, uint64_t number, bool first, const char *strategy, gw_time begin_us, gw_time end_us) {
    gw_trace_span(t, GW_TRACE_STEP, number, gw_trace_name(t, strategy), first, 0, 1000 + begin_us * US,
                  1000 + end_us * US);
}

/* Figures of a step are those of steps that follow one another; the median is one of them, and its parts add up. The
 * strategy is that of the steps. */
static void steps_that_count(void) {
    char warning[GW_ERROR_TEXT_BYTES];
    size_t changes;
    gw_step_part sum;
    gw_trace *t = begin(0, 1, 0, false, 0);
    step(t, 0, true, "schedule=wfbp", 900, 1000); /* the recording began */
    step(t, 1, false, "schedule=wfbp", 1000, 1010);
    step(t, 2, false, "schedule=wfbp", 1010, 1040);
    step(t, 3, true, "schedule=dear", 2000, 2500); /* after a pause */
    step(t, 4, false, "schedule=dear", 2500, 2520);
    span(t, GW_TRACE_FORWARD, "x", 2500, 2507);
    gw_trace_close(t);
    gw_view v = look();
    CHECK_EQ(5, v.steps.count);
    CHECK_EQ(3, v.steps.whole);
    const gw_step_times *median = gw_steps_median(&v.steps);
    CHECK_EQ(4, median->number);
    CHECK_EQ(20 * US, median->length);
    CHECK_EQ(median->length, median->mean.compute + median->mean.waiting + median->mean.other);
    CHECK_EQ(7 * US, median->mean.compute);
    CHECK_EQ(3, gw_steps_sum(&v.steps, 0, &sum));
    CHECK_EQ(60 * US, sum.end);
    CHECK_STR("schedule=dear", gw_view_strategy(&v, &changes)); /* not that of the job */
    CHECK_EQ(1, changes);
    CHECK(!gw_insight_warning(v.insight, warning));
    gw_view_free(&v);
    t = begin(0, 1, 0, false, 0);
    step(t, 0, true, "", 0, 100); /* no strategy: an older gradwire */
    gw_trace_close(t);
    v = look();
    CHECK_EQ(0, gw_steps_median(&v.steps)->number); /* better than none */
    CHECK_STR("arch=ring", gw_view_strategy(&v, &changes));
    CHECK(gw_insight_warning(v.insight, warning) && strstr(warning, "older gradwire"));
    gw_view_free(&v);
}

/* A run of three hosts, then one of two over the same files: the third host's file is of the run before. */
static void files_of_another_run(void) {
    char warning[GW_ERROR_TEXT_BYTES];
    for (gw_time run = 0; run < 2; run++)
        for (int r = 0; r < 3 - (int)run; r++) {
            gw_trace *t = begin_on_host(r, 3, r, 1000 + run);
            step(t, run, false, "schedule=wfbp", 10, 20);
            gw_trace_close(t);
        }
    gw_view v = look();
    CHECK_EQ(2, gw_insight_ranks(v.insight));
    CHECK_EQ(2, gw_insight_hosts(v.insight)); /* all have the same name */
    CHECK_EQ(3, gw_insight_world(v.insight));
    CHECK_EQ(1, v.steps.count);
    CHECK_EQ(1, v.steps.list[0].number);
    CHECK(gw_insight_warning(v.insight, warning) && strstr(warning, "c.gwt.host2 is of another run and left out"));
    gw_view_free(&v);
    remove_file("c.gwt.host1"); /* was not copied: the one after it is found nevertheless */
    gw_trace_close(begin_on_host(2, 3, 2, 1001));
    v = look();
    CHECK_EQ(2, gw_insight_ranks(v.insight));
    CHECK(!v.insight->other_runs);
    gw_view_free(&v);
    remove_file("c.gwt.host2");
}

static void the_page_is_one_file(void) {
    write_scene();
    gw_view v = look();
    FILE *out = fopen(place("r.html"), "w+e");
    const char *const advice[] = {"use <b>less</b>", "compress=int8"};
    const gw_page_texts texts = {.title = "a \"title\" </script>", .advice = advice, .advice_count = 2};
    CHECK(out && gw_page_write(&v, &texts, out));
    if (out) fclose(out);
    gw_view_free(&v);
    size_t size;
    char *text = (char *)slurp("r.html", &size);
    CHECK(strstr(text, "</html>") && !strstr(text, "@DATA@") && !strstr(text, "title\\\" </script>"));
    CHECK(strstr(text, "\"advice\":[\"use ?b?less?/b?\",\"compress=int8\"]"));
    const char *const loads[] = {"http://", "https://", "src=", "@import", "url("};
    for (size_t i = 0; i < sizeof loads / sizeof loads[0]; i++) CHECK(!strstr(text, loads[i]));
    free(text);
}

TEST_MAIN(CASE(in_a_folder), CASE(a_known_scene), CASE(a_scene_without_messages), CASE(a_wait_beside_the_layers),
          CASE(a_rank_that_waits_holds_nobody_up), CASE(steps_that_count), CASE(files_of_another_run),
          CASE(the_page_is_one_file), CASE(clean_up))
