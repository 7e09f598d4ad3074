/* context.c - joining a job and leaving it. */
#include "runtime/context.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/fork_descriptors.h"
#include "base/log.h"
#include "base/suggest.h"
#include "base/thread.h"
#include "base/units.h"
#include "bootstrap/job_environment.h"
#include "bootstrap/rendezvous.h"
#include "runtime/comm.h"
#include "runtime/link_costs.h"
#include "runtime/recording.h"
#include "strategy/combine.h"
#include "transport/transport_registry.h"

#define LINGER_MS 1000 /* how long leaving waits for the last messages to arrive */

/* Callbacks of the core. (L) is held. */

static const char *host_name(void *ctx, int rank) {
    gw_context *context = ctx;
    return context->endpoints[rank].host;
}

static void send_control(void *ctx, int neighbour, const gw_control_message *message) {
    gw_control_links_send(ctx, neighbour, message);
}

static void dial_control(void *ctx, int rank) { gw_control_links_dial(ctx, rank); }

static void failed(void *ctx, const gw_error *error) {
    gw_context *context = ctx;
    for (gw_comm *comm = context->comms; comm; comm = comm->next) {
        if (atomic_load(&comm->failed)) continue;
        comm->error = *error;
        atomic_store(&comm->failed, true);
    }
    context->report = *error;
    context->report_due = true;
    pthread_cond_broadcast(&context->turn);
    gw_context_wake(context);
}

static void slow(void *ctx, const char *sentence) {
    gw_context *context = ctx;
    gw_log(GW_LOG_WARN, context->rank, "%s", sentence);
}

/* Handlers of the connection manager, called by the progress thread (or while joining). */

/* The peer has chosen another protection than this rank expects: one of them is not what it seems. */
static bool refuse_protection(const gw_context *context, const gw_intro *peer, gw_security expected, int fd) {
    if (peer->security == expected) return false;
    gw_log(GW_LOG_WARN, context->rank, "a connection of rank %d on %s was refused: it is %s, but must be %s",
           peer->from, context->endpoints[peer->from].host, gw_security_names[peer->security],
           gw_security_names[expected]);
    gw_fd_close(fd);
    return true;
}

static void control_established(void *ctx, const gw_intro *peer, int fd, bool dialled, const gw_traffic_keys *keys) {
    gw_context *context = ctx;
    if (refuse_protection(context, peer, gw_security_of_control(gw_connections_asked(context->connections)), fd))
        return;
    gw_context_lock(context);
    gw_control_links_adopt(context, peer->from, fd, dialled, keys);
    gw_context_unlock(context);
}

static void control_failed(void *ctx, const gw_intro *mine, gw_status status, const char *detail) {
    gw_context *context = ctx;
    gw_context_lock(context);
    gw_control_links_failed(context, mine->to, status, detail);
    gw_context_unlock(context);
}

/* While joining. */
static void join_failed(void *ctx, const gw_intro *mine, gw_status status, const char *detail) {
    gw_context *context = ctx;
    gw_context_lock(context);
    gw_fail_rank(&context->join_error, status, mine->to, "rank %d on %s cannot be reached from rank %d on %s: %s",
                 mine->to, context->endpoints[mine->to].host, context->rank, context->endpoints[context->rank].host,
                 detail);
    gw_context_unlock(context);
}

static void data_established(void *ctx, const gw_intro *peer, int fd, bool dialled, const gw_traffic_keys *keys) {
    gw_context *context = ctx;
    if (refuse_protection(context, peer, gw_context_data_security(context, peer->from), fd)) return;
    context->net->ops->adopt(context->net, peer->from, (int)peer->stream, peer->generation, fd, dialled, keys);
}

static void data_failed(void *ctx, const gw_intro *mine, gw_status status, const char *detail) {
    gw_context *context = ctx;
    context->net->ops->refused(context->net, mine->to, mine->generation, status, detail);
}

/* Joining. */

gw_status gw_context_deadline(const gw_options *options, gw_time *deadline, gw_error *error) {
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
                   options->quorum ? "quorum" : "GRADWIRE_QUORUM", gw_suggest_quote(text, quoted));
}

static gw_status check_log_level(gw_error *error) {
    const char *name = getenv("GRADWIRE_LOG");
    gw_log_level level;
    if (!name || gw_log_level_parse(name, &level)) return GW_OK;
    return gw_fail(error, GW_INVALID,
                   "GRADWIRE_LOG=\"%s\" is not a log level (allowed: error, warn, info, debug, trace)", name);
}

gw_status gw_context_check_environment(gw_error *error) {
    const gw_options options = GW_OPTIONS_DEFAULT;
    gw_time deadline;
    bool any_side;
    gw_status status = check_log_level(error);
    if (!status) status = gw_context_deadline(NULL, &deadline, error);
    return status ? status : find_quorum(&options, &any_side, error);
}

