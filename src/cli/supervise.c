/* supervise.c - gradwire supervise: what gradwire run starts on every host. Not meant to be typed, so not in the help.
 */
#include <stdio.h>

#include "cli/args.h"
#include "launch/supervise.h"

static int run(int argc, char **argv) {
    const gw_option options[] = {{.name = NULL}};
    int code = gw_args_parse(&gw_command_supervise, options, &argc, argv);
    if (code >= 0) return code;
    gw_error error = {0};
    if (gw_supervise(0, 1, &error) == GW_OK) return 0;
    fprintf(stderr, "gradwire supervise: %s\n", error.text);
    return GW_EXIT_FAILED;
}

const gw_command gw_command_supervise = {
    .name = "supervise",
    .usage = "",
    .about = "started by gradwire run on each host; takes its orders on standard input",
    .example = "gradwire run -n 2 -- hostname",
    .run = run,
};
