/* node.c - joining a job and leaving it. */
#include "engine/node.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/descriptor.h"
#include "base/log.h"
#include "base/units.h"
#include "base/words.h"
#include "engine/arrange.h"
#include "engine/comm.h"
#include "engine/flight.h"
#include "engine/recording.h"
#include "strategy/combine.h"
#include "transport/place.h"
#include "transport/rdma.h"
#include "transport/rendezvous.h"
#include "transport/shm.h"
#include "transport/tcp.h"

#define LINGER_MS 1000 /* how long leaving waits for what was sent last to arrive */

/* What the core asks for. (L) is held. */

static const char *host_name(void *ctx, int rank) {
    gw_node *node = ctx;
    return node->endpoints[rank].host;
}

static void send_control(void *ctx, int neighbour, const gw_control_message *message) {
    gw_links_send(ctx, neighbour, message);
}

static void dial_control(void *ctx, int rank) { gw_links_dial(ctx, rank); }

static void failed(void *ctx, const gw_error *error) {
    gw_node *node = ctx;
    for (gw_comm *comm = node->comms; comm; comm = comm->next) {
        if (atomic_load(&comm->failed)) continue;
        comm->error = *error;
        atomic_store(&comm->failed, true);
    }
    char path[256];
    if (gw_flight_write(&node->flight, node->rank, error, path, sizeof path))
        gw_log(GW_LOG_WARN, node->rank, "%s; its last operations are in %s", error->text, path);
    else gw_log(GW_LOG_WARN, node->rank, "%s", error->text);
    pthread_cond_broadcast(&node->turn);
    gw_node_wake(node);
}

static void slow(void *ctx, const char *sentence) {
    gw_node *node = ctx;
    gw_log(GW_LOG_WARN, node->rank, "%s", sentence);
}

/* The gateway's rooms, called by the progress thread (or while joining). */

static void control_established(void *ctx, const gw_intro *peer, int fd, bool dialled) {
    gw_node *node = ctx;
    gw_node_lock(node);
    gw_links_adopt(node, peer->from, fd, dialled);
    gw_node_unlock(node);
}

static void control_failed(void *ctx, const gw_intro *mine, gw_status status, const char *detail) {
    gw_node *node = ctx;
    gw_node_lock(node);
    gw_links_failed(node, mine->to, status, detail);
    gw_node_unlock(node);
}

/* While joining. */
static void join_failed(void *ctx, const gw_intro *mine, gw_status status, const char *detail) {
    gw_node *node = ctx;
    gw_node_lock(node);
    gw_fail_rank(&node->join_error, status, mine->to, "rank %d on %s cannot be reached from rank %d on %s: %s",
                 mine->to, node->endpoints[mine->to].host, node->rank, node->endpoints[node->rank].host, detail);
    gw_node_unlock(node);
}

static void data_established(void *ctx, const gw_intro *peer, int fd, bool dialled) {
    gw_node *node = ctx;
    node->net->ops->adopt(node->net, peer->from, (int)peer->stream, peer->generation, fd, dialled);
}

static void data_failed(void *ctx, const gw_intro *mine, gw_status status, const char *detail) {
    gw_node *node = ctx;
    node->net->ops->refused(node->net, mine->to, mine->generation, status, detail);
}

/* From within the transport's send, whichever thread drives. */
static void dial_data(void *ctx, int peer, int stream, uint32_t generation) {
    gw_node *node = ctx;
    gw_error error = {.rank = -1};
    gw_intro mine = {.purpose = GW_PURPOSE_DATA, .from = node->rank, .to = peer, .world = node->world,
                     .generation = generation, .stream = (uint32_t)stream};
    gw_status status = gw_gateway_dial(node->gateway, &node->endpoints[peer].address, 1, &mine,
                                       gw_clock_now() + node->deadline, &error);
    if (status) node->net->ops->refused(node->net, peer, generation, status, error.text);
}

/* Joining. */

