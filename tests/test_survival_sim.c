/* test_survival_sim.c - every set of dead ranks and every two-way cut of worlds up to 8, in virtual time: where the
 * rule names a side exactly one job continues, elsewhere none, with a sentence that says why. Never two. SURVIVAL_SEEDS
 * sets the number of tries of random cases (default 1). */
#include "test.h"

#include "sim/survival_sim.h"

#define WORLD_MAX 8

static uint64_t seeds(void) {
    const char *text = getenv("SURVIVAL_SEEDS");
    return text ? strtoull(text, NULL, 10) : 1;
}

static int runs;

static gw_survival_sim_outcome run(const gw_survival_sim *spec) {
    gw_survival_sim_outcome o;
    gw_error error = {0};
    CHECK_EQ(GW_OK, gw_survival_sim_run(spec, &o, &error));
    runs++;
    if (!o.ok && test_failures <= 10) {
        test_failures++;
        printf("    world %d seed %" PRIu64 " dead %#x side %#x spread %" PRIu64 " pairs %d messages %d: %s\n",
               spec->world, spec->seed, spec->dead, spec->side, spec->spread, spec->pairs, spec->messages, o.text);
    }
    return o;
}

static int count(uint32_t set) { return __builtin_popcount(set); }

/* The rule in words, for the ranks of one side that live. Deaths on the other side cannot be proved. */
static bool named(uint32_t all, uint32_t side, uint32_t dead) {
    uint32_t here = side & ~dead, counted = all & ~(side & dead);
    if (2 * count(here) == count(counted)) return here & counted & -counted;
    return 2 * count(here) > count(counted);
}

static void expect(const gw_survival_sim *spec) {
    uint32_t all = (1u << spec->world) - 1, alive = all & ~spec->dead, due = 0;
    uint32_t sides[2] = {spec->side, all & ~spec->side};
    for (int i = 0; i < 2; i++)
        if (named(all, sides[i], spec->dead)) due = sides[i] & alive;
    gw_survival_sim_outcome o = run(spec);
    if (o.ok && (o.jobs != (due != 0) || (due && o.members != due) || o.refused != (alive & ~due))) {
        test_failures++;
        printf("    world %d dead %#x side %#x: %d jobs, the last of %#x; due is %#x\n", spec->world, spec->dead,
               spec->side, o.jobs, o.members, due);
    }
    if (o.refused && !strstr(o.why, "not proved dead") && !strstr(o.why, "goes on without this process")) {
        test_failures++;
        printf("    \"%s\" does not say why\n", o.why);
    }
}

static void every_set_of_dead_ranks(void) {
    for (int world = 2; world <= WORLD_MAX; world++)
        for (uint32_t dead = 1; dead + 1 < 1u << world; dead++)
            for (uint64_t seed = 1; seed <= seeds(); seed++)
                expect(&(gw_survival_sim){.world = world, .seed = seed * 1000 + dead, .dead = dead});
}

static void every_cut(void) {
    for (int world = 2; world <= WORLD_MAX; world++)
        for (uint32_t side = 1; side < 1u << (world - 1); side++)
            for (uint64_t seed = 1; seed <= seeds(); seed++)
                expect(&(gw_survival_sim){.world = world, .seed = seed * 1000 + side, .side = side});
}

static void every_cut_with_every_death(void) {
    for (int world = 2; world <= (seeds() > 1 ? WORLD_MAX : 6); world++)
        for (uint32_t side = 1; side < 1u << (world - 1); side++)
            for (uint32_t dead = 1; dead + 1 < 1u << world; dead++)
                expect(&(gw_survival_sim){.world = world, .seed = side * 1000 + dead, .side = side, .dead = dead});
}

/* Deaths one after the other, many of them while the survivors of the first agree: all living ranks continue. */
static void deaths_in_the_middle(void) {
    static const gw_time spreads[] = {2 * GW_MILLISECOND, 10 * GW_MILLISECOND, 100 * GW_MILLISECOND};
    for (uint64_t seed = 1; seed <= 300 * seeds(); seed++) {
        int world = 3 + (int)(seed % 6);
        uint32_t all = (1u << world) - 1, dead = (uint32_t)(seed * 2654435761u >> 8) & all;
        if (dead == all) dead &= ~1u;
        gw_survival_sim spec = {.world = world, .seed = seed, .dead = dead, .spread = spreads[seed % 3]};
        gw_survival_sim_outcome o = run(&spec);
        CHECK_EQ(1, o.jobs);
        CHECK_EQ(all & ~dead, o.members);
    }
}

static void a_death_at_each_message(void) {
    for (int world = 3; world <= 5; world++)
        for (int victim = 0; victim < world; victim++)
            for (int messages = 1; messages <= 6 * world; messages++) {
                gw_survival_sim spec = {.world = world, .seed = (uint64_t)messages, .dead = 1u << victim,
                                    .messages = messages};
                gw_survival_sim_outcome o = run(&spec);
                CHECK_EQ(1, o.jobs);
                CHECK((o.members | 1u << victim) == (1u << world) - 1);
            }
}

/* Cuts and deaths at any time, and pairs that cannot talk while others reach both: one job at most. */
static void never_two_jobs(void) {
    static const gw_time spreads[] = {GW_MILLISECOND, 30 * GW_MILLISECOND, GW_SURVIVAL_DEADLINE,
                                      3 * GW_SURVIVAL_DEADLINE};
    int jobs = 0, total = (int)(500 * seeds());
    for (int i = 0; i < total; i++) {
        int world = 2 + i % 7;
        uint32_t chance = (uint32_t)(i + 1) * 2654435761u, all = (1u << world) - 1;
        uint32_t side = i % 3 ? 0 : chance >> 4 & all, dead = i % 2 ? chance >> 14 & chance >> 7 & all : 0;
        gw_survival_sim spec = {.world = world, .seed = (uint64_t)i, .spread = spreads[i % 4],
                            .pairs = (int)(chance >> 28), .side = side, .dead = dead};
        jobs += run(&spec).jobs;
    }
    printf("    a job went on in %d of %d\n", jobs, total);
}

static void without_a_quorum_every_side_continues(void) {
    for (int world = 2; world <= 6; world++)
        for (uint32_t side = 1; side < 1u << (world - 1); side++) {
            gw_survival_sim spec = {.world = world, .seed = side, .side = side, .any_side = true};
            gw_survival_sim_outcome o = run(&spec);
            CHECK_EQ(2, o.jobs);
            CHECK_EQ(0, o.refused);
        }
}

static void count_runs(void) { printf("    %d runs\n", runs); }

TEST_MAIN(CASE(every_set_of_dead_ranks), CASE(every_cut), CASE(every_cut_with_every_death), CASE(deaths_in_the_middle),
          CASE(a_death_at_each_message), CASE(never_two_jobs), CASE(without_a_quorum_every_side_continues),
          CASE(count_runs))
