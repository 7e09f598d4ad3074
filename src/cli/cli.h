/* cli.h - what a command of the program is. One file a command; main.c has the table. */
#ifndef GW_CLI_H
#define GW_CLI_H

#include <stdbool.h>

/* Exit codes: 0 done, 1 it went wrong, 2 it was asked wrongly. */
#define GW_EXIT_FAILED 1
#define GW_EXIT_USAGE 2

typedef struct gw_command {
    const char *name;
    const char *about;   /* one line, without a full stop */
    const char *usage;   /* what follows the name: "[AXIS] [--json]" */
    const char *example; /* whole command lines, a line each */
    int operands_max;    /* words that are no options */
    /* The first operand begins another program's command line: options from there on are not ours, and operands_max
     * does not count. */
    bool wraps_program;
    int (*run)(int argc, char **argv); /* argv[0] is the command's name; gives the exit code */
} gw_command;

extern const gw_command gw_command_list;
extern const gw_command gw_command_explain;
extern const gw_command gw_command_run;
extern const gw_command gw_command_supervise; /* not in the help: gradwire run starts it */
extern const gw_command gw_command_server; /* not in the help: gradwire run --servers starts it */
extern const gw_command gw_command_plan;
extern const gw_command gw_command_sim;
extern const gw_command gw_command_bench;
extern const gw_command gw_command_model;
extern const gw_command gw_command_profile;
extern const gw_command gw_command_data;
extern const gw_command gw_command_train;
extern const gw_command gw_command_doctor;
extern const gw_command gw_command_predict;
extern const gw_command gw_command_fit;
extern const gw_command gw_command_trace;
extern const gw_command gw_command_probe; /* not in the help: gradwire doctor starts it */

/* --timeline and --capture: the library, in this process and those that it starts, records to these files. NULL: as in
 * the environment. */
void gw_record(const char *timeline, const char *capture);

/* Says on standard error what was asked wrongly ("gradwire list: ..."), and returns GW_EXIT_USAGE. */
int gw_usage_error(const gw_command *command, const char *format, ...) __attribute__((format(printf, 2, 3)));

#endif
