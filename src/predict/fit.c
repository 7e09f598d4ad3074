/* fit.c - see fit.h: the figures of links. */
#include "predict/fit.h"

#include <math.h>
#include <stdlib.h>

#include "predict/median.h"

#define TYPICAL_BYTES 65536.0

static gw_status gather(const gw_doctor_table *tables, int count, double *alphas, double *betas, int *links) {
    *links = 0;
    for (int t = 0; t < count; t++) {
        int n = tables[t].count;
        for (int i = 0; i < n * n; i++) {
            if (tables[t].beta[i] <= 0) continue;
            alphas[*links] = tables[t].alpha[i];
            betas[(*links)++] = tables[t].beta[i];
        }
    }
    return *links ? GW_OK : GW_INVALID;
}

static double link_error(const double *alphas, const double *betas, int links, const gw_machine *m, double *errors) {
    double expected = m->latency + TYPICAL_BYTES / m->rate;
    for (int i = 0; i < links; i++) errors[i] = fabs(expected / (alphas[i] + TYPICAL_BYTES * betas[i]) - 1);
    return gw_median(errors, links);
}

static void fit_memory(const gw_doctor_table *tables, int count, double *scratch, gw_machine *m) {
    int hosts = 0;
    for (int t = 0; t < count; t++)
        for (int i = 0; i < tables[t].count; i++)
            if (tables[t].nodes[i].memory > 0) scratch[hosts++] = tables[t].nodes[i].memory;
    if (hosts) m->memory = gw_median(scratch, hosts);
}

/* Keeps each link's own figures. Only for a single table: host numbers of different tables do not match. */
static void keep_links(const gw_doctor_table *tables, int count, int links, gw_machine *m) {
    int n = tables[0].count;
    m->link_count = 0;
    for (int i = 0; count == 1 && links <= GW_MACHINE_LINKS_MAX && i < n * n; i++)
        if (tables[0].beta[i] > 0)
            m->links[m->link_count++] = (gw_fabric_pair){.from = i / n, .to = i % n, .latency = tables[0].alpha[i],
                                                         .rate = 1 / tables[0].beta[i]};
}

gw_status gw_fit_links(const gw_doctor_table *tables, int count, gw_machine *machine, gw_error *error) {
    size_t room = 1;
    for (int t = 0; t < count; t++) room += (size_t)tables[t].count * (size_t)(tables[t].count + 1);
    double *alphas = calloc(room, sizeof *alphas), *betas = calloc(room, sizeof *betas);
    double *scratch = calloc(room, sizeof *scratch);
    int links = 0;
    gw_status status = alphas && betas && scratch ? GW_OK : gw_fail(error, GW_MEMORY, "out of memory for a fit");
    if (!status && gather(tables, count, alphas, betas, &links))
        status = gw_fail(error, GW_INVALID, "no link was measured: run gradwire doctor with at least two hosts");
    if (!status) {
        for (int i = 0; i < links; i++) scratch[i] = alphas[i];
        machine->latency = gw_median(scratch, links);
        for (int i = 0; i < links; i++) scratch[i] = betas[i];
        machine->rate = 1 / gw_median(scratch, links);
        machine->error = link_error(alphas, betas, links, machine, scratch);
        fit_memory(tables, count, scratch, machine);
        keep_links(tables, count, links, machine);
    }
    free(scratch);
    free(betas);
    free(alphas);
    return status;
}
