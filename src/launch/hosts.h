/* hosts.h - the hosts of a job: from "-H a:4,b:4" or a host file, and which ranks each gets. */
#ifndef GW_LAUNCH_HOSTS_H
#define GW_LAUNCH_HOSTS_H

#include "base/status.h"

#define GW_HOST_NAME_BYTES 256

typedef struct gw_host {
    char name[GW_HOST_NAME_BYTES]; /* as written, an IPv6 address without its brackets */
    bool local;                    /* this machine: started directly */
    int slots;                     /* ranks that may run there */
    int first_rank;                /* set by gw_hosts_place */
    int ranks;                     /* set by gw_hosts_place */
    bool serves;                   /* these ranks are server processes: gw_hosts_serve */
} gw_host;

typedef struct gw_hosts {
    gw_host *list; /* owned; a name occurs once, and once more if it serves */
    int count;
} gw_hosts;

/* "a:4,b:4", "a,b" (one slot each), "[fe80::1]:2". A host named twice has the slots of both. */
gw_status gw_hosts_parse(gw_hosts *hosts, const char *list, gw_error *error);
/* One host a line: "a slots=4", "a:4", "a 4" or "a"; # begins a comment. `path` is used in messages. */
gw_status gw_hosts_read(gw_hosts *hosts, const char *path, gw_error *error);
/* This machine alone, under its own name. */
gw_status gw_hosts_local(gw_hosts *hosts, int slots, gw_error *error);
void gw_hosts_free(gw_hosts *hosts);

/* Deals `ranks` (0: as many as there are slots) to the hosts in their order, each filled before the next. Hosts that
 * get none are dropped. */
gw_status gw_hosts_place(gw_hosts *hosts, int ranks, gw_error *error);
/* Server processes beside the ranks that were placed, spread over their hosts: each host that gets some stands in the
 * list once more, after all others. */
gw_status gw_hosts_serve(gw_hosts *hosts, int servers, gw_error *error);
int gw_hosts_workers(const gw_hosts *hosts);
int gw_hosts_world(const gw_hosts *hosts);
bool gw_hosts_all_local(const gw_hosts *hosts);

#endif
