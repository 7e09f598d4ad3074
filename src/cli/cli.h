/* cli.h - the interface of a command of the program. Each command has one file; main.c has the table. */
#ifndef GW_CLI_H
#define GW_CLI_H

#include <stdbool.h>

/* Exit codes: 0 success, 1 failure, 2 wrong usage. */
#define GW_EXIT_FAILED 1
#define GW_EXIT_USAGE 2

typedef struct gw_command {
    const char *name;
    const char *about;   /* one line, without a full stop */
    const char *usage;   /* the arguments after the name: "[AXIS] [--json]" */
    const char *example; /* complete command lines, one per line */
    int operands_max;    /* words that are not options */
    /* The first operand starts another program's command line: options after it belong to that program, and
     * operands_max is ignored. */
    bool wraps_program;
    int (*run)(int argc, char **argv); /* argv[0] is the command's name; returns the exit code */
} gw_command;

extern const gw_command gw_command_list;
extern const gw_command gw_command_explain;
extern const gw_command gw_command_run;
extern const gw_command gw_command_supervise; /* not in the help: gradwire run starts it */
extern const gw_command gw_command_server;    /* not in the help: gradwire run --servers starts it */
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
extern const gw_command gw_command_tune;
extern const gw_command gw_command_probe; /* not in the help: gradwire doctor starts it */

/* --timeline and --capture: the library records to these files, in this process and its children. NULL: the environment
 * decides. */
void gw_set_recording(const char *timeline, const char *capture);

/* Prints a usage error on standard error ("gradwire list: ..."), and returns GW_EXIT_USAGE. */
int gw_usage_error(const gw_command *command, const char *format, ...) __attribute__((format(printf, 2, 3)));

#endif
