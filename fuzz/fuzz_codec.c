/* fuzz_codec.c - every decoder on any bytes: an error or finite work, never a write outside of the sum.
 *
 * The first bytes choose the codec, its setup, the tensor and the range; the rest is the payload. */
#include <stdlib.h>
#include <string.h>

#include "compress/compress.h"

#define HEAD 5

/* One example of one technique; `choices` draws its choices and flags. */
static gw_status make_setup(uint8_t which, uint8_t choices, gw_codec_setup *setup) {
    const gw_technique *technique;
    double values[GW_TECHNIQUE_PARAMS_MAX];
    char text[GW_TECHNIQUE_TEXT_BYTES];
    int count = 0, examples = 0;
    while (gw_compress_techniques[count]) count++;
    technique = gw_compress_techniques[which % count];
    while (gw_technique_example(technique, examples, text)) examples++;
    gw_technique_example(technique, which / count % examples, text);
    gw_status status = gw_technique_parse(gw_compress_techniques, "compress", text, &technique, values, NULL);
    for (int i = 0; !status && technique->params && technique->params[i].name; i++, choices /= 2) {
        int words = 0;
        if (technique->params[i].kind == GW_PARAM_FLAG) values[i] = choices & 1;
        if (technique->params[i].kind != GW_PARAM_CHOICE) continue;
        while (technique->params[i].choices[words]) words++;
        values[i] = choices % words;
    }
    return status ? status : gw_codec_from_setting(technique, values, setup, NULL);
}

/* The payload of an earlier round, made of the same bytes. */
static uint8_t *earlier_round(const gw_codec_setup *setup, gw_codec_call *call, gw_codec_range range,
                              const uint8_t *data, size_t size) {
    if (gw_codec_rounds(setup) == 1) return NULL;
    size_t bytes = gw_codec_bound(setup, call, range);
    uint8_t *made = calloc(1, bytes ? bytes : 1);
    if (made) memcpy(made, data, size < bytes ? size : bytes);
    call->round = 1;
    call->reduced = made;
    call->reduced_bytes = bytes;
    return made;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    if (size < HEAD) return 0;
    gw_codec_setup setup;
    if (make_setup(data[0], data[4], &setup)) return 0;
    uint64_t rows = 1 + data[1] % 8, cols = data[2] + (uint64_t)(data[3] & 1) * 16384;
    gw_codec_tensor tensor = gw_codec_tensor_make("fuzz", rows, cols);
    gw_codec_range range = gw_codec_whole(&tensor);
    gw_codec_call call = {.seed = 1, .step = 2, .world = 1 + data[3] % 16, .clip = 1};
    if (setup.codec->block && data[3] & 2 && tensor.count > setup.codec->block) {
        range.first = setup.codec->block;
        range.count -= range.first;
    }
    bool fitting = data[3] & 4;
    data += HEAD;
    size -= HEAD;
    uint8_t *before = earlier_round(&setup, &call, range, data, size);
    size_t given = size;
    if (fitting) size = gw_codec_bound(&setup, &call, range); /* as long as it may be; zeros where there is no more */
    uint8_t *payload = calloc(1, size ? size : 1);
    float *sum = calloc(range.count ? range.count : 1, sizeof *sum);
    if (payload && sum) {
        memcpy(payload, data, given < size ? given : size);
        gw_status status = gw_codec_decode_add(&setup, &call, range, payload, size, 1.0f, sum, NULL);
        for (uint64_t i = 0; status && i < range.count; i++) {
            if (sum[i] != 0.0f) abort(); /* a refused payload leaves the sum as it was */
        }
    }
    free(sum);
    free(payload);
    free(before);
    return 0;
}
