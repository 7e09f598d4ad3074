/* test_codec_state.c - state of codecs: saved exactly, moved to another number of ranks without loss, and rescaled when
 * the learning rate changes. */
#include "codec_run.h"

#define COUNT 9000
static float input[COUNT], decoded[COUNT];

/* Runs continue from a saved state without a difference; states of other setups are refused. */
static void state_is_saved_exactly(void) {
    for (int s = 0; codec_setup(s); s++) {
        codec_run a, b;
        if (!run_open(&a, codec_setup(s), 50, COUNT)) continue;
        run_open(&b, codec_setup(s), 50, COUNT);
        for (int step = 0; step < 3; step++) {
            fill_input(input, COUNT, INPUT_NORMAL, (uint64_t)step);
            run_encode(&a, input);
        }
        size_t bytes = gw_codec_state_saved_bytes(&a.state);
        uint8_t *saved = malloc(bytes + 1);
        gw_codec_state_save(&a.state, saved);
        CHECK_EQ(GW_MISMATCH, gw_codec_state_restore(&b.state, saved, bytes - 1, NULL));
        saved[8] ^= 1; /* another tensor's key */
        CHECK_EQ(GW_MISMATCH, gw_codec_state_restore(&b.state, saved, bytes, NULL));
        saved[8] ^= 1;
        CHECK_EQ(GW_OK, gw_codec_state_restore(&b.state, saved, bytes, NULL));
        b.call.step = a.call.step;
        for (int step = 3; step < 6; step++) {
            fill_input(input, COUNT, INPUT_NORMAL, (uint64_t)step);
            run_encode(&a, input);
            run_encode(&b, input);
            uint32_t last = run_last(&a);
            CHECK(a.bytes[last] == b.bytes[last] && memcmp(a.payload[last], b.payload[last], a.bytes[last]) == 0);
        }
        CHECK_EQ(gw_codec_state_bytes(&a.setup, gw_codec_whole(&a.tensor)), bytes - 88);
        gw_codec_state_drop(&a.state);
        for (uint64_t i = 0; a.state.residual && i < COUNT; i++) CHECK(a.state.residual[i] == 0);
        free(saved);
        run_close(&b);
        run_close(&a);
    }
}

/* Residuals of three workers and three owners move to two ranks: the mean does not change. */
static void check_take_over(const char *text) {
    enum { OLD = 3, NEW = 2 };
    codec_run old[OLD], new[NEW];
    static double kept[COUNT], now[COUNT];
    uint8_t *saved = malloc(88 + 2 * COUNT * sizeof(float));
    memset(kept, 0, sizeof kept);
    memset(now, 0, sizeof now);
    for (int r = 0; r < NEW; r++) run_open(&new[r], text, 90, COUNT);
    for (int r = 0; r < OLD; r++) {
        run_open(&old[r], text, 90, COUNT);
        fill_input(input, COUNT, INPUT_NORMAL, (uint64_t)r);
        run_encode(&old[r], input);
        gw_codec_state owner;
        gw_codec_setup second = gw_codec_second(&old[r].setup);
        gw_codec_range part = {&old[r].tensor, (uint64_t)r * COUNT / OLD, COUNT / OLD};
        CHECK_EQ(GW_OK, gw_codec_state_make(&owner, &second, part, NULL));
        for (size_t i = 0; owner.residual && i < part.count; i++) kept[part.first + i] += owner.residual[i] = input[i];
        for (size_t i = 0; i < COUNT; i++) kept[i] += old[r].state.residual[i];
        const gw_codec_state *states[] = {&old[r].state, &owner};
        for (int s = 0; s < 2; s++) {
            size_t bytes = gw_codec_state_saved_bytes(states[s]);
            if (s && !owner.residual) continue;
            gw_codec_state_save(states[s], saved);
            CHECK_EQ(GW_MISMATCH, gw_codec_state_add(&new[0].state, 1, saved, bytes - 4, NULL));
            for (int n = 0; n < NEW; n++)
                CHECK_EQ(GW_OK, gw_codec_state_add(&new[n].state, 1.0f / OLD, saved, bytes, NULL));
        }
        gw_codec_state_free(&owner);
    }
    double worst = 0;
    for (int r = 0; r < NEW; r++)
        for (size_t i = 0; i < COUNT; i++) now[i] += new[r].state.residual[i];
    for (size_t i = 0; i < COUNT; i++) worst = fmax(worst, fabs(kept[i] / OLD - now[i] / NEW));
    if (!(worst < 1e-7)) printf("    %s: %g is missing\n", text, worst);
    CHECK(worst < 1e-7);
    CHECK_EQ(old[0].state.born, new[0].state.born);
    for (uint64_t i = 0; i < new[0].state.own_count; i++) CHECK(new[0].state.own[i] == new[1].state.own[i]);
    for (int r = 0; r < OLD; r++) run_close(&old[r]);
    for (int r = 0; r < NEW; r++) run_close(&new[r]);
    free(saved);
}

static void states_move_to_other_ranks(void) {
    check_take_over("onebit");
    check_take_over("topk");
    check_take_over("dgc:ratio=0.01,momentum=0.9,warmup=0");
    check_take_over("powersgd:rank=2");
    check_take_over("terngrad:shared,feedback=worker");
}

/* With rates that change, what arrived times the rate of its step, and what waits times the last, is what came in times
 * the rate of its own step. */
static void check_rates(const char *text) {
    static double came[COUNT], went[COUNT];
    double rate = 1, worst = 0;
    codec_run r;
    memset(came, 0, sizeof came);
    memset(went, 0, sizeof went);
    run_open(&r, text, 90, COUNT);
    for (int step = 0; step < 40; step++) {
        double next = step < 20 ? 1 + 0.5 * step : 10 - 0.4 * (step - 20);
        r.call.rate_growth = step ? (float)(next / rate - 1) : 0;
        rate = step ? rate * (1 + (double)r.call.rate_growth) : next;
        fill_input(input, COUNT, INPUT_NORMAL, (uint64_t)step);
        memset(decoded, 0, sizeof decoded);
        run_encode(&r, input);
        run_decode(&r, decoded);
        for (size_t i = 0; i < COUNT; i++) {
            came[i] += rate * (double)input[i];
            went[i] += rate * (double)decoded[i];
        }
    }
    for (size_t i = 0; i < COUNT; i++)
        worst = fmax(worst, fabs(came[i] - went[i] - rate * (double)r.state.residual[i]));
    if (!(worst < 1e-4)) printf("    %s: %g is missing\n", text, worst);
    CHECK(worst < 1e-4);
    run_close(&r);
}

static void residuals_follow_the_rate(void) {
    check_rates("onebit");
    check_rates("topk");
    check_rates("dgc:momentum=0,ratio=0.01,warmup=0");
    check_rates("powersgd:rank=2");
    check_rates("terngrad:shared,feedback=worker");
    check_rates("randomk");
}

TEST_MAIN(CASE(state_is_saved_exactly), CASE(states_move_to_other_ranks), CASE(residuals_follow_the_rate))
