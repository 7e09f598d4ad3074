/* technique.h - one technique of one axis of a strategy: a name and its parameters.
 *
 * The techniques of an axis are a NULL-terminated table of pointers, so that each can be part of a larger object (a
 * codec, a policy) in the module that implements it. The first entry of a table is the default. */
#ifndef GW_BASE_TECHNIQUE_H
#define GW_BASE_TECHNIQUE_H

#include "base/param.h"

#define GW_TECHNIQUES_MAX 31      /* in one table */
#define GW_TECHNIQUE_PARAMS_MAX 8 /* of one technique */

typedef struct gw_technique {
    const char *name;
    const char *about;           /* one line for `gradwire list` */
    const gw_param *params;      /* ended by a NULL name; NULL if there are none */
    const char *const *examples; /* parameters worth trying, also on a small model, such as "bits=4" ("": the presets).
                                    Benchmarks, simulations and tests use them. NULL at the end; NULL: the presets */
} gw_technique;

#define GW_TECHNIQUE_TEXT_BYTES 128 /* a name and an example */
/* Example `index` of a technique as it is written, such as "qsgd:bits=4". Returns text; NULL past the last. */
const char *gw_technique_example(const gw_technique *technique, int index, char text[GW_TECHNIQUE_TEXT_BYTES]);

/* A technique's default values in the order of its params, then 0. */
void gw_technique_default(const gw_technique *technique, double values[GW_TECHNIQUE_PARAMS_MAX]);
/* The index of a parameter; -1: there is none of that name. */
int gw_technique_param(const gw_technique *technique, const char *name);
/* Parses `ring` or `ring:chunk=1M,flag` and modifies text; omitted parameters get their defaults. axis is the table's
 * name in errors, such as "arch". On failure *technique is untouched, and values are undefined. */
gw_status gw_technique_parse(const gw_technique *const *table, const char *axis, char *text,
                             const gw_technique **technique, double values[GW_TECHNIQUE_PARAMS_MAX], gw_error *error);

#endif
