/* test_codec.c - properties of every codec: the fast version has the reference's bits, cuts do not matter, damaged
 * payloads do no harm, NaN and infinities arrive, and merged payloads add up. */
#include "codec_run.h"

#define COUNT_MAX 200001

static float input[COUNT_MAX + 2], sum_a[COUNT_MAX], sum_b[COUNT_MAX];

static bool same_float(float a, float b) { return memcmp(&a, &b, sizeof a) == 0 || (isnan(a) && isnan(b)); }

static bool same_floats(const float *a, const float *b, size_t count) {
    for (size_t i = 0; i < count; i++) {
        if (!same_float(a[i], b[i])) return false;
    }
    return true;
}

/* One step of each run with the same gradient: payload, decoded values, state and report have the same bits. */
static bool same_step(codec_run *plain, codec_run *fast, gw_cpu_level level, const float *gradient, bool payloads) {
    size_t count = plain->tensor.count;
    memset(sum_a, 0, count * sizeof *sum_a);
    memset(sum_b, 0, count * sizeof *sum_b);
    gw_cpu_limit(GW_CPU_PLAIN);
    run_encode(plain, gradient);
    run_decode(plain, sum_a);
    gw_cpu_limit(level);
    run_encode(fast, gradient);
    run_decode(fast, sum_b);
    uint32_t last = run_last(plain);
    bool same = plain->bytes[last] == fast->bytes[last] && same_floats(sum_a, sum_b, count);
    if (payloads) same &= memcmp(plain->payload[last], fast->payload[last], plain->bytes[last]) == 0;
    if (plain->state.residual) same &= same_floats(plain->state.residual, fast->state.residual, count);
    if (plain->state.own) same &= same_floats(plain->state.own, fast->state.own, plain->state.own_count);
    return same &&
           (memcmp(&plain->report.error, &fast->report.error, sizeof(double)) == 0 || isnan(plain->report.error));
}

/* Two runs side by side, one plain and one fast; gradients at addresses that no vector has. */
static bool compare_levels(const char *text, size_t count, input_kind kind, int steps, gw_cpu_level level) {
    codec_run plain, fast;
    float *gradient = input + count % 3;
    if (!run_open(&plain, text, 0, count)) return true;
    run_open(&fast, text, 0, count);
    bool same = true;
    for (int step = 0; step < steps; step++) {
        fill_input(gradient, count, kind, count * 31 + (size_t)step);
        same &= same_step(&plain, &fast, level, gradient, kind != INPUT_NASTY);
    }
    if (!same) printf("    %s, %zu elements, input %d: %s differs\n", text, count, (int)kind, gw_cpu_name(level));
    run_close(&fast);
    run_close(&plain);
    gw_cpu_limit(GW_CPU_AVX512);
    return same;
}

/* Levels take turns: each count meets both. */
static void fast_equals_reference(void) {
    for (int s = 0; codec_setup(s); s++) {
        for (size_t count = 0; count <= 300; count++) {
            for (int kind = 0; kind < (count < 100 ? INPUTS : INPUT_ZERO); kind++) {
                gw_cpu_level level = (count + (size_t)kind) % 2 ? GW_CPU_AVX2 : GW_CPU_AVX512;
                CHECK(compare_levels(codec_setup(s), count, (input_kind)kind, 2, level));
            }
        }
    }
}

static void fast_equals_reference_large(void) {
    static const size_t counts[] = {511, 512, 513, 2048, 2049, 4097, 65535, 65536, 65537, 140000};
    for (int s = 0; codec_setup(s); s++) {
        for (size_t c = 0; c < sizeof counts / sizeof counts[0]; c++) {
            for (int kind = 0; kind < INPUTS; kind++) {
                if (counts[c] > 5000 && kind != INPUT_NORMAL && kind != INPUT_NASTY && kind != INPUT_EQUAL &&
                    kind != INPUT_LEVELS)
                    continue;
                CHECK(compare_levels(codec_setup(s), counts[c], (input_kind)kind, 2, GW_CPU_AVX2));
                CHECK(compare_levels(codec_setup(s), counts[c], (input_kind)kind, 2, GW_CPU_AVX512));
            }
        }
    }
}

/* Where samples are wanted, feedback adds, encodes and takes off apart, else in one pass. Every other block of 65,536
 * is smaller by far, so that a guess that one block gives the next is wrong. */
