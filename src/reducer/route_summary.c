/* route_summary.c - see route_summary.h. */
#include "reducer/route_summary.h"

#include <stdio.h>
#include <string.h>

#include "base/units.h"

static int count_bucket(const gw_step_engine *s, int bucket, gw_route_use *uses, int count) {
    const gw_route *route = gw_step_engine_route(s, bucket);
    int i = 0;
    while (i < count && memcmp(&uses[i].route, route, sizeof *route) != 0) i++;
    if (i == GW_ROUTE_USES_MAX) return count;
    if (i == count) uses[count++] = (gw_route_use){.route = *route};
    uses[i].buckets++;
    uses[i].bytes += gw_schedule_bucket(gw_step_engine_schedule(s), bucket)->bytes;
    for (int h = 0; h < route->count; h++) uses[i].sent[h] += gw_step_engine_hop_bytes(s, bucket, h);
    return count;
}

int gw_route_summary(const gw_step_engine *s, gw_route_use uses[GW_ROUTE_USES_MAX]) {
    int count = 0;
    for (int p = 0; p < gw_step_engine_buckets(s); p++) count = count_bucket(s, p, uses, count);
    return count;
}

int gw_route_use_text(const gw_route_use *use, char *text, size_t size) {
    char bytes[GW_UNIT_TEXT], hop[80];
    size_t used = (size_t)snprintf(text, size, "%d bucket%s (%s): ", use->buckets, use->buckets == 1 ? "" : "s",
                                   gw_bytes_format(use->bytes, bytes));
    for (int h = 0; h < use->route.count; h++)
        used += (size_t)snprintf(text + (used < size ? used : size), used < size ? size - used : 0, "%s%s (%s)",
                                 h ? ", " : "", gw_hop_text(&use->route, h, hop, sizeof hop),
                                 gw_bytes_format(use->sent[h], bytes));
    if (use->route.count == 0)
        used += (size_t)snprintf(text + (used < size ? used : size), used < size ? size - used : 0,
                                 "nothing travels, a rank without peers");
    return (int)used;
}
