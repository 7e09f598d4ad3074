/* fuzz_capture.c - any bytes as a capture: refused with one printable sentence, or read within its bounds, and
 * analysed as by `gradwire trace` and `gradwire fit`. For every other input checksums are corrected first, so that the
 * code behind them is reached too. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "insight/page.h"
#include "predict/fit_capture.h"
#include "trace/chrome.h"

enum { RANKS_MAX = 64 }; /* matrices of more would only be slow */

static void demand(bool condition) {
    if (!condition) abort();
}

static void mend(uint8_t *bytes, size_t size) {
    for (size_t at = 0; size - at >= GW_CAPTURE_HEADER;) {
        size_t payload = gw_unpack_fixed(bytes + at + 8), room = size - at - GW_CAPTURE_HEADER;
        if (payload > room) payload = room;
        gw_capture_seal(bytes + at, (gw_capture_block)(1 + bytes[at + 16] % 4), bytes[at + 12] % 8, payload);
        at += GW_CAPTURE_HEADER + payload;
    }
}

static void draw(const gw_insight *in) {
    char lines[GW_CHROME_LINE];
    gw_chrome chrome;
    demand(gw_chrome_open(&chrome, 0, in->rank_count, 0));
    for (size_t i = 0; i < in->event_count; i++) {
        const gw_trace_event *e = &in->events[i].is;
        demand(e->begin <= e->end && e->kind < GW_TRACE_KINDS);
        const char *name = gw_insight_name(in, e->name);
        demand(gw_chrome_event(&chrome, e, name, name, lines) <= lines + sizeof lines);
    }
    gw_chrome_close(&chrome);
}

static void fit(const gw_insight *in) {
    gw_error error = {.rank = -1};
    gw_doctor_table table;
    gw_machine machine = gw_machine_default();
    gw_profile profile;
    if (gw_capture_links(in, &table, &error) == GW_OK) {
        for (int i = 0; i < table.count * table.count; i++) demand(table.alpha[i] >= 0 && table.beta[i] >= 0);
        gw_doctor_table_free(&table);
    }
    gw_capture_arch archs[GW_MACHINE_ARCHS_MAX];
    int count = 0;
    if (gw_capture_archs(in, 1e-4, archs, &count, &error) == GW_OK)
        for (int i = 0; i < count; i++) demand(archs[i].speed.rate > 0 && archs[i].speed.latency >= 0);
    if (gw_capture_reduce(in, &machine)) demand(machine.reduce > 0);
    if (gw_capture_codec(in, &machine)) demand(machine.codec_count <= GW_MACHINE_CODECS_MAX);
    if (gw_capture_layers(in, "fuzz", &profile, &error) == GW_OK) {
        demand(profile.count > 0);
        gw_profile_free(&profile);
    }
}

static void ask(gw_insight *in) {
    gw_error error = {.rank = -1};
    gw_view view;
    gw_critical_path path;
    if (in->rank_count > RANKS_MAX) {
        gw_insight_close(in);
        return;
    }
    draw(in);
    fit(in);
    if (gw_view_make(in, &view, &error) != GW_OK) return;
    for (size_t i = 0; i <= view.steps.count && i < 4; i++) {
        const gw_step_times *step = i < view.steps.count ? &view.steps.list[i] : NULL;
        if (gw_view_path(&view, step, &path, &error) != GW_OK) continue;
        for (size_t k = 1; k < path.count; k++) demand(path.list[k - 1].end == path.list[k].begin);
        gw_critical_path_free(&path);
    }
    char *page = NULL;
    size_t size = 0;
    FILE *out = open_memstream(&page, &size);
    gw_page_texts texts = {.title = "fuzz"};
    demand(out && gw_page_write(&view, &texts, out));
    fclose(out);
    free(page);
    gw_view_free(&view);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    gw_insight *in = NULL;
    gw_error error = {.rank = -1};
    uint8_t *bytes = malloc(size + 1);
    demand(bytes != NULL);
    if (size) memcpy(bytes, data, size);
    if (size && data[size - 1] & 1) mend(bytes, size);
    if (gw_insight_parse(bytes, size, "fuzz", &in, &error) == GW_OK) ask(in);
    else demand(error.text[0] != '\0');
    free(bytes);
    return 0;
}
