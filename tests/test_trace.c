/* test_trace.c - recording and reading: the event ring, captures that end anywhere, the timeline. test_insight.c has
 * the analysis. */
#include <pthread.h>

#include "base/rng.h"
#include "capture_files.h"
#include "insight/timeline_repair.h"
#include "trace/chrome.h"
#include "trace/event_ring.h"

/* ---- the ring ---- */

enum { PRODUCERS = 4, EACH = 20000 };
static gw_trace_ring ring;

static void *produce(void *argument) {
    uint64_t who = (uint64_t)(uintptr_t)argument;
    for (uint64_t i = 0; i < EACH; i++)
        gw_trace_ring_put(&ring, &(gw_trace_event){.number = who * EACH + i, .bytes = i, .index = (uint32_t)who});
    return NULL;
}

/* Every event taken was put, once, whole and in its producer's order; missing ones are counted. */
static void many_threads_put(void) {
    pthread_t threads[PRODUCERS];
    uint64_t next[PRODUCERS] = {0}, taken = 0, wrong = 0;
    CHECK(gw_trace_ring_open(&ring, 256));
    for (uintptr_t i = 0; i < PRODUCERS; i++) CHECK(pthread_create(&threads[i], NULL, produce, (void *)i) == 0);
    for (int idle = 0; idle < 1000;) {
        gw_trace_event e;
        if (!gw_trace_ring_take(&ring, &e)) {
            usleep(10);
            idle++;
            continue;
        }
        idle = 0;
        taken++;
        wrong += e.index >= PRODUCERS || e.number != (uint64_t)e.index * EACH + e.bytes || e.bytes < next[e.index];
        if (e.index < PRODUCERS) next[e.index] = e.bytes + 1;
    }
    for (int i = 0; i < PRODUCERS; i++) pthread_join(threads[i], NULL);
    gw_trace_event e;
    while (gw_trace_ring_take(&ring, &e)) taken++;
    CHECK_EQ(0, wrong);
    CHECK_EQ(PRODUCERS * EACH, taken + atomic_load(&ring.dropped));
    CHECK(taken >= 256);
    gw_trace_ring_close(&ring);
}

static void a_full_ring_drops(void) {
    gw_trace_ring r;
    gw_trace_event e;
    CHECK(gw_trace_ring_open(&r, 8));
    for (uint64_t i = 0; i < 11; i++) gw_trace_ring_put(&r, &(gw_trace_event){.number = i});
    CHECK_EQ(3, atomic_load(&r.dropped));
    for (uint64_t i = 0; i < 8; i++) CHECK(gw_trace_ring_take(&r, &e) && e.number == i);
    CHECK(!gw_trace_ring_take(&r, &e));
    gw_trace_ring_put(&r, &(gw_trace_event){.number = 42});
    CHECK(gw_trace_ring_take(&r, &e) && e.number == 42);
    gw_trace_ring_close(&r);
}

/* ---- writing and reading ---- */

static gw_trace_event random_event(gw_rng *rng) {
    gw_trace_event e = {.begin = gw_rng_u64(rng) >> (gw_rng_u32(rng) % 64),
                        .number = gw_rng_u64(rng) >> (gw_rng_u32(rng) % 64),
                        .bytes = gw_rng_u64(rng), .name = gw_rng_u32(rng), .peer = (int32_t)(gw_rng_u32(rng) >> 1) - 1,
                        .comm = gw_rng_u32(rng), .index = gw_rng_u32(rng), .queued = gw_rng_u32(rng),
                        .channel = (uint16_t)gw_rng_u32(rng), .retries = (uint8_t)gw_rng_u32(rng),
                        .kind = (uint8_t)gw_rng_below(rng, GW_TRACE_KINDS)};
    e.end = e.begin + (gw_rng_u64(rng) >> 2) % (UINT64_MAX - e.begin);
    if (e.peer == INT32_MAX) e.peer = -1;
    return e;
}

static void events_survive_packing(void) {
    gw_rng rng = gw_rng_make(8, 0);
    uint8_t bytes[GW_CAPTURE_EVENT_MAX];
    gw_time before = 0, after = 0;
    for (int i = 0; i < 20000; i++) {
        gw_trace_event e = random_event(&rng), got;
        uint8_t *end = gw_capture_put_event(bytes, &e, &before);
        CHECK(end <= bytes + sizeof bytes);
        gw_unpacker from = {.at = bytes, .end = end};
        CHECK(gw_capture_get_event(&from, &got, &after) && from.at == end);
        CHECK(memcmp(&e, &got, sizeof e) == 0);
        from = (gw_unpacker){.at = bytes, .end = end - 1};
        gw_time unused = 0;
        CHECK(!gw_capture_get_event(&from, &got, &unused));
    }
}

