/* peer_map.c - opens a rank's shared page, maps those of its peers, rings their doorbells. The table is in
 * peer_map_table.c. */
#include "shm/peer_map.h"

#include "base/fork_descriptors.h"
#include "shm/registered_memory.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#define ENDPOINT_MAGIC 0x68577267u    /* "grWh" */
#define NO_ENDPOINT_MAGIC 0x6e577267u /* "grWn" */

/* The endpoint record, in the byte order of the host: only processes of the same host use it, which the boot id
 * proves. */
typedef struct endpoint_record {
    uint32_t magic;
    int32_t pid, fd, bell;
    uint8_t cookie[16];
    uint8_t boot[16];
    uint32_t network, pids, user; /* namespaces and user id */
    uint32_t inode;               /* low half; of the page's memory */
} endpoint_record;
_Static_assert(sizeof(endpoint_record) == GW_SHM_ENDPOINT_BYTES, "an endpoint is 64 bytes");

void *gw_peer_map_user_area(void *page) { return (uint8_t *)page + gw_segment_round(sizeof(gw_peer_map_page)); }

static uint32_t namespace_of(const char *path) {
    struct stat about;
    return stat(path, &about) ? 0 : (uint32_t)about.st_ino;
}

/* The boot id is a text of 36 characters, its digits are 16 bytes. */
static void read_boot_id(uint8_t boot[16]) {
    memset(boot, 0, 16);
    int fd = open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC);
    if (fd < 0) return;
    char text[40] = {0};
    ssize_t got = read(fd, text, sizeof text - 1);
    gw_fd_close(fd);
    int digits = 0;
    for (ssize_t i = 0; i < got && digits < 32; i++) {
        char c = text[i];
        int value = c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
        if (value < 0) continue;
        boot[digits / 2] = (uint8_t)(boot[digits / 2] << 4 | value);
        digits++;
    }
}

static void fill_endpoint(const gw_peer_map *peer_map, endpoint_record *record) {
    *record = (endpoint_record){.magic = ENDPOINT_MAGIC,
                                .pid = getpid(),
                                .fd = peer_map->segment.fd,
                                .bell = peer_map->bell[1],
                                .network = namespace_of("/proc/self/ns/net"),
                                .pids = namespace_of("/proc/self/ns/pid"),
                                .user = (uint32_t)geteuid(),
                                .inode = (uint32_t)peer_map->segment.inode};
    memcpy(record->cookie, peer_map->page->cookie, sizeof record->cookie);
    read_boot_id(record->boot);
}

void gw_peer_map_endpoint(const gw_peer_map *peer_map, uint8_t endpoint[GW_SHM_ENDPOINT_BYTES]) {
    endpoint_record record;
    fill_endpoint(peer_map, &record);
    memcpy(endpoint, &record, sizeof record);
}

gw_status gw_peer_map_open(gw_peer_map **out, int rank, int world, size_t room, gw_error *error) {
    gw_peer_map *peer_map = calloc(1, sizeof *peer_map);
    if (!peer_map) return gw_fail(error, GW_MEMORY, "no memory for rank %d's peer map", rank);
    gw_status status = GW_MEMORY;
    *peer_map = (gw_peer_map){.rank = rank, .world = world, .bell = {-1, -1}, .segment = {.fd = -1}};
    peer_map->peers = calloc((size_t)world, sizeof *peer_map->peers);
    peer_map->own = calloc(GW_PEER_MAP_SEGMENTS, sizeof *peer_map->own);
    if (!peer_map->peers || !peer_map->own) {
        gw_fail(error, status, "no memory for rank %d's peer map", rank);
        goto fail;
    }
    for (int r = 0; r < world; r++) peer_map->peers[r].bell = -1;
    status = gw_segment_create(&peer_map->segment, gw_segment_round(sizeof(gw_peer_map_page)) + room, false, error);
    if (status) goto fail;
    gw_peer_map_page *page = peer_map->page = peer_map->segment.base;
    page->rank = (uint32_t)rank;
    page->world = (uint32_t)world;
    page->address = (uint64_t)(uintptr_t)page;
    if (pipe2(peer_map->bell, O_CLOEXEC | O_NONBLOCK) ||
        getrandom(page->cookie, sizeof page->cookie, 0) != sizeof page->cookie) {
        status = gw_fail(error, GW_SYSTEM, "rank %d's doorbell could not be made: %s", rank, strerror(errno));
        goto fail;
    }
    for (int end = 0; end < 2; end++) gw_fd_register(peer_map->bell[end]);
    *out = peer_map;
    return GW_OK;
fail:
    gw_peer_map_close(peer_map);
    return status;
}

