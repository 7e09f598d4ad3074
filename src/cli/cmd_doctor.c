/* cmd_doctor.c - gradwire doctor: checks the hosts of a job before it runs. This file parses the options; doctor/ does
 * the work. */
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "arch/link_file.h"
#include "bootstrap/address.h"
#include "cli/common/args.h"
#include "cli/common/host_options.h"
#include "cli/doctor/doctor_print.h"
#include "doctor/doctor_driver.h"
#include "lab/namespace_hosts.h"

#define QUIET (2 * GW_SECOND) /* before progress is shown */

typedef struct settings {
    int64_t ranks; /* 0: not given */
    const char *hosts, *hostfile, *lab_text, *rsh, *remote_path, *interface, *ports, *output;
    bool json;
    gw_lab_options lab;
    int port_low, port_high;
} settings;

static int complain(const gw_error *error) {
    fprintf(stderr, "gradwire doctor: %s\n", error->text);
    return error->status == GW_INVALID ? GW_EXIT_USAGE : GW_EXIT_FAILED;
}

/* ---- progress ---- */

typedef struct progress {
    gw_time start;
    bool terminal, shown;
    const char *what; /* shown last */
} progress;

static void show(void *ctx, const char *what, int step, int steps) {
    progress *p = ctx;
    char count[32] = "";
    if (gw_clock_now() - p->start < QUIET || (!p->terminal && p->what == what)) return;
    if (steps) snprintf(count, sizeof count, " %d of %d", step < 1 ? 1 : step, steps);
    if (p->terminal) fprintf(stderr, "\r\033[K%s%s", what, count);
    else fprintf(stderr, "%s\n", what);
    p->shown = true;
    p->what = what;
}

static void end_progress(const progress *p) {
    if (p->terminal && p->shown) fputs("\r\033[K", stderr);
}

/* ---- hosts ---- */

static gw_status lab_hosts(gw_hosts *hosts, const gw_lab *lab, int count, gw_error *error) {
    char list[GW_LAB_HOSTS_MAX * (GW_LAB_NAME_BYTES + 1)];
    size_t used = 0;
    for (int i = 0; i < count; i++)
        used += (size_t)snprintf(list + used, sizeof list - used, "%s%s", i ? "," : "", gw_lab_name(lab, i));
    return gw_hosts_parse(hosts, list, error);
}

static gw_status find_hosts(gw_hosts *hosts, const settings *s, const gw_lab *lab, gw_error *error) {
    if (lab) return lab_hosts(hosts, lab, s->lab.hosts, error);
    if (s->hosts) return gw_hosts_parse(hosts, s->hosts, error);
    if (s->hostfile) return gw_hosts_read(hosts, s->hostfile, error);
    return gw_hosts_local(hosts, s->ranks ? (int)s->ranks : 2, error);
}

/* The address at which the others would look for rank 0. */
static const char *find_master(const gw_hosts *hosts, const gw_lab *lab, char own[GW_HOST_NAME_BYTES]) {
    const char *name = hosts->list[0].name, *login = strchr(name, '@');
    if (lab) return gw_lab_address(lab, 0);
    if (gw_hosts_all_local(hosts)) return "127.0.0.1";
    if (!hosts->list[0].local) return login ? login + 1 : name;
    return gethostname(own, GW_HOST_NAME_BYTES - 1) == 0 ? own : name;
}

/* ---- checking ---- */

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

static int examine(const settings *s, const gw_lab *lab) {
    char own_path[PATH_MAX] = "", own_name[GW_HOST_NAME_BYTES] = "";
    gw_hosts hosts = {0};
    gw_error error = {0};
    gw_doctor_report report;
    progress p = {.start = gw_clock_now(), .terminal = isatty(2)};
    if (!s->remote_path && readlink("/proc/self/exe", own_path, sizeof own_path - 1) < 0)
        gw_fail(&error, GW_SYSTEM, "cannot find my own program file: %s; use --remote-path", strerror(errno));
    if (error.status || find_hosts(&hosts, s, lab, &error) != GW_OK) return complain(&error);
    bool named = s->hosts || s->hostfile;
    gw_doctor_drive_options options = {
        .hosts = &hosts,
        .repeated = !named && !lab,
        .host_connection = {.rsh = lab ? "ip netns exec" : s->rsh,
                            .remote_path = s->remote_path ? s->remote_path : own_path},
        .master = find_master(&hosts, lab, own_name),
        .names = named,
        .interface = s->interface,
        .port_low = s->port_low,
        .port_high = s->port_high,
        .progress = show,
        .ctx = &p,
    };
    gw_status status = gw_doctor_drive(&options, &report, &error);
    end_progress(&p);
    gw_hosts_free(&hosts);
    if (status) return complain(&error);
    int code = print_report(s, &report);
    gw_doctor_report_free(&report);
    return code;
}

