/* strategy.h - the five-axis line: parse, check, print.
 *
 *     arch=ring:chunk=256K sync=bsp compress=none schedule=wfbp transport=tcp:streams=4,congestion=bbr
 *
 * Words are separated by blanks or line ends, in any order; an axis that is not named takes its default; a word that
 * begins with # makes the rest of its line a comment. Two words stand beside the axes: strategy=auto|fixed, of which
 * the value alone is enough, says whether axes that are not named may be chosen while training runs (decide/decide.h),
 * and accuracy=exact|safe what such a choice may do to the sums. The same text is used on the command line, in the
 * environment, in files and in every API. The output of gw_strategy_print parses to the same strategy.
 *
 * A technique is one entry of one table. The tables of plans, codecs, schedules and synchronizations are in the folders
 * that implement them; axis_registry.c puts them together. */
#ifndef GW_STRATEGY_H
#define GW_STRATEGY_H

#include "base/status.h"
#include "base/technique.h"

typedef enum gw_axis {
    GW_AXIS_ARCH,
    GW_AXIS_SYNC,
    GW_AXIS_COMPRESS,
    GW_AXIS_SCHEDULE,
    GW_AXIS_TRANSPORT,
    GW_AXES /* the number of axes */
} gw_axis;

const char *gw_axis_name(gw_axis axis);
const char *gw_axis_about(gw_axis axis);
bool gw_axis_parse(const char *name, gw_axis *axis);
/* All axes by name, NULL at the end. */
extern const char *const gw_axis_names[GW_AXES + 1];
/* The techniques of an axis, NULL at the end; the first is the default. */
const gw_technique *const *gw_techniques(gw_axis axis);

#define GW_STRATEGY_INPUT_MAX 16384  /* bytes of a line or file */
#define GW_STRATEGY_PRINT_BYTES 1024 /* room for any printed strategy */

/* The setting of one axis. */
typedef struct gw_setting {
    const gw_technique *technique;          /* of the registry, static */
    double values[GW_TECHNIQUE_PARAMS_MAX]; /* in the order of technique->params, 0 past them */
} gw_setting;

/* What may be chosen for an axis that is not named. */
typedef enum gw_accuracy {
    GW_ACCURACY_EXACT, /* only what sums exactly */
    GW_ACCURACY_SAFE,  /* also codecs that measurements have shown to cost no accuracy (compress/accuracy_table.h) */
} gw_accuracy;

/* A plain value: it can be copied and needs no clean-up. One of the next functions fills it in. */
typedef struct gw_strategy {
    gw_setting axes[GW_AXES];
    unsigned named; /* a bit for each axis that a text has named: nothing else is chosen for it */
    bool fixed;     /* nothing is chosen for any axis */
    gw_accuracy accuracy;
} gw_strategy;

void gw_strategy_default(gw_strategy *strategy);
/* Starts with the default strategy and sets the axes that text names. On failure *strategy is untouched. */
gw_status gw_strategy_parse(const char *text, gw_strategy *strategy, gw_error *error);
/* Applies text to a strategy: it replaces the axes that it names, parameters included; the others stay. source is the
 * origin that an error names (a variable, a file), or NULL. On failure *strategy is untouched. */
gw_status gw_strategy_overlay(gw_strategy *strategy, const char *text, const char *source, gw_error *error);
/* The strategy that the user asked for. Each source overrides those before it, axis by axis: the default, the file that
 * GRADWIRE_STRATEGY_FILE names, GRADWIRE_STRATEGY, line (a flag or gw_options.strategy; NULL: not given). On failure
 * *strategy is untouched. */
gw_status gw_strategy_resolve(const char *line, gw_strategy *strategy, gw_error *error);

/* The facts about a job that decide which strategies are possible. */
typedef struct gw_strategy_facts {
    int hosts;
    bool simulated;
} gw_strategy_facts;

/* GW_UNSUPPORTED with the reason where this strategy cannot work in such a job. sync, compress and schedule concern
 * only training steps and are checked there; plain collectives ignore them. */
gw_status gw_strategy_check(const gw_strategy *strategy, const gw_strategy_facts *facts, gw_error *error);

/* Writes all five axes and the parameters that differ from their defaults, and an accuracy other than exact, as
 * snprintf does: returns the full length, and cuts off text that does not fit. */
int gw_strategy_print(const gw_strategy *strategy, char *text, size_t size);
/* The same for one axis. */
int gw_strategy_print_axis(const gw_strategy *strategy, gw_axis axis, char *text, size_t size);
/* The same techniques, parameters and accuracy; which of them were named does not count. */
bool gw_strategy_equal(const gw_strategy *a, const gw_strategy *b);
/* Whether something else may be chosen for the axis. */
bool gw_strategy_is_open(const gw_strategy *strategy, gw_axis axis);

const char *gw_strategy_name(const gw_strategy *strategy, gw_axis axis);
/* Whether the axis is set to the technique of this name. */
bool gw_strategy_is(const gw_strategy *strategy, gw_axis axis, const char *technique);
/* The value of a parameter of the technique that an axis is set to. Asserts that the technique has this parameter, and
 * that it is of this kind. Integers and bytes: 0 is auto where auto is allowed. */
int64_t gw_strategy_integer(const gw_strategy *strategy, gw_axis axis, const char *param);
double gw_strategy_number(const gw_strategy *strategy, gw_axis axis, const char *param);
bool gw_strategy_flag(const gw_strategy *strategy, gw_axis axis, const char *param);
const char *gw_strategy_choice(const gw_strategy *strategy, gw_axis axis, const char *param);

/* The transport's entry in the table (transport/transport_registry.h). */
const struct gw_transport_type *gw_strategy_transport(const gw_strategy *strategy);
/* Ranks of one host exchange through shared memory, by host-local collectives where they can. */
bool gw_strategy_shares_memory(const gw_strategy *strategy);

#endif
