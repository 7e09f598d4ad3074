/* registry.c - every synchrony there is; the default first. */
#include "sync/sync.h"

const gw_technique *const gw_sync_techniques[] = {
    &gw_sync_bsp.technique,
    &gw_sync_asp.technique,
    &gw_sync_ssp.technique,
    &gw_sync_backup.technique,
    &gw_sync_delayed.technique,
    &gw_sync_periodic.technique,
    NULL,
};

const gw_sync *gw_sync_of(const gw_technique *technique) { return (const gw_sync *)(const void *)technique; }
