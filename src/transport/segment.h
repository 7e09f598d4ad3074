/* segment.h - anonymous shared memory: a memfd that other processes of the same user open through /proc/<pid>/fd.
 *
 * Nothing has a name in any file system, so nothing is left behind however a process ends. A segment never changes
 * its size (it is sealed), so a mapping never faults because of what its owner does. Memory is committed when a segment
 * is created with `commit`: a lack of it is an error then, not a signal later. */
#ifndef GW_TRANSPORT_SEGMENT_H
#define GW_TRANSPORT_SEGMENT_H

#include "base/status.h"

typedef struct gw_segment {
    void *base;     /* page aligned; NULL: none */
    size_t bytes;   /* a whole number of pages */
    int fd;         /* the owner's; -1 in a process that opened it from another */
    uint64_t inode; /* tells it from whatever the fd number may mean later */
    bool borrowed;  /* the mapping belongs to another rank of this process: not ours to unmap */
} gw_segment;

/* How another process finds a segment. */
typedef struct gw_segment_name {
    int32_t pid;
    int32_t fd;
    uint64_t inode;
    uint64_t bytes;
    uint64_t address; /* in its owner; 0: not known */
} gw_segment_name;

size_t gw_segment_round(size_t bytes); /* up to whole pages, at least one; 0 where that overflows */

/* Zeroed memory of at least `bytes` bytes. */
gw_status gw_segment_create(gw_segment *segment, size_t bytes, bool commit, gw_error *error);
/* Another rank's segment; checks that it still is the one that is meant. committed: it was created so. */
gw_status gw_segment_open(gw_segment *segment, const gw_segment_name *name, bool committed, gw_error *error);
/* Once the address is known: under the thread sanitizer, ranks of one process share the owner's mapping. */
void gw_segment_meet(gw_segment *segment, const gw_segment_name *name);
/* Maps pages of a segment that was not committed, as far as that works; where it does not they come when touched. */
void gw_segment_populate(void *at, size_t bytes);
/* Puts a copy of the contents in a new segment at the same address: who still has the old one mapped no longer reaches
 * this memory. For the owner. */
gw_status gw_segment_renew(gw_segment *segment, gw_error *error);
void gw_segment_close(gw_segment *segment);

#endif
