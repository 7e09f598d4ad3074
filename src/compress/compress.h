/* compress.h - codecs: fewer bytes for a gradient. One codec a file, all of them in one table (GW_CODECS).
 *
 * A codec encodes a range of one tensor into the caller's memory, gives the largest length of the payload (`bound`),
 * and adds a decoded payload to a sum. A tensor may be cut anywhere at multiples of the codec's block (counted from the
 * tensor's first element, so cuts do not move when buckets do): the payload of a range is the payloads of its blocks,
 * one after the other, and decodes to the same values however the tensor was cut. Random numbers are a function of
 * seed, step, tensor, rank and element (randomk and powersgd: not of the rank). Results are the same bits at every CPU
 * level.
 *
 * How payloads of several ranks become a sum:
 *   - a codec with `merge` (in-flight form): all payloads have the same length and are reduced by any reduce plan, in
 *     chunks of any multiple of merge_unit bytes; the result is decoded once and holds the sum over the ranks.
 *   - any codec: every rank gathers every payload and adds them in rank order (one-pass form). Or each rank owns a part
 *     of the tensor; payloads go to their owner, which decodes and adds them, encodes the sum again (gw_codec_second,
 *     pass 1) and sends that to all, itself included (two-pass form). gw_coded_form_of has the rule.
 *
 * Rounds. Some codecs need several reduced rounds (powersgd two; terngrad:shared two, of which the first sends scales).
 * The call of round r > 0 contains the merged payload of round r-1, which must stay valid until the last round is
 * decoded; only the payload of the last round is decoded. Such codecs have merge for every round.
 *
 * Feedback (feedback.c) wraps any codec: v = g + e is encoded, and e = v - decoded stays on this rank until the next
 * step.
 *
 * Payloads come from the network: a decoder checks each one first, and one that is too short, too long or points
 * outside the tensor is GW_PROTOCOL, with the sum untouched. A NaN or an infinity in a gradient arrives as a NaN or an
 * infinity, maybe in more elements of its block (docs/reference/codecs.md).
 *
 * Payloads are aligned to 4 bytes by the caller, and hold little-endian numbers.
 *
 * Threads: setups are read only. A state may be used by several threads at once for ranges that do not overlap. */
#ifndef GW_COMPRESS_H
#define GW_COMPRESS_H

#include "base/status.h"
#include "base/stripes.h"
#include "base/technique.h"
#include "compress/codec_table.h"

typedef struct gw_codec gw_codec;

/* A parameter of the model. Plain value; the name belongs to the caller. */
typedef struct gw_codec_tensor {
    const char *name;    /* for messages and saved state */
    uint64_t key;        /* a hash of the name: the same on all ranks and in all runs */
    uint64_t count;      /* elements, rows * cols */
    uint64_t rows, cols; /* row major; a vector has one row */
} gw_codec_tensor;

gw_codec_tensor gw_codec_tensor_make(const char *name, uint64_t rows, uint64_t cols);

typedef struct gw_codec_range {
    const gw_codec_tensor *tensor;
    uint64_t first; /* element; a multiple of the codec's block */
    uint64_t count; /* elements; a multiple of the block, or up to the tensor's end */
} gw_codec_range;

gw_codec_range gw_codec_whole(const gw_codec_tensor *tensor);

#define GW_CODEC_PARAMS_MAX 4 /* own parameters of a codec */

/* Which ranks keep a residual (the part that their encoding lost); the choices of the parameter "feedback". */
typedef enum gw_codec_feedback {
    GW_FEEDBACK_NONE,
    GW_FEEDBACK_WORKER,
    GW_FEEDBACK_BOTH, /* the worker, and the owner for its second pass: DoubleSqueeze */
} gw_codec_feedback;

/* How the payloads of several ranks become a sum; the choices of the parameter "form". */
typedef enum gw_coded_form { GW_FORM_AUTO, GW_FORM_IN_FLIGHT, GW_FORM_ONE_PASS, GW_FORM_TWO_PASS } gw_coded_form;

/* A codec and its parameters. Plain value. */
typedef struct gw_codec_setup {
    const gw_codec *codec;
    double value[GW_CODEC_PARAMS_MAX]; /* of the codec's own parameters, the first of codec->technique.params */
    gw_codec_feedback feedback;
    gw_coded_form form;
    uint32_t block; /* elements, of a tensor that a schedule slices; 0: the codec's own block */
    double limit;   /* relative error beyond which a tensor is sent exact until the error has fallen; 0: never */
} gw_codec_setup;

