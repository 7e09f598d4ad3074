/* security.h - the rule that says how a connection is protected, by what the strategy line asks for
 * (transport=tcp:security=...) and where its ends are. */
#ifndef GW_BOOTSTRAP_SECURITY_H
#define GW_BOOTSTRAP_SECURITY_H

#include "bootstrap/seal.h"

/* What the line asks for; the same on all ranks of a job. */
typedef enum gw_security_choice {
    GW_SECURITY_CHOICE_AUTO,
    GW_SECURITY_CHOICE_CLEAR,
    GW_SECURITY_CHOICE_MAC,
    GW_SECURITY_CHOICE_TLS,
    GW_SECURITY_CHOICES
} gw_security_choice;

/* In the order of gw_security_choice, NULL at the end; and in that of gw_security. */
extern const char *const gw_security_choice_names[];
extern const char *const gw_security_names[];

/* Of the rendezvous and the control connections, which carry little: mac unless another is asked for. */
gw_security gw_security_of_control(gw_security_choice asked);
/* Of connections that carry data. near: both ends are on one host, or on loopback addresses. */
gw_security gw_security_of_data(gw_security_choice asked, bool near);

#endif
