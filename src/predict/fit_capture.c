/* fit_capture.c - see fit_capture.h. */
#include "predict/fit_capture.h"

#include <stdlib.h>
#include <string.h>

#include "compress/compress.h"
#include "insight/messages.h"
#include "predict/median.h"
#include "strategy/strategy.h"

enum { SMALL_BYTES = 4096, LARGE_BYTES = 64 * 1024, HOSTS_MAX = 1024 };

/* Links. */

/* A period in which a link was busy. */
typedef struct busy {
    int link; /* from * hosts + to */
    int messages;
    double bytes, seconds;
} busy;

typedef struct links {
    int hosts;
    gw_time *begun, *until; /* of each link's last busy period; 0: none yet */
    busy *open;             /* of each link: the current one */
    busy *list;
    size_t count;
    double *scratch;
} links;

/* -1: not known. There are no more hosts than ranks. */
static int host_of(const gw_insight *insight, int rank) {
    if (rank >= insight->rank_count || !insight->ranks[rank].introduced) return -1;
    int host = insight->ranks[rank].about.host_number;
    return host < insight->rank_count ? host : -1;
}

static void close_busy(links *l, int link) {
    if (!l->open[link].messages) return;
    if (l->until[link] > l->begun[link]) l->open[link].seconds = (double)(l->until[link] - l->begun[link]) / GW_SECOND;
    l->list[l->count++] = l->open[link];
    l->open[link] = (busy){.link = link};
}

static void take_message(links *l, const gw_message *m, int link) {
    if (m->handed >= l->until[link]) {
        close_busy(l, link);
        l->begun[link] = m->handed;
        l->open[link].link = link;
    }
    if (m->arrived > l->until[link]) l->until[link] = m->arrived;
    l->open[link].messages++;
    l->open[link].bytes += (double)m->bytes;
}