/* The context of an encoding; the same for all tensors of a step except for the fields marked (tensor). */
typedef struct gw_codec_call {
    uint64_t seed; /* of the job */
    uint64_t step;
    uint32_t rank, world; /* the encoding rank; how many payloads will be merged or added */
    uint32_t pass;        /* 0: a worker's own gradient; 1: an owner encodes the sum again */
    uint32_t round;
    float rate_growth;   /* growth of the learning rate since the step before: 0.1 is 10 % more. A residual belongs to
                            the rate of its own step, so it is divided by 1 + rate_growth */
    bool mean;           /* the result is the mean over the ranks, not the sum */
    float clip;          /* (tensor) factor by which the gradient is multiplied first; set by gw_codec_prepare */
    const void *reduced; /* (tensor) round > 0: the merged payload of the round before, of the same range */
    size_t reduced_bytes;
} gw_codec_call;

/* The loss of an encoding, for the guard and the watch. Sums, so that they add up over ranges. */
typedef struct gw_codec_report {
    double input; /* squares of v, the values to send */
    double error; /* squares of v - decoded: the residual where there is feedback */
    bool samples; /* set before an encoding: what follows is wanted too, of a sample of the elements */
    double sampled, waiting, coded, common; /* squares of the gradient, of v - decoded, of decoded; gradient times
                                               decoded */
} gw_codec_report;

/* The state that a codec keeps from step to step, for one tensor or an owner's part of it. */
typedef struct gw_codec_state {
    gw_codec_tensor tensor; /* the name is a copy */
    gw_stripes covers;      /* elements that it is for */
    float *residual;        /* of these, one after the other; NULL without feedback */
    float *own;             /* own_count floats of the codec itself: dgc's momentum, powersgd's Q; NULL where none */
    uint64_t own_count;
    uint64_t born; /* step of the first encoding (warm-up counts from it); UINT64_MAX: none yet */
} gw_codec_state;

/* What automatic parameters of a codec depend on. */
typedef struct gw_codec_run {
    double momentum; /* of the optimiser, which gives it up to the codec; 0: none */
    uint64_t steps;  /* of the whole run; 0: not known */
} gw_codec_run;

/* What a setup needs beyond values to encode. */
typedef enum gw_codec_needs {
    GW_NEEDS_WHOLE_TENSOR = 1, /* a contributor has a tensor's whole gradient: it clips by its norm (dgc) */
    GW_NEEDS_GRADIENTS = 2,    /* values are gradients: it keeps a momentum, which has no meaning over differences of
                                  weights (dgc) */
    GW_NEEDS_SAME_STEP = 4,    /* all ranks encode the same step, and agree on something first (terngrad:shared) */
} gw_codec_needs;

/* sum += more; what sum asks for stays. */
void gw_codec_report_add(gw_codec_report *sum, const gw_codec_report *more);

/* What the watch takes for healthy: a little beyond what was seen in models that learned well
 * (docs/explanation/accuracy.md). */
typedef struct gw_codec_range_trusted {
    double error;   /* norm(v - decoded) / norm(gradient) at most: with feedback, how many steps' gradients wait; 0:
                       nothing is known, all is trusted */
    double aligned; /* the cosine of decoded and gradient, at least */
} gw_codec_range_trusted;

struct gw_codec {
    gw_technique technique;          /* of the compress axis; first member, so that a cast converts between the two */
    bool identity;                   /* payloads are the values: an ordinary reduction gives the same, for any type */
    int significand;                 /* bits of an f32's significand that always arrive; 24: all; 0: no guarantee */
    double encode_rate, decode_rate; /* bytes of f32 per second on one core of an AMD EPYC with AVX2, as `gradwire bench
                                        codec` measured them; 0: not measured, predicted as a copy */
    gw_codec_range_trusted trusted;
    bool compensates;  /* always keeps a residual: has no meaning without one (dgc, powersgd) */
    bool selects;      /* sends some values and not the others, which only a residual keeps (topk,
                          threshold) */
    bool unbiased;     /* without feedback it rounds or selects at random: errors average out over ranks and steps (what
                          terngrad's clip cuts off aside) */
    uint32_t block;    /* elements; 0: only whole tensors */
    uint32_t least;    /* bytes that a block needs if the encoder sends as much as fits; 0: it needs `bound` */
    size_t merge_unit; /* bytes; 0 without merge */

