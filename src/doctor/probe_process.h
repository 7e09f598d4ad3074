/* probe_process.h - the doctor's side of the probes: one host connection each, with commands out and reports in. */
#ifndef GW_DOCTOR_PROBE_PROCESS_H
#define GW_DOCTOR_PROBE_PROCESS_H

#include "doctor/report.h"
#include "doctor/report_line.h"
#include "launch/host_connection.h"

typedef struct gw_probe_process {
    gw_host_connection connection;
    bool greeted;                         /* its first line has come */
    bool over;                            /* nothing more comes from it */
    int awaited;                          /* reports still to come */
    char said[GW_DOCTOR_WHY_BYTES];       /* the last line that was no report, such as an error of the remote shell */
    char complaint[GW_DOCTOR_LINE_BYTES]; /* an unfinished line of its standard error */
    size_t complaint_bytes;
} gw_probe_process;

typedef struct gw_probe_processes {
    int count;
    gw_probe_process *list; /* owned */
    void *ctx;
    /* Called for each line of a probe, its greeting included. */
    void (*received)(void *ctx, int host, const char *line);
} gw_probe_processes;

void gw_probe_command(gw_probe_process *probe, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* Waits until all awaited reports have come, or for `budget`. Calls `idle` a few times a second. True: all came. */
bool gw_probe_processes_wait(gw_probe_processes *probes, gw_time budget, void (*idle)(void *ctx));
/* Ends all probes, and kills those that do not end. */
void gw_probe_processes_close(gw_probe_processes *probes);

#endif
