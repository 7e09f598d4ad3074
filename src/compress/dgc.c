/* dgc.c - deep gradient compression (Lin, Han, Mao, Wang, Dally, ICLR 2018).
 *
 * u = m*u + g, v = v + u: momentum is accumulated here, before sending, not in the optimiser, which gives its own up
 * (gw_reducer_options.momentum). The largest `ratio` of v is sent, and both u and v are zeroed there (momentum factor
 * masking). v is the residual of feedback.c; u is state.own.
 *   - Local clipping: g is scaled so that the norm of the tensor is at most clip/sqrt(world). The paper's g is divided
 *     by the number of ranks already; where the result is a mean it is not, and the limit is clip*sqrt(world).
 *   - Warm-up: over `warmup` steps the density goes .25, .0625, .0156, .0039, .001 (each for a fifth of these steps),
 *     never below the ratio.
 *   - A tensor sends at least 32 values, unlike in the paper: of the 1,280 weights of an output layer 0.1 % is one
 *     value a step, and the whole model waits for what it learns (docs/explanation/accuracy.md).
 *
 * The paper estimates the threshold from a sample; here the selection is exact in each block of 65,536 (largest_k.c).
 * Payload: sparse.h. An owner encodes the sum without momentum, which has been applied.
 *
 * NaN and infinities count as the largest, so they are sent, and cleared in u and v where sent. */
#include "compress/sparse.h"

#include <math.h>

#define STAGES 5
#define VALUES_LEAST 32.0 /* of a tensor in a step */
#define AUTO (-1)         /* a parameter's value */
#define WARMUP_SHARE 5    /* of the run: a fifth */
#define WARMUP_STEPS 1000 /* where its length is not known */

enum { PARAM_RATIO, PARAM_MOMENTUM, PARAM_CLIP, PARAM_WARMUP };
static const gw_param params[] = {
    {.name = "ratio", .about = "share of the values that is sent", .kind = GW_PARAM_NUMBER, .preset = 0.001,
     .lowest = 1e-5, .highest = 1},
    {.name = "momentum", .about = "momentum of the local accumulation; auto takes over the optimiser's",
     .kind = GW_PARAM_NUMBER, .automatic = true, .auto_value = AUTO, .preset = AUTO, .highest = 1},
    {.name = "clip", .about = "largest norm of a tensor's result, kept by each rank, 0: off", .kind = GW_PARAM_NUMBER,
     .highest = 1e9},
    {.name = "warmup", .about = "steps with a higher density; auto: a fifth of the run, or 1,000 if it is not known",
     .kind = GW_PARAM_INTEGER, .automatic = true, .auto_value = AUTO, .preset = AUTO, .highest = 1e12},
    GW_CODEC_FEEDBACK(GW_FEEDBACK_BOTH),
    GW_CODEC_FORM,
    GW_CODEC_LIMIT,
    {.name = NULL},
};

static void choose(double *values, const gw_codec_run *run) {
    if (values[PARAM_MOMENTUM] == AUTO) values[PARAM_MOMENTUM] = run->momentum;
    if (values[PARAM_WARMUP] == AUTO)
        values[PARAM_WARMUP] = run->steps ? (double)(run->steps / WARMUP_SHARE) : WARMUP_STEPS;
}

/* The density of a stage is 4^-(stage+1). */
static double density_of_step(const gw_codec_setup *setup, uint64_t steps) {
    double ratio = setup->value[PARAM_RATIO], warmup = setup->value[PARAM_WARMUP];
    if ((double)steps >= warmup) return ratio;
    double dense = ldexp(1, -2 * ((int)((double)steps * STAGES / warmup) + 1));
    return dense > ratio ? dense : ratio;
}

static double density(const gw_codec_setup *setup, gw_codec_range range, uint64_t steps) {
    double least = VALUES_LEAST / (double)range.tensor->count;
    return fmin(fmax(density_of_step(setup, steps), least), 1);
}

static size_t bound(const gw_codec_setup *setup, const gw_codec_call *call, gw_codec_range range) {
    (void)call;
    return gw_sparse_range_bound(setup, range, density(setup, range, 0));
}

