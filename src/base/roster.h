/* roster.h - which processes are in a job at present. A launcher that restarts processes, or goes on without them,
 * writes a new roster each time, to a file that the processes of a host can read. Each process has a member id, which
 * it keeps; its rank is its position among the members listed. Servers that are processes of their own have the highest
 * ids. */
#ifndef GW_BASE_ROSTER_H
#define GW_BASE_ROSTER_H

#include "base/status.h"

#define GW_ROSTER_MEMBERS_MAX 4096
#define GW_ROSTER_TEXT (GW_ROSTER_MEMBERS_MAX * 6 + 512) /* bytes that hold any roster */
#define GW_ROSTER_ADDRESS 256

typedef struct gw_roster {
    int generation; /* how many rosters came before; the job begins with 0 */
    int world;
    int workers; /* members below this id are workers, the others servers */
    int port;    /* where rank 0 of this generation listens */
    char address[GW_ROSTER_ADDRESS];
    int members[GW_ROSTER_MEMBERS_MAX]; /* by rank */
} gw_roster;

/* Writes the text and returns its length. */
size_t gw_roster_write(const gw_roster *roster, char text[GW_ROSTER_TEXT]);
/* False: not a complete roster (it may be half written). */
bool gw_roster_parse(gw_roster *roster, const char *text, size_t bytes);
/* Reads the file; false if it holds no complete roster. */
bool gw_roster_read(gw_roster *roster, const char *path);
/* Members that are servers. */
int gw_roster_servers(const gw_roster *roster);
/* The rank of a member; -1: the roster does not list it. */
int gw_roster_rank(const gw_roster *roster, int member);

#endif
