/* test_schedule.c - guarantees of dear: the start order does not depend on when tensors are ready, second halves do not
 * wait for the end of backward, buckets get smaller, and the most urgent is what forward needs first. Of policies that
 * reorder: no bucket overtakes one of the step before, and credit counts bytes that travel. */
#include "schedule/schedule.h"
#include "test.h"

enum { TENSORS = 12 };

static gw_schedule *opened(size_t fuse_bytes, const size_t counts[TENSORS]) {
    gw_schedule_tensor tensors[TENSORS];
    gw_schedule_settings settings = {.fuse_bytes = fuse_bytes};
    gw_schedule *s = NULL;
    gw_error error = {.rank = -1};
    for (int t = 0; t < TENSORS; t++) tensors[t] = (gw_schedule_tensor){.count = counts[t], .element = 4};
    CHECK_EQ(GW_OK, gw_schedule_open(&s, &gw_policy_dear, &settings, tensors, TENSORS, &error));
    return s;
}

static const size_t large[TENSORS] = {300000, 300000, 300000, 300000, 300000, 300000,
                                      300000, 300000, 300000, 300000, 300000, 300000};

/* Starts all buckets that can start; a second half is recorded as -1 - bucket. */
static int start_all(gw_schedule *s, int *order, int at) {
    for (int p; (p = gw_schedule_next(s)) >= 0; at++) {
        order[at] = gw_schedule_bucket(s, p)->state == GW_BUCKET_HALFWAY ? -1 - p : p;
        gw_schedule_start(s, p);
    }
    return at;
}

static int end_all(gw_schedule *s) {
    int ended = 0;
    for (int p = 0; p < gw_schedule_buckets(s); p++) {
        gw_bucket_state state = gw_schedule_bucket(s, p)->state;
        if (state != GW_BUCKET_MOVING && state != GW_BUCKET_SPREADING) continue;
        gw_schedule_done(s, p);
        ended++;
    }
    return ended;
}

/* lag: how many tensors become ready before anything that was started is over. */
static void one_step(gw_schedule *s, int lag, int order[2 * TENSORS]) {
    int at = 0;
    for (int t = TENSORS - 1; t >= 0; t--) {
        gw_schedule_ready(s, t);
        at = start_all(s, order, at);
        if (t % lag == 0) end_all(s);
        at = start_all(s, order, at);
    }
    gw_schedule_backward_done(s);
    while (end_all(s)) at = start_all(s, order, at);
    CHECK_EQ(2 * TENSORS, at);
    CHECK(gw_schedule_idle(s));
}

static void the_order_does_not_depend_on_time(void) {
    gw_schedule *s = opened(1, large);
    int first[2 * TENSORS], order[2 * TENSORS];
    one_step(s, 1, first);
    for (int lag = 2; lag <= TENSORS; lag++) {
        one_step(s, lag, order);
        for (int i = 0; i < 2 * TENSORS; i++) CHECK_EQ(first[i], order[i]);
    }
    gw_schedule_close(s);
}

static void second_halves_begin_within_backward(void) {
    gw_schedule *s = opened(1, large);
    int order[2 * TENSORS];
    one_step(s, 1, order);
    for (int p = 0; p < 4; p++) CHECK_EQ(p, order[p]);
    CHECK_EQ(-1, order[4]); /* the second half of the first bucket, before the first half of the fifth */
    CHECK_EQ(4, order[5]);
    CHECK_EQ(-TENSORS, order[2 * TENSORS - 4]); /* the last four in forward order */
    gw_schedule_close(s);
}