    /* Replaces automatic values of its own parameters; NULL: it has none. */
    void (*choose)(double *values, const gw_codec_run *run);
    /* Returns why this tensor must be sent exact, as the end of a sentence ("has no ..."), or NULL if it is supported.
     * If the function itself is NULL, all tensors are supported. */
    const char *(*refuses)(const gw_codec_setup *setup, const gw_codec_tensor *tensor, uint32_t world);
    /* The setup with which an owner encodes the sum; NULL: the same setup. */
    gw_codec_setup (*second)(const gw_codec_setup *first);
    uint32_t (*rounds)(const gw_codec_setup *setup); /* NULL: one */
    unsigned (*needs)(const gw_codec_setup *setup);  /* of gw_codec_needs; NULL: nothing */
    /* The block of tensors that a schedule slices, a divisor of `block`; NULL: `block` is small enough. */
    uint32_t (*sliced_block)(const gw_codec_setup *setup);
    /* The longest payload of a round; the length of every payload where the codec merges. */
    size_t (*bound)(const gw_codec_setup *setup, const gw_codec_call *call, gw_codec_range range);
    /* Codecs of whole tensors: the elements that an encoder of this round takes at a time, so that what is done to them
     * before and after stays in cache; the payload is that of the parts, one after the other. NULL: all at once. */
    uint64_t (*chunk)(const gw_codec_call *call, const gw_codec_tensor *tensor);
    /* Encodes v (range.count floats). Needs capacity >= bound; if `least` is not 0, sends as much as fits. */
    gw_status (*encode)(const gw_codec_setup *setup, const gw_codec_call *call, gw_codec_range range,
                        gw_codec_state *state, const float *v, void *payload, size_t capacity, size_t *bytes,
                        gw_error *error);
    gw_status (*decode_add)(const gw_codec_setup *setup, const gw_codec_call *call, gw_codec_range range,
                            const void *payload, size_t bytes, float scale, float *sum, gw_error *error);
    /* into += from. NULL: payloads cannot be reduced in flight with this setup or at all (see gw_codec_merges). */
    void (*merge)(const gw_codec_setup *setup, const gw_codec_call *call, void *into, const void *from, size_t bytes);
    /* Whether this setup merges; NULL: whenever there is a merge. */
    bool (*merges)(const gw_codec_setup *setup);

    /* Hooks of codecs that keep more than a residual; NULL: nothing to do. */
    uint64_t (*own_count)(const gw_codec_setup *setup, gw_codec_range range); /* floats of state.own */
    /* Once a step, before the first encode, with the whole gradient: fills fresh own state, sets call->clip. */
    void (*prepare)(const gw_codec_setup *setup, gw_codec_call *call, const gw_codec_tensor *tensor,
                    gw_codec_state *state, const float *gradient);
    /* Replaces e += g on elements [first, first+count) of the tensor; returns the sum of squares of e. */
    double (*accumulate)(const gw_codec_setup *setup, const gw_codec_call *call, gw_codec_state *state, uint64_t first,
                         uint64_t count, const float *gradient);
    /* With feedback, replaces all that feedback does in round 0 where one pass over memory can: e += gradient, encodes
     * e, and, where there is one round, e -= decoded. Adds the squares of e to lost->input before the last, and to
     * lost->error after it. The payload and e have the same bits as apart. NULL: it is done apart, as it is where
     * samples are wanted. */
    void (*one_pass)(const gw_codec_setup *setup, const gw_codec_call *call, gw_codec_range range,
                     gw_codec_state *state, const float *gradient, void *payload, size_t capacity, size_t *bytes,
                     gw_codec_report *lost);
    /* Replaces e -= decoded, and the clearing of values that were not finite, where there is a faster way or a more
     * exact one: codecs that send exact values clear the sent elements in e and in their own state (dgc's masking). The
     * payload is the one that encode has just written. Returns the sum of squares of e after it; norm2: before it (0
     * in rounds after the first). */
    double (*take_off)(const gw_codec_setup *setup, const gw_codec_call *call, gw_codec_range range,
                       gw_codec_state *state, const void *payload, double norm2);
    /* After the last round, with its merged payload. */
    gw_status (*settle)(const gw_codec_setup *setup, const gw_codec_call *call, gw_codec_range range,
                        gw_codec_state *state, const void *payload, size_t bytes, gw_error *error);
};

#define GW_CODEC_DECLARE(name) extern const gw_codec gw_codec_##name;
GW_CODECS(GW_CODEC_DECLARE, GW_CODEC_DECLARE)
extern const gw_codec *const gw_codecs[]; /* in this order, NULL at the end */

/* The compress axis: the codecs in this order, then doublesqueeze; NULL at the end. */
extern const gw_technique *const gw_compress_techniques[];
const gw_codec *gw_codec_find(const char *name); /* NULL: none of that name */

/* Setups. */

