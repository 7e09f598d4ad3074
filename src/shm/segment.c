/* segment.c - see segment.h. */
#include "shm/segment.h"

#include "base/fork_descriptors.h"
#include "base/write_guard.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23
#endif

#define SEALS (F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL)

/* Larger mappings of a peer's memory are faulted in when touched: a first use must not stall for long. */
#define POPULATE_BYTES_MAX ((size_t)256 << 20)

/* Two ranks in one process map a segment twice. The thread sanitizer knows addresses only and would see no
 * communication between them, so under it they share the owner's mapping, which then outlives the segment. */
#if defined(__SANITIZE_THREAD__)
#define SHARE_ADDRESSES true
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define SHARE_ADDRESSES true
#endif
#endif
#ifndef SHARE_ADDRESSES
#define SHARE_ADDRESSES false
#endif

size_t gw_segment_round(size_t bytes) {
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    if (bytes > SIZE_MAX - page) return 0;
    return bytes ? (bytes + page - 1) / page * page : page;
}

/* MADV_POPULATE_WRITE also maps the pages, and reports what went wrong; kernels before 5.14 have only fallocate. */
static int commit_memory(void *base, size_t bytes, int fd) {
    if (madvise(base, bytes, MADV_POPULATE_WRITE) == 0) return 0;
    if (errno != EINVAL) return errno == EFAULT || errno == EHWPOISON ? ENOMEM : errno;
    return fallocate(fd, 0, 0, (off_t)bytes) == 0 || errno == EOPNOTSUPP ? 0 : errno;
}

/* `ulimit -f` also limits memory files: the guard turns its signal into an error. */
static bool set_size(int fd, size_t size, struct stat *about) {
    gw_write_guard guard;
    gw_write_guard_begin(&guard);
    bool set = ftruncate(fd, (off_t)size) == 0;
    gw_write_guard_end(&guard);
    return set && fstat(fd, about) == 0;
}

gw_status gw_segment_create(gw_segment *segment, size_t bytes, bool commit, gw_error *error) {
    const char *failed = "memfd_create";
    void *base = MAP_FAILED;
    int fd = -1, code = ENOMEM;
    struct stat about;
    size_t size = gw_segment_round(bytes);
    if (!size || size > (size_t)INT64_MAX) goto fail;
    fd = gw_fd_register(memfd_create("gradwire", MFD_CLOEXEC | MFD_ALLOW_SEALING));
    if (fd < 0) goto fail_errno;
    failed = "ftruncate";
    if (!set_size(fd, size, &about)) goto fail_errno;
    failed = "mmap";
    base = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (base == MAP_FAILED) goto fail_errno;
    failed = "committing the memory";
    code = commit ? commit_memory(base, size, fd) : 0;
    if (code) goto fail;
    failed = "sealing";
    if (fcntl(fd, F_ADD_SEALS, SEALS)) goto fail_errno;
    *segment = (gw_segment){.base = base, .bytes = size, .fd = fd, .inode = (uint64_t)about.st_ino};
    return GW_OK;
fail_errno:
    code = errno;
fail:
    if (base != MAP_FAILED) munmap(base, size);
    gw_fd_close(fd);
    return gw_fail(error, code == ENOMEM || code == ENOSPC ? GW_MEMORY : GW_SYSTEM,
                   "%s: %s%s, so %zu bytes of shared memory could not be had", failed, strerror(code),
                   code == EFBIG ? " (see ulimit -f)" : "", bytes);
}

/* NULL, or why this file is not the segment. */
static const char *differs(int fd, const gw_segment_name *name) {
    struct stat about;
    if (fstat(fd, &about)) return strerror(errno);
    if ((uint64_t)about.st_ino != name->inode || (uint64_t)about.st_size != name->bytes)
        return "it has been replaced by another file";
    int seals = fcntl(fd, F_GET_SEALS);
    if (seals < 0 || (seals & SEALS) != SEALS) return "it is not a sealed memory file";
    return NULL;
}

static bool shares_address(const gw_segment_name *name) {
    return SHARE_ADDRESSES && name->address && name->pid == getpid();
}

static gw_segment borrow(const gw_segment_name *name) {
    return (gw_segment){.base = (void *)(uintptr_t)name->address, .bytes = name->bytes, .fd = -1,
                        .inode = name->inode, .borrowed = true};
}

void gw_segment_share_mapping(gw_segment *segment, const gw_segment_name *name) {
    if (!shares_address(name)) return;
    gw_segment_close(segment);
    *segment = borrow(name);
}

gw_status gw_segment_open(gw_segment *segment, const gw_segment_name *name, bool committed, gw_error *error) {
    if (shares_address(name)) {
        *segment = borrow(name);
        return GW_OK;
    }
    char path[64];
    snprintf(path, sizeof path, "/proc/%d/fd/%d", (int)name->pid, (int)name->fd);
    int fd = open(path, O_RDWR | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    if (fd < 0)
        return gw_fail(error, GW_UNSUPPORTED, "shared memory of process %d could not be opened (%s): %s",
                       (int)name->pid, path, strerror(errno));
    const char *why = differs(fd, name);
    void *base = MAP_FAILED;
    if (!why) {
        base = mmap(NULL, name->bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
        if (base == MAP_FAILED) why = strerror(errno);
    }
    gw_fd_close(fd);
    if (why)
        return gw_fail(error, GW_UNSUPPORTED, "shared memory of process %d could not be used (%s): %s", (int)name->pid,
                       path, why);
    if (committed && name->bytes <= POPULATE_BYTES_MAX) gw_segment_populate(base, name->bytes);
    *segment = (gw_segment){.base = base, .bytes = name->bytes, .fd = -1, .inode = name->inode};
    return GW_OK;
}

/* One call instead of a page fault every 4 KiB. On kernels without this call the page faults occur. */
void gw_segment_populate(void *at, size_t bytes) { madvise(at, bytes, MADV_POPULATE_WRITE); }

gw_status gw_segment_renew(gw_segment *segment, gw_error *error) {
    gw_segment fresh;
    gw_status status = gw_segment_create(&fresh, segment->bytes, true, error);
    if (status) return status;
    memcpy(fresh.base, segment->base, segment->bytes);
    if (mremap(fresh.base, fresh.bytes, fresh.bytes, MREMAP_MAYMOVE | MREMAP_FIXED, segment->base) == MAP_FAILED) {
        status = gw_fail(error, GW_SYSTEM, "shared memory could not be replaced: %s", strerror(errno));
        gw_segment_close(&fresh);
        return status;
    }
    gw_fd_close(segment->fd);
    segment->fd = fresh.fd;
    segment->inode = fresh.inode;
    return GW_OK;
}

void gw_segment_close(gw_segment *segment) {
    if (segment->base && !segment->borrowed && !SHARE_ADDRESSES) munmap(segment->base, segment->bytes);
    if (segment->base && segment->fd >= 0) gw_fd_close(segment->fd);
    *segment = (gw_segment){.fd = -1};
}
