/* bench_zmq.c - the bandwidth of libzmq alone between two processes over loopback: messages of 512 KiB
 * from a DEALER to a ROUTER, in clear and by CURVE, one way and both ways at once. An all-reduce over two ranks sends
 * as many bytes each way as it has, so the figures for both ways are the bound of transport=zmq.
 *
 *     bench_zmq [rounds]     (default 5) */
#include "base/clock.h"
#include "figures.h"
#include "transport/library_sockets.h"

#include <errno.h>
#include <malloc.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
#include <zmq.h>

#define MESSAGE_BYTES ((size_t)512 << 10)
#define MESSAGES 400
#define AHEAD 8 /* messages that ZeroMQ holds at a time */
#define KEY_TEXT 41
#define URL_BYTES 64
#define PATIENCE_MS 20000

typedef struct keys {
    char open[KEY_TEXT], secret[KEY_TEXT];
} keys;

static void need(bool held, const char *what) {
    if (held) return;
    fprintf(stderr, "bench_zmq: %s: %s\n", what, zmq_strerror(zmq_errno()));
    _exit(1);
}

static void set(void *socket, int option, int value) {
    need(zmq_setsockopt(socket, option, &value, sizeof value) == 0, "zmq_setsockopt");
}

static void set_key(void *socket, int option, const char *key) {
    need(zmq_setsockopt(socket, option, key, KEY_TEXT) == 0, "a key of CURVE");
}

static void *make_socket(void *context, int type) {
    void *socket = zmq_socket(context, type);
    need(socket != NULL, "zmq_socket");
    set(socket, ZMQ_SNDHWM, AHEAD);
    set(socket, ZMQ_RCVHWM, AHEAD);
    set(socket, ZMQ_RCVTIMEO, PATIENCE_MS);
    set(socket, ZMQ_SNDTIMEO, PATIENCE_MS);
    return socket;
}

/* server: the keys of every ROUTER, NULL: in clear. The address it got goes into the pipe to the other process. */
static void *listen_here(void *context, const keys *server, int to_other) {
    char url[URL_BYTES] = "";
    size_t bytes = sizeof url;
    void *router = make_socket(context, ZMQ_ROUTER);
    if (server) set(router, ZMQ_CURVE_SERVER, 1);
    if (server) set_key(router, ZMQ_CURVE_SECRETKEY, server->secret);
    need(zmq_bind(router, "tcp://127.0.0.1:*") == 0, "zmq_bind");
    need(zmq_getsockopt(router, ZMQ_LAST_ENDPOINT, url, &bytes) == 0, "its address");
    need(write(to_other, url, sizeof url) == URL_BYTES, "telling its address");
    return router;
}

static void *connect_there(void *context, const keys *server, const keys *client, int from_other, char url[URL_BYTES]) {
    void *dealer = make_socket(context, ZMQ_DEALER);
    need(read(from_other, url, URL_BYTES) == URL_BYTES, "hearing an address");
    if (server) {
        set_key(dealer, ZMQ_CURVE_SERVERKEY, server->open);
        set_key(dealer, ZMQ_CURVE_PUBLICKEY, client->open);
        set_key(dealer, ZMQ_CURVE_SECRETKEY, client->secret);
    }
    need(zmq_connect(dealer, url) == 0, "zmq_connect");
    return dealer;
}

static void keep(void *data, void *hint) { (void)data, (void)hint; /* not copied, as in the transport */ }

static bool send_one(void *dealer, void *data, size_t bytes) {
    zmq_msg_t message;
    need(zmq_msg_init_data(&message, data, bytes, keep, NULL) == 0, "zmq_msg_init_data");
    if (zmq_msg_send(&message, dealer, ZMQ_DONTWAIT) >= 0) return true;
    need(errno == EAGAIN, "zmq_msg_send");
    zmq_msg_close(&message);
    return false;
}

static bool take_one(void *router) {
    for (bool more = true; more;) {
        zmq_msg_t part;
        zmq_msg_init(&part);
        if (zmq_msg_recv(&part, router, ZMQ_DONTWAIT) < 0) {
            need(errno == EAGAIN, "zmq_msg_recv");
            return false;
        }
        more = zmq_msg_more(&part);
        zmq_msg_close(&part);
    }
    return true;
}

