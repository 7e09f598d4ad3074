/* form.c - how the payloads of several ranks become a sum: which form an exchange takes, and what it costs in accuracy.
 *
 * Payloads that can be merged are reduced in flight. For the others there are two forms. In one pass every payload goes
 * to every member: p-1 payloads a member. In two passes they go to owners, which encode the sum again: 2 (p-1)/p
 * payloads, but one more encoding. The rule, for codecs that do not merge:
 *   - Between two members both send the same: one pass, unless a schedule starts the halves apart.
 *   - An unbiased codec without feedback: one pass up to 4 members. Each further encoding adds its variance.
 *   - Only workers keep residuals (feedback=worker): one pass. Nothing would keep what owners lose.
 *   - Otherwise two passes.
 * Through parameter servers a payload has one way, and the rule decides about the answer: merged payloads; exact, where
 * only workers keep residuals; encoded again. */
#include "compress/codec.h"

#include <math.h>
#include <stdlib.h>

#include "base/rng.h"

#define ONE_PASS_MEMBERS_MAX 4 /* of unbiased codecs: up to here one pass sends at most twice as much */

const char *gw_coded_form_name(gw_coded_form form) {
    static const char *const names[] = {"auto", "in flight", "one pass", "two passes"};
    return names[form];
}

static bool is_unbiased(const gw_codec_setup *setup) { return setup->codec->unbiased && !gw_codec_residual(setup); }

/* Workers keep what they lose, owners would not. */
static bool only_workers_keep(const gw_codec_setup *setup) {
    return gw_codec_residual(setup) && setup->feedback != GW_FEEDBACK_BOTH;
}

gw_coded_form gw_coded_form_of(const gw_codec_setup *setup, int members, bool halves) {
    if (setup->form != GW_FORM_AUTO) return setup->form;
    if (gw_codec_merges(setup)) return GW_FORM_IN_FLIGHT;
    if (setup->codec->block == 0 || only_workers_keep(setup)) return GW_FORM_ONE_PASS;
    if (is_unbiased(setup)) return members <= ONE_PASS_MEMBERS_MAX ? GW_FORM_ONE_PASS : GW_FORM_TWO_PASS;
    return members <= 2 && !halves ? GW_FORM_ONE_PASS : GW_FORM_TWO_PASS;
}

gw_coded_form gw_coded_form_served(const gw_codec_setup *setup, bool weights) {
    if (weights) return setup->feedback == GW_FEEDBACK_BOTH ? GW_FORM_TWO_PASS : GW_FORM_ONE_PASS;
    if (gw_codec_merges(setup)) return GW_FORM_IN_FLIGHT;
    return only_workers_keep(setup) ? GW_FORM_ONE_PASS : GW_FORM_TWO_PASS;
}

const char *gw_coded_form_loses(const gw_codec_setup *setup, gw_coded_form form) {
    bool worker = gw_codec_residual(setup) || setup->codec->identity || is_unbiased(setup);
    bool owner = form != GW_FORM_TWO_PASS || setup->feedback == GW_FEEDBACK_BOTH || is_unbiased(setup);
    bool hops = form != GW_FORM_IN_FLIGHT || setup->codec->identity || setup->codec->significand == 0;
    if (!worker && !owner) return "what workers and owners lose when they encode (feedback=both would keep it)";
    if (!worker && hops) return "what workers lose when they encode (feedback=worker would keep it)";
    if (!owner) return "what owners lose when they encode sums (feedback=both would keep it)";
    return hops ? NULL : "what rounding of sums loses at every hop";
}

/* Refusals. */

static const char *refused_form(const gw_codec_setup *setup) {
    if (setup->form == GW_FORM_IN_FLIGHT && !gw_codec_merges(setup))
        return "form=inflight: its payloads cannot be added to each other: use onepass or twopass";
    if (setup->form != GW_FORM_TWO_PASS) return NULL;
    if (setup->codec->block == 0)
        return "form=twopass: its payloads are of whole tensors, which cannot be cut between owners";
    if (only_workers_keep(setup))
        return "form=twopass with feedback=worker: what owners lose when they encode sums again would be lost for "
               "good: use feedback=both, or form=onepass";
    return NULL;
}

static const char *refused_feedback(const gw_codec_setup *setup) {
    if (setup->feedback != GW_FEEDBACK_NONE) return NULL;
    if (setup->codec->compensates)
        return "feedback=none: it is nothing without the residual that it keeps: leave feedback out";
    if (setup->codec->selects)
        return "feedback=none: values that are not selected would be lost for good: use feedback=worker or "
               "feedback=both";
    return NULL;
}

gw_status gw_codec_check(const gw_codec_setup *setup, gw_error *error) {
    const char *name = setup->codec->technique.name, *why = refused_form(setup);
    if (!why) why = refused_feedback(setup);
    if (why) return gw_fail(error, GW_UNSUPPORTED, "compress=%s:%s", name, why);
    if (setup->limit == 0 || gw_coded_form_of(setup, 2, false) != GW_FORM_IN_FLIGHT) return GW_OK;
    return gw_fail(error, GW_UNSUPPORTED,
                   "compress=%s: payloads are reduced in flight, so no rank can send one exact on its own: no error "
                   "limit is possible",
                   name);
}

/* Variance. */

#define SAMPLE_COUNT 65536u

static float normal(gw_rng *rng) {
    double radius = sqrt(-2 * log(1 - gw_rng_unit(rng)));
    return (float)(radius * cos(2 * M_PI * gw_rng_unit(rng)));
}

/* The error of one encoding of normally distributed values, relative to their squared norm. */
static gw_status relative_variance(const gw_codec_setup *setup, double *variance, gw_error *error) {
    gw_codec_tensor tensor = gw_codec_tensor_make("sample", 256, SAMPLE_COUNT / 256);
    gw_codec_range whole = gw_codec_whole(&tensor);
    gw_codec_call call = {.world = 1, .clip = 1};
    gw_codec_report report = {0};
    size_t room = gw_codec_bound(setup, &call, whole), bytes;
    float *values = malloc(SAMPLE_COUNT * sizeof *values);
    void *payload = malloc(room + 4);
    gw_status status = values && payload ? GW_OK : gw_fail(error, GW_MEMORY, "out of memory for a sample");
    gw_rng rng = gw_rng_make(1, 0);
    for (size_t i = 0; !status && i < SAMPLE_COUNT; i++) values[i] = normal(&rng);
    if (!status) status = gw_codec_encode(setup, &call, whole, NULL, values, payload, room, &bytes, &report, error);
    if (!status) *variance = report.error / report.input;
    free(payload);
    free(values);
    return status;
}

gw_status gw_coded_form_variance(const gw_codec_setup *setup, gw_coded_form form, double *factor, gw_error *error) {
    gw_codec_setup second = gw_codec_second(setup);
    double w = 0;
    *factor = is_unbiased(setup) ? 1 : 0;
    bool exact = gw_codec_merges(&second); /* a sum of payloads is a payload, so owners lose nothing */
    if (*factor == 0 || form != GW_FORM_TWO_PASS || exact) return GW_OK;
    gw_status status = relative_variance(&second, &w, error);
    if (!status) *factor = 2 + w;
    return status;
}
