/* compress.h - codecs: fewer bytes for a gradient. One codec a file, all of them in one table (GW_CODECS).
 *
 * A codec encodes a range of one tensor into the caller's memory, says how long that can get (`bound`), and adds a
 * decoded payload to a sum. A tensor may be cut anywhere at multiples of the codec's block (counted from the tensor's
 * first element, so cuts do not move when buckets do): the payload of a range is the payloads of its blocks, one after
 * the other, and decodes to the same values however the tensor was cut. Random numbers are a function of seed, step,
 * tensor, rank and element (randomk and powersgd: not of the rank). Results are the same bits at every CPU level.
 *
 * How payloads of several ranks become a sum:
 *   - a codec with `merge`: payloads have all the same length and are reduced in flight by any reduce plan, in pieces
 *     of any multiple of merge_unit bytes; the result is decoded once and holds the sum over the ranks.
 *   - a codec without: each rank owns a share of the tensor; pieces go to their owner, which decodes and adds them,
 *     encodes the sum again (gw_codec_second, pass 1) and gives that to all, itself included. Or every rank gathers
 *     every payload and adds them in rank order.
 *
 * Rounds. Some codecs need several reduced rounds (powersgd two; terngrad:shared one of scales first). Round r > 0 gets
 * in the call the merged payload of round r-1, which must stay valid until the last round is decoded; only the payload
 * of the last round is decoded. Such codecs have merge for every round.
 *
 * Feedback (feedback.c) wraps any codec: v = g + e is encoded, and e = v - decoded stays here until the next step.
 *
 * Decoders are fed by the network: every payload is checked first, and one that is too short, too long or points
 * outside the tensor is GW_PROTOCOL, with the sum untouched. A NaN or an infinity in a gradient arrives as a NaN or an
 * infinity, maybe in more elements of its block (docs/compression.md).
 *
 * Payloads are aligned to 4 bytes by the caller, and hold little-endian numbers.
 *
 * Threads: setups are read only. A state may be used by several threads at once for ranges that do not overlap. */
#ifndef GW_COMPRESS_H
#define GW_COMPRESS_H

#include "base/status.h"
#include "base/technique.h"

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

#define GW_CODEC_PARAMS_MAX 4 /* of a codec's own */

/* Who keeps what its encoding lost; the words of the parameter "feedback". */
typedef enum gw_codec_feedback {
    GW_FEEDBACK_NONE,
    GW_FEEDBACK_WORKER,
    GW_FEEDBACK_BOTH, /* the worker, and the owner for its second pass: DoubleSqueeze */
} gw_codec_feedback;

/* A codec and its parameters. Plain value. */
typedef struct gw_codec_setup {
    const gw_codec *codec;
    double value[GW_CODEC_PARAMS_MAX]; /* of its own parameters, which come first in codec->technique.params */
    gw_codec_feedback feedback;
    double limit; /* of the relative error, beyond which a tensor is sent exact until it recovers; 0: never */
} gw_codec_setup;

/* The moment of an encoding; the same for all tensors of a step but for the fields marked (tensor). */
typedef struct gw_codec_call {
    uint64_t seed; /* of the job */
    uint64_t step;
    uint32_t rank, world; /* who encodes, and how many payloads will be merged or added */
    uint32_t pass;        /* 0: a worker's own gradient; 1: an owner encodes the sum again */
    uint32_t round;
    float rate_growth;   /* of the learning rate since the step before: 0.1 is 10 % more. What waits in a residual was
                            meant for the rate of its own step, and is divided by 1 + this */
    float clip;          /* (tensor) what the gradient is multiplied by first; set by gw_codec_prepare */
    const void *reduced; /* (tensor) round > 0: the merged payload of the round before, of the same range */
    size_t reduced_bytes;
} gw_codec_call;

/* What an encoding lost; add up over ranges, and give to a guard. Sums of squares, so that they can be added. */
typedef struct gw_codec_report {
    double input; /* of v, what was to be sent */
    double error; /* of v - decoded: the residual where there is feedback */
} gw_codec_report;

/* What a codec keeps of one tensor, or of an owner's part of it, from step to step. */
typedef struct gw_codec_state {
    gw_codec_tensor tensor; /* the name is a copy */
    uint64_t first, count;  /* elements the residual covers */
    float *residual;        /* count floats; NULL without feedback */
    float *own;             /* own_count floats of the codec itself: dgc's momentum, powersgd's Q; NULL where none */
    uint64_t own_count;
    uint64_t born; /* step of the first encoding (warm-up counts from it); UINT64_MAX: none yet */
} gw_codec_state;

struct gw_codec {
    gw_technique technique; /* of the compress axis; first, so that one leads to the other */
    bool compensates;       /* keeps a residual whatever is asked (dgc, powersgd) */
    uint32_t block;         /* elements; 0: only whole tensors */
    uint32_t least;         /* bytes a block needs at least, where the encoder sends what fits; 0: needs bound */
    size_t merge_unit;      /* bytes; 0 without merge */

