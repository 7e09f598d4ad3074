/* hosts.h - the hosts of a job, from "-H a:4,b:4" or a host file, and the ranks of each host. A host file has a line
 * for each host, with its slots, which are the ranks that it takes:
 *
 *     # a comment
 *     node1 slots=4
 *     node2:4
 *     [fe80::1] 2
 *     node3              one slot
 *
 * Ranks fill the hosts in the order of the file. */
#ifndef GW_LAUNCH_HOSTS_H
#define GW_LAUNCH_HOSTS_H

#include "base/status.h"

#define GW_HOST_NAME_BYTES 256

typedef struct gw_host {
    char name[GW_HOST_NAME_BYTES]; /* as written, an IPv6 address without its brackets */
    bool local;                    /* this machine: no remote shell */
    int slots;                     /* ranks that may run there */
    int first_rank;                /* set by gw_hosts_place */
    int ranks;                     /* set by gw_hosts_place */
    bool serves;                   /* its ranks are server processes: gw_hosts_serve */
} gw_host;

typedef struct gw_hosts {
    gw_host *list; /* owned; a name occurs once for its workers, and once more for its servers */
    int count;
} gw_hosts;

/* "a:4,b:4", "a,b" (one slot each), "[fe80::1]:2". A host named twice has the slots of both. */
gw_status gw_hosts_parse(gw_hosts *hosts, const char *list, gw_error *error);
/* One host per line: "a slots=4", "a:4", "a 4" or "a"; # begins a comment. Errors name `path`. */
gw_status gw_hosts_read(gw_hosts *hosts, const char *path, gw_error *error);
/* This machine alone, under its own name. */
gw_status gw_hosts_local(gw_hosts *hosts, int slots, gw_error *error);
void gw_hosts_free(gw_hosts *hosts);

/* Assigns `ranks` (0: one per slot) to the hosts in list order; fills each host before the next. Drops hosts that get
 * no rank. */
gw_status gw_hosts_place(gw_hosts *hosts, int ranks, gw_error *error);
/* Adds server processes, spread over the hosts of the placed ranks. Each host that gets some is listed once more, after
 * all others. */
gw_status gw_hosts_serve(gw_hosts *hosts, int servers, gw_error *error);
int gw_hosts_workers(const gw_hosts *hosts);
int gw_hosts_world(const gw_hosts *hosts);
bool gw_hosts_all_local(const gw_hosts *hosts);

#endif
