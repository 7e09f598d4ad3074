/* doctor_print.h - the report of gradwire doctor, as text and as JSON. */
#ifndef GW_CLI_DOCTOR_DOCTOR_PRINT_H
#define GW_CLI_DOCTOR_DOCTOR_PRINT_H

#include <stdio.h>

#include "doctor/judge.h"

/* A table of hosts, the matrices of bandwidth and latency, and the verdict. */
void gw_doctor_print(const gw_doctor_report *report, const gw_findings *findings, FILE *out);
/* One JSON object per line: the hosts, the links, the findings. */
void gw_doctor_print_json(const gw_doctor_report *report, const gw_findings *findings, FILE *out);

#endif