static bool compare_passes(const char *text, size_t count, input_kind kind, gw_cpu_level level) {
    codec_run once, apart;
    if (!run_open(&once, text, 0, count)) return true;
    run_open(&apart, text, 0, count);
    apart.report.samples = true;
    bool same = true;
    gw_cpu_limit(level);
    for (uint64_t step = 0; step < 3; step++) {
        fill_input(input, count, kind, count + step);
        for (size_t i = 0; i < count; i++) input[i] *= i >> 16 & 1 ? 1e-5f : 1;
        run_encode(&once, input);
        run_encode(&apart, input);
        uint32_t last = run_last(&once);
        same &= once.bytes[last] == apart.bytes[last];
        same &= kind == INPUT_NASTY || memcmp(once.payload[last], apart.payload[last], once.bytes[last]) == 0;
        if (once.state.residual) same &= same_floats(once.state.residual, apart.state.residual, count);
        same &= !isfinite(apart.report.input) || !isfinite(apart.report.error) ||
                fabs(once.report.error - apart.report.error) <= 1e-4 * (apart.report.error + apart.report.input);
    }
    if (!same) printf("    %s, %zu elements, input %d, %s\n", text, count, (int)kind, gw_cpu_name(level));
    run_close(&apart);
    run_close(&once);
    gw_cpu_limit(GW_CPU_AVX512);
    return same;
}

static void one_pass_equals_apart(void) {
    static const size_t counts[] = {1, 33, 2047, 2048, 6000, 65535, 65536 + 4100, 200001};
    static const char *const codecs[] = {"onebit",  "onebit:threshold=mean", "topk", "topk:ratio=0.2", "threshold",
                                         "powersgd"};
    for (size_t c = 0; c < sizeof codecs / sizeof codecs[0]; c++) {
        for (size_t n = 0; n < sizeof counts / sizeof counts[0]; n++) {
            for (int kind = 0; kind < INPUTS; kind++) {
                if (counts[n] > 100000 && kind != INPUT_NORMAL && kind != INPUT_NASTY && kind != INPUT_LEVELS) continue;
                for (int level = GW_CPU_PLAIN; level <= GW_CPU_AVX512; level++)
                    CHECK(compare_passes(codecs[c], counts[n], (input_kind)kind, (gw_cpu_level)level));
            }
        }
    }
}

/* Encodes the tensor in parts cut at random blocks, decodes each, and compares with the whole. */
static void check_cuts(const char *text, size_t count, uint64_t seed) {
    codec_run whole, cut;
    if (!run_open(&whole, text, 0, count)) return;
    run_open(&cut, text, 0, count);
    gw_rng rng = gw_rng_make(seed, 0);
    uint32_t block = whole.setup.codec->block;
    for (int step = 0; block && step < 2; step++) {
        fill_input(input, count, INPUT_NORMAL, seed + (uint64_t)step);
        memset(sum_a, 0, count * sizeof *sum_a);
        memset(sum_b, 0, count * sizeof *sum_b);
        run_encode(&whole, input);
        run_decode(&whole, sum_a);
        cut.call.step++;
        gw_codec_prepare(&cut.setup, &cut.call, &cut.tensor, &cut.state, input);
        for (uint64_t at = 0; at < count;) {
            uint64_t length = block * (1 + gw_rng_below(&rng, count / block / 3 + 1));
            if (length > count - at) length = count - at;
            gw_codec_range range = {&cut.tensor, at, length};
            for (uint32_t round = 0; round <= run_last(&cut); round++) {
                run_round(&cut, round);
                CHECK_EQ(GW_OK,
                         gw_codec_encode(&cut.setup, &cut.call, range, &cut.state, input + at, cut.payload[round],
                                         gw_codec_bound(&cut.setup, &cut.call, range), &cut.bytes[round], NULL, NULL));
            }
            uint32_t last = run_last(&cut);
            CHECK_EQ(GW_OK, gw_codec_decode_add(&cut.setup, &cut.call, range, cut.payload[last], cut.bytes[last], 1.0f,
                                                sum_b + at, NULL));
            at += length;
        }
        bool same = same_floats(sum_a, sum_b, count);
        if (whole.state.residual) same &= same_floats(whole.state.residual, cut.state.residual, count);
        if (!same) printf("    %s of %zu elements depends on where it is cut\n", text, count);
        CHECK(same);
    }
    run_close(&cut);
    run_close(&whole);
}

static void parts_equal_whole(void) {
    for (int s = 0; codec_setup(s); s++) {
        check_cuts(codec_setup(s), 10007, 5);
        check_cuts(codec_setup(s), 200001, 6);
    }
}

