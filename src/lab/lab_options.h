/* lab_options.h - the description of a lab, as on the command line. */
#ifndef GW_LAB_LAB_OPTIONS_H
#define GW_LAB_LAB_OPTIONS_H

#include "base/status.h"
#include "lab/impairment.h"

#define GW_LAB_HOSTS_MAX 64

typedef struct gw_lab_options {
    int hosts;
    double rate; /* bits per second of each host's link, in each direction */
    gw_impairment network;
} gw_lab_options;

/* "hosts=4,rate=1gbit,delay=50ms,jitter=5ms,loss=1%,reorder=1%,duplicate=0.1%,corrupt=0.1%,sums=right,seed=7"; any of
 * them may be left out (4 hosts, 1 Gbit/s, a network that does nothing wrong). */
gw_status gw_lab_parse(const char *text, gw_lab_options *options, gw_error *error);

#endif