bool gw_context_same_host(const gw_context *context, int a, int b) {
    return strcmp(context->endpoints[a].identity, context->endpoints[b].identity) == 0;
}

static void number_hosts(gw_context *context) {
    int hosts = 0;
    for (int r = 0; r < context->world; r++) {
        int same = 0;
        while (same < r && !gw_context_same_host(context, same, r)) same++;
        context->host_of[r] = same < r ? context->host_of[same] : hosts++;
    }
}

/* Ranks died or joined during the rendezvous: the launcher has started another generation. */
static bool generation_changed(void *ctx) {
    const gw_context *context = ctx;
    gw_roster roster;
    gw_heartbeat_beat(&context->heartbeat); /* there is no progress thread yet */
    return gw_roster_read(&roster, context->job_env.roster) && roster.generation > context->job_env.generation;
}

/* Users number servers from 0, not as ranks after the last worker. */
static void name_server(const gw_context *context, char host[GW_ENDPOINT_HOST]) {
    char number[32];
    int server = context->rank - (context->world - context->job_env.servers);
    if (server < 0) return;
    snprintf(number, sizeof number, " (server %d)", server);
    size_t room = GW_ENDPOINT_HOST - 1 - strlen(number), length = strlen(host);
    strcpy(host + (length < room ? length : room), number);
}

/* If rank 0's host is lost, the next generation meets at another rank's address. */
static void publish(const gw_context *context, const gw_address *address) {
    char text[GW_ADDRESS_TEXT];
    gw_heartbeat_publish(&context->heartbeat, gw_address_host_text(address, text));
}

/* Once in a job: all ranks have the same token. */
static void warn_of_weak(const gw_context *context, const gw_token *token) {
    int bits = gw_token_bits(token);
    if (context->rank != 0 || context->job_env.generation > 0 || bits >= GW_TOKEN_BITS_GOOD) return;
    gw_log(GW_LOG_WARN, context->rank,
           "the job's token has at most %d random bits, so somebody on the network may find it by trying: give one of "
           "%d or more (openssl rand -hex 32), or none, and gradwire makes one",
           bits, GW_TOKEN_BITS_GOOD);
}

/* Rendezvous: listens, sends the own endpoint to rank 0 and receives all endpoints. */
static gw_status meet(gw_context *context, gw_time until, gw_error *error) {
    const gw_options *options = &context->options;
    const gw_job_env *job_env = &context->job_env;
    const char *interfaces = options->interfaces ? options->interfaces : getenv("GRADWIRE_INTERFACE");
    const char *ports = options->ports ? options->ports : getenv("GRADWIRE_PORTS");
    gw_token token;
    gw_rendezvous_address rendezvous;
    gw_address address;
    gw_endpoint mine;
    gw_status status = gw_token_find(options->token, &token, error);
    if (status) return status;
    warn_of_weak(context, &token);
    status = gw_connections_open(&context->connections, context->rank, context->world, &token, job_env->job, error);
    gw_token_wipe(&token);
    if (!status)
        gw_connections_ask(context->connections,
                           gw_transport_security(gw_strategy_transport(&context->strategy),
                                                 context->strategy.axes[GW_AXIS_TRANSPORT].values));
    if (!status) status = gw_rendezvous_address_find(job_env, interfaces, &rendezvous, error);
    if (job_env->roster[0]) rendezvous.off = generation_changed, rendezvous.ctx = context;
    if (!status)
        status = gw_rendezvous_address_listen(context->connections, job_env, &rendezvous, interfaces, ports, &address,
                                              error);
    if (!status) status = gw_endpoint_describe(context->rank, &address, &mine, error);
    if (!status) name_server(context, mine.host);
    if (!status) publish(context, &address);
    if (!status) status = gw_net_listen(context, &address, ports, mine.transport, error);
    if (status) return status;
    return gw_rendezvous(context->connections, &rendezvous, &mine, context->world, until, context->endpoints, error);
}

/* The first of these ranks without a control link; -1: none. */
static int not_linked(const gw_context *context, const int *ranks, int count) {
    for (int i = 0; i < count; i++)
        if (!context->links[ranks[i]].channel) return ranks[i];
    return -1;
}

