/* watch.c - see watch.h. Thresholds: one window that is 1.4 times as long or short, or two in a row beyond 1.2. Where
 * deciding anew changed nothing, the machine is noisy: each such time the rest doubles in which only two
 * windows in a row beyond 1.4 count. Where the codec codes more or less than before, steps change for that reason: what
 * costs three times as much is seen at once, because such steps are long; else a whole window of them says whether it
 * costs much, and is what is usual from then on. */
#include "decide/watch.h"

#include <math.h>
#include <string.h>

#define CLEAR 1.4
#define SUSPECT 1.2
#define UNLIKE_WINDOWS                                                                                                 \
    2                     /* after a change of what is coded: a short one, which shows what is gross, and a whole one  \
                           */
#define GROSS 3           /* a disturbance of single steps rarely makes a window so many times as long */
#define WAIT_MATTERS 0.05 /* of a step: less cannot be gained */
#define WINDOW_SECONDS 0.05
#define REST 2            /* windows after a fruitless decision */
#define FRUITLESS_MOST 10 /* doublings of the rest */

void gw_watch_begin(gw_watch *w, bool fruitless) {
    int times = fruitless ? w->fruitless + 1 : 0;
    if (times > FRUITLESS_MOST) times = FRUITLESS_MOST;
    *w = (gw_watch){.fruitless = times, .rest = times ? REST << (times - 1) : 0};
}

static double factor(double a, double b) { return a > b ? a / b : b / a; }

/* The first whole window since the share that is sent exact changed. */
static gw_watch_verdict look_at_exact(gw_watch *w, gw_watch_window now) {
    bool more = now.exact > w->usual.exact, costs = more && now.step > CLEAR * w->usual.step;
    bool other = factor(now.step, w->usual.step) > CLEAR && w->rest == 0; /* perhaps the network has changed as well */
    w->usual = now;
    w->suspicions = 0;
    return costs ? GW_WATCH_CODEC : other ? GW_WATCH_NETWORK : GW_WATCH_STEADY;
}

static bool is_gross(const gw_watch *w, gw_watch_window now) {
    return now.exact > w->usual.exact && now.step > GROSS * w->usual.step;
}

gw_watch_verdict gw_watch_look(gw_watch *w, gw_watch_window now) {
    if (w->usual.step <= 0) {
        w->usual = now;
        w->exact = now.exact;
        return GW_WATCH_STEADY;
    }
    if (is_gross(w, now)) {
        w->unlike = 0;
        w->exact = now.exact;
        return look_at_exact(w, now);
    }
    if (now.exact != w->exact) {
        w->exact = now.exact;
        w->unlike = UNLIKE_WINDOWS;
        return GW_WATCH_STEADY;
    }
    bool rests = w->rest > 0;
    w->rest -= rests;
    if (w->unlike) return --w->unlike ? GW_WATCH_STEADY : look_at_exact(w, now);
    double off = factor(now.step, w->usual.step);
    w->suspicions = off > (rests ? CLEAR : SUSPECT) ? w->suspicions + 1 : 0;
    bool matters = now.wait > WAIT_MATTERS * now.step || w->usual.wait > WAIT_MATTERS * w->usual.step;
    if (!matters || (w->suspicions < 2 && (rests || off < CLEAR))) return GW_WATCH_STEADY;
    double compute = fmax(now.step - now.wait, 1e-9), before = fmax(w->usual.step - w->usual.wait, 1e-9);
    return factor(compute, before) > SUSPECT ? GW_WATCH_COMPUTE : GW_WATCH_NETWORK;
}

int gw_watch_steps(const gw_watch *w, double step_seconds) {
    double steps = ceil(WINDOW_SECONDS / fmax(step_seconds, 1e-6));
    int least = w->unlike == UNLIKE_WINDOWS ? 1 : 3;
    return steps < least ? least : steps > 64 ? 64 : (int)steps;
}
