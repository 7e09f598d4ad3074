/* cmd_profile.c - gradwire profile: times the layers of a model on this machine, and writes the CSV that gradwire bench
 * step and predict read. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "cli/common/model_options.h"
#include "cli/common/trainer_parts.h"

enum { STEPS_MAX = 1000 };

static gw_status write_profile(const gw_profile *profile, const char *path, gw_error *error) {
    if (path) return gw_profile_write(profile, path, error);
    gw_profile_print(profile, stdout);
    bool whole = fflush(stdout) == 0 && !ferror(stdout);
    return whole ? GW_OK : gw_fail(error, GW_SYSTEM, "cannot write to standard output: %s", strerror(errno));
}

static int run(int argc, char **argv) {
    int64_t batch = 32, steps = 20;
    gw_model_size_options given = {0};
    const char *path = NULL;
    const gw_option options[] = {
        GW_SIZE_OPTION("batch", batch, 65536, "examples per step (default: 32)"),
        GW_SIZE_OPTION("steps", steps, STEPS_MAX, "timed steps; the profile has medians (default: 20)"),
        {.name = "output", .letter = 'o', .kind = GW_OPTION_STRING, .value = "FILE", .string = &path,
         .about = "file to write (default: standard output)"},
        GW_SIZE_OPTIONS(given),
        {.name = NULL},
    };
    int code = gw_args_parse(&gw_command_profile, options, &argc, argv);
    if (code >= 0) return code;
    const char *name = argc > 1 ? argv[1] : "cnn";
    gw_model_size size = gw_model_size_of(&given);
    gw_error error = {0};
    gw_profile profile = {.count = 0};
    gw_status status = gw_layer_times(name, &size, (int)batch, (int)steps, &profile, &error);
    if (status == GW_OK) status = write_profile(&profile, path, &error);
    if (status == GW_OK && path)
        printf("%s: %d layers, %" PRIu64 " bytes of parameters, %.2f ms per step of %d examples\n", path, profile.count,
               gw_profile_parameter_bytes(&profile), gw_profile_seconds(&profile) * 1e3, profile.batch);
    gw_profile_free(&profile);
    if (status == GW_OK) return 0;
    if (status == GW_INVALID) return gw_usage_error(&gw_command_profile, "%s", error.text);
    fprintf(stderr, "gradwire profile: %s\n", error.text);
    return GW_EXIT_FAILED;
}

const gw_command gw_command_profile = {
    .name = "profile",
    .about = "times each layer of a model on this machine, for bench step and predict",
    .usage = "[NAME|FILE] [--batch N] [-o FILE]",
    .example = "gradwire profile resnet20 --batch 32 -o resnet20.csv\n"
               "gradwire bench step --model ./resnet20.csv -n 4 --lab rate=1gbit",
    .operands_max = 1,
    .run = run,
};