gw_status gw_node_deadline(const gw_options *options, gw_time *deadline, gw_error *error) {
    double seconds = options ? options->deadline_s : 0;
    const char *text = getenv("GRADWIRE_DEADLINE");
    bool given = seconds != 0;
    if (!given && text && !gw_duration_parse(text, &seconds))
        return gw_fail(error, GW_INVALID, "GRADWIRE_DEADLINE=\"%s\" is not a duration (30, 0.5, 500ms, 2m)", text);
    if (!given && !text) seconds = 30;
    if (!(seconds >= 0.05 && seconds <= 1e6))
        return gw_fail(error, GW_INVALID, "a deadline of %g s is not between 0.05 s and 1,000,000 s", seconds);
    *deadline = (gw_time)(seconds * (double)GW_SECOND);
    return GW_OK;
}

static gw_status find_quorum(const gw_options *options, bool *any_side, gw_error *error) {
    const char *text = options->quorum ? options->quorum : getenv("GRADWIRE_QUORUM");
    *any_side = text && strcmp(text, "off") == 0;
    if (!text || *any_side || strcmp(text, "on") == 0) return GW_OK;
    char quoted[GW_QUOTE_BYTES];
    return gw_fail(error, GW_INVALID,
                   "%s=%s is neither on nor off (off: after a loss every side of a cut network goes on by itself)",
                   options->quorum ? "quorum" : "GRADWIRE_QUORUM", gw_words_quote(text, quoted));
}

static gw_status check_log_level(gw_error *error) {
    const char *name = getenv("GRADWIRE_LOG");
    gw_log_level level;
    if (!name || gw_log_level_parse(name, &level)) return GW_OK;
    return gw_fail(error, GW_INVALID,
                   "GRADWIRE_LOG=\"%s\" is not a log level (allowed: error, warn, info, debug, trace)", name);
}

bool gw_node_same_host(const gw_node *node, int a, int b) {
    return strcmp(node->endpoints[a].identity, node->endpoints[b].identity) == 0;
}

static void number_hosts(gw_node *node) {
    int hosts = 0;
    for (int r = 0; r < node->world; r++) {
        int same = 0;
        while (same < r && !gw_node_same_host(node, same, r)) same++;
        node->host_of[r] = same < r ? node->host_of[same] : hosts++;
    }
}

/* Others died, or came, while this round was to meet. */
static bool called_anew(void *ctx) {
    const gw_node *node = ctx;
    gw_roll roll;
    gw_pulse_beat(&node->pulse); /* there is no progress thread yet */
    return gw_roll_read(&roll, node->place.roll) && roll.round > node->place.round;
}

/* People know servers by numbers of their own, not as the ranks after the last. */
static void name_server(const gw_node *node, char host[GW_ENDPOINT_HOST]) {
    char number[32];
    int server = node->rank - (node->world - node->place.servers);
    if (server < 0) return;
    snprintf(number, sizeof number, " (server %d)", server);
    size_t room = GW_ENDPOINT_HOST - 1 - strlen(number), length = strlen(host);
    strcpy(host + (length < room ? length : room), number);
}

/* If rank 0's host is lost, the next round meets at the address of another. */
static void publish(const gw_node *node, const gw_address *address) {
    char text[GW_ADDRESS_TEXT];
    gw_pulse_publish(&node->pulse, gw_address_host_text(address, text));
}

/* Listens, tells rank 0 where, and learns where all others are. */
static gw_status meet(gw_node *node, gw_time until, gw_error *error) {
    const gw_options *options = &node->options;
    const gw_place *place = &node->place;
    const char *interfaces = options->interfaces ? options->interfaces : getenv("GRADWIRE_INTERFACE");
    const char *ports = options->ports ? options->ports : getenv("GRADWIRE_PORTS");
    gw_token token;
    gw_meeting meeting;
    gw_address address;
    gw_endpoint mine;
    gw_status status = gw_token_find(options->token, &token, error);
    if (status) return status;
    status = gw_gateway_open(&node->gateway, node->rank, node->world, &token, place->job, error);
    gw_token_wipe(&token);
    if (!status) status = gw_meeting_find(place, interfaces, &meeting, error);
    if (place->roll[0]) meeting.off = called_anew, meeting.ctx = node;
    if (!status) status = gw_meeting_listen(node->gateway, place, &meeting, interfaces, ports, &address, error);
    if (!status) status = gw_endpoint_describe(node->rank, &address, &mine, error);
    if (!status) name_server(node, mine.host);
    if (!status) publish(node, &address);
    if (!status) status = gw_net_listen(node, &address, ports, mine.shm, error);
    if (status) return status;
    if (node->shm) gw_shm_endpoint(node->shm, mine.shm);
    return gw_rendezvous(node->gateway, &meeting, &mine, node->world, until, node->endpoints, error);
}

