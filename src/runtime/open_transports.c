/* open_transports.c - opens the transports of a context, as their entries in the table (transport/transport_registry.h)
 * say: one transport for all peers, or shared memory for the peers of this host and another transport for the rest. */
#include "runtime/context.h"

#include <unistd.h>

#include "base/log.h"
#include "transport/shm/shm_transport.h"
#include "transport/transport_registry.h"

/* A transport that leaves its data open needs the connection for its library's keys, which nobody else may read. */
gw_security gw_context_data_security(const gw_context *context, int rank) {
    const gw_endpoint *own = &context->endpoints[context->rank], *peer = &context->endpoints[rank];
    bool near = gw_context_same_host(context, context->rank, rank) ||
                (gw_address_loopback(&own->address) && gw_address_loopback(&peer->address));
    if (gw_strategy_transport(&context->strategy)->unprotected) return near ? GW_SECURITY_CLEAR : GW_SECURITY_TLS;
    return gw_security_of_data(gw_connections_asked(context->connections), near);
}

/* The transport's send calls this, in the driver's thread. */
static void dial_data(void *ctx, int peer, int stream, uint32_t generation) {
    gw_context *context = ctx;
    gw_error error = {.rank = -1};
    gw_intro mine = {.purpose = GW_PURPOSE_DATA,
                     .from = context->rank,
                     .to = peer,
                     .world = context->world,
                     .generation = generation,
                     .stream = (uint32_t)stream,
                     .security = gw_context_data_security(context, peer)};
    gw_status status = gw_connections_dial(context->connections, &context->endpoints[peer].address, 1, &mine,
                                           gw_clock_now() + context->deadline, &error);
    if (status) context->net->ops->refused(context->net, peer, generation, status, error.text);
}

static gw_status derive_key(void *ctx, const char *label, uint8_t key[GW_AUTH_KEY_BYTES], gw_error *error) {
    gw_context *context = ctx;
    return gw_connections_derive_key(context->connections, label, key, error);
}

static gw_transport_options options_of(gw_context *context, const gw_address *address, const char *ports) {
    return (gw_transport_options){.rank = context->rank,
                                  .world = context->world,
                                  .host_of = context->host_of,
                                  .values = context->strategy.axes[GW_AXIS_TRANSPORT].values,
                                  .sink = gw_engine_sink(gw_core_engine(context->core)),
                                  .deadline = context->deadline,
                                  .address = address,
                                  .ports = ports,
                                  .ctx = context,
                                  .dial = dial_data,
                                  .derive_key = derive_key};
}

/* Where this rank can have no shared memory, its peers read in its endpoint why. They all use the other transport. */
static gw_status listen_within_host(gw_context *context, const gw_transport_type *type,
                                    const gw_transport_options *options, uint8_t own[GW_ENDPOINT_TRANSPORT_BYTES],
                                    gw_error *error) {
    gw_error why = {.rank = -1};
    gw_status status = type->within_host->listen(&context->shm, options, own, &why);
    if (status == GW_OK) return GW_OK;
    if (!type->open) {
        *error = why;
        return status;
    }
    context->shm = NULL;
    gw_peer_map_no_endpoint(why.text, own);
    return GW_OK;
}

gw_status gw_net_listen(gw_context *context, const gw_address *address, const char *ports,
                        uint8_t own[GW_ENDPOINT_TRANSPORT_BYTES], gw_error *error) {
    const gw_transport_type *type = gw_strategy_transport(&context->strategy);
    gw_transport_options options = options_of(context, address, ports);
    if (type->within_host) return listen_within_host(context, type, &options, own, error);
    return type->listen ? type->listen(&context->net, &options, own, error) : GW_OK;
}

/* Whether this rank may share memory with that one, as far as their endpoints show. */
static bool may_share(const gw_context *context, int rank, char why[GW_REACH_WHY]) {
    if (context->host_of[rank] != context->host_of[context->rank]) return false;
    return !gw_peer_map_apart(context->endpoints[context->rank].transport, context->endpoints[rank].transport, why);
}

/* Attaches to the ranks that may share memory; the first failure is in why. */
static gw_status attach_all(gw_context *context, const gw_transport_type *shm, gw_error *why) {
    char apart[GW_REACH_WHY];
    gw_status status = GW_OK;
    for (int r = 0; r < context->world && !status; r++) {
        const gw_endpoint *peer = &context->endpoints[r];
        if (r != context->rank && may_share(context, r, apart))
            status = shm->attach(context->shm, r, &peer->address, peer->transport, why);
    }
    return status;
}

