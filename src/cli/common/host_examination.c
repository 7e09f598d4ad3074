/* host_examination.c - see host_examination.h. */
#include "cli/common/host_examination.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "bootstrap/address.h"
#include "doctor/doctor_driver.h"

#define QUIET (2 * GW_SECOND) /* before progress is shown */

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

static gw_status find_hosts(gw_hosts *hosts, const gw_host_request *s, const gw_lab *lab, gw_error *error) {
    if (lab) return lab_hosts(hosts, lab, s->lab.hosts, error);
    if (s->hosts) return gw_hosts_parse(hosts, s->hosts, error);
    if (s->hostfile) return gw_hosts_read(hosts, s->hostfile, error);
    return gw_hosts_local(hosts, s->processes ? s->processes : 2, error);
}

/* The address at which the others would look for rank 0. */
static const char *find_master(const gw_hosts *hosts, const gw_lab *lab, char own[GW_HOST_NAME_BYTES]) {
    const char *name = hosts->list[0].name, *login = strchr(name, '@');
    if (lab) return gw_lab_address(lab, 0);
    if (gw_hosts_all_local(hosts)) return "127.0.0.1";
    if (!hosts->list[0].local) return login ? login + 1 : name;
    return gethostname(own, GW_HOST_NAME_BYTES - 1) == 0 ? own : name;
}

/* ---- examination ---- */

static gw_status drive(const gw_host_request *s, const gw_lab *lab, const gw_hosts *hosts, gw_doctor_report *report,
                       gw_error *error) {
    char own_path[PATH_MAX] = "", own_name[GW_HOST_NAME_BYTES] = "";
    progress p = {.start = gw_clock_now(), .terminal = isatty(2)};
    if (!s->remote_path && readlink("/proc/self/exe", own_path, sizeof own_path - 1) < 0)
        return gw_fail(error, GW_SYSTEM, "cannot find my own program file: %s; use --remote-path", strerror(errno));
    bool named = s->hosts || s->hostfile;
    gw_doctor_drive_options options = {
        .hosts = hosts,
        .repeated = !named && !lab,
        .host_connection = {.rsh = lab      ? "ip netns exec"
                                   : s->rsh ? s->rsh
                                            : GW_RSH_PRESET,
                            .remote_path = s->remote_path ? s->remote_path : own_path},
        .master = find_master(hosts, lab, own_name),
        .names = named,
        .interface = s->interface,
        .port_low = s->port_low,
        .port_high = s->port_high,
        .progress = show,
        .ctx = &p,
    };
    gw_status status = gw_doctor_drive(&options, report, error);
    end_progress(&p);
    return status;
}

/* Of every host; 0 if hosts differ. */
static int slots_of(const gw_hosts *hosts) {
    for (int i = 1; i < hosts->count; i++)
        if (hosts->list[i].slots != hosts->list[0].slots) return 0;
    return hosts->list[0].slots;
}

gw_status gw_examine_hosts(const gw_host_request *request, gw_doctor_report *report, int *slots, gw_error *error) {
    gw_lab *lab = NULL;
    gw_hosts hosts = {0};
    gw_status status = request->lab_text ? gw_lab_open(&lab, &request->lab, error) : GW_OK;
    if (!status) status = find_hosts(&hosts, request, lab, error);
    if (!status) status = drive(request, lab, &hosts, report, error);
    if (!status && slots) *slots = slots_of(&hosts);
    gw_hosts_free(&hosts);
    gw_lab_close(lab);
    return status;
}

gw_status gw_host_request_check(gw_host_request *r, gw_error *error) {
    const char *ports = r->ports ? r->ports : getenv("GRADWIRE_PORTS");
    if ((r->hosts != NULL) + (r->hostfile != NULL) + (r->lab_text != NULL) > 1)
        return gw_fail(error, GW_INVALID, "give only one of --hosts, --hostfile and --lab");
    if (r->lab_text && gw_lab_parse(r->lab_text, &r->lab, error) != GW_OK) return GW_INVALID;
    if (ports && *ports && gw_ports_parse(ports, &r->port_low, &r->port_high, error) != GW_OK) return GW_INVALID;
    if (!r->interface) r->interface = getenv("GRADWIRE_INTERFACE");
    if (r->interface && strchr(r->interface, ' '))
        return gw_fail(error, GW_INVALID, "--interface is a list with commas, without blanks");
    return GW_OK;
}

bool gw_host_request_named(const gw_host_request *r) { return r->hosts || r->hostfile || r->lab_text; }
