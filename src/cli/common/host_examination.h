/* host_examination.h - the doctor's measurements for a command: of named hosts, of a lab, or of processes on this
 * machine. */
#ifndef GW_CLI_COMMON_HOST_EXAMINATION_H
#define GW_CLI_COMMON_HOST_EXAMINATION_H

#include "cli/common/host_options.h"
#include "doctor/report.h"
#include "lab/namespace_hosts.h"

/* As given on the command line; NULL, 0: not given. */
typedef struct gw_host_request {
    int processes; /* on this machine, where no hosts are named; 0: 2 */
    const char *hosts, *hostfile, *lab_text, *rsh, *remote_path, *interface, *ports;
    gw_lab_options lab; /* filled by gw_host_request_check, as the ports */
    int port_low, port_high;
} gw_host_request;

/* Rows of an option table; r is a gw_host_request. */
#define GW_HOST_OPTIONS(r)                                                                                            \
    {.name = "hosts", .letter = 'H', .kind = GW_OPTION_STRING, .value = "A,B", .string = &(r).hosts,                  \
     .about = "hosts to measure; A:4 is one with four ranks"},                                                        \
        {.name = "hostfile", .kind = GW_OPTION_STRING, .value = "FILE", .string = &(r).hostfile,                      \
         .about = "file with one host per line"},                                                                     \
        GW_OPTION_LAB(&(r).lab_text), GW_OPTION_RSH(&(r).rsh), GW_OPTION_REMOTE_PATH(&(r).remote_path),               \
        {.name = "interface", .kind = GW_OPTION_STRING, .value = "LIST", .string = &(r).interface,                    \
         .about = "network interfaces to use, as in gradwire run"},                                                   \
        {.name = "ports", .kind = GW_OPTION_STRING, .value = "LOW-HIGH", .string = &(r).ports,                        \
         .about = "ports of the job, of which up to 16 are tried (default: any)"}

/* Whether hosts or a lab are given. */
bool gw_host_request_named(const gw_host_request *request);
/* Parses the texts, and takes what is not given from the environment. Fails with GW_INVALID. */
gw_status gw_host_request_check(gw_host_request *request, gw_error *error);
/* Shows progress after two seconds. slots: ranks of each host, as written, 0 if hosts differ; may be NULL. On success
 * the caller owns the report: gw_doctor_report_free. */
gw_status gw_examine_hosts(const gw_host_request *request, gw_doctor_report *report, int *slots, gw_error *error);

#endif
