/* peer_map_read.c - reads the memory of peers on the host by process_vm_readv, which containers (seccomp), Yama
 * (ptrace_scope) and PR_SET_DUMPABLE can forbid. */
#include "shm/peer_map.h"

#include <errno.h>
#include <sys/uio.h>

/* A peer that has ended has no memory, and its pid may be another process by now: neither is what it announced. */
bool gw_peer_map_reads(gw_peer_map *peer_map, int rank) {
    const gw_peer_map_peer *peer = &peer_map->peers[rank];
    uint8_t cookie[sizeof peer->page->cookie];
    gw_error ignored = {.rank = -1};
    if (peer_map->never_reads || !peer->page) return false;
    uint64_t at;
    gw_read_once(&at, &peer->page->address, sizeof at);
    if (gw_peer_map_read(peer_map, rank, cookie, at, sizeof cookie, &ignored)) return false;
    return memcmp(cookie, peer->page->cookie, sizeof cookie) == 0;
}

static gw_status failed(gw_peer_map *peer_map, int rank, int why, gw_error *error) {
    if (why == ESRCH || gw_peer_map_ended(&peer_map->peers[rank]))
        return gw_fail_rank(error, GW_PEER_LOST, rank, "rank %d ended while its memory was read", rank);
    if (why == EFAULT)
        return gw_fail_rank(error, GW_PROTOCOL, rank,
                            "rank %d gave a collective a buffer that is not mapped (was it freed during the call?)",
                            rank);
    return gw_fail_rank(error, GW_SYSTEM, rank, "the memory of rank %d can no longer be read: %s", rank, strerror(why));
}

gw_status gw_peer_map_read(gw_peer_map *peer_map, int rank, void *to, uint64_t from, size_t bytes, gw_error *error) {
    for (size_t done = 0; done < bytes;) {
        struct iovec here = {(uint8_t *)to + done, bytes - done};
        struct iovec there = {(void *)(uintptr_t)(from + done), bytes - done};
        ssize_t got = process_vm_readv(peer_map->peers[rank].pid, &here, 1, &there, 1, 0);
        if (got > 0) done += (size_t)got;
        else if (got == 0 || errno != EINTR) return failed(peer_map, rank, got ? errno : EFAULT, error);
    }
    return GW_OK;
}
