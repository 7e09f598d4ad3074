/* progress.c - the driver: the caller that waits, or the progress thread while callers compute.
 *
 * A waiting driver spins for a short time, then sleeps until a socket, a doorbell or the wake-up descriptor is ready. A
 * blocking wake-up costs 20 to 60 us, a spin costs a core: only waits longer than SPIN (SPIN_YIELDING where ranks share
 * cores) pay for a wake-up. If many waits in a row are longer, as on a slow network, spinning only takes the core from
 * compute and from other hosts of a lab: the driver then spins for a shorter time. After short waits it spins longer
 * again. */
#include <errno.h>
#include <poll.h>
#include <sched.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

#include "engine/engine_trace.h"
#include "runtime/context.h"

#define SPIN (100 * GW_MILLISECOND / 1000)
#define SPIN_YIELDING (800 * GW_MILLISECOND / 1000) /* yielding while spinning takes the core from nobody */
/* Polls of the fast path before a call becomes an operation. */
#define FAST_WATCHES 8                   /* of a shm collective */
#define YIELD_POLLS 16                   /* where ranks share cores, with a yield between polls */
#define NATIVE_POLLS 1000                /* of a transport's library, which progresses only while it is polled */
#define SPIN_SHIFT_MAX 5                 /* the shortest spin: SPIN / 32 */
#define ENDED_POLL (10 * GW_MILLISECOND) /* period of gw_watch_settle while the end of a process is unsettled */
#define TURN_WAIT (10 * GW_MILLISECOND)  /* a caller that waits for another driver looks this often */
#define REPORT_WAIT (GW_SECOND / 5)      /* how long a failed call waits for its report to be written */
#define SLEEP_MAX_MS 50                  /* longest sleep of a driver: deadlines are checked this often */

void gw_context_lock(gw_context *context) {
    if (pthread_mutex_trylock(&context->lock) == 0) return;
    atomic_fetch_add(&context->lock_wanted, 1);
    pthread_mutex_lock(&context->lock);
    atomic_fetch_sub(&context->lock_wanted, 1);
}

void gw_context_lock_to_drive(gw_context *context) {
    atomic_fetch_add(&context->takers, 1);
    gw_context_lock(context);
    atomic_fetch_sub(&context->takers, 1);
}

void gw_context_unlock(gw_context *context) {
    bool due = context->report_due;
    pthread_mutex_unlock(&context->lock);
    if (due) gw_context_report(context);
}

static void signal_fd(int fd) {
    uint64_t one = 1;
    ssize_t written = write(fd, &one, sizeof one);
    (void)written; /* full: already signalled */
}

static void drain_fd(int fd) {
    uint64_t count;
    ssize_t got = read(fd, &count, sizeof count);
    (void)got; /* empty is fine */
}

void gw_context_wake(gw_context *context) { signal_fd(context->wake); }

void gw_context_started(gw_context *context) {
    if (!context->driven) signal_fd(context->kick);
}

static void relax(const gw_context *context) {
    if (context->spin_yield) sched_yield();
#if defined(__x86_64__)
    else __builtin_ia32_pause();
#endif
}

void gw_context_notify(gw_context *context) {
    if (atomic_load(&context->driver_sleeps)) signal_fd(context->wake);
    if (atomic_load(&context->progress_sleeps)) signal_fd(context->kick);
}

/* Nothing needs to wake the driver any more. */
static void disarm(gw_context *context) {
    gw_transport *transports[2] = {context->net, context->shm};
    atomic_store(&context->driver_sleeps, false);
    for (int t = 0; t < 2; t++)
        if (transports[t]) transports[t]->ops->arm(transports[t], false);
}

/* Arms the transports' wake-ups, and sleeps unless something arrived meanwhile. extra: one more descriptor to wake up
 * for, or -1. False: a caller has taken over from this driver while it slept. */