/* Waits until that rank has said whether it has attached to all. Nothing can wake this rank yet, so it polls. */
static gw_status hear(gw_context *context, int rank, gw_time until, gw_error *why) {
    gw_peer_map *peer_map = gw_shm_peer_map(context->shm);
    char text[GW_REACH_WHY];
    gw_peer_map_reach reach;
    for (useconds_t nap = 10; !(reach = gw_peer_map_said(peer_map, rank, text)); nap = nap < 1000 ? 2 * nap : 1000) {
        if (gw_peer_map_ended(&peer_map->peers[rank]))
            return gw_fail_rank(why, GW_UNSUPPORTED, rank, "no shared memory with rank %d: its process has ended",
                                rank);
        if (gw_clock_now() > until)
            return gw_fail_rank(why, GW_UNSUPPORTED, rank, "no shared memory with rank %d: it does not answer", rank);
        gw_heartbeat_beat(&context->heartbeat); /* there is no progress thread yet */
        usleep(nap);
    }
    return reach == GW_REACH_ALL ? GW_OK : gw_fail_rank(why, GW_UNSUPPORTED, rank, "%s", text);
}

/* The ranks of this host agree: shared memory among all that may share it, or among none. */
static gw_status agree_on_shm(gw_context *context, const gw_transport_type *shm, gw_error *why) {
    char apart[GW_REACH_WHY];
    gw_time until = gw_clock_now() + context->deadline;
    gw_status status = attach_all(context, shm, why);
    gw_peer_map_say(gw_shm_peer_map(context->shm), status ? why->text : NULL);
    for (int r = 0; r < context->world && !status; r++)
        if (r != context->rank && may_share(context, r, apart)) status = hear(context, r, until, why);
    return status;
}

/* The first rank of a host warns for all of it. */
static void warn_of_net(const gw_context *context, const char *why) {
    for (int r = 0; r < context->rank; r++)
        if (context->host_of[r] == context->host_of[context->rank]) return;
    gw_log(GW_LOG_WARN, context->rank, "%s; using %s on this host instead, which is slower", why,
           context->net->ops->name);
}

/* Peers of this host by shared memory where that works, all others by the other transport. */
static gw_status choose_routes(gw_context *context, const gw_transport_type *type, gw_error *error) {
    gw_error why = {.rank = -1}; /* the first reason against shared memory with a rank of this host */
    if (context->shm && agree_on_shm(context, type->within_host, &why)) {
        context->refused_shm = context->shm;
        context->shm = NULL;
    }
    for (int r = 0; r < context->world; r++) {
        char apart[GW_REACH_WHY] = "";
        bool shared = may_share(context, r, apart) && context->shm;
        if (r == context->rank) continue;
        if (!shared && context->host_of[r] == context->host_of[context->rank])
            gw_fail_rank(&why, GW_UNSUPPORTED, r, "no shared memory with rank %d: %s", r, apart);
        gw_engine_route(gw_core_engine(context->core), r, shared ? context->shm : context->net);
    }
    context->shm_everywhere = type->within_host && !why.status;
    if (context->shm_everywhere || !type->within_host) return GW_OK;
    if (!context->net) return gw_fail_rank(error, why.status, why.rank, "%s", why.text);
    warn_of_net(context, why.text);
    return GW_OK;
}

static void warn_unprotected(const gw_context *context, const gw_transport_type *type) {
    bool crosses = false;
    for (int r = 0; r < context->world; r++) crosses |= !gw_context_same_host(context, r, context->rank);
    if (context->rank != 0 || !crosses || !type->unprotected ||
        gw_connections_asked(context->connections) != GW_SECURITY_CHOICE_AUTO)
        return;
    gw_log(GW_LOG_WARN, context->rank,
           "transport=%s: nothing protects the data between hosts, so whoever is on their network can read and change "
           "it; transport=tcp protects it, and security=clear says that this network is trusted",
           type->technique.name);
}

gw_status gw_net_connect(gw_context *context, gw_error *error) {
    const gw_transport_type *type = gw_strategy_transport(&context->strategy);
    gw_transport_options options = options_of(context, &context->endpoints[context->rank].address, NULL);
    gw_status status = type->open ? type->open(&context->net, &options, error) : GW_OK;
    for (int r = 0; context->net && type->attach && r < context->world && !status; r++)
        if (r != context->rank)
            status =
                type->attach(context->net, r, &context->endpoints[r].address, context->endpoints[r].transport, error);
    if (!status) warn_unprotected(context, type);
    return status ? status : choose_routes(context, type, error);
}
