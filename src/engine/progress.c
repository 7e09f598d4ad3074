/* progress.c - who drives: the caller that waits, or the progress thread while callers compute.
 *
 * Waiting spins for a short while, then sleeps until a socket, a doorbell or the wake-up descriptor says that there is
 * something to do. A blocking wake-up costs 20 to 60 us, a spin costs a core: the first is paid only by who waits
 * longer than SPIN, or SPIN_YIELDING where ranks share cores. Where waits turn out longer again and again, as on a slow
 * network, spinning only takes the core from compute and from other hosts of a lab, so it becomes shorter; where waits
 * are short it comes back. */
#include <errno.h>
#include <poll.h>
#include <sched.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

#include "engine/node.h"
#include "engine/tracing.h"

#define SPIN (100 * GW_MILLISECOND / 1000)
#define SPIN_YIELDING (800 * GW_MILLISECOND / 1000) /* who gives the core away while spinning takes it from nobody */
#define QUICK_WATCHES 8   /* of a board, before a call becomes an operation */
#define YIELD_LOOKS 16    /* where ranks share cores, and each look lets another go on */
#define NATIVE_LOOKS 1000 /* at a library under a transport, which moves only while it is looked at */
#define SPIN_SHIFT_MAX 5 /* the shortest spin: a 32nd of it */
#define ENDED_LOOK (10 * GW_MILLISECOND) /* how often, while it is awaited what others say of a process that ended */
#define SLEEP_MAX_MS 50 /* deadlines are looked at this often at least */

void gw_node_lock(gw_node *node) {
    if (pthread_mutex_trylock(&node->lock) == 0) return;
    atomic_fetch_add(&node->lock_wanted, 1);
    pthread_mutex_lock(&node->lock);
    atomic_fetch_sub(&node->lock_wanted, 1);
}

void gw_node_lock_to_drive(gw_node *node) {
    atomic_fetch_add(&node->takers, 1);
    gw_node_lock(node);
    atomic_fetch_sub(&node->takers, 1);
}

void gw_node_unlock(gw_node *node) { pthread_mutex_unlock(&node->lock); }

static void ring(int fd) {
    uint64_t one = 1;
    ssize_t written = write(fd, &one, sizeof one);
    (void)written; /* full means rung */
}

static void hush(int fd) {
    uint64_t count;
    ssize_t got = read(fd, &count, sizeof count);
    (void)got; /* empty is fine */
}

void gw_node_wake(gw_node *node) { ring(node->wake); }

void gw_node_started(gw_node *node) {
    if (!node->driven) ring(node->kick);
}

static void relax(const gw_node *node) {
    if (node->spin_yield) sched_yield();
#if defined(__x86_64__)
    else __builtin_ia32_pause();
#endif
}

void gw_node_nudge(gw_node *node) {
    if (atomic_load(&node->driver_sleeps)) ring(node->wake);
    if (atomic_load(&node->progress_sleeps)) ring(node->kick);
}

/* Nobody is to ring for the driver any more. */
static void awake(gw_node *node) {
    gw_transport *transports[2] = {node->net, node->shm};
    atomic_store(&node->driver_sleeps, false);
    for (int t = 0; t < 2; t++)
        if (transports[t]) transports[t]->ops->arm(transports[t], false);
}

/* Asks the transports to ring, and sleeps unless something came in the meantime. extra: one more descriptor to wake
 * up for, or -1. False: a caller has relieved this driver while it slept. */
