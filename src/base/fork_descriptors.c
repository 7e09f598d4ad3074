/* fork_descriptors.c - see fork_descriptors.h. */
#include "base/fork_descriptors.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define WORD_BITS 64

static pthread_once_t once = PTHREAD_ONCE_INIT;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static _Thread_local bool blocking; /* the calling thread is between gw_fork_block and gw_fork_unblock */
static uint64_t *kept;              /* under lock: one bit for each descriptor */
static size_t words;                /* under lock: length of kept */
static _Atomic unsigned depth;      /* written only in a forked child, while it has one thread */

static void before_fork(void) { pthread_mutex_lock(&lock); }
static void in_parent(void) { pthread_mutex_unlock(&lock); }

/* The other threads vanished in the middle of their work, so this allocates, frees and logs nothing. */
static void in_child(void) {
    for (size_t w = 0; w < words; w++) {
        for (; kept[w]; kept[w] &= kept[w] - 1) close((int)(w * WORD_BITS) + __builtin_ctzll(kept[w]));
    }
    atomic_fetch_add(&depth, 1);
    pthread_mutex_unlock(&lock);
}

static void set_up(void) { pthread_atfork(before_fork, in_parent, in_child); }

bool gw_fork_block(void) {
    if (blocking) return false;
    pthread_once(&once, set_up);
    pthread_mutex_lock(&lock);
    return blocking = true;
}

void gw_fork_unblock(bool blocked) {
    if (!blocked) return;
    blocking = false;
    pthread_mutex_unlock(&lock);
}

/* Under lock. If memory runs out, the descriptor stays open in children like any other. */
static bool reserve(size_t word) {
    if (word < words) return true;
    size_t more = word + 16;
    uint64_t *grown = realloc(kept, more * sizeof *grown);
    if (!grown) return false;
    memset(grown + words, 0, (more - words) * sizeof *grown);
    kept = grown;
    words = more;
    return true;
}

int gw_fd_register(int fd) {
    if (fd < 0) return fd;
    bool blocked = gw_fork_block();
    size_t word = (size_t)fd / WORD_BITS;
    if (reserve(word)) kept[word] |= UINT64_C(1) << (fd % WORD_BITS);
    gw_fork_unblock(blocked);
    return fd;
}

void gw_fd_close(int fd) {
    if (fd < 0) return;
    bool blocked = gw_fork_block();
    size_t word = (size_t)fd / WORD_BITS;
    if (word < words) kept[word] &= ~(UINT64_C(1) << (fd % WORD_BITS));
    close(fd);
    gw_fork_unblock(blocked);
}

unsigned gw_fork_depth(void) { return atomic_load_explicit(&depth, memory_order_relaxed); }