/* Two ranks append to one file; names are common afterwards and clocks agree. */
static void two_ranks_one_file(void) {
    char warning[GW_ERROR_TEXT_BYTES];
    gw_trace *a = begin(0, 2, 0, true, 0), *b = begin(1, 2, -500, true, 0);
    uint32_t conv_b = gw_trace_name(b, "other"), conv = gw_trace_name(a, "conv1");
    conv_b = gw_trace_name(b, "conv1");
    CHECK_EQ(conv, gw_trace_name(a, "conv1"));
    gw_trace_span(a, GW_TRACE_FORWARD, 3, conv, 0, 0, 2000, 2600);
    gw_trace_span(b, GW_TRACE_FORWARD, 3, conv_b, 0, 0, 2500, 3100);
    gw_trace_value(b, 3, gw_trace_name(b, "los\"s\n<x>"), 0.25);
    gw_trace_close(a);
    gw_trace_close(b);
    gw_view view = look();
    size_t n;
    const gw_insight_event *x = gw_insight_of(view.insight, 0, GW_TRACE_FORWARD, &n);
    const gw_insight_event *y = gw_insight_of(view.insight, 1, GW_TRACE_FORWARD, &n);
    CHECK_EQ(1, n);
    CHECK_EQ(1000, x->is.begin);
    CHECK_EQ(1000, y->is.begin);
    CHECK_EQ(1600, y->is.end);
    CHECK_STR("conv1", gw_insight_name(view.insight, y->is.name));
    CHECK_EQ(x->is.name, y->is.name);
    const gw_insight_event *value = gw_insight_of(view.insight, 1, GW_TRACE_VALUE, &n);
    CHECK_STR("los?s??x?", gw_insight_name(view.insight, value->is.name));
    CHECK(!gw_insight_warning(view.insight, warning));
    gw_view_free(&view);
    size_t size;
    char *timeline = (char *)slurp("t.json", &size);
    CHECK(strncmp(timeline, "[\n{", 3) == 0 && strcmp(timeline + size - 3, "\n]\n") == 0);
    CHECK(strstr(timeline, "\"name\":\"conv1\",\"ph\":\"X\",\"pid\":1,\"ts\":1.000,\"tid\":2,\"dur\":0.600") != NULL);
    CHECK(strchr(strstr(timeline, "\n]\n") + 2, ']') == NULL); /* closed once */
    free(timeline);
}

static void what_does_not_fit_is_counted(void) {
    char warning[GW_ERROR_TEXT_BYTES];
    gw_trace *trace = begin(0, 1, 0, false, 2);
    for (int i = 0; i < 5000; i++) gw_trace_span(trace, GW_TRACE_READY, 1, 0, 0, 0, 5, 5);
    gw_trace_close(trace);
    gw_view view = look();
    CHECK_EQ(5000, view.insight->event_count + view.insight->ranks[0].dropped);
    CHECK(view.insight->ranks[0].dropped > 0);
    CHECK(gw_insight_warning(view.insight, warning) && strstr(warning, "were dropped"));
    gw_view_free(&view);
}

/* ---- files that end anywhere ---- */

/* Places behind which one more event is whole, from the blocks themselves. */
static size_t event_ends(const uint8_t *bytes, size_t size, size_t *ends) {
    size_t count = 0;
    for (size_t at = 0; at + GW_CAPTURE_HEADER <= size;) {
        size_t payload = gw_unpack_fixed(bytes + at + 8);
        gw_unpacker from = {.at = bytes + at + GW_CAPTURE_HEADER, .end = bytes + at + GW_CAPTURE_HEADER + payload};
        gw_trace_event e;
        gw_time before = 0;
        bool events = gw_unpack_fixed(bytes + at + 16) == GW_CAPTURE_EVENTS;
        while (events && from.at < from.end && gw_capture_get_event(&from, &e, &before))
            ends[count++] = (size_t)(from.at - bytes);
        at += GW_CAPTURE_HEADER + payload;
    }
    return count;
}

static void write_some(int events) {
    gw_trace *traces[2] = {begin(0, 2, 0, false, 0), begin(1, 2, 7, false, 0)};
    for (int i = 0; i < events; i++) {
        gw_trace *t = traces[i % 2];
        uint32_t name = gw_trace_name(t, i % 3 ? "dense1.weight" : "conv1.bias");
        gw_trace_put(t, &(gw_trace_event){.begin = 2000 + 100 * (gw_time)i, .end = 2090 + 100 * (gw_time)i,
                                          .name = name,
                                          .kind = (uint8_t)(i % GW_TRACE_KINDS), .peer = 1 - i % 2, .bytes = 4096,
                                          .number = (uint64_t)i / 4, .comm = 2, .index = (uint32_t)i / 8});
        if (i % 20 == 19) usleep(60 * 1000); /* another block */
    }
    gw_trace_close(traces[0]);
    gw_trace_close(traces[1]);
}