/* Makes the control links to neighbours: the lower rank of a pair dials. Returns when all are up. */
static gw_status link_up(gw_context *context, gw_error *error) {
    int neighbours[GW_CONTROL_LINKS_MAX], count = gw_control_neighbours(context->rank, context->world, neighbours);
    gw_status opened = gw_control_links_open(context, error);
    if (opened) return opened;
    gw_connection_handler control = {.ctx = context, .established = control_established, .failed = join_failed};
    gw_connection_handler data = {.ctx = context, .established = data_established, .failed = data_failed};
    gw_connections_serve(context->connections, GW_PURPOSE_CONTROL, &control);
    bool sockets = context->net && context->net->ops->adopt;
    if (sockets) gw_connections_serve(context->connections, GW_PURPOSE_DATA, &data);
    else gw_connections_refuse(context->connections, GW_PURPOSE_DATA);
    for (int i = 0; i < count; i++)
        if (neighbours[i] > context->rank) gw_control_links_dial(context, neighbours[i]);
    gw_time until = gw_clock_now() + context->deadline;
    while (not_linked(context, neighbours, count) >= 0 && !context->join_error.status) {
        gw_time now = gw_clock_now();
        if (now > until) break;
        if (gw_connections_poll(context->connections, now)) continue;
        if (context->job_env.roster[0] && generation_changed(context))
            return gw_fail(error, GW_ABORTED, "the launcher has started another generation of the job");
        struct pollfd fd = {.fd = gw_connections_fd(context->connections), .events = POLLIN};
        poll(&fd, 1, 20);
    }
    if (context->join_error.status) {
        *error = context->join_error;
        return error->status;
    }
    int late = not_linked(context, neighbours, count);
    control.failed = control_failed;
    gw_connections_serve(context->connections, GW_PURPOSE_CONTROL, &control);
    if (late < 0) return GW_OK;
    return gw_fail_rank(error, GW_TIMEOUT, late,
                        "rank %d on %s did not make its control link to rank %d on %s before the deadline", late,
                        context->endpoints[late].host, context->rank, context->endpoints[context->rank].host);
}

static gw_status open_descriptors(gw_context *context, gw_error *error) {
    context->wake = gw_fd_register(eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC));
    context->kick = gw_fd_register(eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC));
    context->events = gw_fd_register(epoll_create1(EPOLL_CLOEXEC));
    if (context->wake < 0 || context->kick < 0 || context->events < 0)
        return gw_fail(error, GW_SYSTEM, "cannot make an eventfd or epoll: %s", strerror(errno));
    struct epoll_event event = {.events = EPOLLIN};
    epoll_ctl(context->events, EPOLL_CTL_ADD, context->kick, &event);
    return GW_OK;
}

static gw_status open_core(gw_context *context, gw_error *error) {
    gw_core_config config = {.rank = context->rank,
                             .world = context->world,
                             .deadline = context->deadline,
                             .ctx = context,
                             .any_side = context->any_side,
                             .host_name = host_name,
                             .send = send_control,
                             .dial = dial_control,
                             .failed = failed,
                             .slow = slow};
    return gw_core_open(&context->core, &config, gw_clock_now(), error);
}

static gw_status join_others(gw_context *context, gw_time until, gw_error *error) {
    gw_heartbeat_open(&context->heartbeat, context->job_env.roster, context->job_env.member, context->deadline);
    gw_status status = meet(context, until, error);
    if (status) return status;
    number_hosts(context);
    gw_strategy_facts facts = {.hosts = 1};
    for (int r = 0; r < context->world; r++)
        if (context->host_of[r] >= facts.hosts) facts.hosts = context->host_of[r] + 1;
    int ranks = gw_context_ranks_of_machine(context, context->world);
    int threads = 1 + gw_strategy_transport(&context->strategy)->threads;
    context->spin_yield = ranks * threads > (int)sysconf(_SC_NPROCESSORS_ONLN);
    context->wait_cpu = gw_context_wait_cpu(context);
    status = gw_strategy_check(&context->strategy, &facts, error);
    if (!status) status = gw_net_connect(context, error);
    if (!status) status = link_up(context, error);
    if (status) return status;
    status = gw_watch_open(context, error);
    if (status) return status;
    struct epoll_event event = {.events = EPOLLIN};
    epoll_ctl(context->events, EPOLL_CTL_ADD, gw_connections_fd(context->connections), &event);
    int failure = gw_thread_start(&context->thread, gw_context_progress, context);
    if (failure) return gw_fail(error, GW_SYSTEM, "cannot start the progress thread: %s", strerror(failure));
    context->threaded = true;
    return GW_OK;
}

static gw_status check_servers(gw_context *context, int servers, gw_error *error) {
    const gw_transport_type *type = gw_strategy_transport(&context->strategy);
    if (servers && type->launcher)
        return gw_fail(error, GW_UNSUPPORTED,
                       "transport=%s: %s starts only the ranks that work, so the %d server "
                       "processes (--servers) are not among them",
                       type->technique.name, type->launcher, servers);
    return gw_strategy_apply_servers(&context->strategy, servers, error);
}

