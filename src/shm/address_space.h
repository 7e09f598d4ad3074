/* address_space.h - what /proc says about ranges of this process's memory: whether their pages may be moved onto shared
 * memory, and which pages of a segment are still mapped. Each call reads the whole list: 10 us to a few ms. */
#ifndef GW_SHM_ADDRESS_SPACE_H
#define GW_SHM_ADDRESS_SPACE_H

#include "base/status.h"

/* GW_OK if [from, to), whole pages, is private anonymous memory that this process may read and write: that of malloc.
 * Otherwise GW_INVALID (not memory of this process) or GW_UNSUPPORTED, and the sentence. */
gw_status gw_address_space_can_move(uintptr_t from, uintptr_t to, gw_error *error);

/* The first range within [*from, *to) at which the memory file `inode` is mapped so that its byte 0 would lie at
 * `origin`. False: there is none. */
bool gw_address_space_find(uintptr_t origin, uint64_t inode, uintptr_t *from, uintptr_t *to);

#endif