static int examine_lab(const settings *s) {
    gw_lab *lab = NULL;
    gw_error error = {0};
    if (s->lab_text && gw_lab_open(&lab, &s->lab, &error) != GW_OK) return complain(&error);
    int code = examine(s, lab);
    gw_lab_close(lab);
    return code;
}

/* -1, or an exit code. */
static int check(settings *s) {
    gw_error error = {0};
    const char *ports = s->ports ? s->ports : getenv("GRADWIRE_PORTS");
    if ((s->ranks != 0) + (s->hosts != NULL) + (s->hostfile != NULL) + (s->lab_text != NULL) > 1)
        return gw_usage_error(&gw_command_doctor, "give only one of -n, --hosts, --hostfile and --lab");
    if (s->lab_text && gw_lab_parse(s->lab_text, &s->lab, &error) != GW_OK) return complain(&error);
    if (ports && *ports && gw_ports_parse(ports, &s->port_low, &s->port_high, &error) != GW_OK) return complain(&error);
    if (!s->interface) s->interface = getenv("GRADWIRE_INTERFACE");
    if (s->interface && strchr(s->interface, ' '))
        return gw_usage_error(&gw_command_doctor, "--interface is a list with commas, without blanks");
    return -1;
}

static int run(int argc, char **argv) {
    settings s = {.rsh = GW_RSH_PRESET};
    const gw_option options[] = {
        /* clang-format off */
        {.name = "ranks", .letter = 'n', .kind = GW_OPTION_INTEGER, .integer = &s.ranks, .lowest = 1,
         .highest = GW_DOCTOR_HOSTS_MAX,
         .about = "check this machine alone, with N processes (default: 2)"},
        {.name = "hosts", .letter = 'H', .kind = GW_OPTION_STRING, .value = "A,B", .string = &s.hosts,
         .about = "hosts; slots (A:4) are allowed and ignored"},
        {.name = "hostfile", .kind = GW_OPTION_STRING, .value = "FILE", .string = &s.hostfile,
         .about = "file with one host per line"},
        GW_OPTION_LAB(&s.lab_text),
        GW_OPTION_RSH(&s.rsh),
        GW_OPTION_REMOTE_PATH(&s.remote_path),
        {.name = "interface", .kind = GW_OPTION_STRING, .value = "LIST", .string = &s.interface,
         .about = "network interfaces to use, as in gradwire run"},
        {.name = "ports", .kind = GW_OPTION_STRING, .value = "LOW-HIGH", .string = &s.ports,
         .about = "ports of the job, of which up to 16 are tried (default: any)"},
        {.name = "json", .kind = GW_OPTION_FLAG, .flag = &s.json, .about = "print one JSON object per line"},
        {.name = "output", .letter = 'o', .kind = GW_OPTION_STRING, .value = "FILE", .string = &s.output,
         .about = "also write latency (alpha) and time per byte (beta) of every link to this file"},
        /* clang-format on */
        {.name = NULL},
    };
    int code = gw_args_parse(&gw_command_doctor, options, &argc, argv);
    if (code < 0) code = check(&s);
    return code < 0 ? examine_lab(&s) : code;
}

const gw_command gw_command_doctor = {
    .name = "doctor",
    .about = "checks hosts and network before a job: speed, ports, MTU, clocks",
    .usage = "[-n N | -H A,B | --hostfile FILE | --lab hosts=4,rate=1gbit] [OPTIONS]",
    .example = "gradwire doctor -H node1,node2,node3 -o links.gw\n"
               "gradwire doctor -n 2",
    .run = run,
};