gw_status gw_context_open(gw_context **out, const gw_options *options, const gw_job_env *job_env, gw_time until,
                          gw_error *error) {
    gw_context *context = calloc(1, sizeof *context);
    if (!context) return gw_fail(error, GW_MEMORY, "out of memory for a job");
    context->wake = context->kick = context->events = context->wait_cpu = -1;
    context->join_error.rank = -1;
    context->fork_depth = gw_fork_depth();
    context->next_comm = 1;
    pthread_mutex_init(&context->lock, NULL);
    gw_thread_cond_init(&context->turn);
    gw_status status = check_log_level(error);
    if (!status) status = gw_options_copy(&context->options, options, error);
    if (!status) status = gw_context_deadline(&context->options, &context->deadline, error);
    if (!status) status = find_quorum(&context->options, &context->any_side, error);
    if (!status) status = gw_strategy_resolve(context->options.strategy, &context->strategy, error);
    if (!status) status = check_servers(context, job_env->servers, error);
    if (status) goto fail;
    context->job_env = *job_env;
    context->rank = job_env->rank;
    context->world = job_env->world;
    context->endpoints = calloc((size_t)context->world, sizeof *context->endpoints);
    context->host_of = calloc((size_t)context->world, sizeof *context->host_of);
    if (!context->endpoints || !context->host_of) {
        status = gw_fail(error, GW_MEMORY, "out of memory for a job of %d ranks", context->world);
        goto fail;
    }
    gethostname(context->endpoints[context->rank].host, GW_ENDPOINT_HOST - 1);
    name_server(context, context->endpoints[context->rank].host);
    status = open_descriptors(context, error);
    if (!status) status = open_core(context, error);
    if (!status && context->world == 1)
        status = gw_strategy_check(&context->strategy, &(gw_strategy_facts){.hosts = 1}, error);
    if (!status && context->world > 1) status = join_others(context, until, error);
    if (status) goto fail;
    *out = context;
    return GW_OK;
fail:
    gw_context_leave(context);
    return status;
}

/* Leaving. */

/* The last messages must arrive: closing a socket with unread data would discard them. */
static void linger(gw_context *context) {
    gw_time until = gw_clock_now() + LINGER_MS * GW_MILLISECOND;
    for (int i = 0; i < context->link_count; i++) {
        gw_control_links_flush(context, i);
        if (context->links[i].channel) shutdown(gw_channel_fd(context->links[i].channel), SHUT_WR);
    }
    for (int i = 0; i < context->link_count; i++) {
        uint8_t rest[4096];
        struct pollfd fd = {.fd = gw_channel_fd(context->links[i].channel), .events = POLLIN};
        while (fd.fd >= 0 && gw_clock_now() < until) {
            if (poll(&fd, 1, 20) <= 0) continue;
            if (recv(fd.fd, rest, sizeof rest, MSG_DONTWAIT) <= 0) break;
        }
    }
}

static void stop_progress(gw_context *context) {
    atomic_store(&context->stop, true);
    uint64_t one = 1;
    ssize_t written = write(context->kick, &one, sizeof one);
    (void)written;
    gw_context_wake(context);
    pthread_join(context->thread, NULL);
    context->threaded = false;
}

void gw_context_retire(gw_context *context) {
    if (context->threaded) stop_progress(context);
    gw_connections_close(context->connections);
    context->connections = NULL;
    gw_watch_close(context);
    gw_context_lock(context);
    gw_control_links_close(context);
    gw_context_unlock(context);
}

void gw_context_leave(gw_context *context) {
    if (!context) return;
    bool joined = context->threaded;
    if (joined) {
        gw_context_lock(context);
        gw_control_leave(gw_core_control(context->core));
        gw_context_unlock(context);
        stop_progress(context);
    }
    gw_heartbeat_close(&context->heartbeat); /* after the last beat, and before anything slow */
    if (joined) linger(context);
    gw_context_end_trace(context);
    gw_connections_close(context->connections);
    gw_control_links_close(context);
    gw_watch_close(context);
    if (context->net) context->net->ops->close(context->net);
    if (context->shm) context->shm->ops->close(context->shm);
    if (context->refused_shm) context->refused_shm->ops->close(context->refused_shm);
    gw_core_close(context->core);
    while (context->spare_requests) {
        gw_request *next = context->spare_requests->next;
        free(context->spare_requests);
        context->spare_requests = next;
    }
    gw_fd_close(context->wake);
    gw_fd_close(context->kick);
    gw_fd_close(context->events);
    pthread_cond_destroy(&context->turn);
    pthread_mutex_destroy(&context->lock);
    gw_job_links_free(context);
    free(context->endpoints);
    free(context->host_of);
    free(context->rack_of);
    gw_options_free(&context->options);
    free(context);
}
