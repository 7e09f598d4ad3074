/* cmd_fit.c - gradwire fit: fits machine speeds for gradwire predict to files of gradwire doctor, captures and measured
 * steps. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/units.h"
#include "cli/common/args.h"
#include "cli/common/table.h"
#include "predict/fit.h"
#include "predict/fit_capture.h"

#define TABLES_MAX 64

static int fail(const gw_error *error) {
    fprintf(stderr, "gradwire fit: %s\n", error->text);
    return error->status == GW_INVALID ? GW_EXIT_USAGE : GW_EXIT_FAILED;
}

/* The contents of all files read so far. */
typedef struct found {
    gw_doctor_table tables[TABLES_MAX];
    int count;                                   /* of tables */
    int links;                                   /* in all tables */
    bool captures;                               /* a file was a capture */
    bool codec;                                  /* the machine has speeds of a codec */
    bool sums;                                   /* the machine has the speed of reductions */
    gw_capture_arch archs[GW_MACHINE_ARCHS_MAX]; /* of the last capture that has any */
    int arch_count;
    gw_profile profile; /* of the first capture with layers; count 0: none */
} found;

static bool is_capture(const char *path) {
    char magic[sizeof GW_CAPTURE_MAGIC - 1];
    FILE *file = fopen(path, "re");
    bool same = file && fread(magic, sizeof magic, 1, file) == 1 && memcmp(magic, GW_CAPTURE_MAGIC, sizeof magic) == 0;
    if (file) fclose(file);
    return same;
}

/* Reads the times of reductions and architectures from a capture. With a codec it reads neither: a codec has its own
 * reductions. */
static gw_status read_work(const gw_insight *insight, found *f, gw_machine *machine, gw_error *error) {
    bool coded = gw_capture_codec(insight, machine);
    f->codec |= coded;
    if (!coded) f->sums |= gw_capture_reduce(insight, machine);
    gw_capture_arch archs[GW_MACHINE_ARCHS_MAX];
    gw_machine here = *machine;
    gw_error none = {.rank = -1};
    int count = 0;
    gw_fit_links(&f->tables[f->count - 1], 1, &here, &none); /* fails without links: then there was no all-reduce */
    gw_status status = coded ? GW_OK : gw_capture_archs(insight, here.latency, archs, &count, error);
    if (status || !count) return status;
    memcpy(f->archs, archs, sizeof archs);
    f->arch_count = count;
    for (int i = 0; i < count; i++) gw_machine_set_arch(machine, &archs[i].speed);
    return GW_OK;
}

static gw_status read_capture(const char *path, found *f, gw_machine *machine, gw_error *error) {
    gw_insight *insight = NULL;
    gw_error none = {.rank = -1};
    char warning[GW_ERROR_TEXT_BYTES];
    gw_status status = gw_insight_load(path, &insight, error);
    if (!status && gw_insight_warning(insight, warning)) fprintf(stderr, "gradwire fit: %s: %s\n", path, warning);
    if (!status) status = gw_capture_links(insight, &f->tables[f->count], error);
    if (!status) {
        f->count++;
        f->captures = true;
        status = read_work(insight, f, machine, error);
        if (!f->profile.count) gw_capture_layers(insight, path, &f->profile, &none);
    }
    gw_insight_close(insight);
    return status;
}

static void print_links(const gw_doctor_table *t) {
    gw_column columns[] = {{.title = "FROM", .width = 16}, {.title = "TO", .width = 16},
                           {.title = "LATENCY", .right = true, .width = 10},
                           {.title = "RATE", .right = true, .width = 12}};
    gw_table table;
    gw_table_start(&table, stdout, columns, 4);
    gw_table_header(&table);
    for (int from = 0; from < t->count; from++)
        for (int to = 0; to < t->count; to++) {
            double alpha = t->alpha[from * t->count + to], beta = t->beta[from * t->count + to];
            char latency[GW_UNIT_TEXT], rate[GW_UNIT_TEXT];
            if (beta <= 0) continue;
            const char *row[] = {t->nodes[from].name, t->nodes[to].name, gw_duration_format(alpha, latency),
                                 gw_bandwidth_format(1 / beta, rate)};
            gw_table_row(&table, row);
        }
}

