/* host_spec.h - what one host starts: its ranks, their directory, arguments and environment. Packs it into one block of
 * bytes. */
#ifndef GW_LAUNCH_HOST_SPEC_H
#define GW_LAUNCH_HOST_SPEC_H

#include "base/roster.h"
#include "base/status.h"
#include "launch/byte_queue.h"

typedef struct gw_host_spec {
    int first_rank;          /* the host's ranks are consecutive */
    int local_ranks;         /* their number */
    int world;               /* workers of the job; higher ranks are servers */
    int group;               /* number of this host */
    int listen_fd;           /* inherited listening socket for rank 0; -1: none */
    int elastic;             /* 1: ranks may be restarted, and read a roster */
    int heartbeat_ms;        /* a rank is killed after about this time without a heartbeat (liveness.h); 0: never */
    int silence_ms;          /* the launcher is lost after this time of silence; 0: only when its pipe closes */
    int grace_ms;            /* from SIGTERM to SIGKILL if the launcher disappears */
    const char *directory;   /* the ranks' working directory */
    char *const *argv;       /* NULL at the end, at least one */
    char *const *env;        /* "NAME=value" for every rank, NULL at the end */
    const char *roster_path; /* not packed, set by the supervisor: the file of the roster; NULL: there is none */
    const gw_roster *roster; /* not packed, set by the supervisor: the latest; NULL: still the first generation */
} gw_host_spec;

void gw_host_spec_pack(const gw_host_spec *spec, gw_buffer *out);

/* The strings of *spec are borrowed from bytes; argv and env are owned by it: gw_host_spec_free. */
gw_status gw_host_spec_unpack(gw_host_spec *spec, const char *bytes, size_t size, gw_error *error);
void gw_host_spec_free(gw_host_spec *spec);

#endif
