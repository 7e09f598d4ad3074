/* registered_memory.c - see registered_memory.h. */
#include "shm/registered_memory.h"

#include "base/log.h"
#include "shm/address_space.h"

#include <errno.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

/* ---- moving pages ---- */

static uintptr_t page_bytes(void) { return (uintptr_t)sysconf(_SC_PAGESIZE); }

static uint8_t *in_segment(const gw_shared_segment *own, uintptr_t address) {
    return (uint8_t *)own->segment.base + (address - own->origin);
}

/* Puts the segment's memory at the caller's address. */
static gw_status map_pages(const gw_shared_segment *own, uintptr_t from, uintptr_t to, gw_error *error) {
    void *at = mmap((void *)from, to - from, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED | MAP_POPULATE,
                    own->segment.fd, (off_t)(from - own->origin));
    return at != MAP_FAILED ? GW_OK : gw_fail(error, GW_SYSTEM, "mmap of its pages: %s", strerror(errno));
}

gw_status gw_registered_open(gw_shared_segment *own, void *memory, size_t bytes, gw_error *error) {
    uintptr_t page = page_bytes(), from = (uintptr_t)memory, to = from + bytes;
    gw_shared_segment made = {.segment = {.fd = -1}, .origin = from / page * page, .from = from, .to = to,
                              .pages_from = (from + page - 1) / page * page, .pages_to = to / page * page};
    if (to < from) return gw_fail(error, GW_INVALID, "it has no end in the address space");
    if (made.pages_from >= made.pages_to)
        return gw_fail(error, GW_UNSUPPORTED, "it has no whole page of %zu bytes", (size_t)page);
    gw_status status = gw_address_space_can_move(made.pages_from, made.pages_to, error);
    if (!status) status = gw_segment_create(&made.segment, to - made.origin, true, error);
    if (status) return status;
    memcpy(in_segment(&made, made.pages_from), (void *)made.pages_from, made.pages_to - made.pages_from);
    status = map_pages(&made, made.pages_from, made.pages_to, error);
    if (status) gw_segment_close(&made.segment);
    else *own = made;
    return status;
}

/* Replaces mapped pages of the segment by private memory with the same contents. */
static gw_status give_back(const gw_shared_segment *own, uintptr_t from, uintptr_t to, gw_error *error) {
    size_t bytes = to - from;
    void *fresh = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
    if (fresh == MAP_FAILED)
        return gw_fail(error, GW_MEMORY, "no memory to give %zu bytes back: %s", bytes, strerror(errno));
    memcpy(fresh, in_segment(own, from), bytes);
    if (mremap(fresh, bytes, bytes, MREMAP_MAYMOVE | MREMAP_FIXED, (void *)from) != MAP_FAILED) return GW_OK;
    gw_status status = gw_fail(error, GW_SYSTEM, "%zu bytes cannot be given back: %s", bytes, strerror(errno));
    munmap(fresh, bytes);
    return status;
}

/* The caller may have freed all or some of the memory: only pages that are still mapped are ours. */
gw_status gw_registered_close(gw_shared_segment *own, gw_error *error) {
    bool any = false;
    uintptr_t from = own->pages_from, to = own->pages_to;
    while (gw_address_space_find(own->origin, own->segment.inode, &from, &to)) {
        gw_status status = give_back(own, from, to, error);
        if (status) return status;
        any = true;
        from = to, to = own->pages_to;
    }
    gw_segment_close(&own->segment);
    return any ? GW_OK : gw_fail(error, GW_INVALID, "it was freed before it was unregistered");
}

gw_status gw_registered_renew(gw_shared_segment *own, uint64_t old_inode, gw_error *error) {
    uintptr_t from = own->pages_from, to = own->pages_to;
    gw_status status = GW_OK;
    while (!status && gw_address_space_find(own->origin, old_inode, &from, &to)) {
        status = map_pages(own, from, to, error);
        from = to, to = own->pages_to;
    }
    return status;
}