static void buckets_taper_towards_the_input(void) {
    gw_schedule *s = opened((size_t)4 << 20, large);
    int n = gw_schedule_buckets(s);
    size_t before = TENSORS * 1200000;
    CHECK(gw_schedule_bucket(s, 0)->ranges == 3); /* of 1.2 MB each */
    for (int p = 0; p < n; p++) {
        const gw_bucket *bucket = gw_schedule_bucket(s, p);
        CHECK(bucket->ranges == 1 || bucket->bytes <= before / 2);
        before -= bucket->bytes;
    }
    CHECK(before == 0 && gw_schedule_bucket(s, n - 1)->ranges == 1);
    gw_schedule_close(s);
}

static void in_one_queue_first_halves_come_first(void) {
    gw_schedule *s = opened((size_t)4 << 20, large);
    gw_schedule_settings settings = {.fuse_bytes = (size_t)4 << 20, .one_queue = true};
    gw_schedule_cut(s, &settings, NULL);
    CHECK_EQ(TENSORS / 3, gw_schedule_buckets(s)); /* they do not taper */
    settings.fuse_bytes = 1;
    gw_schedule_cut(s, &settings, NULL);
    int order[2 * TENSORS];
    one_step(s, 1, order);
    for (int p = 0; p < TENSORS; p++) CHECK(order[p] == p && order[TENSORS + p] == p - TENSORS);
    gw_schedule_close(s);
}

static void forward_needs_the_last_produced_first(void) {
    gw_schedule *s = opened(1, large);
    for (int p = 0; p < TENSORS; p++) {
        CHECK_EQ(GW_URGENCY_MAX, gw_schedule_urgency(s, p, false));
        CHECK(gw_schedule_urgency(s, p, true) < GW_URGENCY_MAX);
        if (p) CHECK(gw_schedule_urgency(s, p, true) > gw_schedule_urgency(s, p - 1, true));
    }
    gw_schedule_close(s);
}

/* Tensors of 4,000 bytes, of which every second travels as 400. */
static void credit_counts_what_travels(void) {
    gw_schedule_tensor tensors[4];
    gw_schedule_settings settings = {.fuse_bytes = 1, .credit_bytes = 4800};
    gw_schedule *s = NULL;
    gw_error error = {.rank = -1};
    for (int t = 0; t < 4; t++)
        tensors[t] = (gw_schedule_tensor){.count = 1000, .element = 4, .kind = t, .payload = t % 2 ? 400 : 0};
    CHECK_EQ(GW_OK, gw_schedule_open(&s, &gw_policy_bytescheduler, &settings, tensors, 4, &error));
    for (int t = 3; t >= 0; t--) gw_schedule_ready(s, t);
    static const size_t in_flight[] = {4000, 4400};
    for (int i = 0; i < 2; i++) {
        int p = gw_schedule_next(s);
        CHECK_EQ(i, gw_schedule_ranges(s, p)->tensor);
        gw_schedule_start(s, p);
        CHECK(gw_schedule_in_flight(s) == in_flight[i]);
    }
    CHECK_EQ(-1, gw_schedule_next(s)); /* 4,000 more are too many */
    gw_schedule_done(s, 3);            /* tensor 0 */
    CHECK_EQ(1, gw_schedule_next(s));
    CHECK(gw_schedule_in_flight(s) == 400);
    gw_schedule_close(s);
}

/* Tensor 0 is ready in the next step, while others of this step wait for the one in flight. */
static void no_bucket_overtakes_the_step_before(void) {
    static const gw_policy *const policies[] = {&gw_policy_p3, &gw_policy_bytescheduler, &gw_policy_tictac};
    for (int i = 0; i < 3; i++) {
        gw_schedule_tensor tensors[3] = {{.count = 1, .element = 4}, {.count = 1, .element = 4, .kind = 1},
                                         {.count = 1, .element = 4}};
        gw_schedule_settings settings = {.fuse_bytes = 1, .credit_bytes = 1};
        gw_error error = {.rank = -1};
        gw_schedule *s = NULL;
        CHECK_EQ(GW_OK, gw_schedule_open(&s, policies[i], &settings, tensors, 3, &error));
        CHECK_EQ(3, gw_schedule_buckets(s));
        gw_schedule_ready(s, 0);
        int first = gw_schedule_next(s);
        gw_schedule_start(s, first);
        for (int t = 1; t < 3; t++) gw_schedule_ready(s, t);
        gw_schedule_backward_done(s);
        gw_schedule_done(s, first);
        gw_schedule_ready(s, 0);
        for (int k = 0; k < 2; k++) {
            int p = gw_schedule_next(s);
            CHECK(p >= 0 && p != first);
            gw_schedule_start(s, p);
            gw_schedule_done(s, p);
        }
        CHECK_EQ(first, gw_schedule_next(s));
        gw_schedule_close(s);
    }
}

