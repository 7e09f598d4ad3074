/* registry.c - every schedule policy there is; the default first. */
#include "schedule/schedule.h"

const gw_technique *const gw_schedule_techniques[] = {
    &gw_policy_wfbp.technique,   &gw_policy_fifo.technique,          &gw_policy_mgwfbp.technique,
    &gw_policy_p3.technique,     &gw_policy_bytescheduler.technique, &gw_policy_tictac.technique,
    &gw_policy_dear.technique,   NULL,
};

const gw_policy *gw_policy_of(const gw_technique *technique) { return (const gw_policy *)(const void *)technique; }