static void a_cut_at_every_byte(void) {
    char warning[GW_ERROR_TEXT_BYTES];
    size_t size, ends[200], wrong = 0, silent = 0;
    write_some(60);
    uint8_t *bytes = slurp("c.gwt", &size);
    CHECK_EQ(60, event_ends(bytes, size, ends));
    for (size_t cut = 1; cut < size; cut++) {
        gw_insight *in = NULL;
        gw_error error = {.rank = -1};
        size_t expected = 0;
        while (expected < 60 && ends[expected] <= cut) expected++;
        uint8_t *copy = malloc(cut); /* so that a sanitizer sees reads beyond it */
        memcpy(copy, bytes, cut);
        gw_status status = gw_insight_parse(copy, cut, "cut", &in, &error);
        if (status == GW_OK) {
            wrong += in->event_count != expected;
            silent += !gw_insight_warning(in, warning);
            gw_insight_close(in);
        } else {
            wrong += cut >= 8 || error.text[0] == 0;
        }
        free(copy);
    }
    CHECK_EQ(0, wrong);
    CHECK_EQ(0, silent);
    free(bytes);
}

/* A killed rank leaves half a block, and others continue to write behind it. */
static void a_hole_in_the_middle(void) {
    size_t size, ends[200], hole = 0;
    char warning[GW_ERROR_TEXT_BYTES];
    write_some(60);
    uint8_t *bytes = slurp("c.gwt", &size);
    event_ends(bytes, size, ends);
    for (size_t at = 0; at < ends[30]; at += GW_CAPTURE_HEADER + gw_unpack_fixed(bytes + at + 8))
        if (gw_unpack_fixed(bytes + at + 16) == GW_CAPTURE_EVENTS) hole = at;
    size_t whole = GW_CAPTURE_HEADER + gw_unpack_fixed(bytes + hole + 8), keep = whole / 2, first = 0, in_hole = 0;
    while (ends[first] <= hole) first++;
    while (ends[first + in_hole] <= hole + keep) in_hole++;
    size_t in_block = 0;
    while (first + in_block < 60 && ends[first + in_block] <= hole + whole) in_block++;
    memmove(bytes + hole + keep, bytes + hole + whole, size - hole - whole);
    gw_insight *in = NULL;
    gw_error error = {.rank = -1};
    CHECK_EQ(GW_OK, gw_insight_parse(bytes, size - whole + keep, "hole", &in, &error));
    CHECK(in_block > in_hole && in_hole > 0);
    CHECK_EQ(60 - in_block + in_hole, in->event_count);
    CHECK_EQ(1, in->cut_blocks);
    CHECK(gw_insight_warning(in, warning) && strstr(warning, "cut short"));
    gw_insight_close(in);
    free(bytes);
}

static void a_wrong_byte_costs_a_block(void) {
    size_t size, ends[200];
    write_some(60);
    uint8_t *bytes = slurp("c.gwt", &size);
    event_ends(bytes, size, ends);
    bytes[ends[5]] ^= 0x10;
    gw_insight *in = NULL;
    gw_error error = {.rank = -1};
    CHECK_EQ(GW_OK, gw_insight_parse(bytes, size, "wrong", &in, &error));
    CHECK(in->event_count < 60 && in->event_count >= 30);
    CHECK(in->damaged_bytes > 0);
    gw_insight_close(in);
    in = NULL;
    CHECK_EQ(GW_INVALID, gw_insight_parse((const uint8_t *)"[\n{}", 4, "x.json", &in, &error));
    CHECK(strstr(error.text, "x.json is not a capture") && strstr(error.text, "Perfetto"));
    free(bytes);
}

static void write_text(const char *name, const char *text) {
    FILE *file = fopen(place(name), "we");
    if (!file || fputs(text, file) < 0) abort();
    fclose(file);
}

static void a_torn_timeline_is_repaired(void) {
    size_t size;
    write_text("t.json", "[\n{\"a\":1},\n{\"b\":2},\n{\"c\":,\n{\"d\":4},\n{\"e\":\"hal");
    CHECK(gw_timeline_repair(place("t.json")));
    char *text = (char *)slurp("t.json", &size);
    CHECK_STR("[\n{\"a\":1},\n{\"b\":2},\n{\"d\":4}\n]\n", text);
    free(text);
    CHECK(gw_timeline_repair(place("t.json"))); /* whole: left alone */
    text = (char *)slurp("t.json", &size);
    CHECK_STR("[\n{\"a\":1},\n{\"b\":2},\n{\"d\":4}\n]\n", text);
    free(text);
    write_text("t.json", "somebody else's");
    CHECK(gw_timeline_repair(place("t.json")));
    text = (char *)slurp("t.json", &size);
    CHECK_STR("somebody else's", text);
    free(text);
    CHECK(access(place("t.json.mending"), F_OK) != 0);
}

TEST_MAIN(CASE(in_a_folder), CASE(many_threads_put), CASE(a_full_ring_drops), CASE(events_survive_packing),
          CASE(two_ranks_one_file), CASE(what_does_not_fit_is_counted), CASE(a_cut_at_every_byte),
          CASE(a_hole_in_the_middle), CASE(a_wrong_byte_costs_a_block), CASE(a_torn_timeline_is_repaired),
          CASE(clean_up))
