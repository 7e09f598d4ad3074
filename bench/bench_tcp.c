/* bench_tcp.c - the TCP transport against plain sockets: round trip and one-way bandwidth between two processes over
 * loopback, both spinning, in turns in one run. Prints medians and the ratio.
 *
 *     bench_tcp [rounds]     (default 7) */
#include "base/clock.h"
#include "transport/tcp/tcp.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#define CHUNK_BYTES ((size_t)256 << 10)
#define SLOTS 8 /* chunks in flight, and receive buffers */
#define STREAM_CHUNKS 1000
#define PINGS 5000
#define SMALL_BYTES 64

typedef struct side {
    gw_transport *transport;
    int peer;
    gw_packet packets[SLOTS];
    uint8_t *memory[SLOTS];
    uint64_t arrived, sent;
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
    (void)ctx, (void)status;
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

static void run(int fd, int rank, bool plain, bool ping) {
    side s = {.peer = 1 - rank};
    for (int i = 0; i < SLOTS; i++) s.memory[i] = calloc(1, CHUNK_BYTES);
    if (plain) {
        if (ping) ping_plain(fd, &s, rank);
        else stream_plain(fd, &s, rank);
        close(fd);
    } else {
        gw_sink sink = {.ctx = &s, .recv_buffer = recv_buffer, .arrived = arrived, .sent = sent, .lost = lost};
        gw_tcp_options options = {.rank = rank, .world = 2, .streams = 1};
        gw_error error = {0};
        fcntl(fd, F_SETFL, O_NONBLOCK);
        if (gw_tcp_open(&s.transport, &options, sink, dial, NULL, &error) != GW_OK) _exit(1);
        gw_tcp_adopt(s.transport, s.peer, 0, 0, fd, rank == 0, &(gw_traffic_keys){.security = GW_SECURITY_CLEAR});
        if (ping) ping_transport(&s, rank);
        else stream_transport(&s, rank);
        s.transport->ops->close(s.transport);
    }
    for (int i = 0; i < SLOTS; i++) free(s.memory[i]);
}

static double seconds(bool plain, bool ping) {
    int fds[2];
    connect_both(fds);
    pid_t child = fork();
    if (child == 0) {
        close(fds[0]);
        run(fds[1], 1, plain, ping);
        _exit(0);
    }
    close(fds[1]);
    gw_time start = gw_clock_now();
    run(fds[0], 0, plain, ping);
    gw_time took = gw_clock_now() - start;
    waitpid(child, NULL, 0);
    return (double)took / (double)GW_SECOND;
}

static int ascending(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static void compare(bool ping, int rounds) {
    double times[2][101];
    for (int r = 0; r < rounds; r++) {
        for (int plain = 0; plain < 2; plain++) times[plain][r] = seconds(plain, ping);
    }
    for (int plain = 0; plain < 2; plain++) qsort(times[plain], (size_t)rounds, sizeof(double), ascending);
    double ours = times[0][rounds / 2], theirs = times[1][rounds / 2];
    double bytes = (double)STREAM_CHUNKS * (double)CHUNK_BYTES / 1e9;
    if (ping)
        printf("64 B round trip   transport %6.2f us    sockets %6.2f us    ratio %.2f\n", ours / PINGS * 1e6,
               theirs / PINGS * 1e6, ours / theirs);
    else
        printf("256 KiB streaming transport %6.2f GB/s  sockets %6.2f GB/s  ratio %.2f\n", bytes / ours, bytes / theirs,
               theirs / ours);
}

int main(int argc, char **argv) {
    int rounds = argc > 1 ? atoi(argv[1]) : 7;
    if (rounds < 1 || rounds > 101) {
        fprintf(stderr, "bench_tcp: rounds is \"%s\"; choose 1 to 101\n", argv[1]);
        return 2;
    }
    compare(true, rounds);
    compare(false, rounds);
    return 0;
}
