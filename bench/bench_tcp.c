/* bench_tcp.c - the TCP transport against plain sockets: round trip and one-way bandwidth between two processes over
 * loopback, both spinning, in turns in one run. Prints medians and the ratio. Then what the guards of a connection
 * cost: 16 MiB both ways at once, as an all-reduce sends them, each rank on a core of its own; and their sums alone
 * (libcrypto, or the CRC) for these bytes. A turn in which somebody else had a rank's core is taken again.
 *
 *     bench_tcp [rounds]              (default 7)
 *     bench_tcp guards [rounds]       only the guards
 *     bench_tcp count GUARD BYTES     one rank sends so much to another in one process: to count instructions
 */
#include "base/clock.h"
#include "transport/tcp/tcp.h"
#include "transport/tcp/tcp_guard.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#define CHUNK_BYTES ((size_t)256 << 10)
#define SLOTS 8 /* chunks in flight, and receive buffers */
#define STREAM_CHUNKS 1000
#define PINGS 5000
#define SMALL_BYTES 64

#define EXCHANGE_CHUNKS (((size_t)16 << 20) / CHUNK_BYTES)
#define EXCHANGES 16 /* in a turn */
#define WARM_UP 4    /* before them: the kernel finds its buffers' sizes */

#define BUSY                                                                                                           \
    0.75         /* of a turn each rank must have run: both spin, and the kernel takes at most a fifth for segments    \
                  */
#define TRIES 10 /* for a turn in which somebody else had a core */

typedef enum way { CLEAR, SUMMED, MAC, TLS, PLAIN } way; /* the guards of the transport; PLAIN: sockets alone */

static const char *const way_names[] = {"clear", "checksum", "mac", "tls"};
#define GUARDS 4
#define ROUNDS_MAX 101

typedef struct side {
    gw_transport *transport;
    int peer;
    gw_packet packets[SLOTS];
    uint8_t *memory[SLOTS];
    uint64_t arrived, sent;
    uint64_t expected; /* messages; after them the peer may leave. 0: it may not */
} side;

static void *recv_buffer(void *ctx, int peer, const gw_frame *frame) {
    (void)peer;
    return ((side *)ctx)->memory[frame->index % SLOTS];
}

static void arrived(void *ctx, int peer, const gw_frame *frame, const void *data, uint64_t ticket) {
    (void)peer, (void)frame, (void)data, (void)ticket;
    ((side *)ctx)->arrived++;
}

static void sent(void *ctx, int peer, gw_packet *packet) {
    (void)peer, (void)packet;
    ((side *)ctx)->sent++;
}

static void lost(void *ctx, int peer, gw_status status, const char *detail) {
    (void)status;
    const side *s = ctx;
    if (s->expected && s->arrived == s->expected) return;
    fprintf(stderr, "bench_tcp: rank %d is lost: %s\n", peer, detail);
    _exit(1);
}

static void dial(void *ctx, int peer, int stream, uint32_t generation) {
    (void)ctx, (void)peer, (void)stream, (void)generation; /* both ends are adopted beforehand */
}