static gw_status open_shm(gw_node *node, gw_error *error) {
    bool wanted = gw_strategy_is(&node->strategy, GW_AXIS_TRANSPORT, "auto") ||
                  gw_strategy_is(&node->strategy, GW_AXIS_TRANSPORT, "shm");
    if (!wanted) return GW_OK;
    gw_shm_config config = {
        .rank = node->rank, .world = node->world, .sink = gw_engine_sink(gw_core_engine(node->core))};
    return gw_shm_open(&node->shm, &config, error);
}

static gw_status open_tcp(gw_node *node, gw_error *error) {
    gw_tcp_options options = {.rank = node->rank, .world = node->world, .streams = 1, .congestion = "auto"};
    if (!gw_strategy_is(&node->strategy, GW_AXIS_TRANSPORT, "shm")) {
        options.streams = (int)gw_strategy_integer(&node->strategy, GW_AXIS_TRANSPORT, "streams");
        options.congestion = gw_strategy_choice(&node->strategy, GW_AXIS_TRANSPORT, "congestion");
    }
    return gw_tcp_open(&node->net, &options, gw_engine_sink(gw_core_engine(node->core)), dial_data, node, error);
}

static gw_status open_rdma(gw_node *node, gw_error *error) {
    gw_rdma_options options = {.rank = node->rank, .world = node->world,
                               .provider = gw_strategy_choice(&node->strategy, GW_AXIS_TRANSPORT, "provider"),
                               .address = &node->endpoints[node->rank].address};
    return gw_rdma_open(&node->net, &options, gw_engine_sink(gw_core_engine(node->core)), dial_data, node, error);
}

static gw_status open_net(gw_node *node, gw_error *error) {
    if (gw_strategy_is(&node->strategy, GW_AXIS_TRANSPORT, "rdma")) return open_rdma(node, error);
    return gw_net_is_tcp(node) ? open_tcp(node, error) : gw_net_connect(node, error);
}

/* Peers of this host by shared memory where that works, all others by the network. */
static gw_status choose_routes(gw_node *node, gw_error *error) {
    node->shm_everywhere = node->shm != NULL;
    for (int r = 0; r < node->world; r++) {
        if (r == node->rank) continue;
        gw_transport *route = node->net;
        if (node->shm && node->host_of[r] == node->host_of[node->rank]) {
            gw_error why = {.rank = -1};
            if (gw_shm_attach(node->shm, r, node->endpoints[r].shm, &why) == GW_OK) {
                route = node->shm;
            } else if (gw_strategy_is(&node->strategy, GW_AXIS_TRANSPORT, "shm")) {
                *error = why;
                return why.status;
            } else {
                gw_log(GW_LOG_WARN, node->rank, "no shared memory with rank %d, using tcp: %s", r, why.text);
                node->shm_everywhere = false;
            }
        }
        gw_engine_route(gw_core_engine(node->core), r, route);
    }
    return GW_OK;
}

/* The first of those to which no control link stands, -1: there is none. */
static int not_linked(const gw_node *node, const int *ranks, int count) {
    for (int i = 0; i < count; i++)
        if (node->links[ranks[i]].fd < 0) return ranks[i];
    return -1;
}

