/* open_transports.c - opens the transports of a context, as their entries in the table (transport/transport_registry.h)
 * say: one transport for all peers, or shared memory for the peers of this host and another transport for the rest. */
#include "runtime/context.h"

#include "base/log.h"
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
                                  .values = context->strategy.axes[GW_AXIS_TRANSPORT].values,
                                  .sink = gw_engine_sink(gw_core_engine(context->core)),
                                  .deadline = context->deadline,
                                  .address = address,
                                  .ports = ports,
                                  .ctx = context,
                                  .dial = dial_data,
                                  .derive_key = derive_key};
}

gw_status gw_net_listen(gw_context *context, const gw_address *address, const char *ports,
                        uint8_t own[GW_ENDPOINT_TRANSPORT_BYTES], gw_error *error) {
    const gw_transport_type *type = gw_strategy_transport(&context->strategy);
    gw_transport_options options = options_of(context, address, ports);
    if (type->within_host) return type->within_host->listen(&context->shm, &options, own, error);
    return type->listen ? type->listen(&context->net, &options, own, error) : GW_OK;
}

/* Peers of this host by shared memory where that works, all others by the other transport. */
static gw_status choose_routes(gw_context *context, const gw_transport_type *type, gw_error *error) {
    context->shm_everywhere = context->shm != NULL;
    for (int r = 0; r < context->world; r++) {
        const gw_endpoint *peer = &context->endpoints[r];
        gw_transport *route = context->net;
        gw_error why = {.rank = -1};
        if (r == context->rank) continue;
        if (context->shm && context->host_of[r] == context->host_of[context->rank]) {
            if (type->within_host->attach(context->shm, r, &peer->address, peer->transport, &why) == GW_OK) {
                route = context->shm;
            } else if (!context->net) {
                *error = why;
                return why.status;
            } else {
                gw_log(GW_LOG_WARN, context->rank, "no shared memory with rank %d, using %s: %s", r,
                       context->net->ops->name, why.text);
                context->shm_everywhere = false;
            }
        }
        gw_engine_route(gw_core_engine(context->core), r, route);
    }
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
