/* cmd_doctor.c - gradwire doctor: checks the hosts of a job before it runs. This file parses the options;
 * common/host_examination.c and doctor/ do the work. */
#include <stdio.h>
#include <stdlib.h>

#include "arch/link_file.h"
#include "cli/common/host_examination.h"
#include "cli/doctor/doctor_print.h"
#include "doctor/judge.h"

typedef struct settings {
    int64_t ranks; /* 0: not given */
    gw_host_request hosts;
    const char *output;
    bool json;
} settings;

static int complain(const gw_error *error) {
    fprintf(stderr, "gradwire doctor: %s\n", error->text);
    return error->status == GW_INVALID ? GW_EXIT_USAGE : GW_EXIT_FAILED;
}

static int print_report(const settings *s, const gw_doctor_report *report) {
    gw_findings *findings = calloc(1, sizeof *findings);
    gw_error error = {0};
    if (!findings) {
        gw_fail(&error, GW_MEMORY, "no memory for a verdict");
        return complain(&error);
    }
    gw_doctor_judge(report, findings);
    if (s->json) gw_doctor_print_json(report, findings, stdout);
    else gw_doctor_print(report, findings, stdout);
    int code = findings->count ? GW_EXIT_FAILED : 0;
    if (s->output && gw_doctor_write(report, s->output, &error) != GW_OK) code = complain(&error);
    free(findings);
    return code;
}

static int examine(settings *s) {
    gw_error error = {0};
    gw_doctor_report report;
    s->hosts.processes = (int)s->ranks;
    if (gw_host_request_check(&s->hosts, &error) != GW_OK ||
        gw_examine_hosts(&s->hosts, &report, NULL, &error) != GW_OK)
        return complain(&error);
    int code = print_report(s, &report);
    gw_doctor_report_free(&report);
    return code;
}

static int run(int argc, char **argv) {
    settings s = {.ranks = 0};
    const gw_option options[] = {
        /* clang-format off */
        {.name = "ranks", .letter = 'n', .kind = GW_OPTION_INTEGER, .integer = &s.ranks, .lowest = 1,
         .highest = GW_DOCTOR_HOSTS_MAX,
         .about = "check this machine alone, with N processes (default: 2)"},
        GW_HOST_OPTIONS(s.hosts),
        {.name = "json", .kind = GW_OPTION_FLAG, .flag = &s.json, .about = "print one JSON object per line"},
        {.name = "output", .letter = 'o', .kind = GW_OPTION_STRING, .value = "FILE", .string = &s.output,
         .about = "also write latency (alpha) and time per byte (beta) of every link to this file"},
        /* clang-format on */
        {.name = NULL},
    };
    int code = gw_args_parse(&gw_command_doctor, options, &argc, argv);
    if (code >= 0) return code;
    if (s.ranks && gw_host_request_named(&s.hosts))
        return gw_usage_error(&gw_command_doctor, "give only one of -n, --hosts, --hostfile and --lab");
    return examine(&s);
}

const gw_command gw_command_doctor = {
    .name = "doctor",
    .about = "checks hosts and network before a job: speed, ports, MTU, clocks",
    .usage = "[-n N | -H A,B | --hostfile FILE | --lab hosts=4,rate=1gbit] [OPTIONS]",
    .example = "gradwire doctor -H node1,node2,node3 -o links.gw\n"
               "gradwire doctor -n 2",
    .run = run,
};