static void print_archs(const found *f) {
    gw_column columns[] = {{.title = "ARCH", .width = 16}, {.title = "ALL-REDUCES", .right = true},
                           {.title = "LATENCY", .right = true, .width = 10},
                           {.title = "RATE", .right = true, .width = 12}, {.title = "ERROR", .right = true}};
    gw_table table;
    gw_table_start(&table, stdout, columns, 5);
    gw_table_header(&table);
    for (int i = 0; i < f->arch_count; i++) {
        const gw_capture_arch *a = &f->archs[i];
        char operations[32], error[32], latency[GW_UNIT_TEXT], rate[GW_UNIT_TEXT];
        snprintf(operations, sizeof operations, "%d", a->operations);
        snprintf(error, sizeof error, "%.1f %%", 100 * a->error);
        const char *row[] = {a->speed.name, operations, gw_duration_format(a->speed.latency, latency),
                             gw_bandwidth_format(a->speed.rate, rate), error};
        gw_table_row(&table, row);
    }
}

static gw_status read_files(char **paths, int count, found *f, gw_machine *machine, gw_error *error) {
    gw_status status = GW_OK;
    for (int i = 0; i < count && !status; i++) {
        if (is_capture(paths[i])) {
            status = read_capture(paths[i], f, machine, error);
        } else {
            status = gw_doctor_read(paths[i], &f->tables[f->count], error);
            if (!status) f->count++;
        }
    }
    for (int t = 0; t < f->count; t++)
        for (int i = 0; i < f->tables[t].count * f->tables[t].count; i++) f->links += f->tables[t].beta[i] > 0;
    if (status || (f->captures && !f->links)) return status;
    status = gw_fit_links(f->tables, f->count, machine, error);
    for (int t = 0; t < f->count && !status; t++) print_links(&f->tables[t]);
    if (f->arch_count && !status) print_archs(f);
    return status;
}

static void free_found(found *f) {
    for (int i = 0; i < f->count; i++) gw_doctor_table_free(&f->tables[i]);
    gw_profile_free(&f->profile);
    free(f);
}

static gw_status write_layers(const found *f, const char *path, gw_error *error) {
    if (!f->profile.count)
        return gw_fail(error, GW_INVALID,
                       "--layers: no layers were recorded in these files: capture a job of gradwire "
                       "train");
    gw_status status = gw_profile_write(&f->profile, path, error);
    if (status) return status;
    printf("%d layers written to %s; use them with gradwire predict --model ./%s\n", f->profile.count, path, path);
    return GW_OK;
}

/* Reads all files. */
static gw_status fit_files(char **paths, int count, const char *layers, gw_machine *machine, gw_error *error) {
    found *f = calloc(1, sizeof *f);
    if (!f) return gw_fail(error, GW_MEMORY, "out of memory for %d files", count);
    gw_status status = read_files(paths, count, f, machine, error);
    if (!status && layers) status = write_layers(f, layers, error);
    if (!status && f->captures && !f->links && !f->codec && !f->sums && !f->profile.count)
        status = gw_fail(error, GW_INVALID, "%s says nothing of links between hosts, codecs, sums or layers", paths[0]);
    free_found(f);
    return status;
}

static void print_steps(const gw_fit_steps *steps) {
    gw_column columns[] = {{.title = "MEASURED ms", .right = true}, {.title = "PREDICTED ms", .right = true},
                           {.title = "ERROR", .right = true}, {.title = "RANKS", .right = true},
                           {.title = "PROFILE", .width = 12}, {.title = "STRATEGY"}};
    gw_table table;
    gw_table_start(&table, stdout, columns, 6);
    gw_table_header(&table);
    for (int i = 0; i < steps->count; i++) {
        const gw_fit_step *step = &steps->steps[i];
        char cells[4][32], line[GW_STRATEGY_PRINT_BYTES];
        snprintf(cells[0], sizeof cells[0], "%.2f", step->measured * 1e3);
        snprintf(cells[1], sizeof cells[1], "%.2f", step->predicted * 1e3);
        snprintf(cells[2], sizeof cells[2], "%+.1f %%", 100 * (step->predicted / step->measured - 1));
        snprintf(cells[3], sizeof cells[3], "%d", step->ranks);
        gw_strategy_print(&step->strategy, line, sizeof line);
        const char *row[] = {cells[0], cells[1], cells[2], cells[3], step->profile.name, line};
        gw_table_row(&table, row);
    }
}