static bool refused(codec_run *r, const uint8_t *payload, size_t bytes) {
    size_t count = r->tensor.count;
    memset(sum_a, 0, count * sizeof *sum_a);
    gw_status status =
        gw_codec_decode_add(&r->setup, &r->call, gw_codec_whole(&r->tensor), payload, bytes, 1.0f, sum_a, NULL);
    for (size_t i = 0; status && i < count; i++) CHECK(sum_a[i] == 0.0f);
    return status == GW_PROTOCOL;
}

/* Cut short and too long by one: always refused. Payloads are copied to memory of their exact size, for sanitizers. */
static void wrong_lengths_are_refused(void) {
    for (int s = 0; codec_setup(s); s++) {
        codec_run r;
        if (!run_open(&r, codec_setup(s), 0, 600)) continue;
        fill_input(input, 600, INPUT_NORMAL, 9);
        run_encode(&r, input);
        uint32_t last = run_last(&r);
        run_round(&r, last);
        for (size_t bytes = 0; bytes <= r.bytes[last] + 3; bytes++) {
            if (bytes == r.bytes[last]) continue;
            uint8_t *copy = calloc(1, bytes ? bytes : 1);
            memcpy(copy, r.payload[last], bytes < r.bytes[last] ? bytes : r.bytes[last]);
            bool said = refused(&r, copy, bytes);
            if (!said) printf("    %s takes %zu bytes instead of %zu\n", codec_setup(s), bytes, r.bytes[last]);
            CHECK(said);
            free(copy);
        }
        run_close(&r);
    }
}

static void damaged_payloads_do_no_harm(void) {
    gw_rng rng = gw_rng_make(77, 0);
    for (int s = 0; codec_setup(s); s++) {
        codec_run r;
        if (!run_open(&r, codec_setup(s), 0, 1400)) continue;
        fill_input(input, 1400, INPUT_NORMAL, 9);
        run_encode(&r, input);
        uint32_t last = run_last(&r);
        run_round(&r, last);
        for (int round = 0; round < 300 && r.bytes[last]; round++) {
            uint8_t *copy = malloc(r.bytes[last]);
            memcpy(copy, r.payload[last], r.bytes[last]);
            for (int i = 0; i < 4; i++) copy[gw_rng_below(&rng, r.bytes[last])] = (uint8_t)gw_rng_u32(&rng);
            refused(&r, copy, r.bytes[last]);
            free(copy);
        }
        run_close(&r);
    }
}

/* A gap beyond the block, more values than elements, a gap of four bytes: each is refused. */
static void sparse_payloads_are_checked(void) {
    static const uint8_t beyond[] = {1, 0, 0, 100, 0, 0, 128, 63}, many[] = {101, 0, 0},
                         endless[] = {1, 0, 0, 255, 255, 255, 255};
    static const uint8_t together[] = {2, 0, 0, 50, 49, 0, 0, 128, 63, 0, 0, 128, 63},
                         fits[] = {2, 0, 0, 50, 48, 0, 0, 128, 63, 0, 0, 128, 63};
    codec_run r;
    run_open(&r, "topk", 1, 100);
    CHECK(refused(&r, beyond, sizeof beyond));
    CHECK(refused(&r, many, sizeof many));
    CHECK(refused(&r, endless, sizeof endless));
    CHECK(refused(&r, together, sizeof together));
    CHECK(!refused(&r, fits, sizeof fits));
    CHECK(sum_a[50] == 1.0f && sum_a[99] == 1.0f);
    run_close(&r);
}

static bool any_not_finite(const float *x, size_t count) {
    for (size_t i = 0; i < count; i++) {
        if (!isfinite(x[i])) return true;
    }
    return false;
}

/* One bad value at every kind of place arrives as such, and the steps after it are clean. */
static void not_finite_arrives(void) {
    static const float bad[] = {NAN, INFINITY, -INFINITY};
    static const size_t places[] = {0, 7, 63, 511, 2999};
    enum { COUNT = 3000 };
    for (int s = 0; codec_setup(s); s++) {
        for (int b = 0; b < 3; b++) {
            for (size_t p = 0; p < sizeof places / sizeof places[0]; p++) {
                codec_run r;
                if (!run_open(&r, codec_setup(s), 0, COUNT)) continue;
                bool everywhere = r.setup.codec == &gw_codec_randomk;
                for (int step = 0; step < 4; step++) {
                    fill_input(input, COUNT, INPUT_NORMAL, (uint64_t)step);
                    if (step == 1) input[places[p]] = bad[b];
                    memset(sum_a, 0, sizeof(float) * COUNT);
                    run_encode(&r, input);
                    run_decode(&r, sum_a);
                    bool arrived = everywhere ? any_not_finite(sum_a, COUNT) : !isfinite(sum_a[places[p]]);
                    bool right = step == 1 ? arrived : !any_not_finite(sum_a, COUNT);
                    if (!right) printf("    %s, %f at %zu, step %d\n", codec_setup(s), (double)bad[b], places[p], step);
                    CHECK(right);
                }
                run_close(&r);
            }
        }
    }
}

