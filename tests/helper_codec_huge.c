/* helper_codec_huge.c - codecs on a tensor of 2^31 + 1 elements. A long test, not run by default: half a minute and
 * 3 GiB (the gradient is mostly untouched zero pages). Values at the start, around 2^31 and at the very end must
 * arrive in their places. */
#include "compress/compress.h"
#include "test.h"

#include <math.h>
#include <sys/mman.h>

#define COUNT ((UINT64_C(1) << 31) + 1)

static const uint64_t places[] = {0, 65537, (UINT64_C(1) << 31) - 1, UINT64_C(1) << 31};
#define PLACES (sizeof places / sizeof places[0])

static float *gradient; /* COUNT, zeros but for the places */

static void *reserve(size_t bytes) {
    void *at = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    return at == MAP_FAILED ? NULL : at;
}

/* Decodes only the blocks around a place: they begin where the bound of the blocks before them ends. */
static float decoded_at(const gw_codec_setup *setup, gw_codec_call *call, gw_codec_range whole, const uint8_t *payload,
                        uint64_t place) {
    uint64_t block = setup->codec->block, first = place / block * block;
    uint64_t length = COUNT - first < block ? COUNT - first : block;
    gw_codec_range before = {whole.tensor, 0, first}, mine = {whole.tensor, first, length};
    float *sum = calloc(length, sizeof *sum);
    size_t at = gw_codec_bound(setup, call, before), bytes = gw_codec_bound(setup, call, mine);
    CHECK_EQ(GW_OK, gw_codec_decode_add(setup, call, mine, payload + at, bytes, 1.0f, sum, NULL));
    float value = sum[place - first];
    free(sum);
    return value;
}

static void check_codec(const char *text) {
    gw_codec_setup setup;
    gw_codec_tensor tensor = gw_codec_tensor_make("huge", 1, COUNT);
    gw_codec_range whole = gw_codec_whole(&tensor);
    gw_codec_call call = {.seed = 1, .step = 1, .world = 1, .clip = 1};
    gw_error error = {0};
    CHECK_EQ(GW_OK, gw_codec_parse(text, &setup, &error));
    setup.feedback = GW_FEEDBACK_NONE;
    size_t room = gw_codec_bound(&setup, &call, whole), bytes = 0;
    uint8_t *payload = reserve(room);
    float *sum = setup.codec->least ? reserve(COUNT * sizeof *sum) : NULL; /* sparse: touched in few places */
    CHECK_EQ(GW_OK, gw_codec_encode(&setup, &call, whole, NULL, gradient, payload, room, &bytes, NULL, &error));
    CHECK_STR("", error.text);
    if (sum) CHECK_EQ(GW_OK, gw_codec_decode_add(&setup, &call, whole, payload, bytes, 1.0f, sum, &error));
    for (size_t p = 0; p < PLACES; p++) {
        float value = sum ? sum[places[p]] : decoded_at(&setup, &call, whole, payload, places[p]);
        CHECK(fabsf(value - gradient[places[p]]) <= 0.01f * fabsf(gradient[places[p]]));
    }
    if (sum) munmap(sum, COUNT * sizeof *sum);
    munmap(payload, room);
}

static void fill(void) {
    gradient = reserve(COUNT * sizeof *gradient);
    CHECK(gradient != NULL);
    for (size_t p = 0; gradient && p < PLACES; p++)
        gradient[places[p]] = (float)(p + 1); /* the largest of their blocks */
}

static void topk(void) { check_codec("topk:ratio=0.001"); }
static void int8(void) { check_codec("int8"); }
static void onebit(void) { check_codec("onebit:threshold=mean"); }
static void qsgd(void) { check_codec("qsgd:bits=4"); }
static void terngrad(void) { check_codec("terngrad:clip=0"); }

TEST_MAIN(CASE(fill), CASE(topk), CASE(int8), CASE(onebit), CASE(qsgd), CASE(terngrad))
