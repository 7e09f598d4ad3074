/* cmd_probe.c - gradwire probe: the process that gradwire doctor starts on every host. Internal, so not in the help. */
#include <stdio.h>

#include "cli/common/args.h"
#include "doctor/probe.h"

static int run(int argc, char **argv) {
    const gw_option options[] = {{.name = NULL}};
    int code = gw_args_parse(&gw_command_probe, options, &argc, argv);
    if (code >= 0) return code;
    gw_error error = {0};
    if (gw_probe_run(0, 1, &error) == GW_OK) return 0;
    fprintf(stderr, "gradwire probe: %s\n", error.text);
    return GW_EXIT_FAILED;
}

const gw_command gw_command_probe = {
    .name = "probe",
    .usage = "",
    .about = "internal: gradwire doctor starts it on each host; reads commands from standard input",
    .example = "gradwire doctor -n 2",
    .run = run,
};
