/* signals.h - signals as a descriptor, for the poll loops of the launcher and of its outposts. */
#ifndef GW_LAUNCH_SIGNALS_H
#define GW_LAUNCH_SIGNALS_H

#include <signal.h>
#include <stdbool.h>

/* A signalfd for SIGCHLD and what asks a program to end, which are blocked from now on; SIGPIPE is ignored. A launcher
 * leaves a signal that is ignored already (nohup, a background job) as it is, and takes SIGTSTP too. before: the mask
 * as it was, NULL: not wanted. -1: errno says why. */
int gw_signals_open(bool launcher, sigset_t *before);

#endif
