/* sync_registry.c - the synchronizations as techniques of their axis. */
#include "sync/sync.h"

#define TECHNIQUE(name) &gw_sync_##name.technique,
const gw_technique *const gw_sync_techniques[] = {GW_SYNCS(TECHNIQUE) NULL};

const gw_sync *gw_sync_of(const gw_technique *technique) { return (const gw_sync *)(const void *)technique; }
