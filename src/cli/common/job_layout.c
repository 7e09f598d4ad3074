/* job_layout.c - see job_layout.h. */
#include "cli/common/job_layout.h"

#include <stdio.h>
#include <stdlib.h>

#include "arch/choose_plan.h"
#include "arch/link_file.h"
#include "arch/racks.h"
#include "arch/ring_order.h"
#include "base/units.h"

/* Ranks are on hosts in blocks. */
static int place_of(int rank, int ranks, int hosts) { return (int)((int64_t)rank * hosts / ranks); }

static gw_status spread(int ranks, int hosts, const gw_doctor_table *table, int *order, int *host_of,
                        gw_topology *topology, gw_error *error) {
    int *hosts_of = malloc((size_t)ranks * sizeof *hosts_of);
    if (!hosts_of) return gw_fail(error, GW_MEMORY, "no memory for %d ranks", ranks);
    for (int r = 0; r < ranks; r++) hosts_of[r] = place_of(r, ranks, hosts);
    gw_link_costs wires = {table->count, table->alpha, table->beta};
    gw_ring_order_facts facts = {.world = ranks, .host_of = hosts_of, .wires = table->count ? &wires : NULL,
                            .place_of = hosts_of};
    gw_status status = gw_ring_order_fill(&facts, order, host_of, topology, error);
    free(hosts_of);
    return status;
}

static gw_status find_racks(int hosts, int racks, const gw_doctor_table *table, gw_topology *topology, int *rack_of,
                            gw_error *error) {
    gw_link_costs wires = {table->count, table->alpha, table->beta};
    int *of_host = calloc((size_t)(hosts + table->count + 1), sizeof *of_host);
    if (!of_host) return gw_fail(error, GW_MEMORY, "no memory for %d hosts", hosts);
    gw_status status = GW_OK;
    if (racks)
        for (int h = 0; h < hosts; h++) of_host[h] = place_of(h, hosts, racks);
    else if (table->count) status = gw_racks_of_links(&wires, of_host, error);
    for (int r = 0; r < topology->world; r++) rack_of[r] = of_host[place_of(r, topology->world, hosts)];
    gw_topology_take_racks(topology, rack_of);
    free(of_host);
    return status;
}

gw_status gw_job_layout(int ranks, int hosts, int racks, const char *links, int *order, int *host_of, int *rack_of,
                        gw_topology *topology, gw_error *error) {
    gw_doctor_table table = {0};
    gw_status status = links ? gw_doctor_read(links, &table, error) : GW_OK;
    if (status) return status;
    if (hosts == 0) hosts = table.count < ranks ? table.count : ranks;
    if (hosts > ranks)
        status = gw_fail(error, GW_INVALID, "%d ranks cannot be placed on %d hosts: --hosts must not exceed --ranks",
                         ranks, hosts);
    else if (links && hosts > table.count)
        status = gw_fail(error, GW_INVALID, "%s knows %d hosts, not %d", links, table.count, hosts);
    if (!status && racks > hosts) status = gw_fail(error, GW_INVALID, "%d hosts cannot be in %d racks", hosts, racks);
    if (!status) status = spread(ranks, hosts, &table, order, host_of, topology, error);
    if (!status) status = find_racks(hosts, racks, &table, topology, rack_of, error);
    gw_doctor_table_free(&table);
    return status;
}

void gw_print_ring_order(const char *before, const gw_topology *topology, const char *after) {
    if (!topology->order && !(topology->wire.beta > 0)) return;
    fputs(before, stdout);
    for (int i = 0; i < topology->world; i++) printf("%s%d", i ? " " : "", gw_topology_at(topology, i));
    if (topology->wire.beta > 0)
        printf(" (worst link: %.3g us, %.3g MB/s)", topology->wire.alpha * 1e6, 1e-6 / topology->wire.beta);
    fputs(after, stdout);
}

void gw_print_arch_choice(gw_collective collective, const gw_topology *topology) {
    gw_arch_range ranges[GW_ARCH_RANGES_MAX];
    int count = gw_arch_ranges(collective, topology, ranges);
    for (int i = 0; i < count; i++) {
        char size[GW_UNIT_TEXT];
        bool last = i == count - 1;
        printf("%s%s", i == 0 ? "" : last ? ", then " : ", ", ranges[i].builder->technique.name);
        if (!last) printf(" up to %s", gw_bytes_format(ranges[i].bytes_max, size));
    }
}