static gw_status encode(const gw_codec_setup *setup, const gw_codec_call *call, gw_codec_range range,
                        gw_codec_state *state, const float *v, void *payload, size_t capacity, size_t *bytes,
                        gw_error *error) {
    (void)error;
    uint64_t steps = call->step > state->born ? call->step - state->born : 0;
    *bytes = gw_sparse_encode(setup, range, density(setup, range, steps), v, payload, capacity);
    return GW_OK;
}

/* An owner only adds: its state has no u. */
static bool only_adds(const gw_codec_setup *setup) {
    return setup->value[PARAM_MOMENTUM] == 0 && setup->value[PARAM_CLIP] == 0;
}

static uint64_t own_count(const gw_codec_setup *setup, gw_codec_range range) {
    return only_adds(setup) ? 0 : range.count;
}

/* `clip` is the largest norm of the result, sum or mean, if the gradients of the ranks are independent: the norm of
 * their sum is then sqrt(world) times that of each. A norm that is not finite is not clipped: the NaN or infinity in it
 * must stay visible. */
static void prepare(const gw_codec_setup *setup, gw_codec_call *call, const gw_codec_tensor *tensor,
                    gw_codec_state *state, const float *gradient) {
    (void)state;
    if (setup->value[PARAM_CLIP] == 0) return;
    double norm = sqrt(gw_kernel_norm2(gradient, tensor->count));
    double most = setup->value[PARAM_CLIP] / sqrt(call->world) * (call->mean ? call->world : 1);
    if (isfinite(norm) && norm > most) call->clip = (float)(most / norm);
}

static double accumulate(const gw_codec_setup *setup, const gw_codec_call *call, gw_codec_state *state, uint64_t first,
                         uint64_t count, const float *gradient) {
    uint64_t at = gw_stripes_place(&state->covers, first);
    float momentum = (float)setup->value[PARAM_MOMENTUM];
    if (only_adds(setup)) return gw_kernel_add(state->residual + at, gradient, count);
    return gw_kernel_momentum(state->own + at, state->residual + at, gradient, momentum, call->clip, count);
}

static double take_off(const gw_codec_setup *setup, const gw_codec_call *call, gw_codec_range range,
                       gw_codec_state *state, const void *payload, double norm2) {
    if (!only_adds(setup))
        gw_sparse_clear(setup, range, payload, state->own + gw_stripes_place(&state->covers, range.first));
    return gw_sparse_take_off(setup, call, range, state, payload, norm2);
}

static unsigned needs(const gw_codec_setup *setup) {
    return (setup->value[PARAM_CLIP] > 0 ? GW_NEEDS_WHOLE_TENSOR : 0) |
           (setup->value[PARAM_MOMENTUM] > 0 ? GW_NEEDS_GRADIENTS : 0);
}

static uint32_t sliced_block(const gw_codec_setup *setup) { return gw_sparse_sliced_block(setup->value[PARAM_RATIO]); }

/* The sum is sent at the density of the same step. */
static gw_codec_setup second(const gw_codec_setup *first) {
    gw_codec_setup owner = *first;
    owner.value[PARAM_MOMENTUM] = owner.value[PARAM_CLIP] = 0;
    return owner;
}

const gw_codec gw_codec_dgc = {
    .technique = {.name = "dgc",
                  .about = "top values with momentum correction (deep gradient compression)",
                  .params = params,
                  .examples = GW_CHOICES("ratio=0.001", "momentum=0.9,warmup=0")},
    .encode_rate = 8.4e9,
    .decode_rate = 120e9,
    .trusted = {.error = 26, .aligned = 0.05},
    .compensates = true,
    .block = GW_SPARSE_BLOCK,
    .least = GW_SPARSE_HEAD,
    .choose = choose,
    .second = second,
    .needs = needs,
    .sliced_block = sliced_block,
    .bound = bound,
    .encode = encode,
    .decode_add = gw_sparse_decode_add,
    .own_count = own_count,
    .prepare = prepare,
    .accumulate = accumulate,
    .take_off = take_off,
};
