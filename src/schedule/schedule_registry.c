/* schedule_registry.c - the schedules as techniques of their axis. */
#include "schedule/schedule.h"

#define TECHNIQUE(name) &gw_policy_##name.technique,
const gw_technique *const gw_schedule_techniques[] = {GW_SCHEDULES(TECHNIQUE) NULL};

const gw_policy *gw_policy_of(const gw_technique *technique) { return (const gw_policy *)(const void *)technique; }
