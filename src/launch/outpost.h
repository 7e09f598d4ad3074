/* outpost.h - the launcher's connection to the supervisor of one host: a process of its own (the remote shell, or for
 * this machine the supervisor itself) and three pipes. */
#ifndef GW_LAUNCH_OUTPOST_H
#define GW_LAUNCH_OUTPOST_H

#include <sys/types.h>

#include "base/clock.h"
#include "launch/console.h"
#include "launch/hosts.h"
#include "launch/silence.h"

typedef struct gw_outpost {
    const gw_host *host;
    pid_t pid;            /* and process group of the remote shell; 0: reaped */
    int to, from, errors; /* its standard input, output and error; -1: closed */
    gw_buffer in, out;
    gw_line error_line; /* what the remote shell says */
    bool greeted;       /* the supervisor is there */
    bool ordered;       /* it was told what to start */
    bool done;          /* it said that nothing runs any more */
    bool over;          /* it was dealt with for the last time */
    int status;         /* as from waitpid, once reaped */
    gw_time closed_at;  /* when `from` ended; 0: it has not */
    gw_silence silence; /* how long it has not answered */
    bool silent;        /* that was too long: it was given up */
    bool cut;           /* likewise, because its ranks and those of other hosts do not reach each other */
} gw_outpost;

typedef struct gw_outpost_options {
    const char *rsh;         /* shell words; the host and the supervisor's command line follow them */
    const char *remote_path; /* of the gradwire program on the hosts */
    int listen_fd;           /* inherited by a supervisor of this machine, -1: none */
    const char *command;     /* of that program, one plain word; NULL: supervise */
} gw_outpost_options;

gw_status gw_outpost_open(gw_outpost *outpost, const gw_host *host, const gw_outpost_options *options, gw_error *error);
void gw_outpost_close_fd(int *fd);
/* Frees and closes; the process is not waited for. */
void gw_outpost_free(gw_outpost *outpost);

/* Looks for the greeting at the front of outpost->in, and takes it and what stands before it; that is printed, since a
 * login shell may have something to say. */
void gw_outpost_greet(gw_outpost *outpost, gw_console *console);

#endif