static bool sleep_on(gw_node *node, int extra, int timeout_ms) {
    gw_transport *transports[2] = {node->net, node->shm};
    bool unwatched = node->unwatched;
    struct pollfd fds[4] = {{.fd = node->wake, .events = POLLIN}, {.fd = extra, .events = POLLIN}};
    bool busy = false;
    for (int t = 0; t < 2; t++) {
        fds[2 + t] = (struct pollfd){.fd = -1, .events = POLLIN};
        if (!transports[t]) continue;
        busy |= transports[t]->ops->arm(transports[t], true);
        fds[2 + t].fd = transports[t]->ops->wait_fd(transports[t]);
    }
    atomic_store(&node->driver_sleeps, true);
    /* What arrived between the last poll and the arming rings no bell: look once more. */
    busy |= gw_core_poll(node->core, gw_clock_now());
    if (!busy) {
        gw_node_unlock(node);
        poll(fds, 4, timeout_ms);
        gw_node_lock(node);
        if (unwatched && !node->unwatched) return false;
    }
    awake(node);
    if (fds[0].revents) hush(node->wake);
    return true;
}

static void let_others_in(gw_node *node) {
    if (atomic_load_explicit(&node->lock_wanted, memory_order_relaxed) == 0) return;
    gw_node_unlock(node);
    sched_yield();
    gw_node_lock(node);
}

static gw_time spin(const gw_node *node) {
    if (!node->spin_yield) return SPIN >> node->spin_shift;
    return node->unwatched ? SPIN : SPIN_YIELDING;
}

static void learn(gw_node *node, gw_time slept) {
    if (slept > SPIN && node->spin_shift < SPIN_SHIFT_MAX) node->spin_shift++;
    else if (slept <= SPIN && node->spin_shift > 0) node->spin_shift--;
}

/* One turn of the driver. *spin_until is kept between turns. False: this thread is no longer the driver. */
static bool turn(gw_node *node, gw_time *spin_until, int extra) {
    bool drives = true;
    int pending = gw_engine_pending(gw_core_engine(node->core));
    gw_time now = gw_clock_now();
    /* The others may have given it up in the meantime, and the memory that messages of theirs are in. */
    if (gw_core_was_stopped(node->core, now)) gw_links_poll(node, now);
    bool moved = gw_core_poll(node->core, now);
    if (gw_engine_pending(gw_core_engine(node->core)) != pending) pthread_cond_broadcast(&node->turn);
    if (moved) *spin_until = now + spin(node);
    else if (now < *spin_until) relax(node);
    else {
        drives = sleep_on(node, extra, SLEEP_MAX_MS);
        if (drives) learn(node, gw_clock_now() - now);
    }
    let_others_in(node);
    return drives;
}

static void wait_for_turn(gw_node *node) {
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_nsec += 10 * 1000 * 1000;
    if (until.tv_nsec >= 1000 * 1000 * 1000) {
        until.tv_sec++;
        until.tv_nsec -= 1000 * 1000 * 1000;
    }
    pthread_cond_timedwait(&node->turn, &node->lock, &until);
}

/* The progress thread sleeps as the driver: its place is taken, and it need not be woken for that. */
static bool relieved(gw_node *node) {
    if (!node->unwatched || !atomic_load(&node->driver_sleeps)) return false;
    node->unwatched = false;
    atomic_store(&node->progress_sleeps, true); /* it looks at the kick too */
    awake(node);
    return true;
}

void gw_node_drive_until(gw_node *node, bool (*holds)(void *ctx), void *ctx) {
    gw_time spin_until = 0;
    gw_node_go_home(node);
    while (!holds(ctx)) {
        if (node->driven && !relieved(node)) {
            atomic_fetch_add(&node->takers, 1);
            if (atomic_load(&node->driver_sleeps)) ring(node->wake); /* it may have to do what this one waits for */
            wait_for_turn(node);
            atomic_fetch_sub(&node->takers, 1);
            continue;
        }
        node->driven = true;
        spin_until = gw_clock_now() + spin(node);
        while (!holds(ctx)) turn(node, &spin_until, -1);
        node->driven = false;
        pthread_cond_broadcast(&node->turn);
    }
    /* What else is pending was started asynchronously: the progress thread takes over. */
    if (!node->driven && !atomic_load(&node->takers) && gw_core_busy(node->core)) ring(node->kick);
}

static bool op_done(void *op) { return gw_op_done(op); }

