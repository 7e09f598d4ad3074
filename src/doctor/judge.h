/* judge.h - finds faults in a report: pure rules; each finding is one sentence that names the host. */
#ifndef GW_DOCTOR_JUDGE_H
#define GW_DOCTOR_JUDGE_H

#include "doctor/report.h"

#define GW_FINDINGS_MAX 64
#define GW_FINDING_BYTES 640

typedef enum gw_finding_kind {
    GW_FINDING_HOST,  /* could not be examined */
    GW_FINDING_PORT,  /* not reached */
    GW_FINDING_MTU,   /* differs from the others', or large packets vanish */
    GW_FINDING_STALL, /* connections open but transfer nothing, or break */
    GW_FINDING_SLOW,  /* bandwidth */
    GW_FINDING_LATENCY,
    GW_FINDING_CLOCK,
    GW_FINDING_ADDRESS, /* two hosts disagree about an address */
    GW_FINDING_MEMORY,
    GW_FINDING_KINDS
} gw_finding_kind;

typedef struct gw_finding {
    gw_finding_kind kind;
    int host; /* the faulty host, or the receiver of a faulty pair */
    int peer; /* the sender of that pair; -1: the host alone */
    char text[GW_FINDING_BYTES];
} gw_finding;

typedef struct gw_findings {
    gw_finding list[GW_FINDINGS_MAX];
    int count;
    int left_out; /* beyond GW_FINDINGS_MAX */
} gw_findings;

void gw_doctor_judge(const gw_doctor_report *report, gw_findings *findings);
/* Whether the bandwidth between two hosts, in either direction, should be measured again. */
bool gw_doctor_link_suspect(const gw_doctor_report *report, int a, int b);
/* The same for the memory of a host. */
bool gw_doctor_memory_suspect(const gw_doctor_report *report, int host);
const char *gw_finding_name(gw_finding_kind kind); /* "port", "mtu", ... */

/* "94 Mbit/s", "1.2 Gbit/s". Returns text. */
#define GW_RATE_TEXT 32
const char *gw_doctor_rate(double bytes_per_second, char text[GW_RATE_TEXT]);

#endif