/* Replaces automatic parameters by those for this run. technique is one of gw_compress_techniques, values are in the
 * order of its params. */
void gw_codec_choose(const gw_technique *technique, double *values, const gw_codec_run *run);
/* Automatic parameters of a setup are those for a run of which nothing is known. */
gw_codec_setup gw_codec_default(const gw_codec *codec);
/* technique and values as in gw_codec_choose. On failure *setup is untouched. */
gw_status gw_codec_from_setting(const gw_technique *technique, const double *values, gw_codec_setup *setup,
                                gw_error *error);
/* Parses the text after `compress=` of a strategy line: "topk:ratio=0.001,feedback=both". On failure *setup is
 * untouched. */
gw_status gw_codec_parse(const char *text, gw_codec_setup *setup, gw_error *error);
/* GW_UNSUPPORTED where the codec cannot have the form, or loses gradient for good in it that another form would keep;
 * without feedback, where the codec needs it; and where there is a limit, but payloads are reduced in flight. */
gw_status gw_codec_check(const gw_codec_setup *setup, gw_error *error);
/* The momentum that a worker's encoding applies to gradients; 0: none. */
double gw_codec_momentum(const gw_codec_setup *setup);
/* A parameter of the codec's own; asserts that there is one. */
double gw_codec_value(const gw_codec_setup *setup, const char *param);
/* The setup with which an owner encodes the sum: the same codec, without momentum (dgc) and with a residual of
 * its own where feedback is BOTH. */
gw_codec_setup gw_codec_second(const gw_codec_setup *first);
/* The setup of an exact exchange: codec none, which also sends the residual. */
gw_codec_setup gw_codec_exact(const gw_codec_setup *setup);
/* The setup for a schedule that slices tensors: blocks that are smaller than a slice, so that slices can be cut and
 * each has work for many owners. Depends on nothing but the setup: payloads are the same however slices are cut. */
gw_codec_setup gw_codec_sliced(const gw_codec_setup *setup);
uint32_t gw_codec_block(const gw_codec_setup *setup); /* elements; 0: only whole tensors */

/* Forms (form.c). */

const char *gw_coded_form_name(gw_coded_form form); /* "one pass" */
/* The form of an exchange among so many members; halves: a schedule starts its two halves apart. Never AUTO. */
gw_coded_form gw_coded_form_of(const gw_codec_setup *setup, int members, bool halves);
/* The same through parameter servers: they merge payloads (in flight), encode what they answer (two passes: sums, or
 * differences of weights), or answer with exact values (one pass). weights: servers keep weights and answer with them,
 * not with sums. */
gw_coded_form gw_coded_form_served(const gw_codec_setup *setup, bool weights);
/* What is lost for good in that form, as a sentence without its end; NULL: nothing, or only on average nothing. */
const char *gw_coded_form_loses(const gw_codec_setup *setup, gw_coded_form form);
/* Of an unbiased setup: by how much the variance of the sum exceeds that of one encoding on each member. One pass: 1.
 * Two passes: 2 + w, where w is the variance of an encoding relative to the squared norm; 1 of it are the members'
 * encodings, 1 + w is the owners' encoding of a sum with that noise in it. For members whose gradients are independent
 * and normally distributed; w is measured on such values. 0: the setup is biased. */
gw_status gw_coded_form_variance(const gw_codec_setup *setup, gw_coded_form form, double *factor, gw_error *error);

/* Why the tensor is not supported, as the end of a sentence; NULL: it is supported. */
const char *gw_codec_refuses(const gw_codec_setup *setup, const gw_codec_tensor *tensor, uint32_t world);
uint32_t gw_codec_rounds(const gw_codec_setup *setup);
bool gw_codec_has_need(const gw_codec_setup *setup, gw_codec_needs need);
bool gw_codec_merges(const gw_codec_setup *setup);
/* Whether a state is needed, and whether it holds a residual. */
bool gw_codec_stateful(const gw_codec_setup *setup);
bool gw_codec_residual(const gw_codec_setup *setup);

/* State. Made once, at set-up. */

uint64_t gw_codec_state_bytes(const gw_codec_setup *setup, gw_codec_range range);
gw_status gw_codec_state_make(gw_codec_state *state, const gw_codec_setup *setup, gw_codec_range range,
                              gw_error *error);
/* For some elements of a tensor, which are encoded in ranges of one stripe each. */
gw_status gw_codec_state_make_for(gw_codec_state *state, const gw_codec_setup *setup, const gw_codec_tensor *tensor,
                                  const gw_stripes *covers, gw_error *error);
