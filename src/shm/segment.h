/* segment.h - anonymous shared memory: a memfd that other processes of the same user open through /proc/<pid>/fd.
 *
 * Nothing has a name in any file system, so nothing is left behind however a process ends. A segment never changes its
 * size (it is sealed), so no act of its owner can make a mapping fault. With `commit` a segment's memory is committed
 * when it is created: a lack of memory is then an error, not a signal later. */
#ifndef GW_SHM_SEGMENT_H
#define GW_SHM_SEGMENT_H

#include "base/status.h"

typedef struct gw_segment {
    void *base;     /* page aligned; NULL: none */
    size_t bytes;   /* a whole number of pages */
    int fd;         /* the owner's; -1 in a process that opened it from another */
    uint64_t inode; /* identifies the file: the fd number may be reused later */
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

size_t gw_segment_round(size_t bytes); /* up to whole pages, at least one; 0 if that overflows */

/* Zeroed memory of at least `bytes` bytes. */
gw_status gw_segment_create(gw_segment *segment, size_t bytes, bool commit, gw_error *error);
/* Opens another rank's segment and checks that it still is the one named. committed: it was created with `commit`. */
gw_status gw_segment_open(gw_segment *segment, const gw_segment_name *name, bool committed, gw_error *error);
/* To be called once the owner's address is known: under the thread sanitizer, ranks of one process share the owner's
 * mapping. */
void gw_segment_share_mapping(gw_segment *segment, const gw_segment_name *name);
/* Faults in pages of a segment that was not committed. If that fails, they are faulted in when touched. */
void gw_segment_populate(void *at, size_t bytes);
/* Replaces the segment by a new one with the same contents at the same address: processes that have the old one mapped
 * no longer reach this memory. For the owner only. */
gw_status gw_segment_renew(gw_segment *segment, gw_error *error);
void gw_segment_close(gw_segment *segment);

#endif
