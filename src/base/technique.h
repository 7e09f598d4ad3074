/* technique.h - an answer to the question of one axis of a strategy: a name and its parameters.
 *
 * The techniques of an axis are a table of pointers that ends with NULL, so that each may be part of something larger
 * (a codec, a policy) that lives in the room that carries it out. The first of a table is the default. */
#ifndef GW_BASE_TECHNIQUE_H
#define GW_BASE_TECHNIQUE_H

#include "base/param.h"

#define GW_TECHNIQUES_MAX 31      /* in one table */
#define GW_TECHNIQUE_PARAMS_MAX 8 /* of one technique */

typedef struct gw_technique {
    const char *name;
    const char *about;      /* one line for `gradwire list` */
    const gw_param *params; /* ended by a NULL name; NULL where there are none */
} gw_technique;

/* A technique's preset values in the order of its params, 0 past them. */
void gw_technique_default(const gw_technique *technique, double values[GW_TECHNIQUE_PARAMS_MAX]);
/* The index of a parameter, -1 where there is none of that name. */
int gw_technique_param(const gw_technique *technique, const char *name);
/* Reads `ring` or `ring:chunk=1M,flag`, taking text apart; parameters that are not named take their presets. axis is
 * what errors call the table, such as "arch". On failure *technique is untouched, and values are undefined. */
gw_status gw_technique_parse(const gw_technique *const *table, const char *axis, char *text,
                             const gw_technique **technique, double values[GW_TECHNIQUE_PARAMS_MAX], gw_error *error);

#endif
