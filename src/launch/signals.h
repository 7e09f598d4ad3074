/* signals.h - signals as a descriptor, for the poll loops of the launcher and the supervisors. */
#ifndef GW_LAUNCH_SIGNALS_H
#define GW_LAUNCH_SIGNALS_H

#include <signal.h>
#include <stdbool.h>

/* Returns a signalfd for SIGCHLD, SIGINT, SIGTERM and SIGHUP, and blocks these; ignores SIGPIPE. launcher: also takes
 * SIGTSTP, and leaves out signals that are already ignored (nohup, a background job). before: receives the old mask;
 * may be NULL. -1: see errno. */
int gw_signals_open(bool launcher, sigset_t *before);

#endif
