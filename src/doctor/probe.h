/* probe.h - the doctor's hand on one host: listens, dials the other probes and measures what it is told to. Orders come
 * on one descriptor and reports go to another, which lead to the doctor through the remote shell, so that they arrive
 * whatever is wrong between the hosts.
 *
 *     order                                                 report (exactly one for each order that has one)
 *                                                           gradwire-probe version=2 boot=...
 *     open rank= world= token= master= ports= interface=    opened address= interface= mtu= ports= | failed text=
 *     peer rank= address= ports= text=NAME                  (none)
 *     resolve                                               resolved peer= text=ADDRESSES, for each peer
 *     memory                                                memory rate=
 *     carriers                                              carrier more= usable= name= text=, for each; more=0: the
 * last     reach                                                 reached peer= closed= text=WHY, for each peer
 *     measure peer= port= mtu=                              measured peer= ... | unmeasured peer= text= */
#ifndef GW_DOCTOR_PROBE_H
#define GW_DOCTOR_PROBE_H

#include "base/status.h"

#define GW_PROBE_HELLO "gradwire-probe"
#define GW_PROBE_VERSION 2
#define GW_PROBE_REACH_SECONDS 3 /* to connect and be recognised */
#define GW_PROBE_DIAL_SECONDS 3  /* the same for a measurement */

/* Until `in` ends. */
gw_status gw_probe_run(int in, int out, gw_error *error);

#endif