static void zero_stays_zero(void) {
    for (int s = 0; codec_setup(s); s++) {
        for (size_t count = 1; count < 3000; count = count * 3 + 1) {
            codec_run r;
            if (!run_open(&r, codec_setup(s), 0, count)) continue;
            fill_input(input, count, INPUT_ZERO, 0);
            memset(sum_a, 0, count * sizeof *sum_a);
            run_encode(&r, input);
            run_decode(&r, sum_a);
            bool stochastic_sign = strcmp(codec_setup(s), "qsgd:bits=1") == 0;
            for (size_t i = 0; i < count && !stochastic_sign; i++) CHECK(sum_a[i] == 0.0f);
            run_close(&r);
        }
    }
}

/* A buffer for less than was selected: what is sent plus the residual is the input, exactly. */
static void a_short_buffer_keeps_the_rest(void) {
    static const char *const texts[] = {"topk:ratio=0.05", "threshold:ratio=0.05",
                                        "dgc:ratio=0.05,momentum=0,warmup=0"};
    enum { COUNT = 140000 };
    for (int t = 0; t < 3; t++) {
        for (size_t room = 9; room < 60000; room = room * 3 + 1) {
            codec_run r;
            run_open(&r, texts[t], 1, COUNT);
            fill_input(input, COUNT, INPUT_NORMAL, 3);
            memset(sum_a, 0, sizeof(float) * COUNT);
            r.capacity[0] = room < r.capacity[0] ? room : r.capacity[0];
            run_encode(&r, input);
            run_decode(&r, sum_a);
            for (size_t i = 0; i < COUNT; i++) CHECK(sum_a[i] + r.state.residual[i] == input[i]);
            CHECK(r.bytes[0] <= room);
            run_close(&r);
        }
    }
    codec_run r;
    size_t bytes;
    run_open(&r, "int8", 1, 100);
    CHECK_EQ(GW_INVALID, gw_codec_encode(&r.setup, &r.call, gw_codec_whole(&r.tensor), NULL, input, r.payload[0],
                                         r.capacity[0] - 1, &bytes, NULL, NULL));
    run_close(&r);
}

#define RANKS_MAX 12

/* Ranks encode, payloads are merged in odd parts, the result is decoded once. */
static void check_merge(const char *text, uint32_t world, double tolerance) {
    enum { COUNT = 6000 };
    codec_run rank[RANKS_MAX];
    double expected[COUNT] = {0}, largest = 0;
    for (uint32_t r = 0; r < world; r++) {
        run_open(&rank[r], text, 60, COUNT);
        rank[r].call.rank = r;
        rank[r].call.world = world;
        gw_codec_prepare(&rank[r].setup, &rank[r].call, &rank[r].tensor, &rank[r].state, input);
    }
    for (uint32_t round = 0; round <= run_last(&rank[0]); round++) {
        size_t bytes = 0;
        for (uint32_t r = 0; r < world; r++) {
            codec_run *me = &rank[r];
            fill_input(input, COUNT, INPUT_NORMAL, 50 + r);
            run_round(me, round);
            me->capacity[round] = gw_codec_bound(&me->setup, &me->call, gw_codec_whole(&me->tensor));
            me->payload[round] = realloc(me->payload[round], me->capacity[round]);
            if (round) memcpy(me->payload[round - 1], rank[0].payload[round - 1], me->bytes[round - 1]);
            run_round(me, round);
            CHECK_EQ(GW_OK, gw_codec_encode(&me->setup, &me->call, gw_codec_whole(&me->tensor), &me->state, input,
                                            me->payload[round], me->capacity[round], &bytes, NULL, NULL));
            CHECK_EQ(me->capacity[round], bytes);
            me->bytes[round] = bytes;
            if (round < run_last(me)) continue;
            memset(sum_a, 0, sizeof(float) * COUNT);
            run_decode(me, sum_a); /* its own payload alone */
            for (size_t i = 0; i < COUNT; i++) expected[i] += (double)sum_a[i];
        }
        size_t unit = rank[0].setup.codec->merge_unit, step = unit * 37;
        for (uint32_t r = 1; r < world; r++) {
            for (size_t at = 0; at < bytes; at += step) {
                gw_codec_merge(&rank[r].setup, &rank[r].call, rank[0].payload[round] + at, rank[r].payload[round] + at,
                               bytes - at < step ? bytes - at : step);
            }
        }
    }
    memset(sum_b, 0, sizeof(float) * COUNT);
    run_decode(&rank[0], sum_b);
    for (size_t i = 0; i < COUNT; i++) {
        double off = fabs(expected[i] - (double)sum_b[i]);
        if (off > largest) largest = off;
    }
    if (largest > tolerance) printf("    %s, %u ranks: merged is off by %g\n", text, world, largest);
    CHECK(largest <= tolerance);
    for (uint32_t r = 0; r < world; r++) run_close(&rank[r]);
}

