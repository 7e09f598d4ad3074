/* rdma_libfabric_locks.c - see rdma_libfabric_locks.h. A free lock has the C library's value, so locks that were
 * initialised before the redirection stay valid; a held one has the holder's pid, negated. */
#include "transport/rdma/rdma_libfabric_locks.h"

#include <dlfcn.h>
#include <elf.h>
#include <errno.h>
#include <link.h>
#include <poll.h>
#include <sched.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#define LOOKS 256 /* reads of a held lock before the core is yielded */
#define DOUBTS 64 /* such rounds before the holder is checked: half a millisecond on an idle machine */

/* The value of a free lock, and our pid. Written before the first redirection; constant afterwards. */
static _Atomic int free_lock, self;

/* True also for a zombie. A process that cannot be checked counts as alive. */
static bool is_gone(pid_t process) {
    struct pollfd end = {.fd = (int)syscall(SYS_pidfd_open, process, 0), .events = POLLIN};
    if (end.fd < 0) return errno == ESRCH;
    bool gone = poll(&end, 1, 0) > 0;
    close(end.fd);
    return gone;
}

static bool change(pthread_spinlock_t *lock, int from, int to) {
    return __atomic_compare_exchange_n(lock, &from, to, false, __ATOMIC_ACQUIRE, __ATOMIC_RELAXED);
}

int gw_rdma_locks_try(pthread_spinlock_t *lock) {
    int unheld = atomic_load_explicit(&free_lock, memory_order_relaxed);
    return change(lock, unheld, -atomic_load_explicit(&self, memory_order_relaxed)) ? 0 : EBUSY;
}

/* Spins for a while with plain reads, which do not take the cache line from the holder. */
static bool comes_free(pthread_spinlock_t *lock) {
    int unheld = atomic_load_explicit(&free_lock, memory_order_relaxed);
    for (int looks = 0; looks < LOOKS; looks++) {
        if (__atomic_load_n(lock, __ATOMIC_RELAXED) == unheld) return true;
#if defined(__x86_64__)
        __builtin_ia32_pause();
#endif
    }
    return false;
}

int gw_rdma_locks_lock(pthread_spinlock_t *lock) {
    for (unsigned fruitless = 0; gw_rdma_locks_try(lock) != 0;) {
        if (comes_free(lock)) continue;
        sched_yield();
        int held = __atomic_load_n(lock, __ATOMIC_RELAXED);
        if (++fruitless % DOUBTS == 0 && held < 0 && is_gone(-held) && change(lock, held, -atomic_load(&self))) break;
    }
    return 0;
}

int gw_rdma_locks_unlock(pthread_spinlock_t *lock) {
    __atomic_store_n(lock, atomic_load_explicit(&free_lock, memory_order_relaxed), __ATOMIC_RELEASE);
    return 0;
}

/* ---- redirection ---- */

static const struct {
    const char *name;
    int (*ours)(pthread_spinlock_t *lock);
} redirected[] = {
    {"pthread_spin_lock", gw_rdma_locks_lock},
    {"pthread_spin_trylock", gw_rdma_locks_try},
    {"pthread_spin_unlock", gw_rdma_locks_unlock},
};

/* The GOT cell has been read-only since the library was loaded (RELRO). */
static bool put(void **cell, int (*ours)(pthread_spinlock_t *lock)) {
    uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE), first = (uintptr_t)cell / page * page;
    if (mprotect((void *)first, page, PROT_READ | PROT_WRITE) != 0) return false;
    memcpy(cell, &ours, sizeof ours);
    return mprotect((void *)first, page, PROT_READ) == 0;
}

/* The PLT relocations of a loaded library: its calls of other libraries. */
typedef struct calls {
    const char *names;
    const ElfW(Sym) * symbols;
    const ElfW(Rela) * list;
    size_t count;
} calls;

static calls calls_of(const struct link_map *map) {
    calls found = {0};
    for (const ElfW(Dyn) *entry = map->l_ld; entry->d_tag != DT_NULL; entry++) {
        if (entry->d_tag == DT_STRTAB) found.names = (const char *)entry->d_un.d_ptr;
        if (entry->d_tag == DT_SYMTAB) found.symbols = (const ElfW(Sym) *)entry->d_un.d_ptr;
        if (entry->d_tag == DT_JMPREL) found.list = (const ElfW(Rela) *)entry->d_un.d_ptr;
        if (entry->d_tag == DT_PLTRELSZ) found.count = entry->d_un.d_val / sizeof(ElfW(Rela));
    }
    return found;
}

static bool redirect(const struct link_map *map, const calls *all) {
    for (size_t i = 0; all->list && i < all->count; i++) {
        const char *name = all->names + all->symbols[ELF64_R_SYM(all->list[i].r_info)].st_name;
        void **cell = (void **)(map->l_addr + all->list[i].r_offset);
        for (size_t k = 0; k < sizeof redirected / sizeof redirected[0]; k++)
            if (strcmp(name, redirected[k].name) == 0 && !put(cell, redirected[k].ours)) return false;
    }
    return true;
}

gw_status gw_rdma_locks_redirect(void *library, gw_error *error) {
    struct link_map *map = NULL;
    pthread_spinlock_t probe;
    pthread_spin_init(&probe, PTHREAD_PROCESS_SHARED);
    atomic_store(&free_lock, (int)probe);
    atomic_store(&self, (int)getpid());
    calls all = {0};
    if (dlinfo(library, RTLD_DI_LINKMAP, &map) == 0) all = calls_of(map);
    if (map && redirect(map, &all)) return GW_OK;
    return gw_fail(error, GW_UNSUPPORTED,
                   "rdma: the locks of libfabric's shm provider cannot be guarded here, and a rank that dies would "
                   "leave the others waiting for ever: use transport=shm");
}
