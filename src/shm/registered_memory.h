/* registered_memory.h - ordinary memory of the caller whose whole pages are moved onto a segment, so that peers map it
 * like memory of gw_shm_alloc. Address and contents stay.
 *
 * Partial pages at both ends hold bytes of others (malloc's own, a neighbour's variables), so they stay private. The
 * segment has a page for each of them, and this rank maps the whole segment a second time: in that mapping, as in those
 * of the peers, the memory is contiguous. Before an operation the owner copies the bytes of its buffer that lie on
 * partial pages to the segment, and afterwards it copies results back: less than two pages each way, and nothing for
 * memory that begins and ends with a page. The second mapping is used for these bytes only: a core whose first cache
 * knows lines by their virtual address (AMD's) takes 1.5 to 3 times as long to read what was written in the other one.
 *
 * Freed memory. A caller that frees the memory and does not unregister it first may get other memory at the same
 * address. So each use checks that the last whole page of the buffer is that of the segment: in a buffer that will be
 * written, by changing a byte in one mapping and reading it in the other; in one that is only read, which others may
 * read too, by comparing contents there and at the beginning. If not, the registration ends: the buffer is private.
 *
 * Cost: registering and unregistering copy the memory once, and fault it in: 0.3 to 1 ms a MiB. */
#ifndef GW_SHM_REGISTERED_MEMORY_H
#define GW_SHM_REGISTERED_MEMORY_H

#include "shm/peer_map.h"

/* Moves the whole pages of memory onto a new segment, and describes it. No lock; nobody writes to the memory meanwhile.
 * On failure the memory is as it was. */
gw_status gw_registered_open(gw_shared_segment *own, void *memory, size_t bytes, gw_error *error);
/* Gives the pages that are still mapped back to private memory, and closes the segment. On an error it stays open. */
gw_status gw_registered_close(gw_shared_segment *own, gw_error *error);
/* After gw_segment_renew: maps the new memory at the caller's address, too. */
gw_status gw_registered_renew(gw_shared_segment *own, uint64_t old_inode, gw_error *error);

static inline bool gw_is_registered(const gw_shared_segment *own) {
    return own->origin != (uintptr_t)own->segment.base;
}

/* For bytes `at` to `at + bytes` of this rank's memory, counted from `where`.
 * lend: before peers use them; false if the memory has been freed: its registration is ended then. written: peers may
 * write them. show: peers see what is there now. take_back: this rank sees what peers have written. at: where this rank
 * works on bytes that peers may have worked on; callers: its own address of them. */
bool gw_registered_lend(gw_peer_map *peer_map, gw_shm_ref where, size_t at, size_t bytes, bool written);
void gw_registered_show(gw_peer_map *peer_map, gw_shm_ref where, size_t at, size_t bytes);
void gw_registered_take_back(gw_peer_map *peer_map, gw_shm_ref where, size_t at, size_t bytes);
void *gw_registered_at(gw_peer_map *peer_map, gw_shm_ref where, size_t at, size_t bytes, const void *callers);

#endif