/* The bytes of the buckets that a policy cuts of so many tensors of `count` f32 with automatic sizes. */
static int automatic(const gw_policy *policy, int parts, int tensors, size_t count, size_t *bytes) {
    gw_schedule_tensor described[512];
    gw_schedule_settings settings = policy->settings((double[GW_TECHNIQUE_PARAMS_MAX]){0});
    gw_schedule *s = NULL;
    gw_error error = {.rank = -1};
    settings.parts = parts;
    for (int t = 0; t < tensors; t++) described[t] = (gw_schedule_tensor){.count = count, .element = 4};
    CHECK_EQ(GW_OK, gw_schedule_open(&s, policy, &settings, described, tensors, &error));
    int buckets = gw_schedule_buckets(s);
    for (int p = 0; p < buckets; p++) bytes[p] = gw_schedule_bucket(s, p)->bytes;
    gw_schedule_close(s);
    return buckets;
}

/* 100 MB in 250 tensors: the first bucket has 1 MB, the next ones grow to an eighth of all, the last ones shrink. */
static void automatic_buckets_grow_and_taper(void) {
    size_t bytes[512];
    int buckets = automatic(&gw_policy_wfbp, 4, 250, 100000, bytes), largest = 0;
    CHECK(buckets > 10 && buckets < 30);
    CHECK(bytes[0] <= 1 << 20 && bytes[buckets - 1] <= 400000);
    for (int p = 1; p < buckets; p++) {
        CHECK(bytes[p] <= 2 * bytes[p - 1] + 800000);
        if (bytes[p] > bytes[largest]) largest = p;
    }
    CHECK(bytes[largest] > 11000000 && bytes[largest] <= 12500000);
    /* A model of 2 MB overlaps too; among a thousand ranks only large buckets have more than start-ups. */
    CHECK(automatic(&gw_policy_wfbp, 4, 250, 2000, bytes) > 6);
    CHECK(automatic(&gw_policy_wfbp, 1000, 250, 100000, bytes) <= 12);
    CHECK(automatic(&gw_policy_dear, 4, 250, 2000, bytes) > 6);
}

static void automatic_slices_follow_the_model(void) {
    static size_t bytes[8192];
    int small = automatic(&gw_policy_p3, 4, 2, 250000, bytes),
        large_slices = automatic(&gw_policy_p3, 4, 2, 25000000, bytes);
    CHECK_EQ(10, small);                                                    /* of 200 kB */
    CHECK_EQ(24, large_slices);                                             /* of 8 MiB */
    CHECK_EQ(32, automatic(&gw_policy_bytescheduler, 1, 2, 250000, bytes)); /* of 64 KiB */
    CHECK_EQ(256, automatic(&gw_policy_bytescheduler, 4, 2, 25000000, bytes));
}

TEST_MAIN(CASE(the_order_does_not_depend_on_time), CASE(second_halves_begin_within_backward),
          CASE(buckets_taper_towards_the_input), CASE(in_one_queue_first_halves_come_first),
          CASE(forward_needs_the_last_produced_first), CASE(credit_counts_what_travels),
          CASE(no_bucket_overtakes_the_step_before), CASE(automatic_buckets_grow_and_taper),
          CASE(automatic_slices_follow_the_model))
