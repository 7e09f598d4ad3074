/* transport_registry.c - see transport_registry.h. */
#include "transport/transport_registry.h"

#include <stdlib.h>
#include <string.h>

#define TYPE(name) &gw_transport_##name,
const gw_transport_type *const gw_transport_types[] = {GW_TRANSPORTS(TYPE) NULL};

#define TECHNIQUE(name) &gw_transport_##name.technique,
const gw_technique *const gw_transport_techniques[] = {GW_TRANSPORTS(TECHNIQUE) TECHNIQUE(sim) NULL};

const gw_transport_type *gw_transport_type_of(const gw_technique *technique) {
    return (const gw_transport_type *)(const void *)technique;
}

bool *gw_transport_summed(const gw_transport_options *o, double checksum) {
    enum { AUTO, OFF, ON }; /* of GW_CHECKSUM_PARAM */
    bool *summed = calloc((size_t)o->world, sizeof *summed);
    for (int r = 0; summed && r < o->world; r++)
        summed[r] = checksum == ON || (checksum == AUTO && o->host_of && o->host_of[r] != o->host_of[o->rank]);
    return summed;
}

gw_security_choice gw_transport_security(const gw_transport_type *type, const double *values) {
    int param = gw_technique_param(&type->technique, "security");
    return param < 0 ? GW_SECURITY_CHOICE_AUTO : (gw_security_choice)values[param];
}

const gw_transport_type *gw_transport_type_find(const char *name) {
    size_t length = strcspn(name, ":");
    for (int i = 0; gw_transport_types[i]; i++) {
        const char *own = gw_transport_types[i]->technique.name;
        if (strlen(own) == length && memcmp(own, name, length) == 0) return gw_transport_types[i];
    }
    return NULL;
}