static void show_progress(void *ctx, int tried, double error) {
    const gw_time *begun = ctx;
    if (isatty(STDERR_FILENO) && gw_clock_now() - *begun > 2 * GW_SECOND)
        fprintf(stderr, "\r%d settings tried, median error %.1f %%   ", tried, 100 * error);
}

static gw_status fit_steps(const char *path, const gw_fit_moves *moves, gw_machine *machine, gw_error *error) {
    gw_fit_steps steps;
    gw_fabric_spec fabric;
    gw_status status = gw_fabric_parse("switch", &fabric, error);
    if (!status) status = gw_fit_steps_read(path, &steps, error);
    if (status) return status;
    gw_time begun = gw_clock_now();
    status = gw_fit_to_steps(&steps, moves, &fabric, machine, show_progress, &begun, error);
    if (isatty(STDERR_FILENO)) fprintf(stderr, "\r%40s\r", "");
    if (!status) print_steps(&steps);
    gw_fit_steps_free(&steps);
    return status;
}

static void print_machine(const gw_machine *machine) {
    char latency[GW_UNIT_TEXT], memory[GW_UNIT_TEXT], reduce[GW_UNIT_TEXT];
    printf("latency %s, rate %.4g Gbit/s, memory %s, reduce %s, compute x %.3f",
           gw_duration_format(machine->latency, latency), machine->rate * 8 / 1e9,
           gw_bandwidth_format(machine->memory, memory), gw_bandwidth_format(machine->reduce, reduce),
           machine->compute);
    if (machine->error > 0) printf("; median error of the fit %.1f %%", 100 * machine->error);
    putchar('\n');
}

static int run(int argc, char **argv) {
    const char *steps = NULL, *start = NULL, *output = NULL, *layers = NULL, *moved = "latency,rate";
    const gw_option options[] = {
        {.name = "steps", .kind = GW_OPTION_STRING, .string = &steps, .value = "FILE",
         .about = "CSV file of measured steps: profile,ranks,per_host,step_ms,strategy"},
        {.name = "move", .kind = GW_OPTION_STRING, .string = &moved, .value = "FIGURES",
         .about = "figures to learn from the steps, of " GW_FIT_MOVES_ALLOWED " (default: latency,rate)"},
        {.name = "layers", .kind = GW_OPTION_STRING, .string = &layers, .value = "FILE",
         .about = "write the layers of a capture as a profile to this file"},
        {.name = "from", .kind = GW_OPTION_STRING, .string = &start, .value = "FILE",
         .about = "file of machine speeds to start from"},
        {.name = "output", .letter = 'o', .kind = GW_OPTION_STRING, .string = &output, .value = "FILE",
         .about = "file of machine speeds to write (default: standard output)"},
        {.name = NULL},
    };
    int code = gw_args_parse(&gw_command_fit, options, &argc, argv);
    if (code >= 0) return code;
    gw_error error = {.rank = -1};
    gw_machine machine = gw_machine_default();
    gw_fit_moves moves;
    int files = argc - 1;
    if (!files && !steps)
        return gw_usage_error(&gw_command_fit, "give files of gradwire doctor -o, captures, or --steps");
    if (files > TABLES_MAX) return gw_usage_error(&gw_command_fit, "at most %d files", TABLES_MAX);
    if (gw_fit_moves_parse(moved, &moves, &error)) return gw_usage_error(&gw_command_fit, "%s", error.text);
    if (start && gw_machine_read(start, &machine, &error)) return fail(&error);
    if (files && fit_files(argv + 1, files, layers, &machine, &error)) return fail(&error);
    if (steps && fit_steps(steps, &moves, &machine, &error)) return fail(&error);
    print_machine(&machine);
    if (!output) gw_machine_print(&machine, stdout);
    else if (gw_machine_write(&machine, output, &error)) return fail(&error);
    else printf("written to %s; use it with gradwire predict --machines\n", output);
    return 0;
}

const gw_command gw_command_fit = {
    .name = "fit",
    .about = "fits machine speeds for gradwire predict to measurements",
    .usage = "[FILE...] [--layers FILE] [--steps FILE] [--move FIGURES] [--from FILE] [-o FILE]",
    .example = "gradwire doctor -H node1,node2 -o links.txt && gradwire fit links.txt -o cluster.machines\n"
               "gradwire fit run.gwt --layers mine.csv -o cluster.machines\n"
               "gradwire fit --steps measured.csv --move latency,rate,memory -o cluster.machines",
    .operands_max = TABLES_MAX,
    .run = run,
};
