/* param.h - one parameter of a technique: its allowed values, parsing and printing.
 *
 * A value of any kind is held in a double: integers and bytes are exact (no range exceeds 2^53), a choice is its index,
 * a flag is 0 or 1. */
#ifndef GW_BASE_PARAM_H
#define GW_BASE_PARAM_H

#include "base/status.h"

typedef enum gw_param_kind {
    GW_PARAM_INTEGER,
    GW_PARAM_BYTES,  /* 4096, 64K, 1M */
    GW_PARAM_NUMBER, /* 0.001 */
    GW_PARAM_CHOICE, /* one of a few words */
    GW_PARAM_FLAG    /* present or not, without a value; never present by default */
} gw_param_kind;

typedef struct gw_param {
    const char *name; /* NULL ends a table */
    const char *about;
    gw_param_kind kind;
    bool automatic;             /* "auto" is allowed too and means auto_value, which the range excludes */
    double auto_value;          /* 0 where the range has no 0 */
    double preset;              /* the default */
    double lowest, highest;     /* integer, bytes, number; both included */
    const char *const *choices; /* choice only; NULL at the end */
} gw_param;

/* Literals: a table of parameters, and a list of choices. */
#define GW_PARAMS(...) ((const gw_param[]){__VA_ARGS__, {.name = NULL}})
#define GW_CHOICES(...) ((const char *const[]){__VA_ARGS__, NULL})

#define GW_PARAM_TEXT_BYTES 32     /* room for any printed value */
#define GW_PARAM_ALLOWED_BYTES 160 /* room for any text of gw_param_allowed */

const char *gw_param_kind_name(gw_param_kind kind);

/* Parses a value. text NULL: the name stood alone. owner is the prefix of errors, such as "arch=ring". */
gw_status gw_param_parse(const gw_param *param, const char *owner, const char *text, double *value, gw_error *error);
/* Prints a value so that gw_param_parse reads the same one. A flag has no value: it prints "yes" or "no", for people.
 * Returns text. */
const char *gw_param_print(const gw_param *param, double value, char text[GW_PARAM_TEXT_BYTES]);
/* The allowed values, such as "64 to 1G, or auto". Returns text. */
const char *gw_param_allowed(const gw_param *param, char text[GW_PARAM_ALLOWED_BYTES]);

#endif
