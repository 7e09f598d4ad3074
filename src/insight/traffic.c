/* traffic.c - see traffic.h. The bytes of a message are spread evenly over its time in flight: from when it is handed
 * to the transport until its last byte arrives. */
#include "insight/traffic.h"

#include <stdlib.h>

static int by_pair(const void *a, const void *b) {
    const gw_pair_traffic *x = a, *y = b;
    if (x->src != y->src) return x->src < y->src ? -1 : 1;
    return x->dst < y->dst ? -1 : x->dst > y->dst;
}

static size_t list_pairs(const gw_messages *messages, gw_pair_traffic *list) {
    size_t kept = 0;
    for (size_t i = 0; i < messages->count; i++)
        list[i] = (gw_pair_traffic){.src = messages->list[i].src, .dst = messages->list[i].dst};
    if (messages->count) qsort(list, messages->count, sizeof *list, by_pair);
    for (size_t i = 0; i < messages->count; i++)
        if (!kept || by_pair(&list[kept - 1], &list[i]) != 0) list[kept++] = list[i];
    return kept;
}

static void spread(gw_traffic *links, double *bins, const gw_message *m) {
    gw_time begin = m->handed, end = m->arrived > begin ? m->arrived : begin + 1;
    double rate = (double)m->bytes / (double)(end - begin);
    for (size_t b = (size_t)(begin / links->bin); b < links->bin_count && (gw_time)b * links->bin < end; b++) {
        gw_time low = (gw_time)b * links->bin, high = low + links->bin;
        if (low < begin) low = begin;
        if (high > end) high = end;
        bins[b] += rate * (double)(high - low);
    }
}

/* Called in the order of `handed`. */
static void count_message(gw_pair_traffic *link, const gw_message *m) {
    gw_time from = m->handed > link->covered ? m->handed : link->covered;
    link->bytes += m->bytes;
    link->messages++;
    link->retries += m->retries;
    link->queued += m->queued;
    if (m->arrived <= from) return;
    link->busy += m->arrived - from;
    link->covered = m->arrived;
}

gw_status gw_traffic_make(const gw_messages *messages, gw_time end, size_t bins, gw_traffic *links, gw_error *error) {
    *links = (gw_traffic){.list = calloc(messages->count + 1, sizeof *links->list), .bin_count = bins,
                        .bin = end / bins + 1};
    if (links->list) links->count = list_pairs(messages, links->list);
    links->bins = calloc(links->count * bins + 1, sizeof *links->bins);
    if (!links->list || !links->bins) {
        gw_traffic_free(links);
        return gw_fail(error, GW_MEMORY, "no memory for the traffic of %zu messages", messages->count);
    }
    for (size_t i = 0; i < messages->count; i++) {
        gw_pair_traffic wanted = {.src = messages->list[i].src, .dst = messages->list[i].dst};
        gw_pair_traffic *link = bsearch(&wanted, links->list, links->count, sizeof wanted, by_pair);
        count_message(link, &messages->list[i]);
        spread(links, links->bins + (size_t)(link - links->list) * bins, &messages->list[i]);
    }
    return GW_OK;
}

void gw_traffic_free(gw_traffic *links) {
    free(links->list);
    free(links->bins);
    *links = (gw_traffic){0};
}

double gw_traffic_peak(const gw_traffic *links, size_t link) {
    double peak = 0;
    for (size_t b = 0; b < links->bin_count; b++)
        if (links->bins[link * links->bin_count + b] > peak) peak = links->bins[link * links->bin_count + b];
    return peak * (double)GW_SECOND / (double)links->bin;
}
