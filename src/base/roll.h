/* roll.h - who is in a job at present. A launcher that starts processes again, or goes on without them, calls the roll
 * anew each time: it writes it to a file that the processes of a host can read. Each process has a seat, a number it
 * keeps; its rank is its place among the seats called. Servers that are processes of their own have the last seats. */
#ifndef GW_BASE_ROLL_H
#define GW_BASE_ROLL_H

#include "base/status.h"

#define GW_ROLL_SEATS_MAX 4096
#define GW_ROLL_TEXT (GW_ROLL_SEATS_MAX * 6 + 512) /* bytes that hold any */
#define GW_ROLL_ADDRESS 256

typedef struct gw_roll {
    int round;                     /* how often it has been called; the job begins with 0 */
    int world;
    int workers;                   /* seats below this work, the others serve */
    int port;                      /* where rank 0 of this round is met */
    char address[GW_ROLL_ADDRESS];
    int seats[GW_ROLL_SEATS_MAX];  /* by rank */
} gw_roll;

/* Writes the text and returns its length. */
size_t gw_roll_write(const gw_roll *roll, char text[GW_ROLL_TEXT]);
/* False: it is not a whole roll (it may be written just now). */
bool gw_roll_parse(gw_roll *roll, const char *text, size_t bytes);
/* Reads the file; false where there is no whole roll in it. */
bool gw_roll_read(gw_roll *roll, const char *path);
/* How many of those called only serve. */
int gw_roll_servers(const gw_roll *roll);
/* The rank of a seat, -1: it is not called. */
int gw_roll_rank(const gw_roll *roll, int seat);

#endif
