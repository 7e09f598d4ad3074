/* test_quorum.c - which ranks continue after a loss: the rule alone, for every world up to 8. No two disjoint sides may
 * both continue, whichever ranks died and whichever side knows of it. */
#include "test.h"

#include "control/quorum.h"

#define WORLD_MAX 8

static gw_members set_of(unsigned bits) {
    gw_members set = {{0}};
    for (int r = 0; r < WORLD_MAX; r++)
        if (bits >> r & 1) gw_members_add(&set, r);
    return set;
}

/* The first loss: `side` of a world, knowing that `dead` are. */
static bool may_go_on(int world, unsigned side, unsigned dead) {
    gw_voter voters[WORLD_MAX] = {{0}};
    for (int r = 0; r < world; r++) voters[r].gone = dead >> r & 1;
    gw_members set = set_of(side);
    return gw_quorum(voters, world, 0, &set);
}

static int count(unsigned bits) { return __builtin_popcount(bits); }

static void the_rule_by_examples(void) {
    for (int world = 1; world <= WORLD_MAX; world++)
        for (unsigned all = (1u << world) - 1, dead = 0; dead <= all; dead++)
            for (unsigned alive = all & ~dead, side = alive; side; side = (side - 1) & alive) {
                bool majority = 2 * count(side) > count(alive);
                bool tie = 2 * count(side) == count(alive) && (side & (alive & -alive));
                CHECK_EQ(majority || tie, may_go_on(world, side, dead));
            }
    CHECK(!may_go_on(4, 0, 0));
    CHECK(!may_go_on(4, 0, 15));
}

/* Where the living are on two sides that know all deaths, exactly one continues. */
static void of_two_sides_one_continues(void) {
    for (int world = 1; world <= WORLD_MAX; world++)
        for (unsigned all = (1u << world) - 1, dead = 0; dead < all; dead++)
            for (unsigned alive = all & ~dead, side = alive; side; side = (side - 1) & alive)
                CHECK_EQ(1, may_go_on(world, side, dead) + may_go_on(world, alive & ~side, dead));
}

/* Each side knows some of the deaths only. */
static void disjoint_sides_do_not_both_continue(void) {
    for (int world = 2; world <= WORLD_MAX; world++) {
        unsigned all = (1u << world) - 1;
        for (unsigned side = 1; side <= all; side++) {
            unsigned rest = all & ~side;
            for (unsigned other = rest; other; other = (other - 1) & rest) {
                unsigned nobody = rest & ~other; /* of whom some are dead, and each side knows of some of these */
                int passed = 0;
                for (unsigned dead = nobody;; dead = (dead - 1) & nobody) {
                    passed |= may_go_on(world, side, dead) | may_go_on(world, other, dead) << 1;
                    if (!dead) break;
                }
                CHECK(passed != 3);
            }
        }
    }
}

/* Two generations. First `first` goes on, of which `entered` are known to have; then `side` of it, knowing `dead`. The
 * others, whoever did not enter, count by what they know of the first generation alone, and of any deaths. */
static void ranks_left_behind_count(void) {
    enum { WORLD = 6 };
    unsigned all = (1u << WORLD) - 1;
    for (unsigned first = 1; first <= all; first++) {
        if (!may_go_on(WORLD, first, 0)) continue;
        for (unsigned side = first; side; side = (side - 1) & first)
            for (unsigned entered = first;; entered = (entered - 1) & first) {
                if ((entered & side) == side) {
                    unsigned dead = first & ~side; /* all that can be */
                    gw_voter voters[WORLD_MAX] = {{0}};
                    for (int r = 0; r < WORLD; r++)
                        voters[r] = (gw_voter){.seen = entered >> r & 1, .last = first >> r & 1, .gone = dead >> r & 1};
                    gw_members set = set_of(side);
                    bool goes_on = gw_quorum(voters, WORLD, 1, &set);
                    for (unsigned rest = all & ~first, other = rest; other; other = (other - 1) & rest)
                        CHECK(!goes_on || !may_go_on(WORLD, other, dead));
                }
                if (!entered) break;
            }
    }
}

/* Hosts are lost one after the other, and never proved dead: as long as two are left, they continue. */
static void one_loss_after_another(void) {
    gw_voter voters[WORLD_MAX] = {{0}};
    unsigned in = 255;
    for (uint32_t generation = 0; generation < 7; generation++) {
        in >>= 1;
        gw_members side = set_of(in);
        CHECK(gw_quorum(voters, WORLD_MAX, generation, &side));
        for (int r = 0; r < WORLD_MAX; r++)
            if (in >> r & 1) voters[r].seen = voters[r].last = generation + 1;
    }
    CHECK_EQ(1, in);
}

TEST_MAIN(CASE(the_rule_by_examples), CASE(of_two_sides_one_continues), CASE(disjoint_sides_do_not_both_continue),
          CASE(ranks_left_behind_count), CASE(one_loss_after_another))