static void connect_both(int fds[2]) {
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t bytes = sizeof address;
    int listener = socket(AF_INET, SOCK_STREAM, 0);
    fds[0] = socket(AF_INET, SOCK_STREAM, 0);
    if (bind(listener, (void *)&address, bytes) || listen(listener, 1) ||
        getsockname(listener, (void *)&address, &bytes) || connect(fds[0], (void *)&address, bytes) ||
        (fds[1] = accept(listener, NULL, NULL)) < 0) {
        perror("bench_tcp: loopback");
        exit(1);
    }
    close(listener);
    for (int i = 0; i < 2; i++) {
        int on = 1;
        setsockopt(fds[i], IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
        setsockopt(fds[i], IPPROTO_TCP, TCP_CONGESTION, "cubic", 5); /* as the transport does */
    }
}

/* Both ways spin, but where there are fewer cores than spinners a long spin must let the other run. */
static void spun(unsigned *fruitless) {
    if (++*fruitless % 256 == 0) sched_yield();
}

/* ---- the transport ---- */

static void post(side *s, uint64_t index, size_t bytes) {
    gw_packet *packet = &s->packets[index % SLOTS];
    *packet = (gw_packet){.frame = {.kind = GW_FRAME_DATA, .index = index, .length = bytes}};
    packet->data = s->memory[index % SLOTS];
    s->transport->ops->send(s->transport, s->peer, packet);
}

static void await(side *s, const uint64_t *count, uint64_t target) {
    unsigned fruitless = 0;
    while (*count < target) {
        if (!s->transport->ops->poll(s->transport, 0)) spun(&fruitless);
    }
}

static void ping_transport(side *s, int rank) {
    for (uint64_t i = 0; i < PINGS; i++) {
        if (rank == 0) post(s, i, SMALL_BYTES);
        await(s, &s->arrived, i + 1);
        if (rank == 1) post(s, i, SMALL_BYTES);
    }
}

static void stream_transport(side *s, int rank) {
    for (uint64_t i = 0; rank == 0 && i < STREAM_CHUNKS; i++) {
        if (i >= SLOTS) await(s, &s->sent, i - SLOTS + 1);
        post(s, i, CHUNK_BYTES);
    }
    if (rank == 1) await(s, &s->arrived, STREAM_CHUNKS);
    else await(s, &s->sent, STREAM_CHUNKS);
    if (rank == 1) post(s, 0, 0);
    else await(s, &s->arrived, 1);
}

/* As an all-reduce: both send and receive all the time. Returns when the warm-up was over. */
static gw_time exchange_transport(side *s) {
    gw_time warm = 0;
    s->expected = (WARM_UP + EXCHANGES) * EXCHANGE_CHUNKS;
    for (uint64_t i = 0; i < s->expected; i++) {
        if (i == WARM_UP * EXCHANGE_CHUNKS) {
            await(s, &s->arrived, i);
            warm = gw_clock_now();
        }
        if (i >= SLOTS) await(s, &s->sent, i - SLOTS + 1);
        post(s, i, CHUNK_BYTES);
    }
    await(s, &s->sent, s->expected);
    await(s, &s->arrived, s->expected);
    return warm;
}

static gw_traffic_keys keys_of(way guard) {
    static const gw_security securities[] = {
        [MAC] = GW_SECURITY_MAC, [TLS] = GW_SECURITY_TLS, [PLAIN] = GW_SECURITY_CLEAR};
    return (gw_traffic_keys){.security = securities[guard]}; /* the same key both ways: nobody attacks */
}

/* Protects and verifies what one rank sends and receives in all exchanges. */
static void sums_alone(way guard) {
    gw_traffic_keys keys = keys_of(guard);
    gw_tcp_guard there, back;
    size_t bytes = SLOTS * CHUNK_BYTES, total = EXCHANGES * EXCHANGE_CHUNKS * CHUNK_BYTES;
    uint8_t *data = calloc(1, bytes), *secret = calloc(1, GW_TCP_RECORD_BYTES), tag[GW_TCP_TAG_MAX];
    gw_error error = {0};
    if (gw_tcp_guard_open(&there, &keys, true, &error) || gw_tcp_guard_open(&back, &keys, true, &error)) exit(1);
    bool well = true;
    for (size_t done = 0; done < total; done += GW_TCP_RECORD_BYTES) {
        uint8_t *record = data + done % bytes;
        well &= gw_tcp_guard_protect(&there, record, secret, GW_TCP_RECORD_BYTES, tag);
        well &= gw_tcp_guard_verify(&back, guard == TLS ? secret : record, GW_TCP_RECORD_BYTES, tag);
    }
    if (!well) exit(1);
    gw_tcp_guard_close(&there);
    gw_tcp_guard_close(&back);
    free(data);
    free(secret);
}

/* ---- plain sockets ---- */

static void put(int fd, const uint8_t *data, size_t bytes) {
    unsigned fruitless = 0;
    while (bytes > 0) {
        ssize_t took = send(fd, data, bytes, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (took < 0 && errno != EAGAIN) _exit(1);
        if (took > 0) data += took, bytes -= (size_t)took;
        else spun(&fruitless);
    }
}

static void take(int fd, uint8_t *data, size_t bytes) {
    unsigned fruitless = 0;
    while (bytes > 0) {
        ssize_t got = recv(fd, data, bytes, MSG_DONTWAIT);
        if (got == 0 || (got < 0 && errno != EAGAIN)) _exit(1);
        if (got > 0) data += got, bytes -= (size_t)got;
        else spun(&fruitless);
    }
}

static void ping_plain(int fd, side *s, int rank) {
    for (int i = 0; i < PINGS; i++) {
        if (rank == 0) put(fd, s->memory[0], GW_FRAME_BYTES + SMALL_BYTES);
        take(fd, s->memory[0], GW_FRAME_BYTES + SMALL_BYTES);
        if (rank == 1) put(fd, s->memory[0], GW_FRAME_BYTES + SMALL_BYTES);
    }
}

static void stream_plain(int fd, side *s, int rank) {
    for (int i = 0; i < STREAM_CHUNKS; i++) {
        if (rank == 0) put(fd, s->memory[i % SLOTS], CHUNK_BYTES);
        else take(fd, s->memory[i % SLOTS], CHUNK_BYTES);
    }
    if (rank == 1) put(fd, s->memory[0], 1);
    else take(fd, s->memory[0], 1);
}

/* ---- runs ---- */

typedef enum kind { PING, STREAM, EXCHANGE, CRYPTO } kind;

static void open_side(side *s, int rank, int fd, way guard) {
    bool all[2] = {true, true};
    gw_sink sink = {.ctx = s, .recv_buffer = recv_buffer, .arrived = arrived, .sent = sent, .lost = lost};
    gw_tcp_options options = {.rank = rank, .world = 2, .streams = 1, .summed = guard == SUMMED ? all : NULL};
    gw_traffic_keys keys = keys_of(guard);
    gw_error error = {0};
    s->peer = 1 - rank;
    for (int i = 0; i < SLOTS; i++) s->memory[i] = calloc(1, CHUNK_BYTES);
    if (guard == PLAIN) return;
    fcntl(fd, F_SETFL, O_NONBLOCK);
    if (gw_tcp_open(&s->transport, &options, sink, dial, NULL, &error) != GW_OK) _exit(1);
    gw_tcp_adopt(s->transport, s->peer, 0, 0, fd, rank == 0, &keys);
}

/* Returns when what is timed began. */
static gw_time run(int fd, int rank, way guard, kind work) {
    side s = {0};
    gw_time start = gw_clock_now();
    if (work == CRYPTO) {
        sums_alone(guard);
        close(fd);
        return start;
    }
    open_side(&s, rank, fd, guard);
    if (guard == PLAIN && work == PING) ping_plain(fd, &s, rank);
    else if (guard == PLAIN) stream_plain(fd, &s, rank);
    else if (work == PING) ping_transport(&s, rank);
    else if (work == STREAM) stream_transport(&s, rank);
    else start = exchange_transport(&s);
    if (guard == PLAIN) close(fd);
    else s.transport->ops->close(s.transport);
    for (int i = 0; i < SLOTS; i++) free(s.memory[i]);
    return start;
}

static void pin(int rank) {
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET((unsigned)rank, &one);
    sched_setaffinity(0, sizeof one, &one); /* on a single core both stay there */
}

/* Of a core, by a process. */
static double ran(const struct rusage *u) {
    return (double)(u->ru_utime.tv_sec + u->ru_stime.tv_sec) +
           (double)(u->ru_utime.tv_usec + u->ru_stime.tv_usec) / 1e6;
}

/* *busy: the share of the turn that the rank with less of it ran. */
static double turn(way guard, kind work, double *busy) {
    int fds[2];
    struct rusage before, mine, its;
    connect_both(fds);
    getrusage(RUSAGE_SELF, &before);
    gw_time begin = gw_clock_now();
    pid_t child = fork();
    pin(child == 0);
    if (child == 0) {
        close(fds[0]);
        run(fds[1], 1, guard, work);
        _exit(0);
    }
    close(fds[1]);
    gw_time start = run(fds[0], 0, guard, work), end = gw_clock_now();
    getrusage(RUSAGE_SELF, &mine);
    double whole = (double)(end - begin) / (double)GW_SECOND, own = ran(&mine) - ran(&before);
    wait4(child, NULL, 0, &its);
    *busy = (own < ran(&its) ? own : ran(&its)) / whole;
    return (double)(end - start) / (double)GW_SECOND;
}

static double seconds(way guard, kind work) {
    double busy, took = turn(guard, work, &busy);
    for (int i = 1; i < TRIES && busy < BUSY; i++) took = turn(guard, work, &busy);
    if (busy < BUSY) fprintf(stderr, "bench_tcp: the machine is busy: a rank ran %.0f %% of a turn\n", busy * 100);
    return took;
}

static int ascending(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static void compare(kind work, int rounds) {
    static const way ways[2] = {CLEAR, PLAIN};
    double times[2][ROUNDS_MAX];
    for (int r = 0; r < rounds; r++) {
        for (int w = 0; w < 2; w++) times[w][r] = seconds(ways[w], work);
    }
    for (int w = 0; w < 2; w++) qsort(times[w], (size_t)rounds, sizeof(double), ascending);
    double ours = times[0][rounds / 2], theirs = times[1][rounds / 2];
    double bytes = (double)STREAM_CHUNKS * (double)CHUNK_BYTES / 1e9;
    if (work == PING)
        printf("64 B round trip   transport %6.2f us    sockets %6.2f us    ratio %.2f\n", ours / PINGS * 1e6,
               theirs / PINGS * 1e6, ours / theirs);
    else
        printf("256 KiB streaming transport %6.2f GB/s  sockets %6.2f GB/s  ratio %.2f\n", bytes / ours, bytes / theirs,
               theirs / ours);
}

static double median(double *values, int count) {
    qsort(values, (size_t)count, sizeof *values, ascending);
    return values[count / 2];
}

/* Ratios are those within a round, and of these the median. */
static void print_guard(way guard, int rounds, const double *clear, const double *took, const double *alone) {
    double rate[ROUNDS_MAX], share[ROUNDS_MAX], added[ROUNDS_MAX], crypto[ROUNDS_MAX], ratio[ROUNDS_MAX];
    for (int r = 0; r < rounds; r++) {
        rate[r] = EXCHANGES * (double)EXCHANGE_CHUNKS * (double)CHUNK_BYTES / 1e9 / took[r];
        share[r] = clear[r] / took[r];
        added[r] = (took[r] - clear[r]) / EXCHANGES * 1e3;
        crypto[r] = alone[r] / EXCHANGES * 1e3;
        ratio[r] = added[r] / crypto[r];
    }
    printf("16 MiB both ways  %-8s  %6.2f GB/s  of clear %.2f", way_names[guard], median(rate, rounds),
           median(share, rounds));
    if (guard != CLEAR)
        printf("  added %.2f ms, its sums alone %.2f ms: %.2f", median(added, rounds), median(crypto, rounds),
               median(ratio, rounds));
    printf("\n");
}

static void compare_guards(int rounds) {
    double times[GUARDS][ROUNDS_MAX], alone[GUARDS][ROUNDS_MAX];
    for (int r = 0; r < rounds; r++) {
        for (int w = 0; w < GUARDS; w++) {
            times[w][r] = seconds((way)w, EXCHANGE);
            alone[w][r] = w == CLEAR ? 0 : seconds((way)w, CRYPTO);
        }
    }
    for (int w = 0; w < GUARDS; w++) print_guard((way)w, rounds, times[CLEAR], times[w], alone[w]);
}

static int count(const char *name, size_t bytes) {
    int fds[2], guard = 0;
    while (guard < GUARDS && strcmp(name, way_names[guard]) != 0) guard++;
    if (guard == GUARDS) {
        fprintf(stderr, "bench_tcp: \"%s\" is not a guard; choose clear, checksum, mac or tls\n", name);
        return 2;
    }
    side sides[2] = {{0}};
    connect_both(fds);
    for (int r = 0; r < 2; r++) open_side(&sides[r], r, fds[r], (way)guard);
    for (uint64_t i = 0; i < bytes / CHUNK_BYTES; i++) {
        post(&sides[0], i, CHUNK_BYTES);
        while (sides[1].arrived <= i)
            for (int r = 0; r < 2; r++) sides[r].transport->ops->poll(sides[r].transport, 0);
    }
    return 0;
}

int main(int argc, char **argv) {
    if (argc == 4 && strcmp(argv[1], "count") == 0) return count(argv[2], (size_t)atoll(argv[3]));
    bool guards = argc > 1 && strcmp(argv[1], "guards") == 0;
    if (guards) argc--, argv++;
    int rounds = argc > 1 ? atoi(argv[1]) : 7;
    if (rounds < 1 || rounds > ROUNDS_MAX) {
        fprintf(stderr, "bench_tcp: rounds is \"%s\"; choose 1 to %d\n", argv[1], ROUNDS_MAX);
        return 2;
    }
    if (!guards) compare(PING, rounds);
    if (!guards) compare(STREAM, rounds);
    compare_guards(rounds);
    return 0;
}
