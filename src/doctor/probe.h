/* probe.h - the doctor's probe on one host: listens, dials the other probes and measures. Commands come on one
 * descriptor and reports go to another. Both lead to the doctor through the remote shell, so they work even if the
 * network between the hosts does not.
 *
 *     command                                               report (exactly one for each command, unless noted)
 *                                                           gradwire-probe version=3 boot=...
 *     open rank= world= token= master= ports= interface=    opened address= interface= mtu= ports= | failed text=
 *     peer rank= address= ports= text=NAME                  (none)
 *     resolve                                               resolved peer= text=ADDRESSES, for each peer
 *     memory                                                memory rate=
 *     transports                                            transport more= usable= name= text=, for each;
 *                                                           more=0: the last
 *     reach                                                 reached peer= closed= text=WHY, for each peer
 *     measure peer= port= mtu=                              measured peer= ... | unmeasured peer= text= */
#ifndef GW_DOCTOR_PROBE_H
#define GW_DOCTOR_PROBE_H

#include "base/status.h"

#define GW_PROBE_HELLO "gradwire-probe"
#define GW_PROBE_VERSION 3
#define GW_PROBE_REACH_SECONDS 3 /* to connect and authenticate */
#define GW_PROBE_DIAL_SECONDS 3  /* the same for a measurement */

/* Runs until `in` ends. */
gw_status gw_probe_run(int in, int out, gw_error *error);

#endif
