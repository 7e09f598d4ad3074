/* fuzz_profile.c - any bytes as a profile: refused with one sentence, or layers within their bounds that are read again
 * as they were printed. The first byte chooses whether a valid head is put in front. */
#include <stdlib.h>
#include <string.h>

#include "profile/profile.h"

static const char head[] = "# net, batch 32\nlayer,kind,parameter_bytes,forward_us,backward_us\n0,Conv2d,64,1,2\n";

static void demand(bool condition) {
    if (!condition) abort();
}

static void look(const gw_profile *profile) {
    demand(profile->count > 0 && profile->count <= GW_PROFILE_LAYERS_MAX && profile->batch >= 0);
    for (int i = 0; i < profile->count; i++) {
        const gw_profile_layer *layer = &profile->layers[i];
        demand(layer->name[0] && layer->kind[0] && layer->parameter_bytes % 4 == 0);
        demand(layer->forward_us >= 0 && layer->backward_us >= 0);
    }
}

static void read_again(const gw_profile *profile) {
    char *text = NULL;
    size_t size = 0;
    FILE *out = open_memstream(&text, &size);
    demand(out != NULL);
    gw_profile_print(profile, out);
    fclose(out);
    gw_profile again = {.count = 0};
    gw_error error = {.status = GW_OK};
    demand(gw_profile_parse(text, size, "again", &again, &error) == GW_OK && again.count == profile->count);
    for (int i = 0; i < again.count; i++) demand(again.layers[i].parameter_bytes == profile->layers[i].parameter_bytes);
    gw_profile_free(&again);
    free(text);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    gw_profile profile = {.count = 0};
    gw_error error = {.status = GW_OK};
    size_t before = size && data[0] & 1 ? strlen(head) : 0;
    char *bytes = malloc(before + size + 1);
    demand(bytes != NULL);
    memcpy(bytes, head, before);
    if (size) memcpy(bytes + before, data + 1, size - 1);
    size_t length = before + (size ? size - 1 : 0);
    if (gw_profile_parse(bytes, length, "fuzz", &profile, &error) == GW_OK) {
        look(&profile);
        read_again(&profile);
        gw_profile_free(&profile);
    } else {
        demand(error.text[0] != '\0' && profile.layers == NULL);
    }
    free(bytes);
    return 0;
}