static bool sleep_on(gw_context *context, int extra, int timeout_ms) {
    gw_transport *transports[2] = {context->net, context->shm};
    bool background = context->background;
    struct pollfd fds[4] = {{.fd = context->wake, .events = POLLIN}, {.fd = extra, .events = POLLIN}};
    bool busy = false;
    for (int t = 0; t < 2; t++) {
        fds[2 + t] = (struct pollfd){.fd = -1, .events = POLLIN};
        if (!transports[t]) continue;
        busy |= transports[t]->ops->arm(transports[t], true);
        fds[2 + t].fd = transports[t]->ops->wait_fd(transports[t]);
    }
    atomic_store(&context->driver_sleeps, true);
    /* Messages that arrived between the last poll and the arming cause no wake-up: poll once more. */
    busy |= gw_core_poll(context->core, gw_clock_now());
    if (!busy) {
        gw_context_unlock(context);
        poll(fds, 4, timeout_ms);
        gw_context_lock(context);
        if (background && !context->background) return false;
    }
    disarm(context);
    if (fds[0].revents) drain_fd(context->wake);
    return true;
}

static void yield_lock(gw_context *context) {
    if (atomic_load_explicit(&context->lock_wanted, memory_order_relaxed) == 0) return;
    gw_context_unlock(context);
    sched_yield();
    gw_context_lock(context);
}

static gw_time spin(const gw_context *context) {
    if (!context->spin_yield) return SPIN >> context->spin_shift;
    return context->background ? SPIN : SPIN_YIELDING;
}

static void adapt_spin(gw_context *context, gw_time slept) {
    if (slept > SPIN && context->spin_shift < SPIN_SHIFT_MAX) context->spin_shift++;
    else if (slept <= SPIN && context->spin_shift > 0) context->spin_shift--;
}

/* One turn of the driver. *spin_until is kept between turns. False: this thread is no longer the driver. */
static bool turn(gw_context *context, gw_time *spin_until, int extra) {
    bool drives = true;
    int pending = gw_engine_pending(gw_core_engine(context->core));
    gw_time now = gw_clock_now();
    /* Other ranks may have declared this one dead meanwhile, and reused the memory of their messages. */
    if (gw_core_was_stopped(context->core, now)) gw_control_links_poll(context, now);
    bool moved = gw_core_poll(context->core, now);
    if (gw_engine_pending(gw_core_engine(context->core)) != pending) pthread_cond_broadcast(&context->turn);
    if (moved) *spin_until = now + spin(context);
    else if (now < *spin_until) relax(context);
    else {
        drives = sleep_on(context, extra, SLEEP_MAX_MS);
        if (drives) adapt_spin(context, gw_clock_now() - now);
    }
    yield_lock(context);
    return drives;
}

static void wait_for_turn(gw_context *context) {
    gw_time at = gw_clock_now() + TURN_WAIT;
    struct timespec until = {.tv_sec = (time_t)(at / GW_SECOND), .tv_nsec = (long)(at % GW_SECOND)};
    pthread_cond_timedwait(&context->turn, &context->lock, &until);
}

/* If the progress thread sleeps as the driver, replaces it without waking it. */
static bool take_over(gw_context *context) {
    if (!context->background || !atomic_load(&context->driver_sleeps)) return false;
    context->background = false;
    atomic_store(&context->progress_sleeps, true); /* its poll includes kick */
    disarm(context);
    return true;
}

void gw_context_drive_until(gw_context *context, bool (*holds)(void *ctx), void *ctx) {
    gw_time spin_until = 0;
    gw_context_go_to_wait_cpu(context);
    while (!holds(ctx)) {
        if (context->driven && !take_over(context)) {
            atomic_fetch_add(&context->takers, 1);
            if (atomic_load(&context->driver_sleeps))
                signal_fd(context->wake); /* the driver may have to run the work that this thread waits for */
            wait_for_turn(context);
            atomic_fetch_sub(&context->takers, 1);
            continue;
        }
        context->driven = true;
        spin_until = gw_clock_now() + spin(context);
        while (!holds(ctx)) turn(context, &spin_until, -1);
        context->driven = false;
        pthread_cond_broadcast(&context->turn);
    }
    /* Asynchronous operations may still be pending: the progress thread drives them. */
    if (!context->driven && !atomic_load(&context->takers) && gw_core_busy(context->core)) signal_fd(context->kick);
}

/* Another thread may be writing the report of the failure. A program that ends at once must not cut it off. */
static void await_report(gw_context *context) {
    gw_time until = gw_clock_now() + REPORT_WAIT;
    while (context->reports && gw_clock_now() < until) wait_for_turn(context);
}

static bool op_done(void *op) { return gw_op_done(op); }