static int ascending(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

static double lowest_tenth(double *values, int count) {
    qsort(values, (size_t)count, sizeof *values, ascending);
    return values[count / 10];
}

static int by_link(const void *a, const void *b) { return ((const busy *)a)->link - ((const busy *)b)->link; }

static void fit_link(const busy *times, size_t count, double *scratch, double *alpha, double *beta) {
    int small = 0, large = 0;
    for (size_t i = 0; i < count; i++)
        if (times[i].messages == 1 && times[i].bytes <= SMALL_BYTES) scratch[small++] = times[i].seconds;
    double start_up = small ? lowest_tenth(scratch, small) : 0; /* unknown: all time counts for bytes */
    for (size_t i = 0; i < count; i++)
        if (times[i].bytes >= LARGE_BYTES && times[i].seconds > start_up)
            scratch[large++] = (times[i].seconds - start_up) / times[i].bytes;
    if (!large) return;
    *alpha = start_up;
    *beta = lowest_tenth(scratch, large);
}

static void fit_all(links *l, gw_doctor_table *table) {
    for (int link = 0; link < l->hosts * l->hosts; link++) close_busy(l, link);
    qsort(l->list, l->count, sizeof *l->list, by_link);
    for (size_t first = 0, end; first < l->count; first = end) {
        int link = l->list[first].link;
        for (end = first; end < l->count && l->list[end].link == link; end++) continue;
        fit_link(l->list + first, end - first, l->scratch, &table->alpha[link], &table->beta[link]);
    }
}

static gw_status make_table(const gw_insight *insight, int hosts, gw_doctor_table *table, gw_error *error) {
    size_t n = (size_t)hosts;
    *table = (gw_doctor_table){.count = hosts, .nodes = calloc(n, sizeof *table->nodes),
                               .alpha = calloc(n * n, sizeof *table->alpha),
                               .beta = calloc(n * n, sizeof *table->beta)};
    if (!table->nodes || !table->alpha || !table->beta) {
        gw_doctor_table_free(table);
        return gw_fail(error, GW_MEMORY, "out of memory for the links of %d hosts", hosts);
    }
    for (int r = 0; r < insight->rank_count; r++) {
        int host = host_of(insight, r);
        if (host < 0) continue;
        gw_doctor_table_host *node = &table->nodes[host];
        snprintf(node->name, sizeof node->name, "%d %.200s", host, insight->ranks[r].about.host);
    }
    return GW_OK;
}

static gw_status open_links(links *l, int hosts, size_t messages, gw_error *error) {
    size_t n = (size_t)hosts * (size_t)hosts;
    *l = (links){.hosts = hosts, .begun = calloc(n, sizeof *l->begun), .until = calloc(n, sizeof *l->until),
                 .open = calloc(n, sizeof *l->open), .list = calloc(messages + n, sizeof *l->list),
                 .scratch = calloc(messages + n, sizeof *l->scratch)};
    bool fits = l->begun && l->until && l->open && l->list && l->scratch;
    return fits ? GW_OK : gw_fail(error, GW_MEMORY, "out of memory for %zu messages", messages);
}

static void close_links(links *l) {
    free(l->begun);
    free(l->until);
    free(l->open);
    free(l->list);
    free(l->scratch);
}

static int count_hosts(const gw_insight *insight) {
    int hosts = 1;
    for (int r = 0; r < insight->rank_count; r++)
        if (host_of(insight, r) >= hosts) hosts = host_of(insight, r) + 1;
    return hosts;
}

gw_status gw_capture_links(const gw_insight *insight, gw_doctor_table *table, gw_error *error) {
    int hosts = count_hosts(insight);
    gw_messages messages = {.count = 0};
    links l = {.hosts = 0};
    if (hosts > HOSTS_MAX)
        return gw_fail(error, GW_INVALID, "the capture has %d hosts, more than the %d that can be fitted", hosts,
                       HOSTS_MAX);
    gw_status status = gw_messages_make(insight, &messages, error);
    if (!status) status = open_links(&l, hosts, messages.count, error);
    if (!status) status = make_table(insight, hosts, table, error);
    for (size_t i = 0; !status && i < messages.count; i++) {
        const gw_message *m = &messages.list[i];
        int from = host_of(insight, m->src), to = host_of(insight, m->dst);
        if (from >= 0 && to >= 0 && from != to && m->seen_sent && m->seen_arrived)
            take_message(&l, m, from * hosts + to);
    }
    if (!status) fit_all(&l, table);
    close_links(&l);
    gw_messages_free(&messages);
    return status;
}

/* Codecs. */

typedef struct spent {
    double bytes, seconds;
} spent;

static spent spent_on(const gw_insight *insight, gw_trace_kind kind) {
    spent sum = {0};
    for (int r = 0; r < insight->rank_count; r++) {
        size_t count;
        const gw_insight_event *events = gw_insight_of(insight, r, kind, &count);
        for (size_t i = 0; i < count; i++) {
            sum.bytes += (double)events[i].is.bytes;
            sum.seconds += (double)(events[i].is.end - events[i].is.begin) / GW_SECOND;
        }
    }
    return sum;
}

bool gw_capture_codec(const gw_insight *insight, gw_machine *machine) {
    gw_strategy strategy;
    gw_codec_setup setup;
    gw_error error = {.rank = -1};
    if (!insight->rank_count || !insight->ranks[0].introduced) return false;
    if (gw_strategy_parse(insight->ranks[0].about.strategy, &strategy, &error)) return false;
    const gw_setting *compress = &strategy.axes[GW_AXIS_COMPRESS];
    if (gw_codec_from_setting(compress->technique, compress->values, &setup, &error) || setup.codec->identity)
        return false;
    spent ready = spent_on(insight, GW_TRACE_READY), encoded = spent_on(insight, GW_TRACE_ENCODED);
    spent decoded = spent_on(insight, GW_TRACE_DECODED), summed = spent_on(insight, GW_TRACE_REDUCED);
    if (ready.bytes <= 0 || encoded.seconds <= 0 || decoded.seconds <= 0) return false;
    /* In the one-pass form every rank receives and decodes the payloads of all ranks. */
    bool one_pass = !gw_codec_merges(&setup) && summed.seconds <= 0;
    return gw_machine_set_codec(machine, setup.codec->technique.name, ready.bytes / encoded.seconds,
                                (one_pass ? insight->ranks[0].about.world : 1) * ready.bytes / decoded.seconds);
}

/* Layers. */

static double median_us(const gw_insight *insight, gw_trace_kind kind, uint32_t name, double *scratch) {
    int found = 0;
    for (int r = 0; r < insight->rank_count; r++) {
        size_t count;
        const gw_insight_event *events = gw_insight_of(insight, r, kind, &count);
        for (size_t i = 0; i < count; i++)
            if (events[i].is.name == name) scratch[found++] = (double)(events[i].is.end - events[i].is.begin) / 1e3;
    }
    return found ? gw_median(scratch, found) : 0;
}

/* Sets the bytes of a layer's tensors ("conv1.weights" of "conv1"), from one rank's gradients of one step. Where it has
 * two and the bytes of the second divide those of the first, these are a matrix and its bias: a row for each output. */
static void set_tensors(const gw_insight *insight, int rank, const char *name, gw_profile_layer *layer) {
    size_t count, length = strlen(name);
    const gw_insight_event *ready = gw_insight_of(insight, rank, GW_TRACE_READY, &count);
    uint64_t most = 0, least = UINT64_MAX;
    int tensors = 0;
    for (size_t i = 0; i < count && ready[i].is.number == ready[0].is.number; i++) {
        const char *tensor = gw_insight_name(insight, ready[i].is.name);
        if (strncmp(tensor, name, length) != 0 || (tensor[length] && tensor[length] != '.')) continue;
        uint64_t bytes = ready[i].is.bytes / 4 * 4;
        tensors++;
        layer->parameter_bytes += bytes;
        if (bytes > most) most = bytes;
        if (bytes < least) least = bytes;
    }
    if (tensors != 2 || !least || least == most || most % least) return;
    layer->bias_bytes = least;
    layer->rows = least / 4;
}

static int rank_with_layers(const gw_insight *insight) {
    for (int r = 0; r < insight->rank_count; r++) {
        size_t count;
        gw_insight_of(insight, r, GW_TRACE_FORWARD, &count);
        if (count) return r;
    }
    return -1;
}

gw_status gw_capture_layers(const gw_insight *insight, const char *name, gw_profile *profile, gw_error *error) {
    int rank = rank_with_layers(insight);
    if (rank < 0) return gw_fail(error, GW_INVALID, "%s holds no layers: record a job of gradwire train", name);
    size_t count;
    const gw_insight_event *forward = gw_insight_of(insight, rank, GW_TRACE_FORWARD, &count);
    gw_profile made = {.layers = calloc(count, sizeof *made.layers)};
    uint32_t *names = calloc(count, sizeof *names);
    double *scratch = calloc(insight->event_count + 1, sizeof *scratch);
    bool fits = made.layers && names && scratch;
    for (size_t i = 0; fits && i < count && forward[i].is.number == forward[0].is.number; i++) {
        int at = 0; /* a layer runs once for each batch that the step accumulates */
        while (at < made.count && names[at] != forward[i].is.name) at++;
        gw_profile_layer *layer = &made.layers[at];
        const char *called = gw_insight_name(insight, forward[i].is.name);
        if (at == made.count) {
            names[made.count++] = forward[i].is.name;
            snprintf(layer->name, sizeof layer->name, "%.*s", (int)sizeof layer->name - 1, called);
            strcpy(layer->kind, "layer");
            set_tensors(insight, rank, called, layer);
        }
        layer->forward_us += median_us(insight, GW_TRACE_FORWARD, forward[i].is.name, scratch);
        layer->backward_us += median_us(insight, GW_TRACE_BACKWARD, forward[i].is.name, scratch);
    }
    free(names);
    free(scratch);
    if (!made.count) {
        gw_profile_free(&made);
        return gw_fail(error, GW_MEMORY, "out of memory for the layers of %s", name);
    }
    strcpy(made.name, "recorded");
    *profile = made;
    return GW_OK;
}
