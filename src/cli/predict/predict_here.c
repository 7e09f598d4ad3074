/* predict_here.c - gradwire predict --here: measures links and memory with the doctor's code, and sums and codecs on
 * one core of this machine. What cannot be measured keeps its default, and a sentence says so. */
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "arch/link_file.h"
#include "base/clock.h"
#include "base/reduce.h"
#include "base/units.h"
#include "cli/common/codec_figures.h"
#include "cli/predict/predict_options.h"
#include "compress/compress.h"
#include "doctor/judge.h"
#include "predict/fit.h"
#include "predict/median.h"
#include "zoo/zoo.h"

enum { REPEATS = 5, CODEC_REPEATS = 3 };
#define SAMPLE_BYTES (UINT64_C(4) << 20) /* more than a core's cache; one large bucket */
#define QUIET (2 * GW_SECOND)            /* before progress is shown */

/* ---- links and memory ---- */

/* What the doctor finds wrong would also be wrong in a job. */
static gw_status warn(const gw_doctor_report *report, gw_error *error) {
    gw_findings *findings = calloc(1, sizeof *findings);
    if (!findings) return gw_fail(error, GW_MEMORY, "no memory for a verdict");
    gw_doctor_judge(report, findings);
    for (int i = 0; i < findings->count; i++) fprintf(stderr, "gradwire predict: wrong: %s\n", findings->list[i].text);
    free(findings);
    for (int i = 0; i < report->count; i++)
        if (report->hosts[i].lost)
            return gw_fail(error, GW_SYSTEM, "--here cannot measure host %s: leave it out, or repair it and ask again",
                           report->hosts[i].name);
    return GW_OK;
}

static gw_status take_links(const gw_doctor_report *report, bool named, gw_machine *machine, gw_error *error) {
    gw_doctor_table table;
    gw_status status = gw_doctor_tabulate(report, &table, error);
    if (status) return status;
    if (table.count > 1) status = gw_fit_links(&table, 1, machine, error);
    else if (table.nodes[0].memory > 0) machine->memory = table.nodes[0].memory;
    if (!named) machine->link_count = 0; /* the links of one machine's processes are not those of hosts */
    gw_doctor_table_free(&table);
    return status;
}

/* Hosts of a lab are on one machine. */
static int hosts_on_first_machine(const gw_doctor_report *report) {
    int count = 0;
    for (int i = 0; i < report->count; i++) count += report->hosts[i].machine == 0;
    return count;
}

/* ---- sums ---- */

static gw_status measure_sums(gw_machine *machine, gw_error *error) {
    float *a = malloc(SAMPLE_BYTES), *b = malloc(SAMPLE_BYTES);
    double rates[REPEATS];
    gw_reduction sum = {.dtype = GW_F32, .op = GW_SUM, .world = 2};
    if (a) memset(a, 1, SAMPLE_BYTES); /* untouched pages would all be one page of zeros */
    if (b) memset(b, 1, SAMPLE_BYTES);
    for (int i = -1; a && b && i < REPEATS; i++) { /* the first warms up */
        gw_time start = gw_clock_now();
        gw_reduce_pair(sum, a, a, false, b, false, SAMPLE_BYTES / sizeof(float), true);
        rates[i < 0 ? 0 : i] = (double)SAMPLE_BYTES / ((double)(gw_clock_now() - start) / GW_SECOND);
    }
    bool whole = a && b;
    free(a);
    free(b);
    if (!whole) return gw_fail(error, GW_MEMORY, "no memory to measure sums");
    machine->reduce = gw_median(rates, REPEATS);
    return GW_OK;
}

/* ---- codecs ---- */

static bool wanted(const gw_codec *codec, const gw_predict_request *ask, bool all) {
    for (int i = 0; i < ask->strategy_count && !all; i++)
        all = gw_strategy_is(&ask->strategies[i], GW_AXIS_COMPRESS, codec->technique.name);
    return all && !codec->identity;
}

static gw_status measure_codec(const gw_codec_input *input, const gw_codec *codec, gw_predict_request *ask,
                               gw_here *found, gw_error *error) {
    gw_codec_figures f;
    gw_status status = gw_codec_measure(input, codec->technique.name, CODEC_REPEATS, &f, error);
    if (status == GW_UNSUPPORTED) {
        fprintf(stderr, "gradwire predict: compress=%s keeps its built-in speed: %s\n", codec->technique.name,
                error->text);
        return GW_OK;
    }
    if (status) return status;
    found->codecs++;
    gw_machine_set_codec(&ask->machine, codec->technique.name, f.encode_gbs * 1e9, f.decode_gbs * 1e9);
    return GW_OK;
}