void gw_node_drive(gw_node *node, const gw_op *op) {
    gw_time begun = node->trace && !gw_op_done(op) ? gw_clock_now() : 0;
    gw_node_drive_until(node, op_done, (void *)(uintptr_t)op);
    if (begun && node->trace) gw_tracing_waited(node->trace, op, begun);
}

/* Without asking for the time, and without looking at anything else: a few microseconds. It is noted while the others
 * come. */
bool gw_node_quick(gw_node *node, gw_team *team, const gw_op_spec *spec) {
    gw_op_brief brief;
    if (node->driven || !gw_quick_start(team, spec)) return false;
    if (node->spin_yield) gw_node_go_home(node);
    gw_quick_note(team, &brief);
    gw_flight_pass(&node->flight, &brief, gw_clock_coarse());
    int looks = node->spin_yield ? YIELD_LOOKS : spec->builder == &gw_plan_native ? NATIVE_LOOKS : QUICK_WATCHES;
    bool done = gw_quick_done(team, !node->spin_yield);
    while (!done && --looks && !atomic_load_explicit(&node->lock_wanted, memory_order_relaxed)) {
        relax(node);
        done = node->spin_yield ? gw_quick_done_here(team) : gw_quick_done(team, true);
    }
    if (!done) gw_flight_take_back(&node->flight);
    return done;
}

static int sleep_ms(gw_node *node, gw_time now) {
    gw_time next = gw_control_next(gw_core_control(node->core));
    gw_time door = gw_gateway_next_deadline(node->gateway);
    if (door < next) next = door;
    if (node->ended && now + ENDED_LOOK < next) next = now + ENDED_LOOK;
    gw_time ms = next > now ? (next - now) / GW_MILLISECOND + 1 : 0;
    return ms > 1000 ? 1000 : (int)ms;
}

/* The progress thread's own duties call. Asking the descriptors is a system call, so it is not done in every turn. */
static bool duties_call(gw_node *node, gw_time *looked) {
    gw_time now = gw_clock_now();
    if (now >= gw_control_next(gw_core_control(node->core))) return true;
    if (now < *looked + SPIN) return false;
    *looked = now;
    return poll(&(struct pollfd){.fd = node->events, .events = POLLIN}, 1, 0) > 0;
}

/* Drives while there is something that no caller waits for, and nothing else to do. */
static void drive_unwatched(gw_node *node) {
    gw_time spin_until = 0, looked = 0;
    if (node->driven) return;
    node->driven = node->unwatched = true;
    while (gw_core_busy(node->core) && !atomic_load(&node->takers) && !atomic_load(&node->stop)) {
        if (duties_call(node, &looked)) break;
        if (!turn(node, &spin_until, node->events)) return;
    }
    node->driven = node->unwatched = false;
    pthread_cond_broadcast(&node->turn);
}

void *gw_node_progress(void *argument) {
    gw_node *node = argument;
    while (!atomic_load(&node->stop)) {
        gw_node_lock(node);
        gw_time now = gw_clock_now();
        gw_pulse_beat(&node->pulse);
        gw_links_poll(node, now);
        if (node->ended) gw_watch_settle(node, now);
        if (now >= gw_control_next(gw_core_control(node->core))) gw_core_poll_control(node->core, now);
        drive_unwatched(node);
        atomic_store(&node->progress_sleeps, true); /* before the last look: what is handed over later rings */
        /* A taker drives, or kicks. */
        bool idle = !gw_core_busy(node->core) || node->driven || atomic_load(&node->takers);
        int timeout = idle ? sleep_ms(node, now) : 0;
        gw_node_unlock(node);
        struct epoll_event event;
        int seen = epoll_wait(node->events, &event, 1, timeout);
        if (seen > 0 && event.data.u32) gw_watch_ended(node, (int)event.data.u32 - 1, gw_clock_now());
        atomic_store(&node->progress_sleeps, false);
        hush(node->kick);
        gw_gateway_poll(node->gateway, gw_clock_now()); /* its callbacks take the lock themselves */
    }
    return NULL;
}
