/* side_channel.c - see side_channel.h. */
#include "bench/side_channel.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/clock.h"

#define SPINS 2000                      /* pauses before a rank with a core of its own yields too: 20 to 80 us */
#define BARRIER_BUDGET (60 * GW_SECOND) /* a rank that has not arrived by then counts as dead */

typedef struct page {
    _Atomic uint32_t here;   /* ranks that have arrived at this barrier */
    _Atomic uint32_t number; /* of completed barriers */
} page;

typedef struct side {
    gw_lines lines;
    page *page;
    int rank, world;
    unsigned spins;      /* pauses at the barrier; 0: oversubscribed, a rank that has not arrived may need this core */
    gw_bench_work *work; /* of the last case; NULL: there was none */
} side;

static bool address_of(const char *directory, struct sockaddr_un *address) {
    *address = (struct sockaddr_un){.sun_family = AF_UNIX};
    int length = snprintf(address->sun_path, sizeof address->sun_path, "%s/" GW_SIDE_SOCKET, directory);
    return length < (int)sizeof address->sun_path;
}

static int open_page(const char *directory, int flags) {
    char path[256];
    snprintf(path, sizeof path, "%s/" GW_SIDE_PAGE, directory);
    return open(path, flags | O_RDWR | O_CLOEXEC, 0600);
}

int gw_side_channel_open(const char *directory) {
    struct sockaddr_un address;
    if (!address_of(directory, &address)) {
        errno = ENAMETOOLONG;
        return -1;
    }
    int file = open_page(directory, O_CREAT | O_EXCL);
    if (file < 0) return -1;
    int made = ftruncate(file, GW_SIDE_PAGE_BYTES);
    close(file);
    int fd = made == 0 ? socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0) : -1;
    if (fd < 0) return -1;
    if (bind(fd, (const struct sockaddr *)&address, sizeof address) == 0 && listen(fd, SOMAXCONN) == 0) return fd;
    int number = errno;
    close(fd);
    errno = number;
    return -1;
}

static void relax(const side *s, unsigned turn) {
    if (turn < s->spins) {
#if defined(__x86_64__)
        __builtin_ia32_pause();
#endif
    } else {
        sched_yield();
    }
}

static gw_status barrier(void *ctx, gw_error *error) {
    side *s = ctx;
    uint32_t number = atomic_load(&s->page->number);
    if (atomic_fetch_add(&s->page->here, 1) + 1 == (uint32_t)s->world) {
        atomic_store(&s->page->here, 0);
        atomic_store(&s->page->number, number + 1);
        return GW_OK;
    }
    gw_time until = 0;
    for (unsigned turn = 0; atomic_load_explicit(&s->page->number, memory_order_acquire) == number; turn++) {
        relax(s, turn);
        if (turn % 1024 != 1023) continue;
        gw_time now = gw_clock_now();
        if (!until) until = now + BARRIER_BUDGET;
        if (now > until)
            return gw_fail(error, GW_TIMEOUT, "rank %d waited 60 s for the other ranks of the benchmark", s->rank);
    }
    return GW_OK;
}

/* If the driver is gone, this returns an error instead of raising SIGPIPE. */
static bool send_text(const side *s, const char *text, size_t bytes) {
    while (bytes) {
        ssize_t sent = send(s->lines.fd, text, bytes, MSG_NOSIGNAL);
        if (sent <= 0) return false;
        text += sent;
        bytes -= (size_t)sent;
    }
    return true;
}

static bool send_hello(const side *s) {
    char line[64];
    return send_text(s, line, (size_t)snprintf(line, sizeof line, "hello %d %d\n", s->rank, s->world));
}

static void report_error(const side *s, const gw_error *error) {
    char line[GW_ERROR_TEXT_BYTES + 16];
    send_text(s, line, (size_t)snprintf(line, sizeof line, "error %s\n", error->text));
}

static gw_status join(side *s, const char *directory, gw_error *error) {
    struct sockaddr_un address;
    int file = open_page(directory, 0);
    void *memory = file < 0 ? MAP_FAILED : mmap(NULL, GW_SIDE_PAGE_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    if (file >= 0) close(file);
    if (memory != MAP_FAILED) s->page = memory;
    s->lines.fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (s->page && s->lines.fd >= 0 && address_of(directory, &address) &&
        connect(s->lines.fd, (const struct sockaddr *)&address, sizeof address) == 0 && send_hello(s))
        return GW_OK;
    return gw_fail(error, GW_SYSTEM, "rank %d cannot reach the benchmark's driver in %s: %s", s->rank, directory,
                   strerror(errno));
}

static bool report(const side *s, const uint64_t *times, int calls, const gw_bench_tally *tally) {
    size_t room = 96 + (size_t)calls * 22, used;
    char *text = malloc(room);
    if (!text) return false;
    used = (size_t)snprintf(text, room, "done %llu %llu %d", (unsigned long long)tally->wrong,
                            (unsigned long long)tally->cpu_ns, calls);
    for (int i = 0; i < calls; i++)
        used += (size_t)snprintf(text + used, room - used, " %llu", (unsigned long long)times[i]);
    text[used++] = '\n';
    bool sent = send_text(s, text, used);
    free(text);
    return sent;
}

static gw_status prepare(side *s, const gw_bench_rank *rank, const gw_bench_case *c, gw_error *error) {
    if (s->work && gw_bench_fits(s->work, c)) return GW_OK;
    gw_bench_close(s->work);
    return gw_bench_open(&s->work, rank, c, error);
}

static gw_status run_case(side *s, const gw_bench_rank *rank, const char *line, gw_error *error) {
    static const char unknown[] = "the driver's line is not understood; are both sides the same version?";
    gw_bench_case c;
    gw_bench_tally tally;
    if (!gw_bench_case_parse(line, &c)) return gw_fail(error, GW_PROTOCOL, unknown);
    uint64_t *times = calloc((size_t)c.calls + 1, sizeof *times);
    if (!times) return gw_fail(error, GW_MEMORY, "rank %d has no memory for %d times", s->rank, c.calls);
    gw_status status = prepare(s, rank, &c, error);
    if (!status) status = gw_bench_measure(s->work, &c, times, &tally, error);
    if (!status && !report(s, times, c.calls, &tally)) status = gw_fail(error, GW_SYSTEM, "the driver is gone");
    free(times);
    return status;
}

gw_status gw_side_channel_run(const char *directory, const gw_bench_library *library, void *ctx, int rank, int world,
                              gw_error *error) {
    side s = {.lines = {.fd = -1}, .rank = rank, .world = world};
    s.spins = world > sysconf(_SC_NPROCESSORS_ONLN) ? 0 : SPINS;
    gw_bench_rank r = {.library = library, .ctx = ctx, .meet = barrier, .meet_ctx = &s, .rank = rank, .world = world};
    gw_status status = join(&s, directory, error);
    while (!status) {
        char *line = gw_lines_next(&s.lines);
        if (line) status = run_case(&s, &r, line, error);
        else if (!gw_lines_read(&s.lines)) break;
    }
    if (status && s.lines.fd >= 0) report_error(&s, error);
    gw_bench_close(s.work);
    if (s.page) munmap(s.page, GW_SIDE_PAGE_BYTES);
    gw_lines_free(&s.lines);
    return status;
}
