/* cmd_server.c - gradwire server: one parameter server of a job, started by gradwire run --servers. Internal, so not in
 * the help. */
#include <stdio.h>

#include "cli/common/args.h"
#include "ps/server_process.h"

static int run(int argc, char **argv) {
    const gw_option options[] = {{.name = NULL}};
    int code = gw_args_parse(&gw_command_server, options, &argc, argv);
    if (code >= 0) return code;
    gw_error error = {.rank = -1};
    if (gw_serve(&error) == GW_OK) return 0;
    fprintf(stderr, "gradwire server: %s\n", error.text);
    return error.status == GW_INVALID ? GW_EXIT_USAGE : GW_EXIT_FAILED;
}

const gw_command gw_command_server = {
    .name = "server",
    .usage = "",
    .about = "internal: one parameter server process of a job, started by gradwire run --servers",
    .example = "RANK=4 WORLD_SIZE=4 GRADWIRE_SERVERS=1 MASTER_PORT=29500 gradwire server",
    .run = run,
};