static void merged_payloads_add_up(void) {
    for (uint32_t world = 2; world <= RANKS_MAX; world++) {
        check_merge("none", world, 1e-7);
        check_merge("fp16", world, 2e-4);
        check_merge("bf16", world, 2e-3);
        check_merge("terngrad:shared", world, 1e-6);
        check_merge("terngrad:shared,feedback=worker", world, 1e-6);
        check_merge("randomk:ratio=0.1", world, 1e-6);
        check_merge("powersgd:rank=3", world, 1e-6);
    }
}

/* Coins: another step, rank, tensor or pass gives another payload; randomk's places are the same on all ranks. */
static void random_numbers_have_their_keys(void) {
    codec_run a, b;
    enum { COUNT = 2000 };
    static const char *const texts[] = {"qsgd", "terngrad"};
    fill_input(input, COUNT, INPUT_NORMAL, 1);
    for (int t = 0; t < 2; t++) {
        for (int change = 0; change < 5; change++) {
            run_open(&a, texts[t], 1, COUNT);
            run_open(&b, texts[t], 1, COUNT);
            if (change == 1) b.call.rank = 1;
            if (change == 2) b.call.step += 7;
            if (change == 3) b.call.pass = 1;
            if (change == 4) b.call.seed = 43;
            run_encode(&a, input);
            run_encode(&b, input);
            bool same = memcmp(a.payload[0], b.payload[0], a.bytes[0]) == 0;
            CHECK_EQ(change == 0, same);
            run_close(&a);
            run_close(&b);
        }
    }
    run_open(&a, "randomk", 1, COUNT);
    run_open(&b, "randomk", 1, COUNT);
    b.call.rank = 5;
    run_encode(&a, input);
    run_encode(&b, input);
    CHECK(memcmp(a.payload[0], b.payload[0], a.bytes[0]) == 0);
    b.call.step += 3;
    run_encode(&b, input);
    CHECK(memcmp(a.payload[0], b.payload[0], a.bytes[0]) != 0);
    run_close(&a);
    run_close(&b);
}

static void ranges_and_states_are_checked(void) {
    codec_run r;
    size_t bytes;
    gw_error error = {0};
    run_open(&r, "onebit", 1, 5000);
    static const uint64_t wrong[][2] = {{1, 100}, {0, 100}, {2048, 100}, {0, 5001}, {6144, 0}, {4096, UINT64_MAX}};
    for (int i = 0; i < 6; i++) {
        gw_codec_range range = {&r.tensor, wrong[i][0], wrong[i][1]};
        CHECK_EQ(GW_INVALID, gw_codec_encode(&r.setup, &r.call, range, &r.state, input, r.payload[0], r.capacity[0],
                                             &bytes, NULL, NULL));
        CHECK_EQ(GW_INVALID, gw_codec_decode_add(&r.setup, &r.call, range, r.payload[0], 0, 1.0f, sum_a, NULL));
    }
    CHECK_EQ(GW_INVALID, gw_codec_encode(&r.setup, &r.call, gw_codec_whole(&r.tensor), NULL, input, r.payload[0],
                                         r.capacity[0], &bytes, NULL, &error));
    CHECK(strstr(error.text, "layer.weight") != NULL);
    gw_codec_tensor other = gw_codec_tensor_make("other", 1, 5000);
    CHECK_EQ(GW_INVALID, gw_codec_encode(&r.setup, &r.call, gw_codec_whole(&other), &r.state, input, r.payload[0],
                                         r.capacity[0], &bytes, NULL, NULL));
    run_close(&r);
}

TEST_MAIN(CASE(fast_equals_reference), CASE(fast_equals_reference_large), CASE(one_pass_equals_apart),
          CASE(parts_equal_whole), CASE(wrong_lengths_are_refused), CASE(damaged_payloads_do_no_harm),
          CASE(sparse_payloads_are_checked), CASE(not_finite_arrives), CASE(zero_stays_zero),
          CASE(a_short_buffer_keeps_the_rest), CASE(merged_payloads_add_up), CASE(random_numbers_have_their_keys),
          CASE(ranges_and_states_are_checked))
