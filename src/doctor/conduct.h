/* conduct.h - an examination: probes are started on all hosts over the launcher's outposts, told what to do, and their
 * reports gathered. It never waits for one host longer than a step may take: what does not come in time is missing in
 * the report, and the host is lost if it says nothing any more. */
#ifndef GW_DOCTOR_CONDUCT_H
#define GW_DOCTOR_CONDUCT_H

#include "base/status.h"
#include "doctor/report.h"
#include "launch/hosts.h"
#include "launch/outpost.h"

typedef struct gw_conduct_options {
    const gw_hosts *hosts;      /* a probe each */
    bool repeated;              /* hosts of one machine, all called the same: they are numbered in the report */
    gw_outpost_options outpost; /* command is set by gw_conduct */
    const char *master;         /* the name or address of the first host, as the others would look for it */
    bool names;                 /* the hosts' names are theirs in the network, so all should resolve them alike */
    const char *interface;      /* a selection as in interface.h, NULL: none */
    int port_low, port_high;    /* where the ranks of a job would listen; 0, 0: anywhere */
    /* Now and then: what is being done, and which of how many steps. NULL: nobody wants to know. */
    void (*progress)(void *ctx, const char *what, int step, int steps);
    void *ctx;
} gw_conduct_options;

/* On success the report is the caller's: gw_doctor_report_free. A host that cannot be reached is a finding, no error.
 */
gw_status gw_conduct(const gw_conduct_options *options, gw_doctor_report *report, gw_error *error);

#endif
