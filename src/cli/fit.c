/* fit.c - gradwire fit: speeds of machines from the doctor's files and measured steps, as a file for predict. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/units.h"
#include "cli/args.h"
#include "cli/table.h"
#include "model/fit.h"

#define TABLES_MAX 64

static int fail(const gw_error *error) {
    fprintf(stderr, "gradwire fit: %s\n", error->text);
    return error->status == GW_INVALID ? GW_EXIT_USAGE : GW_EXIT_FAILED;
}

static gw_status fit_doctors(char **paths, int count, gw_machine *machine, gw_error *error) {
    gw_doctor_table tables[TABLES_MAX] = {{.count = 0}};
    gw_status status = GW_OK;
    int read = 0;
    while (read < count && !(status = gw_doctor_read(paths[read], &tables[read], error))) read++;
    if (!status) status = gw_fit_links(tables, count, machine, error);
    for (int i = 0; i < read; i++) gw_doctor_table_free(&tables[i]);
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

static bool read_moves(const char *text, gw_fit_free *moves) {
    char copy[64], *rest = copy, *word;
    if (strlen(text) >= sizeof copy) return false;
    strcpy(copy, text);
    *moves = (gw_fit_free){.latency = false};
    while ((word = strsep(&rest, ","))) {
        if (strcmp(word, "latency") == 0) moves->latency = true;
        else if (strcmp(word, "rate") == 0) moves->rate = true;
        else if (strcmp(word, "compute") == 0) moves->compute = true;
        else if (strcmp(word, "reduce") == 0) moves->reduce = true;
        else if (strcmp(word, "none") != 0) return false;
    }
    return true;
}

static void show_progress(void *ctx, int tried, double error) {
    const gw_time *begun = ctx;
    if (isatty(STDERR_FILENO) && gw_clock_now() - *begun > 2 * GW_SECOND)
        fprintf(stderr, "\r%d settings tried, off by %.1f %%   ", tried, 100 * error);
}

static gw_status fit_steps(const char *path, gw_fit_free moves, gw_machine *machine, gw_error *error) {
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
    printf("latency %s, rate %.4g Gbit/s, memory %s, reduce %s, compute x %.3f; median error of the fit %.1f %%\n",
           gw_duration_format(machine->latency, latency), machine->rate * 8 / 1e9,
           gw_bandwidth_format(machine->memory, memory), gw_bandwidth_format(machine->reduce, reduce), machine->compute,
           100 * machine->error);
}

static int run(int argc, char **argv) {
    const char *steps = NULL, *start = NULL, *output = NULL, *moved = "latency,rate";
    const gw_option options[] = {
        {.name = "steps", .kind = GW_OPTION_STRING, .string = &steps, .value = "FILE",
         .about = "measured steps: profile,ranks,per_host,step_ms,strategy"},
        {.name = "move", .kind = GW_OPTION_STRING, .string = &moved, .value = "FIGURES",
         .about = "what the steps decide, of latency,rate,compute,reduce; none (default latency,rate)"},
        {.name = "from", .kind = GW_OPTION_STRING, .string = &start, .value = "FILE",
         .about = "a model file to begin with"},
        {.name = "output", .letter = 'o', .kind = GW_OPTION_STRING, .string = &output, .value = "FILE",
         .about = "the model file (default: standard output)"},
        {.name = NULL},
    };
    int code = gw_args_parse(&gw_command_fit, options, &argc, argv);
    if (code >= 0) return code;
    gw_error error = {.rank = -1};
    gw_machine machine = gw_machine_default();
    gw_fit_free moves;
    int doctors = argc - 1;
    if (!doctors && !steps) return gw_usage_error(&gw_command_fit, "give files of gradwire doctor -o, or --steps");
    if (doctors > TABLES_MAX) return gw_usage_error(&gw_command_fit, "at most %d files", TABLES_MAX);
    if (!read_moves(moved, &moves))
        return gw_usage_error(&gw_command_fit, "--move %s: of latency, rate, compute, reduce; or none", moved);
    if (start && gw_machine_read(start, &machine, &error)) return fail(&error);
    if (doctors && fit_doctors(argv + 1, doctors, &machine, &error)) return fail(&error);
    if (steps && fit_steps(steps, moves, &machine, &error)) return fail(&error);
    print_machine(&machine);
    if (!output) gw_machine_print(&machine, stdout);
    else if (gw_machine_write(&machine, output, "written by gradwire fit", &error)) return fail(&error);
    else printf("written to %s; use it with gradwire predict --model\n", output);
    return 0;
}

const gw_command gw_command_fit = {
    .name = "fit",
    .about = "turns measurements into a model file for predict",
    .usage = "[DOCTOR-FILE...] [--steps FILE] [--move FIGURES] [--from FILE] [-o FILE]",
    .example = "gradwire doctor -H node1,node2 -o links.txt && gradwire fit links.txt -o cluster.model\n"
               "gradwire fit --steps measured.csv --move latency,rate,compute -o cluster.model",
    .operands_max = TABLES_MAX,
    .run = run,
};
