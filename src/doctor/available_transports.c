/* available_transports.c - see available_transports.h. */
#include "doctor/available_transports.h"

#include <stdio.h>

static int probe(const gw_transport_type *type, gw_transport_probe *list, int room) {
    gw_error error = {0};
    bool usable = !type->available || type->available(&error) == GW_OK;
    if (usable && type->probe) return type->probe(list, room);
    if (room < 1) return 0;
    list->usable = usable;
    snprintf(list->name, sizeof list->name, "%s", type->technique.name);
    snprintf(list->detail, sizeof list->detail, "%s",
             !usable             ? error.text
             : type->single_host ? "within a host"
                                 : "across and within hosts");
    return 1;
}

int gw_transport_probes_find(gw_transport_probe list[GW_TRANSPORT_PROBES_MAX]) {
    int count = 0;
    for (int libraries = 0; libraries < 2; libraries++) /* transports that need no library come first */
        for (const gw_transport_type *const *at = gw_transport_types; *at; at++)
            if (gw_transport_type_built_in(*at) == !libraries && !gw_transport_type_chooses(*at))
                count += probe(*at, &list[count], GW_TRANSPORT_PROBES_MAX - count);
    return count;
}
