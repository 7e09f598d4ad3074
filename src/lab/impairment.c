/* impairment.c - see impairment.h. */
#include "lab/impairment.h"

#include "base/rng.h"

enum { FATE, LATENESS, JITTER }; /* independent decisions */

static void draw(const gw_impairment *impairment, int from, int to, int purpose, uint64_t number, uint32_t words[4]) {
    uint64_t way = (uint64_t)from << 32 | (uint64_t)to << 16 | (uint64_t)purpose;
    gw_philox(impairment->seed, number, way, words);
}

static double unit(uint32_t word) { return (double)word * 0x1p-32; } /* [0, 1) */

bool gw_impairment_any(const gw_impairment *impairment) {
    return impairment->delay || impairment->jitter || impairment->loss > 0 || impairment->reorder > 0 ||
           impairment->duplicate > 0 || impairment->corrupt > 0;
}

gw_fate gw_impairment_fate(const gw_impairment *impairment, int from, int to, uint64_t number) {
    uint32_t words[4];
    draw(impairment, from, to, FATE, number, words);
    gw_fate fate = {.lost = unit(words[0]) < impairment->loss, .duplicate = unit(words[1]) < impairment->duplicate,
                    .corrupt = unit(words[2]) < impairment->corrupt};
    bool late = unit(words[3]) < impairment->reorder;
    if (!late && !fate.corrupt) return fate;
    draw(impairment, from, to, LATENESS, number, words);
    fate.bit = words[0];
    if (late) fate.late = GW_LATE_MIN + (gw_time)(unit(words[1]) * (double)(GW_LATE_MAX - GW_LATE_MIN));
    return fate;
}

static double knot(const gw_impairment *impairment, int from, int to, uint64_t number) {
    uint32_t words[4];
    draw(impairment, from, to, JITTER, number, words);
    return 2 * unit(words[0]) - 1;
}

/* Straight lines between random knots that are four jitters apart. A line falls by at most two jitters in that time, so
 * the time of arrival always grows with the time of departure. */
gw_time gw_impairment_delay(const gw_impairment *impairment, int from, int to, gw_time now) {
    if (!impairment->jitter) return impairment->delay;
    uint64_t period = 4 * impairment->jitter, number = now / period;
    double share = (double)(now % period) / (double)period;
    double wander = (1 - share) * knot(impairment, from, to, number) + share * knot(impairment, from, to, number + 1);
    return (gw_time)((double)impairment->delay + wander * (double)impairment->jitter);
}
