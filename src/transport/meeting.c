/* meeting.c - see meeting.h. */
#include "transport/meeting.h"

#include "base/log.h"
#include "transport/interface.h"

#include <stdio.h>
#include <string.h>

#define NAMES_MAX 4 /* addresses of one name: sixteen ports of each are tried */

gw_status gw_meeting_find(const gw_place *place, const char *interfaces, gw_meeting *meeting, gw_error *error) {
    gw_address hosts[NAMES_MAX];
    int count;
    gw_status status = gw_interface_master(place->master, interfaces, hosts, NAMES_MAX, &count, error);
    if (status != GW_OK) return status;
    gw_meeting found = {.count = 0};
    for (int port = place->port_low; port <= place->port_high; port++)
        for (int i = 0; i < count && found.count < GW_DIAL_CANDIDATES_MAX; i++) {
            gw_address_set_port(&hosts[i], port);
            found.at[found.count++] = hosts[i];
        }
    const char *host = place->master;
    int low = place->port_low, high = place->port_high;
    size_t used = (size_t)snprintf(found.text, sizeof found.text, strchr(host, ':') ? "[%s]:%d" : "%s:%d", host, low);
    if (high > low) snprintf(found.text + used, sizeof found.text - used, "-%d", high);
    *meeting = found;
    return GW_OK;
}

static bool unspecified(const gw_address *address) {
    if (address->any.sa_family == AF_INET6) return IN6_IS_ADDR_UNSPECIFIED(&address->v6.sin6_addr);
    return address->v4.sin_addr.s_addr == INADDR_ANY;
}

/* The launcher's socket counts only while it listens at the meeting point: a process that joins a second time still
 * has the variable, but no longer the socket. */
static bool adopt(gw_gateway *gateway, const gw_place *place) {
    gw_error ignored = {0};
    if (place->listen_fd < 0) return false;
    if (gw_gateway_adopt(gateway, place->listen_fd, place->port_low, place->port_high, &ignored) == GW_OK) return true;
    gw_log(GW_LOG_DEBUG, 0, "not using the launcher's socket: %s", ignored.text);
    return false;
}

/* Where the meeting address is not this host's own (a name of a service in front of it), the selected one is. */
static gw_status listen_as_meeting_point(gw_gateway *gateway, const gw_place *place, const gw_meeting *meeting,
                                         const gw_address *selected, gw_error *error) {
    if (adopt(gateway, place)) return GW_OK;
    gw_address at = *selected;
    for (int i = meeting->count - 1; i >= 0; i--)
        if (gw_interface_is_local(&meeting->at[i])) at = meeting->at[i];
    return gw_gateway_listen(gateway, &at, place->port_low, place->port_high, error);
}

/* Ranks beside rank 0 on a host leave the meeting ports to it. In later rounds these may be anywhere in the range. */
static void keep_clear(const gw_place *place, int *low, int *high) {
    int below = place->port_low - *low, above = *high - place->port_high;
    if (*low > place->port_high || *high < place->port_low) return;
    if (above > 0 && above >= below)
        *low = place->port_high + 1;
    else if (below > 0)
        *high = place->port_low - 1;
}

gw_status gw_meeting_listen(gw_gateway *gateway, const gw_place *place, const gw_meeting *meeting,
                            const char *interfaces, const char *ports, gw_address *advertised, gw_error *error) {
    gw_address selected;
    int low = 0, high = 0, listeners = 0;
    gw_status status = GW_OK;
    if (ports && ports[0]) status = gw_ports_parse(ports, &low, &high, error);
    if (status == GW_OK) status = gw_interface_choose(interfaces, &meeting->at[0], &selected, error);
    if (status != GW_OK) return status;
    if (place->rank == 0) {
        status = listen_as_meeting_point(gateway, place, meeting, &selected, error);
        if (status != GW_OK) return status;
        const gw_address *bound = gw_gateway_address(gateway, listeners++);
        bool elsewhere = interfaces && interfaces[0] && !gw_address_same_host(bound, &selected);
        *advertised = unspecified(bound) ? selected : *bound;
        gw_address_set_port(advertised, gw_address_port(bound));
        if (unspecified(bound) || !elsewhere) return GW_OK;
    }
    if (low) keep_clear(place, &low, &high);
    status = gw_gateway_listen(gateway, &selected, low, high, error);
    if (status == GW_OK) *advertised = *gw_gateway_address(gateway, listeners);
    return status;
}
