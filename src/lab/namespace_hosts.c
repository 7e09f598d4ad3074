/* namespace_hosts.c - see namespace_hosts.h. */
#include "lab/namespace_hosts.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/subprocess.h"
#include "lab/crossing.h"
#include "lab/forwarder.h"
#include "lab/watchdog.h"

#define TOOL_SECONDS 20.0 /* limit for one run of ip or tc; the machine may be busy */

#define FIRST_ADDRESS UINT32_C(0x0a4d0001) /* 10.77.0.1, of host 0 */

typedef struct host {
    char name[GW_LAB_NAME_BYTES];
    char port[16]; /* its interface at the bridge; the name of its TUN device before it moves into the namespace */
    char address[GW_LAB_NAME_BYTES];
} host;

struct gw_lab {
    gw_lab_options options;
    char bridge[16];
    host hosts[GW_LAB_HOSTS_MAX];
    gw_watchdog watchdog;
    bool forwards; /* this process runs in the place of the bridge: */
    gw_watchdog forwarder;
};

/* The tool runs apart from our process group: Ctrl-C must not interrupt the removal of a lab. */
static gw_status run_tool(const char *const *words, gw_error *error) {
    return gw_subprocess_run(&(gw_subprocess){.words = words, .seconds = TOOL_SECONDS, .apart = true}, error);
}

/* Token bucket and queue are as those of the forwarder's links. */
static gw_status shape(const char *space, const char *interface, double rate, gw_error *error) {
    char speed[40], burst_text[40], limit_text[40];
    snprintf(speed, sizeof speed, "%.0fbit", rate);
    snprintf(burst_text, sizeof burst_text, "%.0f", gw_link_burst(rate));
    snprintf(limit_text, sizeof limit_text, "%.0f", gw_link_queue(rate));
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

#define TOOL(...) run_tool((const char *const[]){__VA_ARGS__, NULL}, error)

/* eth0 is the namespace's end of a pair of interfaces; the other end is at the bridge. */
static gw_status plug_into_bridge(const gw_lab *lab, const host *h, gw_error *error) {
    gw_status status = TOOL("ip", "link", "add", h->port, "type", "veth", "peer", "name", "eth0", "netns", h->name);
    if (!status) status = TOOL("ip", "link", "set", h->port, "master", lab->bridge, "up");
    return status ? status : shape(NULL, h->port, lab->options.rate, error);
}

/* eth0 is a TUN device. Its queue is long, because it may fill while the forwarder waits for a core. */
static gw_status plug_into_forwarder(const host *h, int *device, gw_error *error) {
    *device = gw_forwarder_device(h->port, error);
    if (*device < 0) return GW_SYSTEM;
    gw_status status = TOOL("ip", "link", "set", h->port, "txqueuelen", "10000");
    return status ? status : TOOL("ip", "link", "set", h->port, "netns", h->name, "name", "eth0");
}

/* device: for the host's TUN device, where a forwarder takes the place of the bridge; NULL otherwise. */
static gw_status open_host(const gw_lab *lab, const host *h, int *device, gw_error *error) {
    char network[GW_LAB_NAME_BYTES + 4];
    snprintf(network, sizeof network, "%s/24", h->address);
    gw_status status = TOOL("ip", "netns", "add", h->name);
    if (!status) status = device ? plug_into_forwarder(h, device, error) : plug_into_bridge(lab, h, error);
    if (!status) status = TOOL("ip", "-n", h->name, "link", "set", "lo", "up");
    if (!status) status = TOOL("ip", "-n", h->name, "link", "set", "eth0", "up");
    if (!status) status = TOOL("ip", "-n", h->name, "addr", "add", network, "dev", "eth0");
    return status ? status : shape(h->name, "eth0", lab->options.rate, error);
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
        uint32_t address = FIRST_ADDRESS + (uint32_t)i;
        snprintf(h->address, sizeof h->address, "%u.%u.%u.%u", address >> 24, address >> 16 & 255, address >> 8 & 255,
                 address & 255);
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

static gw_status open_bridge(const gw_lab *lab, gw_error *error) {
    gw_status status = TOOL("ip", "link", "add", lab->bridge, "type", "bridge");
    bypass_filters(lab);
    return status ? status : TOOL("ip", "link", "set", lab->bridge, "up");
}

static gw_status start_forwarder(gw_lab *lab, const int *devices, gw_error *error) {
    gw_forwarder *forwarder;
    gw_status status = gw_forwarder_open(&forwarder, &lab->options, FIRST_ADDRESS, error);
    if (status) return status;
    gw_watchdog_duty duty = {.work = gw_forwarder_run, .ctx = forwarder, .keep = devices,
                             .keep_count = lab->options.hosts};
    status = gw_watchdog_open(&lab->forwarder, &duty, error);
    gw_forwarder_close(forwarder); /* the other process has its own */
    lab->forwards = !status;
    return status;
}

static gw_status open_network(gw_lab *lab, gw_error *error) {
    bool forwards = gw_impairment_any(&lab->options.network);
    int devices[GW_LAB_HOSTS_MAX], opened = 0;
    gw_status status = forwards ? GW_OK : open_bridge(lab, error);
    for (int i = 0; i < lab->options.hosts && !status; i++) {
        devices[i] = -1;
        status = open_host(lab, &lab->hosts[i], forwards ? &devices[i] : NULL, error);
        opened++;
    }
    if (forwards && !status) status = start_forwarder(lab, devices, error);
    for (int i = 0; forwards && i < opened; i++)
        if (devices[i] >= 0) close(devices[i]);
    return status;
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
    gw_status status = gw_watchdog_open(&lab->watchdog, &(gw_watchdog_duty){.last = take_down, .ctx = lab}, error);
    if (status) {
        free(lab);
        return status;
    }
    status = open_network(lab, error);
    if (status) gw_lab_close(lab);
    else *out = lab;
    return status;
}

void gw_lab_close(gw_lab *lab) {
    if (!lab) return;
    if (lab->forwards) gw_watchdog_close(&lab->forwarder);
    gw_watchdog_close(&lab->watchdog);
    free(lab);
}

const char *gw_lab_name(const gw_lab *lab, int index) { return lab->hosts[index].name; }
const char *gw_lab_address(const gw_lab *lab, int index) { return lab->hosts[index].address; }
