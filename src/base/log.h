/* log.h - messages to standard error, filtered by GRADWIRE_LOG=error|warn|info|debug|trace (default warn).
 *
 * The library prints only through here. Each line is one write, so that lines of several ranks do not mix. gw_set_log
 * gives the messages to a callback instead.
 *
 * Logging does not block: callers hold locks and have deadlines. Where standard error takes nothing (a full pipe whose
 * reader has stopped, a stopped terminal) lines are dropped, and the next one that can be written says how many. */
#ifndef GW_BASE_LOG_H
#define GW_BASE_LOG_H

#include "gradwire.h"

/* False for an unknown name. */
bool gw_log_level_parse(const char *name, gw_log_level *level);
bool gw_log_enabled(gw_log_level level);
/* rank -1: the line names no rank. */
void gw_log(gw_log_level level, int rank, const char *format, ...) __attribute__((format(printf, 3, 4)));

/* One line that a user of any program expects to see: it is shown unless GRADWIRE_LOG says error or warn. A callback
 * gets it with GW_LOG_INFO. */
void gw_log_notice(int rank, const char *format, ...) __attribute__((format(printf, 2, 3)));

#endif
