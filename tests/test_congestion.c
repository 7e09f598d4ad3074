/* test_congestion.c - when congestion=auto changes to bbr and back, on measurements that a path would give. */
#include "test.h"

#include "transport/tcp/tcp_congestion.h"

typedef struct path {
    gw_tcp_congestion state;
    gw_tcp_measured m;
    gw_time now;
} path;

enum { USUAL, BBR };

/* Lets the path carry segments for a time; the share of them that was lost is in thousandths. Returns the number of
 * changes. */
static int carry(path *p, double seconds, int lost, double bytes_per_second) {
    int changes = 0;
    for (double t = 0; t < seconds; t += 0.05) {
        uint64_t segments = (uint64_t)(bytes_per_second * 0.05 / 1448);
        p->m.segments += segments;
        p->m.retransmitted += (segments * (uint64_t)lost + 999) / 1000;
        p->m.acked += segments * 1448;
        p->m.busy += 50 * GW_MILLISECOND;
        p->now += 50 * GW_MILLISECOND;
        changes += gw_tcp_congestion_judge(&p->state, &p->m, p->now);
    }
    return changes;
}

static path fresh(gw_time round_trip) {
    return (path){.m = {.rtt = round_trip, .min_rtt = round_trip}, .now = 100 * GW_SECOND};
}

static void short_paths_keep_theirs(void) {
    path p = fresh(GW_MILLISECOND / 10);
    CHECK_EQ(0, carry(&p, 600, 0, 100e6));
    CHECK_EQ(USUAL, p.state.bbr);
}

static void delay_calls_for_bbr(void) {
    path p = fresh(40 * GW_MILLISECOND);
    CHECK_EQ(0, carry(&p, 0.05, 0, 100e3)); /* too few segments: a first round trip may be that of a busy machine */
    CHECK_EQ(1, carry(&p, 60, 0, 10e6));
    CHECK_EQ(BBR, p.state.bbr);
}

static void loss_calls_for_bbr(void) {
    path p = fresh(GW_MILLISECOND / 10);
    CHECK_EQ(0, carry(&p, 0.6, 50, 2e6)); /* it must last */
    CHECK_EQ(1, carry(&p, 2, 50, 2e6));
    CHECK_EQ(BBR, p.state.bbr);
    CHECK_EQ(0, carry(&p, 120, 50, 20e6));
}

static void one_burst_of_loss_does_not(void) {
    path p = fresh(GW_MILLISECOND / 10);
    for (int i = 0; i < 20; i++) {
        CHECK_EQ(0, carry(&p, 0.3, 50, 10e6));
        CHECK_EQ(0, carry(&p, 2, 0, 100e6));
    }
}

static void bbr_that_brings_less_is_left(void) {
    path p = fresh(GW_MILLISECOND / 10);
    CHECK_EQ(1, carry(&p, 2, 10, 50e6));
    CHECK_EQ(1, carry(&p, 3, 100, 30e6));
    CHECK_EQ(USUAL, p.state.bbr);
    CHECK_EQ(0, carry(&p, 50, 10, 50e6)); /* not tried again for a minute */
    CHECK_EQ(1, carry(&p, 15, 10, 50e6));
}

static void a_path_that_became_short_is_seen(void) {
    path p = fresh(40 * GW_MILLISECOND);
    CHECK_EQ(1, carry(&p, 10, 0, 10e6));
    p.m.rtt = p.m.min_rtt = GW_MILLISECOND / 10;
    CHECK_EQ(1, carry(&p, 10, 0, 100e6));
    CHECK_EQ(USUAL, p.state.bbr);
}

static void an_idle_connection_waits(void) {
    path p = fresh(GW_MILLISECOND / 10);
    carry(&p, 0.5, 50, 2e6);
    CHECK_EQ(0, carry(&p, 100, 0, 0));
    CHECK_EQ(1, carry(&p, 2, 50, 2e6));
}

TEST_MAIN(CASE(short_paths_keep_theirs), CASE(delay_calls_for_bbr), CASE(loss_calls_for_bbr),
          CASE(one_burst_of_loss_does_not), CASE(bbr_that_brings_less_is_left), CASE(a_path_that_became_short_is_seen),
          CASE(an_idle_connection_waits))