/* Sends and receives so many messages, and sleeps while neither is possible. */
static void exchange(void *dealer, void *router, uint8_t *data, int to_send, int to_take) {
    while (to_send > 0 || to_take > 0) {
        bool moved = false;
        if (to_send > 0 && send_one(dealer, data, MESSAGE_BYTES)) to_send--, moved = true;
        if (to_take > 0 && take_one(router)) to_take--, moved = true;
        zmq_pollitem_t items[] = {{.socket = dealer, .events = to_send > 0 ? ZMQ_POLLOUT : 0},
                                  {.socket = router, .events = to_take > 0 ? ZMQ_POLLIN : 0}};
        if (!moved) need(zmq_poll(items, 2, PATIENCE_MS) > 0, "nothing came");
    }
}

/* As the transport does, with the connection to the ROUTER there. */
static void leave_bbr(const char *url) {
    gw_address there;
    char host[GW_HOST_TEXT];
    int port = -1;
    if (!gw_address_split(url + strlen("tcp://"), host, &port) || !gw_address_literal(host, &there)) return;
    gw_address_set_port(&there, port);
    gw_library_sockets_leave_bbr(&there, false);
}

/* One process of the two. Returns seconds since both have received the first message. */
static double run(int rank, bool both, const keys *server, const keys *client, int from_other, int to_other) {
    uint8_t *data = malloc(MESSAGE_BYTES), hello = 1;
    char url[URL_BYTES];
    need(data != NULL, "memory");
    memset(data, 1, MESSAGE_BYTES);
    mallopt(M_MMAP_THRESHOLD, 4 * (int)MESSAGE_BYTES); /* as the transport does */
    mallopt(M_TRIM_THRESHOLD, 64 << 20);
    void *context = zmq_ctx_new();
    void *router = listen_here(context, server, to_other);
    void *dealer = connect_there(context, server, client, from_other, url);
    need(send_one(dealer, &hello, 1), "a first word");
    while (!take_one(router)) usleep(100);
    leave_bbr(url);
    gw_time begun = gw_clock_now();
    exchange(dealer, router, data, both || rank == 0 ? MESSAGES : 0, both || rank == 1 ? MESSAGES : 0);
    if (rank == 1) need(send_one(dealer, &hello, 1), "a last word"); /* all is here */
    while (rank == 0 && !take_one(router)) usleep(50);
    double took = (double)(gw_clock_now() - begun) / (double)GW_SECOND;
    zmq_close(dealer);
    zmq_close(router);
    zmq_ctx_term(context);
    free(data);
    return took;
}

/* GB/s each way. */
static double measure(bool both, const keys *server, const keys *client) {
    int there[2], back[2];
    need(pipe(there) == 0 && pipe(back) == 0, "pipe");
    pid_t child = fork();
    if (child == 0) {
        run(1, both, server, client, there[0], back[1]);
        _exit(0);
    }
    double took = run(0, both, server, client, back[0], there[1]);
    waitpid(child, NULL, 0);
    for (int i = 0; i < 2; i++) close(there[i]), close(back[i]);
    return (double)MESSAGES * (double)MESSAGE_BYTES / took / 1e9;
}

int main(int argc, char **argv) {
    int rounds = argc > 1 ? atoi(argv[1]) : 5;
    double figures[2][2][101];
    keys server, client;
    if (rounds < 1 || rounds > 101) {
        fprintf(stderr, "bench_zmq: rounds is \"%s\"; choose 1 to 101\n", argv[1]);
        return 2;
    }
    need(zmq_curve_keypair(server.open, server.secret) == 0 && zmq_curve_keypair(client.open, client.secret) == 0,
         "this libzmq has no CURVE");
    for (int r = 0; r < rounds; r++)
        for (int both = 0; both < 2; both++)
            for (int curve = 0; curve < 2; curve++)
                figures[both][curve][r] = measure(both, curve ? &server : NULL, &client);
    for (int both = 0; both < 2; both++)
        printf("512 KiB messages, %-10s  clear %5.2f GB/s   CURVE %5.2f GB/s\n",
               both ? "both ways:" : "one way:", median(figures[both][0], rounds), median(figures[both][1], rounds));
    return 0;
}