/* ---- use ---- */

static uintptr_t later(uintptr_t a, uintptr_t b) { return a > b ? a : b; }
static uintptr_t earlier(uintptr_t a, uintptr_t b) { return a < b ? a : b; }

/* Whether a byte is the same memory in both mappings. */
static bool is_one_byte(const gw_shared_segment *own, uintptr_t at) {
    volatile uint8_t *shared = in_segment(own, at), *callers = (uint8_t *)at;
    uint8_t was = *callers, other = (uint8_t)~was;
    *shared = other;
    bool same = *callers == other;
    *shared = was;
    return same;
}

/* Up to a cache line from `at` on. */
static bool is_equal(const gw_shared_segment *own, uintptr_t at, uintptr_t to) {
    return memcmp(in_segment(own, at), (void *)at, earlier(to - at, GW_CACHE_LINE)) == 0;
}

/* Of a buffer [from, to). */
static bool is_mapped(const gw_shared_segment *own, uintptr_t from, uintptr_t to, bool written) {
    from = later(from, own->pages_from), to = earlier(to, own->pages_to);
    if (from >= to) return true;
    if (written) return is_one_byte(own, to - 1);
    return is_equal(own, from, to) && is_equal(own, later(from, (to - 1) / GW_CACHE_LINE * GW_CACHE_LINE), to);
}

/* Bytes that are equal stay untouched: peers may read them for another operation. */
static void copy_part(const gw_shared_segment *own, uintptr_t from, uintptr_t to, bool to_segment) {
    if (from >= to) return;
    void *shared = in_segment(own, from), *callers = (void *)from;
    if (memcmp(shared, callers, to - from) == 0) return;
    if (to_segment) memcpy(shared, callers, to - from);
    else memcpy(callers, shared, to - from);
}

static void copy_edges(const gw_shared_segment *own, uintptr_t from, size_t bytes, bool to_segment) {
    uintptr_t to = from + bytes;
    copy_part(own, from, earlier(to, own->pages_from), to_segment);
    copy_part(own, later(from, own->pages_to), to, to_segment);
}

static uintptr_t address_of(const gw_shared_segment *own, gw_shm_ref where, size_t at) {
    return own->origin + where.offset + at;
}

bool gw_registered_lend(gw_peer_map *peer_map, gw_shm_ref where, size_t at, size_t bytes, bool written) {
    const gw_shared_segment *own = &peer_map->own[where.id];
    uintptr_t from = address_of(own, where, at);
    if (!gw_is_registered(own) || is_mapped(own, from, from + bytes, written)) return true;
    gw_log(GW_LOG_WARN, peer_map->rank,
           "%zu bytes at %p were freed without gw_unregister: their registration has ended", own->to - own->from,
           (void *)own->from);
    gw_shared_segment taken = gw_peer_map_take(peer_map, where.id);
    gw_segment_close(&taken.segment);
    return false;
}

void gw_registered_show(gw_peer_map *peer_map, gw_shm_ref where, size_t at, size_t bytes) {
    const gw_shared_segment *own = &peer_map->own[where.id];
    if (gw_is_registered(own)) copy_edges(own, address_of(own, where, at), bytes, true);
}

void gw_registered_take_back(gw_peer_map *peer_map, gw_shm_ref where, size_t at, size_t bytes) {
    const gw_shared_segment *own = &peer_map->own[where.id];
    if (own->version == where.version) copy_edges(own, address_of(own, where, at), bytes, false);
}

void *gw_registered_at(gw_peer_map *peer_map, gw_shm_ref where, size_t at, size_t bytes, const void *callers) {
    const gw_shared_segment *own = &peer_map->own[where.id];
    uintptr_t from = address_of(own, where, at);
    bool whole = from >= own->pages_from && from + bytes <= own->pages_to;
    return whole ? (void *)callers : in_segment(own, from);
}
