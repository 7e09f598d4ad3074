/* side_channel.h - how the ranks of a benchmark talk to its driver, apart from the measured library.
 *
 * The driver has a directory for each job, with a socket to which every rank connects and a page that the ranks map.
 * The page holds a barrier, so that the start of a call does not depend on the measured library. Lines of text go over
 * the socket: "hello RANK WORLD", then for each case (bench_case.h) "done WRONG CPU N ns ns ..." or "error SENTENCE". A
 * rank that waits for the next case sleeps. The end of the stream ends the job. */
#ifndef GW_BENCH_SIDE_CHANNEL_H
#define GW_BENCH_SIDE_CHANNEL_H

#include "base/status.h"
#include "bench/measure.h"

#define GW_SIDE_SOCKET "socket"
#define GW_SIDE_PAGE "page"
#define GW_SIDE_PAGE_BYTES 4096

/* A stream of lines. */
typedef struct gw_lines {
    int fd;
    char *data; /* owned */
    size_t used, taken, capacity;
} gw_lines;

/* Reads the available bytes; blocks if there are none. False at the end of the stream. */
bool gw_lines_read(gw_lines *lines);
/* The next complete line, without its end; valid until the next call. NULL: read more. */
char *gw_lines_next(gw_lines *lines);
void gw_lines_free(gw_lines *lines);

/* Driver side: makes socket and page in the directory. Returns the listening socket, or -1 with errno. */
int gw_side_channel_open(const char *directory);

/* Rank side: connects to the driver and runs its cases until the stream ends. */
gw_status gw_side_channel_run(const char *directory, const gw_bench_library *library, void *ctx, int rank, int world,
                              gw_error *error);

#endif