    /* Why this tensor has to be sent exact, as the end of a sentence ("has no ..."), NULL: it can be carried. NULL: all
     * can. */
    const char *(*refuses)(const gw_codec_setup *setup, const gw_codec_tensor *tensor, uint32_t world);
    /* What an owner encodes the sum with; NULL: the same. */
    gw_codec_setup (*second)(const gw_codec_setup *first);
    uint32_t (*rounds)(const gw_codec_setup *setup); /* NULL: one */
    /* The longest payload of a round; the length of every payload where the codec merges. */
    size_t (*bound)(const gw_codec_setup *setup, const gw_codec_call *call, gw_codec_range range);
    /* Encodes v (range.count floats). Needs capacity >= bound, or where `least` is not 0 sends what fits. */
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
    /* Instead of e += g, on elements [first, first+count) of the tensor; returns the sum of squares of e. */
    double (*accumulate)(const gw_codec_setup *setup, const gw_codec_call *call, gw_codec_state *state, uint64_t first,
                         uint64_t count, const float *gradient);
    /* Instead of e -= decoded where what was sent is exact: clears it, in the codec's own state as well (dgc's
     * masking). The payload is what encode has just written. Returns the sum of squares that went. */
    double (*take_off)(const gw_codec_setup *setup, gw_codec_range range, gw_codec_state *state, const void *payload);
    /* After the last round, with its merged payload. */
    gw_status (*settle)(const gw_codec_setup *setup, const gw_codec_call *call, gw_codec_range range,
                        gw_codec_state *state, const void *payload, size_t bytes, gw_error *error);
};

/* The one table: a line here and a file, and a codec is there. The first is the default of the axis. */
#define GW_CODECS(X)                                                                                                   \
    X(none)                                                                                                            \
    X(fp16)                                                                                                            \
    X(bf16)                                                                                                            \
    X(int8)                                                                                                            \
    X(onebit)                                                                                                          \
    X(qsgd)                                                                                                            \
    X(terngrad)                                                                                                        \
    X(topk)                                                                                                            \
    X(randomk)                                                                                                         \
    X(threshold)                                                                                                       \
    X(dgc)                                                                                                             \
    X(powersgd)

#define GW_CODEC_DECLARE(name) extern const gw_codec gw_codec_##name;
GW_CODECS(GW_CODEC_DECLARE)

/* The compress axis: the codecs in this order, then doublesqueeze; NULL at the end. */
extern const gw_technique *const gw_compress_techniques[];
const gw_codec *gw_codec_find(const char *name); /* NULL: none of that name */

/* Setups. */

gw_codec_setup gw_codec_default(const gw_codec *codec);
/* technique is one of gw_compress_techniques, values are in the order of its params. On failure *setup is untouched. */
gw_status gw_codec_from_setting(const gw_technique *technique, const double *values, gw_codec_setup *setup,
                                gw_error *error);
/* What may follow `compress=` in a strategy line: "topk:ratio=0.001,feedback=both". On failure *setup is untouched. */
gw_status gw_codec_parse(const char *text, gw_codec_setup *setup, gw_error *error);
/* GW_UNSUPPORTED where there is a limit, but payloads are reduced in flight. */
gw_status gw_codec_check(const gw_codec_setup *setup, gw_error *error);
/* A parameter of the codec's own; asserts that there is one. */
double gw_codec_value(const gw_codec_setup *setup, const char *param);
/* What an owner encodes the sum with: the same codec, without momentum (dgc: topk) and with a residual of its own where
 * feedback is BOTH. */
gw_codec_setup gw_codec_second(const gw_codec_setup *first);
/* What an exact exchange uses: none, flushing the same residual. */
gw_codec_setup gw_codec_exact(const gw_codec_setup *setup);

/* One sentence why the tensor cannot be carried, or NULL. */
const char *gw_codec_refuses(const gw_codec_setup *setup, const gw_codec_tensor *tensor, uint32_t world);
uint32_t gw_codec_rounds(const gw_codec_setup *setup);
bool gw_codec_merges(const gw_codec_setup *setup);
/* Whether a state is needed, and whether it holds a residual. */
bool gw_codec_stateful(const gw_codec_setup *setup);
bool gw_codec_residual(const gw_codec_setup *setup);

/* State. Made once, at set-up. */

uint64_t gw_codec_state_bytes(const gw_codec_setup *setup, gw_codec_range range);
gw_status gw_codec_state_make(gw_codec_state *state, const gw_codec_setup *setup, gw_codec_range range,
                              gw_error *error);
void gw_codec_state_free(gw_codec_state *state); /* and clears it; a zeroed state is fine */
/* Forgets everything, as when the ranks change and nobody takes the residuals over. */
void gw_codec_state_drop(gw_codec_state *state);
/* Exact, byte for byte; in host order (little endian). restore: GW_MISMATCH where it is another tensor or another
 * codec's state, the state untouched. */
size_t gw_codec_state_saved_bytes(const gw_codec_state *state);
void gw_codec_state_save(const gw_codec_state *state, void *bytes);
gw_status gw_codec_state_restore(gw_codec_state *state, const void *bytes, size_t length, gw_error *error);
/* Adds share times a saved state of the same tensor and codec, of a worker or of an owner's part, to a worker's: how
 * residuals are handed over to another number of ranks. GW_MISMATCH as restore. */
gw_status gw_codec_state_add(gw_codec_state *state, float share, const void *bytes, size_t length, gw_error *error);

/* The work. A range, a state and a setup that do not fit each other are GW_INVALID. */

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

/* The accuracy guard of one tensor: a running relative error, and when to send it exact. */
typedef struct gw_codec_guard {
    double limit;         /* of the relative error; 0: never exact */
    double error;         /* running: norm(v - decoded) / norm(v) */
    double residual_norm; /* of the last step */
    bool exact;           /* send this tensor exact (gw_codec_exact) */
} gw_codec_guard;

/* After each step of the tensor, sent exact or not. True where `exact` changed: worth a log line. */
bool gw_codec_guard_update(gw_codec_guard *guard, const gw_codec_report *report);

#endif
