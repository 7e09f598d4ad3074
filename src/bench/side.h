/* side.h - how the ranks of a benchmark and the program that conducts it talk, beside what is measured.
 *
 * The conductor has a directory for each job, with a socket at which every rank reports, and a page that the ranks map:
 * they meet there, so that a job's start line does not depend on the library that it measures. Over the socket go lines
 * of text: "hello RANK WORLD", then for each case (case.h) "done WRONG N ns ns ..." or "error SENTENCE". A rank that
 * waits for the next case sleeps and costs nothing. The end of the stream is the end of the job. */
#ifndef GW_BENCH_SIDE_H
#define GW_BENCH_SIDE_H

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

/* Reads what is there, blocking if nothing is. False at the end of the stream. */
bool gw_lines_read(gw_lines *lines);
/* The next whole line, without its end, valid until the next call; NULL: read more. */
char *gw_lines_next(gw_lines *lines);
void gw_lines_free(gw_lines *lines);

/* The conductor's: makes socket and page in the directory; gives the listening socket, or -1 with errno. */
int gw_side_open(const char *directory);

/* The rank's: reports to the conductor and measures what it is told until it is told no more. */
gw_status gw_side_serve(const char *directory, const gw_bench_library *library, void *ctx, int rank, int world,
                        gw_error *error);

#endif
