/* judge_internal.h - shared by the files of rules. */
#ifndef GW_DOCTOR_JUDGE_INTERNAL_H
#define GW_DOCTOR_JUDGE_INTERNAL_H

#include "doctor/judge.h"

void gw_find(gw_findings *findings, gw_finding_kind kind, int host, int peer, const char *format, ...)
    __attribute__((format(printf, 5, 6)));

static inline bool gw_alive(const gw_doctor_report *r, int host) { return !r->hosts[host].lost; }
int gw_alive_count(const gw_doctor_report *r);
/* The path MTU is smaller than the MTU of both ends: larger packets vanish. */
bool gw_link_holed(const gw_doctor_report *r, int from, int to);
/* The link was measured, loses no large packets, and connects two different addresses, so that neither packet size nor
 * the processors of one host limit it. */
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
