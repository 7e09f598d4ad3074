/* cmd_supervise.c - gradwire supervise: the process that gradwire run starts on every host. Internal, so not in the
 * help. */
#include <stdio.h>

#include "cli/common/args.h"
#include "launch/supervisor.h"

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
    .about = "internal: gradwire run starts it on each host; reads commands from standard input",
    .example = "gradwire run -n 2 -- hostname",
    .run = run,
};
