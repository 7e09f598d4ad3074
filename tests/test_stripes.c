/* test_stripes.c - sets of elements at regular distances, compared with a list of their elements. */
#include "base/stripes.h"

#include "test.h"

#define COUNT 200

static void mark(const gw_stripes *set, bool in[COUNT]) {
    for (uint64_t e = 0; e < COUNT; e++)
        in[e] = e >= set->first && e < set->end && (e - set->first + set->shift) % set->period < set->length;
}

static void check_places(const gw_stripes *set, const bool in[COUNT]) {
    uint64_t before = 0;
    for (uint64_t e = 0; e < COUNT; e++) {
        CHECK_EQ(before, gw_stripes_place(set, e));
        before += in[e];
    }
    CHECK_EQ(before, gw_stripes_count(set));
}

/* The runs in [from, to) hold exactly the set's elements there, each once, and are as long as they can be. */
static void check_runs(const gw_stripes *set, const bool in[COUNT], uint64_t from, uint64_t to) {
    bool seen[COUNT] = {false};
    uint64_t at = from, run;
    for (; gw_stripes_next(set, &at, to, &run); at += run) {
        CHECK(run > 0 && at >= from && at + run <= to);
        CHECK(gw_stripes_cover(set, at, run));
        for (uint64_t e = at; e < at + run; e++) seen[e] = true;
    }
    for (uint64_t e = 0; e < COUNT; e++) CHECK_EQ(in[e] && e >= from && e < to, seen[e]);
}

static void sets(void) {
    for (uint64_t first = 0; first < 12; first += 5)
        for (uint64_t length = 1; length < 9; length += 3)
            for (uint64_t period = length; period < 20; period += 4)
                for (uint64_t end = 0; end <= COUNT - 7; end += 31) {
                    gw_stripes set = {.first = first, .end = end, .length = length, .period = period,
                                      .shift = (first + end + length) % period};
                    bool in[COUNT];
                    mark(&set, in);
                    check_places(&set, in);
                    for (uint64_t from = 0; from < COUNT; from += 13)
                        check_runs(&set, in, from, from + 40 < COUNT ? from + 40 : COUNT);
                }
}

static void whole_and_none(void) {
    gw_stripes all = gw_stripes_whole(3, 50), none = gw_stripes_whole(9, 9);
    uint64_t from = 0, run;
    CHECK(gw_stripes_next(&all, &from, 100, &run) && from == 3 && run == 47);
    CHECK_EQ(47, gw_stripes_count(&all));
    CHECK(gw_stripes_cover(&all, 3, 47) && !gw_stripes_cover(&all, 2, 2) && !gw_stripes_cover(&all, 49, 2));
    from = 0;
    CHECK(!gw_stripes_next(&none, &from, 100, &run) && gw_stripes_count(&none) == 0 && gw_stripes_cover(&none, 4, 0));
}

TEST_MAIN(CASE(sets), CASE(whole_and_none))
