/* security.c - see security.h. */
#include "bootstrap/security.h"

const char *const gw_security_choice_names[] = {"auto", "clear", "mac", "tls", NULL};
const char *const gw_security_names[] = {"clear", "mac", "tls"};

gw_security gw_security_of_control(gw_security_choice asked) { return gw_security_of_data(asked, false); }

gw_security gw_security_of_data(gw_security_choice asked, bool near) {
    switch (asked) {
    case GW_SECURITY_CHOICE_CLEAR: return GW_SECURITY_CLEAR;
    case GW_SECURITY_CHOICE_MAC: return GW_SECURITY_MAC;
    case GW_SECURITY_CHOICE_TLS: return GW_SECURITY_TLS;
    case GW_SECURITY_CHOICE_AUTO:
    case GW_SECURITY_CHOICES: break;
    }
    return near ? GW_SECURITY_CLEAR : GW_SECURITY_MAC;
}