/* Control links to neighbours: the lower rank of a pair dials. Returns when all stand. */
static gw_status link_up(gw_node *node, gw_error *error) {
    int neighbours[GW_CONTROL_LINKS_MAX], count = gw_control_neighbours(node->rank, node->world, neighbours);
    gw_status opened = gw_links_open(node, error);
    if (opened) return opened;
    gw_gateway_room control = {.ctx = node, .established = control_established, .failed = join_failed};
    gw_gateway_room data = {.ctx = node, .established = data_established, .failed = data_failed};
    gw_gateway_serve(node->gateway, GW_PURPOSE_CONTROL, &control);
    if (gw_net_is_tcp(node)) gw_gateway_serve(node->gateway, GW_PURPOSE_DATA, &data);
    else gw_gateway_shut(node->gateway, GW_PURPOSE_DATA);
    for (int i = 0; i < count; i++)
        if (neighbours[i] > node->rank) gw_links_dial(node, neighbours[i]);
    gw_time until = gw_clock_now() + node->deadline;
    while (not_linked(node, neighbours, count) >= 0 && !node->join_error.status) {
        gw_time now = gw_clock_now();
        if (now > until) break;
        if (gw_gateway_poll(node->gateway, now)) continue;
        if (node->place.roll[0] && called_anew(node))
            return gw_fail(error, GW_ABORTED, "the roll has been called anew");
        struct pollfd fd = {.fd = gw_gateway_fd(node->gateway), .events = POLLIN};
        poll(&fd, 1, 20);
    }
    if (node->join_error.status) {
        *error = node->join_error;
        return error->status;
    }
    int late = not_linked(node, neighbours, count);
    control.failed = control_failed;
    gw_gateway_serve(node->gateway, GW_PURPOSE_CONTROL, &control);
    if (late < 0) return GW_OK;
    return gw_fail_rank(error, GW_TIMEOUT, late,
                        "rank %d on %s did not make its control link to rank %d on %s before the deadline", late,
                        node->endpoints[late].host, node->rank, node->endpoints[node->rank].host);
}

static gw_status open_descriptors(gw_node *node, gw_error *error) {
    node->wake = gw_fd_keep(eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC));
    node->kick = gw_fd_keep(eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC));
    node->events = gw_fd_keep(epoll_create1(EPOLL_CLOEXEC));
    if (node->wake < 0 || node->kick < 0 || node->events < 0)
        return gw_fail(error, GW_SYSTEM, "cannot make an eventfd or epoll: %s", strerror(errno));
    struct epoll_event event = {.events = EPOLLIN};
    epoll_ctl(node->events, EPOLL_CTL_ADD, node->kick, &event);
    return GW_OK;
}

static gw_status open_core(gw_node *node, gw_error *error) {
    gw_core_config config = {.rank = node->rank, .world = node->world, .deadline = node->deadline, .ctx = node,
                             .any_side = node->any_side, .host_name = host_name, .send = send_control,
                             .dial = dial_control, .failed = failed, .slow = slow};
    return gw_core_open(&node->core, &config, gw_clock_now(), error);
}

static gw_status join_others(gw_node *node, gw_time until, gw_error *error) {
    gw_pulse_open(&node->pulse, node->place.roll, node->place.seat, node->deadline);
    gw_status status = open_shm(node, error);
    if (!status) status = meet(node, until, error);
    if (status) return status;
    number_hosts(node);
    gw_strategy_facts facts = {.hosts = 1};
    for (int r = 0; r < node->world; r++)
        if (node->host_of[r] >= facts.hosts) facts.hosts = node->host_of[r] + 1;
    int ranks = gw_node_ranks_of_machine(node, node->world);
    node->spin_yield = ranks * (1 + gw_net_threads(node)) > (int)sysconf(_SC_NPROCESSORS_ONLN);
    node->home = gw_node_home(node);
    status = gw_strategy_check(&node->strategy, &facts, error);
    if (!status) status = open_net(node, error);
    if (!status) status = choose_routes(node, error);
    if (!status) status = link_up(node, error);
    if (status) return status;
    status = gw_watch_open(node, error);
    if (status) return status;
    struct epoll_event event = {.events = EPOLLIN};
    epoll_ctl(node->events, EPOLL_CTL_ADD, gw_gateway_fd(node->gateway), &event);
    int failure = pthread_create(&node->thread, NULL, gw_node_progress, node);
    if (failure) return gw_fail(error, GW_SYSTEM, "cannot start the progress thread: %s", strerror(failure));
    node->threaded = true;
    return GW_OK;
}

static gw_status check_servers(gw_node *node, int servers, gw_error *error) {
    if (servers && gw_strategy_is(&node->strategy, GW_AXIS_TRANSPORT, "mpi"))
        return gw_fail(error, GW_UNSUPPORTED, "transport=mpi: mpirun starts only the ranks that work, so the %d server "
                                              "processes (--servers) are not among them",
                       servers);
    return gw_strategy_serve(&node->strategy, servers, error);
}

