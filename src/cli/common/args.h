/* args.h - the options of a command: one table serves both the parser and the help.
 *
 *     int64_t ranks = 4;
 *     const gw_option options[] = {
 *         {.name = "ranks", .letter = 'n', .kind = GW_OPTION_INTEGER, .integer = &ranks, .lowest = 1, .highest = 1024,
 *          .about = "how many ranks"},
 *         {.name = NULL},
 *     };
 *     int code = gw_args_parse(&gw_command_bench, options, &argc, argv);
 *     if (code >= 0) return code;
 *
 * Syntax: --name value, --name=value, -n value, -nvalue; no word after -- is an option. Options and operands may be
 * mixed (but see wraps_program). If an option occurs twice, the last one counts. Every command has --help. */
#ifndef GW_CLI_COMMON_ARGS_H
#define GW_CLI_COMMON_ARGS_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "cli/cli.h"

typedef enum gw_option_kind {
    GW_OPTION_FLAG,
    GW_OPTION_STRING,
    GW_OPTION_INTEGER,
    GW_OPTION_BYTES,
    GW_OPTION_DURATION,
    GW_OPTION_CHOICE, /* one of .choices */
    GW_OPTION_RENAMED /* a former name: refused with the present one, .value, and absent from the help */
} gw_option_kind;

typedef struct gw_option {
    const char *name; /* without the dashes; NULL ends a table */
    char letter;      /* the short form, 0: none */
    gw_option_kind kind;
    const char *value; /* name of the value in the help; NULL: a word for the kind */
    const char *about; /* one line, with the default if there is one */
    union {            /* receives the value; unchanged if the option is not given */
        bool *flag;
        const char **string; /* string, choice: points into argv */
        int64_t *integer;
        uint64_t *bytes;
        double *seconds;
    };
    int64_t lowest, highest;    /* integer */
    const char *const *choices; /* choice; NULL at the end */
} gw_option;

#define GW_OPTIONS_MAX 47 /* per command */

/* Removes the options from argv: argv[1 .. *argc) are then the operands. Returns -1 to continue; otherwise it has
 * printed the help or an error, and the result is the exit code. */
int gw_args_parse(const gw_command *command, const gw_option *options, int *argc, char **argv);

#endif
