/* namespace_hosts.c - see namespace_hosts.h. */
#include "lab/namespace_hosts.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/subprocess.h"
#include "base/units.h"
#include "lab/watchdog.h"

#define GSO_BYTES 65536.0 /* the largest packet that the kernel hands to a link (segmentation offload) */
#define TOOL_SECONDS 20.0 /* limit for one run of ip or tc; the machine may be busy */

typedef struct host {
    char name[GW_LAB_NAME_BYTES];
    char port[16]; /* its interface at the bridge */
    char address[GW_LAB_NAME_BYTES];
} host;

struct gw_lab {
    gw_lab_options options;
    char bridge[16];
    host hosts[GW_LAB_HOSTS_MAX];
    gw_watchdog watchdog;
};

static gw_status parse_word(const char *word, gw_lab_options *options, gw_error *error) {
    int64_t hosts;
    if (strncmp(word, "hosts=", 6) == 0 && gw_integer_parse(word + 6, 1, GW_LAB_HOSTS_MAX, &hosts)) {
        options->hosts = (int)hosts;
        return GW_OK;
    }
    if (strncmp(word, "rate=", 5) == 0 && gw_rate_parse(word + 5, &options->rate)) return GW_OK;
    return gw_fail(error, GW_INVALID, "a lab is described as hosts=4,rate=1gbit (1 to %d hosts), not \"%s\"",
                   GW_LAB_HOSTS_MAX, word);
}

gw_status gw_lab_parse(const char *text, gw_lab_options *options, gw_error *error) {
    char copy[128], *rest = copy, *word;
    *options = (gw_lab_options){.hosts = 4, .rate = 1e9};
    if (strlen(text) >= sizeof copy) return gw_fail(error, GW_INVALID, "the description of the lab is too long");
    strcpy(copy, text);
    gw_status status = GW_OK;
    while (!status && (word = strsep(&rest, ","))) status = parse_word(word, options, error);
    return status;
}

/* The tool runs apart from our process group: Ctrl-C must not interrupt the removal of a lab. */
static gw_status run_tool(const char *const *words, gw_error *error) {
    return gw_subprocess_run(&(gw_subprocess){.words = words, .seconds = TOOL_SECONDS, .apart = true}, error);
}

/* The token bucket holds 1 ms at this rate, but at least the largest packet plus 16 KiB. The queue holds 5 ms, but at
 * least four token buckets. */
static gw_status shape(const char *space, const char *interface, double rate, gw_error *error) {
    char speed[40], burst_text[40], limit_text[40];
    double burst = rate / 8 / 1000, limit = rate / 8 / 200;
    if (burst < GSO_BYTES + 16384) burst = GSO_BYTES + 16384;
    if (limit < 4 * burst) limit = 4 * burst;
    snprintf(speed, sizeof speed, "%.0fbit", rate);
    snprintf(burst_text, sizeof burst_text, "%.0f", burst);
    snprintf(limit_text, sizeof limit_text, "%.0f", limit);
    const char *const tail[] = {"qdisc", "replace", "dev",      interface, "root",     "tbf", "rate",
                                speed,   "burst",   burst_text, "limit",   limit_text, NULL};
    const char *argv[20] = {"tc"};
    int used = 1;
    if (space) {
        argv[used++] = "-n";
        argv[used++] = space;
    }
    memcpy(argv + used, tail, sizeof tail);
    return run_tool(argv, error);
}

gw_status gw_lab_shape(gw_lab *lab, int index, double rate, gw_error *error) {
    const host *h = &lab->hosts[index];
    gw_status status = shape(h->name, "eth0", rate, error);
    return status ? status : shape(NULL, h->port, rate, error);
}

#define TOOL(...) run_tool((const char *const[]){__VA_ARGS__, NULL}, error)

static gw_status open_host(gw_lab *lab, int index, gw_error *error) {
    const host *h = &lab->hosts[index];
    char network[GW_LAB_NAME_BYTES + 4];
    snprintf(network, sizeof network, "%s/24", h->address);
    gw_status status = TOOL("ip", "netns", "add", h->name);
    if (!status) status = TOOL("ip", "link", "add", h->port, "type", "veth", "peer", "name", "eth0", "netns", h->name);
    if (!status) status = TOOL("ip", "link", "set", h->port, "master", lab->bridge, "up");
    if (!status) status = TOOL("ip", "-n", h->name, "link", "set", "lo", "up");
    if (!status) status = TOOL("ip", "-n", h->name, "link", "set", "eth0", "up");
    if (!status) status = TOOL("ip", "-n", h->name, "addr", "add", network, "dev", "eth0");
    if (!status && lab->options.rate > 0) status = gw_lab_shape(lab, index, lab->options.rate, error);
    return status;
}

/* Frames on the bridge must not pass through the packet filters of this machine. */
static void bypass_filters(const gw_lab *lab) {
    static const char *const names[] = {"nf_call_iptables", "nf_call_ip6tables", "nf_call_arptables"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        char path[128];
        snprintf(path, sizeof path, "/sys/class/net/%s/bridge/%s", lab->bridge, names[i]);
        FILE *file = fopen(path, "we");
        if (!file) continue; /* a kernel without them has nothing to bypass */
        fputs("0", file);
        fclose(file);
    }
}

static void name_all(gw_lab *lab) {
    int pid = (int)getpid();
    snprintf(lab->bridge, sizeof lab->bridge, "gw%db", pid);
    for (int i = 0; i < lab->options.hosts; i++) {
        host *h = &lab->hosts[i];
        snprintf(h->name, sizeof h->name, "gw%dh%d", pid, i);
        snprintf(h->port, sizeof h->port, "gw%dp%d", pid, i);
        snprintf(h->address, sizeof h->address, "10.77.0.%d", i + 1);
    }
}

/* Any of these commands may fail, because the lab may be half made. */
static void take_down(void *ctx) {
    const gw_lab *lab = ctx;
    for (int i = 0; i < lab->options.hosts; i++) {
        run_tool((const char *const[]){"ip", "link", "del", lab->hosts[i].port, NULL}, NULL);
        run_tool((const char *const[]){"ip", "netns", "del", lab->hosts[i].name, NULL}, NULL);
    }
    run_tool((const char *const[]){"ip", "link", "del", lab->bridge, NULL}, NULL);
}

gw_status gw_lab_open(gw_lab **out, const gw_lab_options *options, gw_error *error) {
    *out = NULL;
    if (geteuid() != 0)
        return gw_fail(error, GW_SYSTEM,
                       "a lab of network namespaces can be made by root only: use sudo, or leave "
                       "--lab out");
    gw_lab *lab = calloc(1, sizeof *lab);
    if (!lab) return gw_fail(error, GW_MEMORY, "no memory for a lab");
    lab->options = *options;
    name_all(lab);
    gw_status status = gw_watchdog_open(&lab->watchdog, take_down, lab, error);
    if (status) {
        free(lab);
        return status;
    }
    status = TOOL("ip", "link", "add", lab->bridge, "type", "bridge");
    bypass_filters(lab);
    if (!status) status = TOOL("ip", "link", "set", lab->bridge, "up");
    for (int i = 0; i < options->hosts && !status; i++) status = open_host(lab, i, error);
    if (status) gw_lab_close(lab);
    else *out = lab;
    return status;
}

void gw_lab_close(gw_lab *lab) {
    if (!lab) return;
    gw_watchdog_close(&lab->watchdog);
    free(lab);
}

const char *gw_lab_name(const gw_lab *lab, int index) { return lab->hosts[index].name; }
const char *gw_lab_address(const gw_lab *lab, int index) { return lab->hosts[index].address; }
