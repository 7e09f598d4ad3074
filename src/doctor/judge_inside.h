/* judge_inside.h - what the files of the rules share. */
#ifndef GW_DOCTOR_JUDGE_INSIDE_H
#define GW_DOCTOR_JUDGE_INSIDE_H

#include "doctor/judge.h"

void gw_find(gw_findings *findings, gw_finding_kind kind, int host, int peer, const char *format, ...)
    __attribute__((format(printf, 5, 6)));

static inline bool gw_alive(const gw_doctor_report *r, int host) { return !r->hosts[host].lost; }
int gw_alive_count(const gw_doctor_report *r);
/* The link carries packets smaller than both its ends are set to. */
bool gw_link_holed(const gw_doctor_report *r, int from, int to);
/* The link was measured, and what limits it is neither the size of packets nor, within one host, its processors. */
bool gw_link_fair(const gw_doctor_report *r, int from, int to);

void gw_judge_ports(const gw_doctor_report *r, gw_findings *findings);
void gw_judge_broken(const gw_doctor_report *r, gw_findings *findings);
void gw_judge_mtu(const gw_doctor_report *r, gw_findings *findings);
void gw_judge_addresses(const gw_doctor_report *r, gw_findings *findings);
void gw_judge_bandwidth(const gw_doctor_report *r, gw_findings *findings);
void gw_judge_latency(const gw_doctor_report *r, gw_findings *findings);
void gw_judge_clocks(const gw_doctor_report *r, gw_findings *findings);
void gw_judge_memory(const gw_doctor_report *r, gw_findings *findings);

#endif
