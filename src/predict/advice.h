/* advice.h - what to do next about a job that ran: findings, each a sentence with the figure behind it and, where a
 * strategy follows, the words to type. What a strategy would gain comes from forecast.h.
 *
 * A finding counts if it is worth 5 % of a step. The exact strategy (the same result) comes before the one with a codec
 * that hardly costs accuracy (accuracy=safe); other codecs are never advised. */
#ifndef GW_PREDICT_ADVICE_H
#define GW_PREDICT_ADVICE_H

#include "insight/analyses.h"
#include "predict/machine.h"
#include "profile/profile.h"
#include "strategy/strategy.h"

#define GW_ADVICE_LINES 3
#define GW_ADVICE_SECONDS 1.5 /* that predictions may take where somebody waits for them */
#define GW_ADVICE_TEXT_BYTES 512

/* kind, word */
#define GW_ADVICE_KINDS(X)                                                                                             \
    X(WIRE, "wire")           /* communication that nothing hides: another strategy helps, or none does */             \
    X(START_UPS, "start-ups") /* the same, where the latency of messages is most of it */                              \
    X(SLOW_RANK, "slow rank") /* computes longer than the others, who wait for it */                                   \
    X(LATE_RANK, "late rank") /* begins its exchanges late, without computing longer */                                \
    X(SLOW_LINK, "slow link")                                                                                          \
    X(UNEVEN, "uneven")   /* ranks wait for each other, now for one and now for another */                             \
    X(CORES, "cores")     /* more ranks than cores */                                                                  \
    X(NOTHING, "nothing") /* nothing to gain */

typedef enum gw_advice_kind {
#define GW_ADVICE_ENUM(name, word) GW_ADVICE_##name,
    GW_ADVICE_KINDS(GW_ADVICE_ENUM)
#undef GW_ADVICE_ENUM
        GW_ADVICE_KIND_COUNT
} gw_advice_kind;

typedef struct gw_advice_line {
    gw_advice_kind kind;
    double gain;                            /* times as fast a step is expected to become; 1: not known, or nothing */
    char strategy[GW_STRATEGY_PRINT_BYTES]; /* words to type; "": none */
    const char *accuracy;                   /* of that strategy: "exact" or "safe"; NULL: none */
    char text[GW_ADVICE_TEXT_BYTES];
} gw_advice_line;

typedef struct gw_advice {
    gw_advice_line list[GW_ADVICE_LINES]; /* most gain first */
    int count;
} gw_advice;

/* Means of a step, seconds. */
typedef struct gw_advice_rank {
    double compute, awaited; /* awaited: that the others waited for it, each */
} gw_advice_rank;

/* What a job measured. */
typedef struct gw_advice_facts {
    const gw_advice_rank *rank;
    int ranks, hosts;
    const char *optimizer;     /* as in accuracy_risk.h; NULL: not known */
    double step, exposed;      /* seconds; exposed: communication that nothing hid */
    double busy;               /* part of a step in which the wire carried messages, 0 to 1; negative: not known */
    double exchange;           /* seconds of an exchange without overlap; 0: not known */
    double messages, bytes;    /* sent by a rank in a step; 0: not known */
    int local_ranks, cores;    /* of a host; 0: not known */
    const gw_profile *profile; /* layers; NULL: not known */
    const char *strategy;      /* line of the job */
    bool chosen;        /* strategy=auto chose among all exact strategies by trials: no other exact one is advised */
    double seconds;     /* that predictions may take */
    gw_machine machine; /* links as far as they are known; only slow ones have figures below the median */
} gw_advice_facts;

const char *gw_advice_word(gw_advice_kind kind);

void gw_advice_make(const gw_advice_facts *facts, gw_advice *advice);
/* From a recording. No steps, or one rank: no advice. budget: seconds that predictions may take. */
gw_status gw_advice_of_capture(const gw_view *view, double budget, gw_advice *advice, gw_error *error);

#endif
