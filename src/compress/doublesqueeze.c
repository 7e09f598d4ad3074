/* doublesqueeze.c - error feedback on both passes (Tang, Yu, Lian, Zhang, Liu: "DoubleSqueeze", ICML 2019).
 *
 * It wraps any codec whose payloads an owner decodes, adds and encodes again: the setup is that codec at its defaults,
 * with feedback=both. To set its parameters, write that codec itself, such as qsgd:bits=2,feedback=both. */
#include "compress/codec.h"

enum { PARAM_CODEC, PARAM_LIMIT };

#define NOT_WRAPPED(name)
#define NAME(name) #name,
static const char *const inner[] = {GW_CODECS(NOT_WRAPPED, NAME) NULL};

#define INDEX(name) INNER_##name,
enum { GW_CODECS(NOT_WRAPPED, INDEX) };

const gw_technique gw_doublesqueeze = {
    .name = "doublesqueeze",
    .about = "a codec with feedback on both passes",
    .params = GW_PARAMS({.name = "codec", .about = "codec to wrap", .kind = GW_PARAM_CHOICE, .choices = inner,
                         .preset = INNER_onebit}, GW_CODEC_LIMIT),
    .examples = GW_CHOICES("", "codec=topk"),
};

gw_codec_setup gw_doublesqueeze_setup(const double *values) {
    gw_codec_setup setup = gw_codec_default(gw_codec_find(inner[(int)values[PARAM_CODEC]]));
    setup.feedback = GW_FEEDBACK_BOTH;
    setup.limit = values[PARAM_LIMIT];
    return setup;
}