/* Where the residual of an element is, which the state covers; the next ones of its stripe follow. NULL: it keeps no
 * residual. */
float *gw_codec_residual_at(const gw_codec_state *state, uint64_t element);
void gw_codec_state_free(gw_codec_state *state); /* and clears it; a zeroed state is fine */
/* Clears everything, as when the ranks change and no rank takes the residuals over. */
void gw_codec_state_drop(gw_codec_state *state);
/* A saved state is exact, byte for byte, and in host order (little endian). restore: GW_MISMATCH if it is the state of
 * another tensor or codec; *state is then untouched. */
size_t gw_codec_state_saved_bytes(const gw_codec_state *state);
void gw_codec_state_save(const gw_codec_state *state, void *bytes);
gw_status gw_codec_state_restore(gw_codec_state *state, const void *bytes, size_t length, gw_error *error);
/* Adds share times a saved state of the same tensor and codec to a worker's state. The saved state is a worker's or
 * that of an owner's part. This moves residuals to another number of ranks. GW_MISMATCH as for restore. */
gw_status gw_codec_state_add(gw_codec_state *state, float share, const void *bytes, size_t length, gw_error *error);
/* Adds the residual of a saved state, of any codec, to the values of its whole tensor of `count` elements. GW_MISMATCH
 * if it is of another tensor, or cut short. */
gw_status gw_codec_saved_residual_add(float *values, uint64_t count, const void *bytes, size_t length, gw_error *error);

/* Encoding and decoding. A range, a state and a setup that do not match are GW_INVALID. */

/* Once a step and tensor, by one thread, before the first encode of the step: fills call->clip and notes the state's
 * birth. gradient is the whole tensor's and is read only by dgc with clipping. */
void gw_codec_prepare(const gw_codec_setup *setup, gw_codec_call *call, const gw_codec_tensor *tensor,
                      gw_codec_state *state, const float *gradient);
size_t gw_codec_bound(const gw_codec_setup *setup, const gw_codec_call *call, gw_codec_range range);
/* gradient: range.count floats, not changed; state NULL where none is needed; report NULL: not wanted (with feedback it
 * is free, without it costs a decode). On failure *bytes is 0 and the residual may hold part of this gradient. */
gw_status gw_codec_encode(const gw_codec_setup *setup, const gw_codec_call *call, gw_codec_range range,
                          gw_codec_state *state, const float *gradient, void *payload, size_t capacity, size_t *bytes,
                          gw_codec_report *report, gw_error *error);
/* sum[0..range.count) += scale * decoded. */
gw_status gw_codec_decode_add(const gw_codec_setup *setup, const gw_codec_call *call, gw_codec_range range,
                              const void *payload, size_t bytes, float scale, float *sum, gw_error *error);
void gw_codec_merge(const gw_codec_setup *setup, const gw_codec_call *call, void *into, const void *from, size_t bytes);
gw_status gw_codec_settle(const gw_codec_setup *setup, const gw_codec_call *call, gw_codec_range range,
                          gw_codec_state *state, const void *payload, size_t bytes, gw_error *error);

/* The accuracy guard of one tensor: a running relative error, and whether to send the tensor exact. */
typedef struct gw_codec_guard {
    double limit;         /* of the relative error; 0: never exact */
    double error;         /* running: norm(v - decoded) / norm(v) */
    double residual_norm; /* of the last step */
    bool exact;           /* send this tensor exact (gw_codec_exact) */
} gw_codec_guard;

/* After each step of the tensor, sent exact or not. True where `exact` changed: worth a log line. */
bool gw_codec_guard_update(gw_codec_guard *guard, const gw_codec_report *report);

/* The watch over a codec that is trusted within a range: in every so many exchanges a report with a sample, of all
 * ranks together, so that they decide alike. */
#define GW_CODEC_WATCH_EVERY 8 /* exchanges */

typedef struct gw_codec_watch {
    double error, aside; /* running: of the error relative to the gradient, of 1 - cosine */
    bool exact;          /* send these values exact (gw_codec_flush) */
} gw_codec_watch;

/* After each watched step, with the report of each pass; the worst counts. Reports of values that were sent exact are
 * all zeros. True where `exact` changed. */
bool gw_codec_watch_update(gw_codec_watch *watch, const gw_codec *codec, const gw_codec_report *reports, int passes);
/* What is sent instead of an encoding: the values and the residual, which is then 0. values may be the gradient. */
void gw_codec_flush(const gw_codec_setup *setup, const gw_codec_call *call, gw_codec_range range, gw_codec_state *state,
                    const float *gradient, float *values);

#endif
