/* descriptor.c - see descriptor.h. */
#include "base/descriptor.h"

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
static _Thread_local bool holding; /* the calling thread is between gw_fd_hold and gw_fd_let_go */
static uint64_t *kept;             /* under lock: one bit for each descriptor */
static size_t words;               /* under lock: of it */
static _Atomic unsigned depth;     /* changed in a child only, before it has a second thread */

static void before_fork(void) { pthread_mutex_lock(&lock); }
static void in_parent(void) { pthread_mutex_unlock(&lock); }

/* The other threads are gone, in the middle of whatever they did: nothing is allocated, freed or told here. */
static void in_child(void) {
    for (size_t w = 0; w < words; w++) {
        for (; kept[w]; kept[w] &= kept[w] - 1) close((int)(w * WORD_BITS) + __builtin_ctzll(kept[w]));
    }
    atomic_fetch_add(&depth, 1);
    pthread_mutex_unlock(&lock);
}

static void set_up(void) { pthread_atfork(before_fork, in_parent, in_child); }

bool gw_fd_hold(void) {
    if (holding) return false;
    pthread_once(&once, set_up);
    pthread_mutex_lock(&lock);
    return holding = true;
}

void gw_fd_let_go(bool held) {
    if (!held) return;
    holding = false;
    pthread_mutex_unlock(&lock);
}

/* Under lock. Without memory the descriptor stays open in children, as any other. */
static bool make_room(size_t word) {
    if (word < words) return true;
    size_t more = word + 16;
    uint64_t *grown = realloc(kept, more * sizeof *grown);
    if (!grown) return false;
    memset(grown + words, 0, (more - words) * sizeof *grown);
    kept = grown;
    words = more;
    return true;
}

int gw_fd_keep(int fd) {
    if (fd < 0) return fd;
    bool held = gw_fd_hold();
    size_t word = (size_t)fd / WORD_BITS;
    if (make_room(word)) kept[word] |= UINT64_C(1) << (fd % WORD_BITS);
    gw_fd_let_go(held);
    return fd;
}

void gw_fd_close(int fd) {
    if (fd < 0) return;
    bool held = gw_fd_hold();
    size_t word = (size_t)fd / WORD_BITS;
    if (word < words) kept[word] &= ~(UINT64_C(1) << (fd % WORD_BITS));
    close(fd);
    gw_fd_let_go(held);
}

unsigned gw_fork_depth(void) { return atomic_load_explicit(&depth, memory_order_relaxed); }
