/* fuzz_machines.c - any bytes as a file of machine speeds, as measured steps or as a topology: refused with one
 * sentence, or figures within their bounds. The first byte chooses which, and whether a valid head is put in front. */
#include <stdlib.h>
#include <string.h>

#include "predict/fit.h"

static const char machines_head[] = "gradwire-machines 1\nrate 1e9\n";
static const char steps_head[] = "profile,ranks,per_host,step_ms,strategy\n";

static void demand(bool condition) {
    if (!condition) abort();
}

static void try_machines(const char *bytes, size_t size) {
    gw_machine m;
    gw_error error = {.status = GW_OK};
    if (gw_machine_parse(bytes, size, "fuzz", &m, &error) == GW_OK) {
        demand(m.rate > 0 && m.latency >= 0 && m.codec_count <= GW_MACHINE_CODECS_MAX);
        for (int i = 0; i < m.codec_count; i++) demand(m.codecs[i].encode > 0 && m.codecs[i].decode > 0);
    } else {
        demand(error.text[0] != '\0');
    }
}

static void try_steps(const char *bytes, size_t size) {
    gw_fit_steps steps;
    gw_error error = {.status = GW_OK};
    if (gw_fit_steps_parse(bytes, size, "fuzz", &steps, &error) == GW_OK) {
        for (int i = 0; i < steps.count; i++)
            demand(steps.steps[i].measured > 0 && steps.steps[i].ranks % steps.steps[i].per_host == 0);
        gw_fit_steps_free(&steps);
    } else {
        demand(error.text[0] != '\0');
    }
}

static void try_topology(const char *text) {
    gw_fabric_spec spec;
    gw_fabric fabric = {.rate = 1};
    gw_error error = {.status = GW_OK};
    if (gw_fabric_parse(text, &spec, &error) == GW_OK) {
        if (gw_fabric_make(&fabric, &spec, 8, &error) == GW_OK) {
            int way[GW_ROUTE_LINKS_MAX];
            double latency;
            int hops = gw_fabric_route(&fabric, 1, 6, way, &latency);
            demand(hops > 0 && hops <= GW_ROUTE_LINKS_MAX);
            for (int i = 0; i < hops; i++) demand(way[i] >= 0 && way[i] < fabric.links);
        }
    } else {
        demand(error.text[0] != '\0');
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    if (size == 0) return 0;
    const char *head = data[0] & 4 ? "" : (data[0] & 3) == 0 ? machines_head : (data[0] & 3) == 1 ? steps_head : "";
    size_t before = strlen(head);
    char *bytes = malloc(before + size + 1);
    demand(bytes != NULL);
    memcpy(bytes, head, before);
    memcpy(bytes + before, data + 1, size - 1);
    bytes[before + size - 1] = 0;
    if ((data[0] & 3) == 0) try_machines(bytes, before + size - 1);
    else if ((data[0] & 3) == 1) try_steps(bytes, before + size - 1);
    else try_topology(bytes);
    free(bytes);
    return 0;
}
