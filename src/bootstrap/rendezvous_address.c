/* rendezvous_address.c - see rendezvous_address.h. */
#include "bootstrap/rendezvous_address.h"

#include "base/log.h"
#include "bootstrap/interface.h"

#include <stdio.h>
#include <string.h>

#define NAMES_MAX 4 /* addresses of one name: sixteen ports of each are tried */

gw_status gw_rendezvous_address_find(const gw_job_env *job_env, const char *interfaces,
                                     gw_rendezvous_address *rendezvous, gw_error *error) {
    gw_address hosts[NAMES_MAX];
    int count;
    gw_status status = gw_interface_master(job_env->master, interfaces, hosts, NAMES_MAX, &count, error);
    if (status != GW_OK) return status;
    gw_rendezvous_address found = {.count = 0};
    for (int port = job_env->port_low; port <= job_env->port_high; port++)
        for (int i = 0; i < count && found.count < GW_DIAL_CANDIDATES_MAX; i++) {
            gw_address_set_port(&hosts[i], port);
            found.at[found.count++] = hosts[i];
        }
    const char *host = job_env->master;
    int low = job_env->port_low, high = job_env->port_high;
    size_t used = (size_t)snprintf(found.text, sizeof found.text, strchr(host, ':') ? "[%s]:%d" : "%s:%d", host, low);
    if (high > low) snprintf(found.text + used, sizeof found.text - used, "-%d", high);
    *rendezvous = found;
    return GW_OK;
}

static bool unspecified(const gw_address *address) {
    if (address->any.sa_family == AF_INET6) return IN6_IS_ADDR_UNSPECIFIED(&address->v6.sin6_addr);
    return address->v4.sin_addr.s_addr == INADDR_ANY;
}

/* The launcher's socket counts only while it listens at a rendezvous port: a process that joins a second time still has
 * the variable, but no longer the socket. */
static bool adopt(gw_connections *connections, const gw_job_env *job_env) {
    gw_error ignored = {0};
    if (job_env->listen_fd < 0) return false;
    if (gw_connections_adopt(connections, job_env->listen_fd, job_env->port_low, job_env->port_high, &ignored) == GW_OK)
        return true;
    gw_log(GW_LOG_DEBUG, 0, "not using the launcher's socket: %s", ignored.text);
    return false;
}

/* If the rendezvous address is not this host's own (a service in front of it), rank 0 listens on the selected one. */
static gw_status listen_for_rendezvous(gw_connections *connections, const gw_job_env *job_env,
                                       const gw_rendezvous_address *rendezvous, const gw_address *selected,
                                       gw_error *error) {
    if (adopt(connections, job_env)) return GW_OK;
    gw_address at = *selected;
    for (int i = rendezvous->count - 1; i >= 0; i--)
        if (gw_interface_is_local(&rendezvous->at[i])) at = rendezvous->at[i];
    return gw_connections_listen(connections, &at, job_env->port_low, job_env->port_high, error);
}

/* Other ranks on rank 0's host do not use the rendezvous ports. In later generations the rendezvous ports may be
 * anywhere in the range. */
static void avoid_rendezvous_ports(const gw_job_env *job_env, int *low, int *high) {
    int below = job_env->port_low - *low, above = *high - job_env->port_high;
    if (*low > job_env->port_high || *high < job_env->port_low) return;
    if (above > 0 && above >= below) *low = job_env->port_high + 1;
    else if (below > 0) *high = job_env->port_low - 1;
}

gw_status gw_rendezvous_address_listen(gw_connections *connections, const gw_job_env *job_env,
                                       const gw_rendezvous_address *rendezvous, const char *interfaces,
                                       const char *ports, gw_address *advertised, gw_error *error) {
    gw_address selected;
    int low = 0, high = 0, listeners = 0;
    gw_status status = GW_OK;
    if (ports && ports[0]) status = gw_ports_parse(ports, &low, &high, error);
    if (status == GW_OK) status = gw_interface_choose(interfaces, &rendezvous->at[0], &selected, error);
    if (status != GW_OK) return status;
    if (job_env->rank == 0) {
        status = listen_for_rendezvous(connections, job_env, rendezvous, &selected, error);
        if (status != GW_OK) return status;
        const gw_address *bound = gw_connections_address(connections, listeners++);
        bool elsewhere = interfaces && interfaces[0] && !gw_address_same_host(bound, &selected);
        *advertised = unspecified(bound) ? selected : *bound;
        gw_address_set_port(advertised, gw_address_port(bound));
        if (unspecified(bound) || !elsewhere) return GW_OK;
    }
    if (low) avoid_rendezvous_ports(job_env, &low, &high);
    status = gw_connections_listen(connections, &selected, low, high, error);
    if (status == GW_OK) *advertised = *gw_connections_address(connections, listeners);
    return status;
}
