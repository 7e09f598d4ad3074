/* without_train.c - the commands of the trainer in a build without oneDNN: they say what is missing. */
#include <stdio.h>

#include "cli/cli.h"

static int run(int argc, char **argv) {
    (void)argc;
    fprintf(stderr,
            "gradwire %s: this gradwire was built without oneDNN; install its headers (Debian: libdnnl-dev) and build "
            "again\n",
            argv[0]);
    return GW_EXIT_FAILED;
}

const gw_command gw_command_model = {.name = "model", .about = "describes a model (not in this build)", .run = run};
const gw_command gw_command_train = {.name = "train", .about = "trains a model (not in this build)", .run = run};
