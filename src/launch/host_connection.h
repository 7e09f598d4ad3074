/* host_connection.h - the launcher's connection to the supervisor of one host: a child process (the remote shell, or on
 * this machine the supervisor itself) and three pipes. */
#ifndef GW_LAUNCH_HOST_CONNECTION_H
#define GW_LAUNCH_HOST_CONNECTION_H

#include <sys/types.h>

#include "base/clock.h"
#include "launch/console.h"
#include "launch/hosts.h"
#include "launch/silence.h"

typedef struct gw_host_connection {
    const gw_host *host;
    pid_t pid;            /* process id and process group of the child; 0: reaped */
    int to, from, errors; /* the child's standard input, output and error; -1: closed */
    gw_buffer in, out;
    gw_console_line error_line; /* unfinished line of the remote shell's output */
    bool greeted;               /* the supervisor has sent GW_LAUNCH_HELLO */
    bool spec_sent;             /* the host spec was sent */
    bool done;                  /* the supervisor reported GW_LAUNCH_DONE */
    bool over;                  /* closed; nothing is left to do for this host */
    int status;                 /* as from waitpid, once reaped */
    gw_time closed_at;          /* when `from` reached its end; 0: it has not */
    gw_silence silence;         /* time without an answer */
    bool silent;                /* given up, because it was silent for too long */
    bool cut;                   /* given up, because its ranks and those of other hosts do not reach each other */
} gw_host_connection;

typedef struct gw_host_connection_options {
    const char *rsh;         /* shell words; the host and the supervisor's command line are appended */
    const char *remote_path; /* of the gradwire program on the hosts */
    int listen_fd;           /* inherited by a supervisor on this machine; -1: none */
    const char *command;     /* the gradwire command to run there, one plain word; NULL: supervise */
} gw_host_connection_options;

gw_status gw_host_connection_open(gw_host_connection *connection, const gw_host *host,
                                  const gw_host_connection_options *options, gw_error *error);
void gw_host_connection_close_fd(int *fd);
/* Frees the buffers and closes the pipes; does not wait for the process. */
void gw_host_connection_free(gw_host_connection *connection);

/* Looks for the greeting in connection->in, and removes it with all bytes before it. Those are printed: they may be a
 * message of the login shell. */
void gw_host_connection_greet(gw_host_connection *connection, gw_console *console);

#endif