static gw_status measure_codecs(gw_predict_request *ask, bool all, gw_here *found, gw_error *error) {
    gw_codec_input input = {.count = 0};
    gw_time begun = gw_clock_now();
    bool terminal = isatty(STDERR_FILENO);
    gw_status status = GW_OK;
    for (const gw_codec *const *c = gw_codecs; *c && !status; c++) {
        if (!wanted(*c, ask, all)) continue;
        if (terminal && gw_clock_now() - begun > QUIET)
            fprintf(stderr, "\r\033[Kmeasuring compress=%s", (*c)->technique.name);
        if (!input.count) status = gw_codec_input_make(&input, SAMPLE_BYTES, error);
        if (!status) status = measure_codec(&input, *c, ask, found, error);
    }
    if (terminal) fputs("\r\033[K", stderr);
    gw_codec_input_free(&input);
    return status;
}

/* ---- ranks ---- */

static int cores(void) {
    cpu_set_t all;
    if (sched_getaffinity(0, sizeof all, &all) == 0) return CPU_COUNT(&all);
    return (int)sysconf(_SC_NPROCESSORS_ONLN);
}

/* Named hosts: their slots. This machine alone: a rank for each core, at least two, all on one host. Hosts like this
 * machine behind --link: as without --here. */
static gw_status place(gw_predict_request *ask, const gw_here *found, int slots, gw_error *error) {
    if (ask->linked && !found->named) return GW_OK;
    if (found->named && !slots && !ask->per_host)
        return gw_fail(error, GW_INVALID, "hosts with different numbers of ranks cannot be predicted: say --per-host");
    int alone = ask->ranks ? ask->ranks : found->cores > 1 ? found->cores : 2;
    if (!ask->per_host) ask->per_host = found->named ? slots : alone;
    if (!ask->ranks) ask->ranks = found->named ? found->hosts * ask->per_host : alone;
    return GW_OK;
}

gw_status gw_predict_here(gw_predict_request *ask, const gw_host_request *hosts, bool all_codecs, gw_here *found,
                          gw_error *error) {
    gw_doctor_report report;
    int slots = 1;
    *found = (gw_here){.named = gw_host_request_named(hosts), .cores = cores()};
    gw_status status = gw_examine_hosts(hosts, &report, &slots, error);
    if (status) return status;
    found->hosts = report.count;
    found->on_this_machine = hosts_on_first_machine(&report);
    status = warn(&report, error);
    if (!status) status = take_links(&report, found->named, &ask->machine, error);
    gw_doctor_report_free(&report);
    if (!status) status = place(ask, found, slots, error);
    if (!status) status = measure_sums(&ask->machine, error);
    if (!status) status = measure_codecs(ask, all_codecs, found, error);
    return status;
}

/* ---- what several ranks share, and the report ---- */

static int ranks_on_this_machine(const gw_predict_request *ask, const gw_here *found) {
    int hosts = ask->ranks / ask->per_host, here = found->named ? found->on_this_machine : 1;
    return (here < hosts ? here : hosts) * ask->per_host;
}

void gw_predict_here_compute(gw_predict_request *ask, const gw_here *found) {
    int ranks = ranks_on_this_machine(ask, found);
    if (ask->timed && ranks > found->cores) ask->machine.compute = (double)ranks / found->cores;
}

static void print_layers(const gw_predict_request *ask, const gw_here *found) {
    double ms = gw_profile_seconds(&ask->profile) * 1e3;
    if (ask->timed) printf("  layers    %.2f ms for a step of %d on one core", ms, ask->profile.batch);
    else if (gw_zoo_is_path(ask->model)) printf("  layers    %.2f ms for a step, as %s says", ms, ask->model);
    else printf("  layers    %.2f ms for a step, built in: %s cannot run here; say --throughput", ms, ask->model);
    if (ask->machine.compute > 1)
        printf("; times %.3g, because %d ranks share %d cores", ask->machine.compute, ranks_on_this_machine(ask, found),
               found->cores);
    putchar('\n');
}

void gw_predict_here_print(const gw_predict_request *ask, const gw_here *found) {
    char link[64], memory[GW_UNIT_TEXT], sums[GW_UNIT_TEXT];
    int hosts = ask->ranks / ask->per_host;
    puts("measured here");
    printf("  links     %s, ", gw_predict_link_text(&ask->machine, link));
    if (found->named && found->hosts > 1) printf("the medians of %d hosts\n", found->hosts);
    else if (ask->linked) puts("as --link says");
    else if (found->named) puts("not measured, because one host has none: give more hosts, or --link");
    else puts("this machine's loopback");
    printf("  memory    %s copied, %s added on one core\n", gw_bandwidth_format(ask->machine.memory, memory),
           gw_bandwidth_format(ask->machine.reduce, sums));
    if (found->codecs) printf("  codecs    %d, encoded and decoded on one core\n", found->codecs);
    print_layers(ask, found);
    if (!found->named && hosts > 1 && !ask->linked)
        printf("  doubtful  %d hosts are predicted with the links of one machine: give --hosts, --lab or --link\n",
               hosts);
    if (found->named && found->hosts > found->on_this_machine)
        puts("  doubtful  all but the links was measured on this machine; the other hosts are taken to be like it");
    if (found->named && hosts > found->hosts)
        printf("  doubtful  %d hosts are predicted with the medians of %d\n", hosts, found->hosts);
    puts("  default   products of arch=sfb; queues and shapers of links (gradwire fit finds some in measured steps)");
}
