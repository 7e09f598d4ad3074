/* peer_map_reach.c - whether all ranks reach each other's pages; see peer_map.h. */
#include "shm/peer_map.h"

#include <stdio.h>
#include <string.h>

void gw_peer_map_say(gw_peer_map *peer_map, const char *why) {
    gw_peer_map_page *page = peer_map->page;
    snprintf(page->why, sizeof page->why, "%s", why ? why : "");
    atomic_store(&page->reach, why ? GW_REACH_NOT_ALL : GW_REACH_ALL);
}

gw_peer_map_reach gw_peer_map_said(gw_peer_map *peer_map, int peer, char why[GW_REACH_WHY]) {
    gw_peer_map_page *page = peer_map->peers[peer].page;
    uint32_t reach = atomic_load(&page->reach);
    if (reach == GW_REACH_UNKNOWN || reach == GW_REACH_ALL) return (gw_peer_map_reach)reach;
    memcpy(why, page->why, GW_REACH_WHY);
    why[GW_REACH_WHY - 1] = 0;
    for (char *c = why; *c; c++)
        if (*c < ' ' || *c > '~') *c = '?'; /* others may write anything into a page */
    return GW_REACH_NOT_ALL;
}