static void detach(gw_peer_map_peer *peer) {
    for (int id = 0; peer->mappings && id < GW_PEER_MAP_SEGMENTS; id++) {
        for (gw_mapping *mapping = peer->mappings[id], *next; mapping; mapping = next) {
            next = mapping->next;
            gw_segment_close(&mapping->segment);
            free(mapping);
        }
    }
    free(peer->mappings);
    if (peer->page) gw_segment_close(&peer->segment);
    gw_fd_close(peer->bell);
    *peer = (gw_peer_map_peer){.bell = -1};
}

void gw_peer_map_close(gw_peer_map *peer_map) {
    if (!peer_map) return;
    for (int r = 0; peer_map->peers && r < peer_map->world; r++) detach(&peer_map->peers[r]);
    for (int id = 0; peer_map->own && id < GW_PEER_MAP_SEGMENTS; id++) {
        gw_shared_segment *own = &peer_map->own[id];
        if (own->segment.base && gw_is_registered(own)) gw_registered_close(own, NULL);
        if (own->segment.base) gw_segment_close(&own->segment);
    }
    if (peer_map->page) gw_segment_close(&peer_map->segment);
    for (int end = 0; end < 2; end++) gw_fd_close(peer_map->bell[end]);
    free(peer_map->peers);
    free(peer_map->own);
    free(peer_map);
}

/* NULL, or why two ranks cannot share memory. */
static const char *why_not_shared(const endpoint_record *mine, const endpoint_record *theirs) {
    if (theirs->magic != ENDPOINT_MAGIC || mine->magic != ENDPOINT_MAGIC) return "it offers no shared memory";
    if (memcmp(mine->boot, theirs->boot, sizeof mine->boot)) return "it runs on another host";
    if (mine->network != theirs->network) return "it runs in another network namespace";
    if (mine->pids != theirs->pids) return "it runs in another pid namespace";
    if (mine->user != theirs->user) return "it runs as another user";
    return NULL;
}

void gw_peer_map_no_endpoint(const char *why, uint8_t endpoint[GW_SHM_ENDPOINT_BYTES]) {
    static const uint32_t magic = NO_ENDPOINT_MAGIC;
    size_t length = strcspn(why, ","), room = GW_SHM_ENDPOINT_BYTES - sizeof magic;
    memset(endpoint, 0, GW_SHM_ENDPOINT_BYTES);
    memcpy(endpoint, &magic, sizeof magic);
    memcpy(endpoint + sizeof magic, why, length < room ? length : room);
}

/* The reason in an endpoint of gw_peer_map_no_endpoint; false: it is none. */
static bool read_no_endpoint(const uint8_t endpoint[GW_SHM_ENDPOINT_BYTES], char why[GW_REACH_WHY]) {
    uint32_t magic;
    memcpy(&magic, endpoint, sizeof magic);
    if (magic != NO_ENDPOINT_MAGIC) return false;
    snprintf(why, GW_REACH_WHY, "%.*s", (int)(GW_SHM_ENDPOINT_BYTES - sizeof magic), endpoint + sizeof magic);
    for (char *c = why; *c; c++)
        if (*c < ' ' || *c > '~') *c = '?';
    return true;
}

bool gw_peer_map_apart(const uint8_t mine[GW_SHM_ENDPOINT_BYTES], const uint8_t theirs[GW_SHM_ENDPOINT_BYTES],
                       char why[GW_REACH_WHY]) {
    endpoint_record a, b;
    memcpy(&a, mine, sizeof a);
    memcpy(&b, theirs, sizeof b);
    const char *reason = why_not_shared(&a, &b);
    if (reason && !read_no_endpoint(theirs, why) && !read_no_endpoint(mine, why))
        snprintf(why, GW_REACH_WHY, "%s", reason);
    return reason != NULL;
}

/* A zombie still has a pid, but no /proc/<pid>/exe. */
bool gw_peer_map_ended(const gw_peer_map_peer *peer) {
    char path[64], program;
    snprintf(path, sizeof path, "/proc/%d/exe", (int)peer->pid);
    return readlink(path, &program, 1) < 0 && errno == ENOENT;
}

/* A write to anything else than a pipe could change a file, or block. */
static bool is_pipe(int fd) {
    struct stat about;
    return fstat(fd, &about) == 0 && S_ISFIFO(about.st_mode);
}

