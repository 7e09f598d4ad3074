/* doctor_driver.h - runs an examination: starts a probe on every host over the launcher's host connections, sends them
 * commands, and collects their reports. Each step has a time limit. A report that is late is missing in the result, and
 * a host that stops answering is lost. */
#ifndef GW_DOCTOR_DOCTOR_DRIVER_H
#define GW_DOCTOR_DOCTOR_DRIVER_H

#include "base/status.h"
#include "doctor/report.h"
#include "launch/host_connection.h"
#include "launch/hosts.h"

typedef struct gw_doctor_drive_options {
    const gw_hosts *hosts;                      /* one probe each */
    bool repeated;                              /* all hosts are one machine with one name: the report numbers them */
    gw_host_connection_options host_connection; /* command is set by gw_doctor_drive */
    const char *master;                         /* name or address of the first host, as the others would resolve it */
    bool names;              /* the hosts' names are network names: all hosts should resolve them alike */
    const char *interface;   /* a selection as in interface.h, NULL: none */
    int port_low, port_high; /* ports on which the ranks of a job would listen; 0, 0: any */
    /* Called now and then with the current activity and step. May be NULL. */
    void (*progress)(void *ctx, const char *what, int step, int steps);
    void *ctx;
} gw_doctor_drive_options;

/* On success the caller owns the report: gw_doctor_report_free. An unreachable host is a finding, not an error. */
gw_status gw_doctor_drive(const gw_doctor_drive_options *options, gw_doctor_report *report, gw_error *error);

#endif
