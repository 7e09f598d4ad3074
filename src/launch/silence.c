/* silence.c - see silence.h. */
#include "launch/silence.h"

enum { LOOKS = 16, COUNTED = 4 }; /* checks per limit; maximum of periods that count for a gap between two checks */

gw_time gw_silence_limit(gw_time deadline) {
    gw_time limit = deadline / 8 * 7;
    return limit > GW_SECOND ? limit : GW_SECOND;
}

gw_time gw_silence_period(gw_time limit) {
    gw_time period = limit / LOOKS;
    return period < GW_SECOND ? period : GW_SECOND;
}

void gw_silence_heard(gw_silence *silence, gw_time now) { *silence = (gw_silence){.looked = now}; }

gw_time gw_silence_look(gw_silence *silence, gw_time now, gw_time limit) {
    gw_time gap = now - silence->looked, most = COUNTED * gw_silence_period(limit);
    silence->lasted += gap < most ? gap : most;
    silence->looked = now;
    return silence->lasted;
}
