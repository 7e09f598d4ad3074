/* profile_load.c - see profile_load.h. */
#include "profile/profile_load.h"

#include <string.h>
#include <sys/stat.h>

#include "profile/builtin_profiles.h"

/* Only of regular files: a pipe could not be read again. */
static FILE *open_regular(const char *path) {
    struct stat facts;
    return stat(path, &facts) == 0 && S_ISREG(facts.st_mode) ? fopen(path, "re") : NULL;
}

gw_model_file gw_model_file_kind(const char *path) {
    FILE *file = open_regular(path);
    char line[256], word[24] = "";
    while (file && !word[0] && fgets(line, sizeof line, file))
        if (sscanf(line, " %23s", word) == 1 && word[0] == '#') word[0] = 0;
    if (file) fclose(file);
    if (strcmp(word, "gradwire-machines") == 0) return GW_MODEL_FILE_MACHINES;
    return strcmp(word, "input") == 0 ? GW_MODEL_FILE_DESCRIPTION : GW_MODEL_FILE_PROFILE;
}

static gw_status load_file(const char *path, gw_profile *profile, gw_error *error) {
    switch (gw_model_file_kind(path)) {
    case GW_MODEL_FILE_PROFILE: return gw_profile_read(path, profile, error);
    case GW_MODEL_FILE_DESCRIPTION:
        return gw_fail(error, GW_INVALID,
                       "%s describes a model without layer times: record them with gradwire profile %s -o FILE, and "
                       "give that file",
                       path, path);
    case GW_MODEL_FILE_MACHINES: break;
    }
    return gw_fail(error, GW_INVALID,
                   "%s has the speeds of machines, not the layers of a model: gradwire predict takes it with "
                   "--machines",
                   path);
}

gw_status gw_profile_load(const char *name, gw_profile *profile, gw_error *error) {
    const gw_zoo_model *model = gw_zoo_find(name);
    if (gw_zoo_is_path(name)) return load_file(name, profile, error);
    if (!model) return gw_zoo_unknown(name, error);
    if (model->batch) return gw_builtin_profile_make(model, 0, 0, profile, error);
    return gw_fail(error, GW_INVALID,
                   "%s has no built-in layer times: record them with gradwire profile %s -o FILE, and give that file",
                   name, name);
}