/* Opens a peer's page and doorbell. All pages of a job have the same size; the seals keep it constant. */
static gw_status map_peer(gw_peer_map_peer *peer, const endpoint_record *record, size_t bytes, gw_error *error) {
    char path[64];
    struct stat about;
    snprintf(path, sizeof path, "/proc/%d/fd/%d", (int)record->pid, (int)record->fd);
    if (stat(path, &about))
        return gw_fail(error, GW_UNSUPPORTED, "%s cannot be looked at: %s%s", path, strerror(errno),
                       errno == EACCES ? " (is that process set-uid, or not dumpable?)" : "");
    if ((uint32_t)about.st_ino != record->inode)
        return gw_fail(error, GW_UNSUPPORTED, "%s is not its shared page", path);
    if (about.st_size < 0 || (uint64_t)about.st_size != bytes)
        return gw_fail(error, GW_PROTOCOL, "its shared page %s has %lld bytes, and those of this job have %zu", path,
                       (long long)about.st_size, bytes);
    gw_segment_name name = {
        .pid = record->pid, .fd = record->fd, .inode = (uint64_t)about.st_ino, .bytes = (uint64_t)about.st_size};
    gw_status status = gw_segment_open(&peer->segment, &name, false, error);
    if (status) return status;
    peer->page = peer->segment.base;
    if (memcmp(peer->page->cookie, record->cookie, sizeof record->cookie))
        return gw_fail(error, GW_UNSUPPORTED, "%s does not hold its cookie", path);
    name.address = peer->page->address;
    gw_segment_share_mapping(&peer->segment, &name);
    peer->page = peer->segment.base;
    snprintf(path, sizeof path, "/proc/%d/fd/%d", (int)record->pid, (int)record->bell);
    /* Opened for reading too, though nobody here reads: a write to a pipe without a reader raises SIGPIPE. */
    peer->bell = gw_fd_register(open(path, O_RDWR | O_NONBLOCK | O_CLOEXEC | O_NOCTTY));
    if (peer->bell < 0)
        return gw_fail(error, GW_UNSUPPORTED, "its doorbell %s cannot be opened: %s", path, strerror(errno));
    if (!is_pipe(peer->bell)) return gw_fail(error, GW_PROTOCOL, "its doorbell %s is not a pipe", path);
    return GW_OK;
}

gw_status gw_peer_map_attach(gw_peer_map *peer_map, int rank, const uint8_t endpoint[GW_SHM_ENDPOINT_BYTES],
                             gw_error *error) {
    endpoint_record mine, theirs;
    memcpy(&theirs, endpoint, sizeof theirs);
    fill_endpoint(peer_map, &mine);
    const char *why = why_not_shared(&mine, &theirs);
    if (why) return gw_fail_rank(error, GW_UNSUPPORTED, rank, "no shared memory with rank %d: %s", rank, why);
    gw_peer_map_peer *peer = &peer_map->peers[rank];
    gw_error cause = {.status = GW_OK};
    gw_status status = map_peer(peer, &theirs, peer_map->segment.bytes, &cause);
    if (!status) {
        peer->mappings = calloc(GW_PEER_MAP_SEGMENTS, sizeof(gw_mapping *));
        if (!peer->mappings) status = gw_fail(&cause, GW_MEMORY, "no memory for its table");
    }
    if (status) {
        detach(peer);
        return gw_fail_rank(error, status, rank, "no shared memory with rank %d: %.400s", rank, cause.text);
    }
    peer->pid = theirs.pid;
    return GW_OK;
}

void gw_peer_map_wake(gw_peer_map *peer_map, int rank) {
    gw_peer_map_peer *peer = &peer_map->peers[rank];
    if (!peer->page || !gw_peer_map_sleeps(peer->page)) return;
    if (!atomic_exchange(&peer->page->sleeping, 0)) return;
    /* A full pipe is readable already, and a reader that is gone needs no wake-up. */
    ssize_t ignored = write(peer->bell, "", 1);
    (void)ignored;
}

void gw_peer_map_set_sleeping(gw_peer_map *peer_map, bool sleeping) {
    atomic_store(&peer_map->page->sleeping, sleeping);
    if (sleeping) return;
    /* Rings that stay in the pipe only wake this rank once more. */
    uint8_t rings[1024];
    ssize_t ignored = read(peer_map->bell[0], rings, sizeof rings);
    (void)ignored;
}
