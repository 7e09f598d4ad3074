/* watch.h - notices that steps have changed: the network, the number of ranks that share it, or the model's speed. A
 * pure state machine over figures that are the same on all ranks, so all notice it after the same step. */
#ifndef GW_DECIDE_WATCH_H
#define GW_DECIDE_WATCH_H

#include <stdbool.h>

/* Figures of the middle half of a window's steps, means over the ranks; seconds. */
typedef struct gw_watch_window {
    double step;
    double wait;  /* in calls, of a step */
    double exact; /* share of what the codec should code that is sent exact */
} gw_watch_window;

typedef enum gw_watch_verdict {
    GW_WATCH_STEADY,
    GW_WATCH_NETWORK, /* waits have changed */
    GW_WATCH_COMPUTE, /* steps have changed by more than waits, and waits matter */
    GW_WATCH_CODEC,   /* more is sent exact, which costs much: this codec does not suit the gradients */
} gw_watch_verdict;

typedef struct gw_watch {
    gw_watch_window usual; /* step 0: not known yet */
    double exact;          /* of the last window */
    int unlike;            /* windows until steps with that share are judged; 0: `usual` has it */
    int suspicions;        /* windows in a row that were a little off */
    int rest;              /* windows to let pass before the next verdict */
    int fruitless;         /* verdicts in a row that changed nothing */
} gw_watch;

void gw_watch_begin(gw_watch *watch, bool fruitless); /* after a decision; fruitless: it has changed nothing */
gw_watch_verdict gw_watch_look(gw_watch *watch, gw_watch_window window);
/* Steps of the next window, from the length of a step: about 50 ms; 3 steps at least, 1 where what is coded has just
 * changed. */
int gw_watch_steps(const gw_watch *watch, double step_seconds);

#endif