/* True on a thread that is not the one that makes the training steps, if that is known. */
static bool beside_steps(gw_context *context) {
    pthread_t thread = atomic_load(&context->step_thread);
    return thread && !pthread_equal(thread, pthread_self());
}

void gw_context_drive(gw_context *context, const gw_op *op) {
    gw_time begun = context->trace && !gw_op_done(op) ? gw_clock_now() : 0;
    gw_context_drive_until(context, op_done, (void *)(uintptr_t)op);
    if (gw_op_status(op)) await_report(context);
    if (begun && context->trace) gw_engine_trace_waited(context->trace, op, begun, beside_steps(context));
}

/* Reads no clock and polls nothing else: a few microseconds. Records the call while the other ranks arrive. */
bool gw_context_fast_path(gw_context *context, gw_team *team, const gw_op_spec *spec) {
    gw_op_brief brief;
    if (context->driven || !gw_fast_path_start(team, spec)) return false;
    if (context->spin_yield) gw_context_go_to_wait_cpu(context);
    gw_fast_path_note(team, &brief);
    gw_flight_add_done(&context->flight, &brief, gw_clock_coarse());
    int polls = context->spin_yield                             ? YIELD_POLLS
                : spec->builder == &gw_plan_transport_allreduce ? NATIVE_POLLS
                                                                : FAST_WATCHES;
    bool done = gw_fast_path_done(team, !context->spin_yield);
    while (!done && --polls && !atomic_load_explicit(&context->lock_wanted, memory_order_relaxed)) {
        relax(context);
        done = context->spin_yield ? gw_fast_path_done_shared_core(team) : gw_fast_path_done(team, true);
    }
    if (!done) gw_flight_undo(&context->flight);
    return done;
}

static int sleep_ms(gw_context *context, gw_time now) {
    gw_time next = gw_control_next(gw_core_control(context->core));
    gw_time handshake = gw_connections_next_deadline(context->connections);
    if (handshake < next) next = handshake;
    if (context->ended && now + ENDED_POLL < next) next = now + ENDED_POLL;
    gw_time ms = next > now ? (next - now) / GW_MILLISECOND + 1 : 0;
    return ms > 1000 ? 1000 : (int)ms;
}

/* True if the progress thread has work of its own. Polling the descriptors is a system call: not in every turn. */
static bool has_own_work(gw_context *context, gw_time *looked) {
    gw_time now = gw_clock_now();
    if (now >= gw_control_next(gw_core_control(context->core))) return true;
    if (now < *looked + SPIN) return false;
    *looked = now;
    return poll(&(struct pollfd){.fd = context->events, .events = POLLIN}, 1, 0) > 0;
}

/* Drives operations that no caller waits for, until the progress thread has other work. */
static void drive_background(gw_context *context) {
    gw_time spin_until = 0, looked = 0;
    if (context->driven) return;
    context->driven = context->background = true;
    while (gw_core_busy(context->core) && !atomic_load(&context->takers) && !atomic_load(&context->stop)) {
        if (has_own_work(context, &looked)) break;
        if (!turn(context, &spin_until, context->events)) return;
    }
    context->driven = context->background = false;
    pthread_cond_broadcast(&context->turn);
}

void *gw_context_progress(void *argument) {
    gw_context *context = argument;
    while (!atomic_load(&context->stop)) {
        gw_context_lock(context);
        gw_time now = gw_clock_now();
        gw_heartbeat_beat(&context->heartbeat);
        gw_control_links_poll(context, now);
        if (context->ended) gw_watch_settle(context, now);
        if (now >= gw_control_next(gw_core_control(context->core))) gw_core_poll_control(context->core, now);
        drive_background(context);
        atomic_store(&context->progress_sleeps, true); /* before the last check: later work signals kick */
        /* A waiting caller drives, or signals kick. */
        bool idle = !gw_core_busy(context->core) || context->driven || atomic_load(&context->takers);
        int timeout = idle ? sleep_ms(context, now) : 0;
        gw_context_unlock(context);
        struct epoll_event event;
        int seen = epoll_wait(context->events, &event, 1, timeout);
        if (seen > 0 && event.data.u32) gw_watch_ended(context, (int)event.data.u32 - 1, gw_clock_now());
        atomic_store(&context->progress_sleeps, false);
        drain_fd(context->kick);
        gw_connections_poll(context->connections, gw_clock_now()); /* its handlers take the lock themselves */
    }
    return NULL;
}
