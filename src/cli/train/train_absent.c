/* train_absent.c - the trainer's commands in a build without oneDNN: each prints what is missing. */
#include <stdio.h>

#include "cli/common/args.h"
#include "cli/common/trainer_parts.h"

#define MISSING "this gradwire was built without oneDNN; install its headers (Debian: libdnnl-dev) and build again"

static int refuse(const gw_command *command, int argc, char **argv) {
    const gw_option options[] = {{.name = NULL}};
    int code = gw_args_parse(command, options, &argc, argv);
    if (code >= 0) return code;
    fprintf(stderr, "gradwire %s: %s\n", command->name, MISSING);
    return GW_EXIT_FAILED;
}

const bool gw_trainer_built = false;

gw_status gw_layer_times(const char *model, const gw_model_size *size, int batch, int steps, gw_profile *profile,
                         gw_error *error) {
    (void)model, (void)size, (void)batch, (void)steps, (void)profile;
    return gw_fail(error, GW_UNSUPPORTED, MISSING);
}

gw_status gw_model_print_layers(const char *model, const gw_model_size *size, int batch, bool json, gw_error *error) {
    (void)model, (void)size, (void)batch, (void)json;
    return gw_fail(error, GW_UNSUPPORTED, MISSING);
}

gw_status gw_model_print_text(const char *model, const gw_model_size *size, gw_error *error) {
    (void)model, (void)size;
    return gw_fail(error, GW_UNSUPPORTED, MISSING);
}

void gw_layer_kinds_print(void) { puts(MISSING); }

static int run_profile(int argc, char **argv) { return refuse(&gw_command_profile, argc, argv); }

const gw_command gw_command_profile = {
    .name = "profile",
    .about = "records the layer times of a model (not in this build, which lacks oneDNN)",
    .usage = "[NAME|FILE]",
    .example = "gradwire profile cnn",
    .operands_max = 1,
    .run = run_profile,
};

static int run_train(int argc, char **argv) { return refuse(&gw_command_train, argc, argv); }

const gw_command gw_command_train = {
    .name = "train",
    .about = "trains a model (not in this build, which lacks oneDNN)",
    .usage = "[OPTIONS]",
    .example = "gradwire train -n 4",
    .run = run_train,
};

static int run_explain(int argc, char **argv) { return refuse(&gw_command_explain, argc, argv); }

const gw_command gw_command_explain = {
    .name = "explain",
    .about = "explains what a strategy line will do (not in this build, which lacks oneDNN)",
    .usage = "[LINE]",
    .example = "gradwire explain 'arch=ps sync=asp'",
    .operands_max = 1,
    .run = run_explain,
};