gw_status gw_node_open(gw_node **out, const gw_options *options, const gw_place *place, gw_time until,
                       gw_error *error) {
    gw_node *node = calloc(1, sizeof *node);
    if (!node) return gw_fail(error, GW_MEMORY, "out of memory for a job");
    node->wake = node->kick = node->events = node->home = -1;
    node->join_error.rank = -1;
    node->fork_depth = gw_fork_depth();
    node->next_comm = 1;
    pthread_mutex_init(&node->lock, NULL);
    pthread_cond_init(&node->turn, NULL);
    gw_status status = check_log_level(error);
    if (!status) status = gw_options_copy(&node->options, options, error);
    if (!status) status = gw_node_deadline(&node->options, &node->deadline, error);
    if (!status) status = find_quorum(&node->options, &node->any_side, error);
    if (!status) status = gw_strategy_resolve(node->options.strategy, &node->strategy, error);
    if (!status) status = check_servers(node, place->servers, error);
    if (status) goto fail;
    node->place = *place;
    node->rank = place->rank;
    node->world = place->world;
    node->endpoints = calloc((size_t)node->world, sizeof *node->endpoints);
    node->host_of = calloc((size_t)node->world, sizeof *node->host_of);
    if (!node->endpoints || !node->host_of) {
        status = gw_fail(error, GW_MEMORY, "out of memory for a job of %d ranks", node->world);
        goto fail;
    }
    gethostname(node->endpoints[node->rank].host, GW_ENDPOINT_HOST - 1);
    name_server(node, node->endpoints[node->rank].host);
    status = open_descriptors(node, error);
    if (!status) status = open_core(node, error);
    if (!status && node->world == 1)
        status = gw_strategy_check(&node->strategy, &(gw_strategy_facts){.hosts = 1}, error);
    if (!status && node->world > 1) status = join_others(node, until, error);
    if (status) goto fail;
    *out = node;
    return GW_OK;
fail:
    gw_node_leave(node);
    return status;
}

/* Leaving. */

/* What was said last must arrive: closing a socket with unread data would throw it away. */
static void linger(gw_node *node) {
    gw_time until = gw_clock_now() + LINGER_MS * GW_MILLISECOND;
    for (int i = 0; i < node->link_count; i++) {
        gw_links_flush(node, i);
        if (node->links[i].fd >= 0) shutdown(node->links[i].fd, SHUT_WR);
    }
    for (int i = 0; i < node->link_count; i++) {
        uint8_t rest[4096];
        struct pollfd fd = {.fd = node->links[i].fd, .events = POLLIN};
        while (fd.fd >= 0 && gw_clock_now() < until) {
            if (poll(&fd, 1, 20) <= 0) continue;
            if (recv(fd.fd, rest, sizeof rest, MSG_DONTWAIT) <= 0) break;
        }
    }
}

static void stop_progress(gw_node *node) {
    atomic_store(&node->stop, true);
    uint64_t one = 1;
    ssize_t written = write(node->kick, &one, sizeof one);
    (void)written;
    gw_node_wake(node);
    pthread_join(node->thread, NULL);
    node->threaded = false;
}

void gw_node_retire(gw_node *node) {
    if (node->threaded) stop_progress(node);
    gw_gateway_close(node->gateway);
    node->gateway = NULL;
    gw_watch_close(node);
    gw_node_lock(node);
    gw_links_close(node);
    gw_node_unlock(node);
}

void gw_node_leave(gw_node *node) {
    if (!node) return;
    bool joined = node->threaded;
    if (joined) {
        gw_node_lock(node);
        gw_control_leave(gw_core_control(node->core));
        gw_node_unlock(node);
        stop_progress(node);
    }
    gw_pulse_close(&node->pulse); /* after the last beat, and before anything that takes long */
    if (joined) linger(node);
    gw_node_end_trace(node);
    gw_gateway_close(node->gateway);
    gw_links_close(node);
    gw_watch_close(node);
    if (node->net) node->net->ops->close(node->net);
    if (node->shm) node->shm->ops->close(node->shm);
    gw_core_close(node->core);
    while (node->spare_requests) {
        gw_request *next = node->spare_requests->next;
        free(node->spare_requests);
        node->spare_requests = next;
    }
    gw_fd_close(node->wake);
    gw_fd_close(node->kick);
    gw_fd_close(node->events);
    pthread_cond_destroy(&node->turn);
    pthread_mutex_destroy(&node->lock);
    gw_job_links_forget(node);
    free(node->endpoints);
    free(node->host_of);
    gw_options_free(&node->options);
    free(node);
}
