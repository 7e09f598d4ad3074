/* quorum.c - see quorum.h. Cost: O(world) for each generation. */
#include "control/quorum.h"

static bool beats_rivals(const gw_voter *voters, int world, uint32_t generation, const gw_members *side) {
    int here = 0, rivals = 0, lowest_here = world, lowest_rival = world;
    for (int r = world - 1; r >= 0; r--) {
        const gw_voter *voter = &voters[r];
        if (voter->gone) continue;
        if (gw_members_has(side, r)) {
            here++;
            lowest_here = r;
        } else if (voter->seen <= generation && generation <= voter->last) {
            rivals++;
            lowest_rival = r;
        }
    }
    return here > rivals || (here == rivals && lowest_here < lowest_rival);
}

bool gw_quorum(const gw_voter *voters, int world, uint32_t generation, const gw_members *side) {
    for (uint32_t j = 0; j <= generation; j++)
        if (!beats_rivals(voters, world, j, side)) return false;
    return true;
}
