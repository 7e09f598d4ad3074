/* test_clock_table.c - shards and clock tables: which server owns what; and, on a virtual clock with workers of random
 * speed that may die: no worker leads by more than allowed, no push is used twice or lost, and every worker sees its
 * own pushes. */
#include "base/rng.h"
#include "ps/clock_table.h"
#include "ps/shards.h"
#include "test.h"

/* Shares. */

/* In a slice of 200 kB (p3) that begins at that element. */
static bool every_server_has_work(const gw_shards *s, int tensor, size_t first) {
    size_t least = SIZE_MAX, most = 0;
    for (int k = s->first_of[tensor]; k < s->first_of[tensor + 1]; k++) {
        const gw_stripes *covers = &s->list[k].covers;
        size_t has = gw_stripes_place(covers, first + 50000) - gw_stripes_place(covers, first);
        if (has < least) least = has;
        if (has > most) most = has;
    }
    return s->first_of[tensor + 1] - s->first_of[tensor] == s->servers && least > 0 && most - least <= 8192;
}

static void shards_cover_every_element_once_and_balance(void) {
    gw_shard_tensor tensors[40];
    gw_rng rng = gw_rng_make(7, 0);
    for (int servers = 1; servers <= 8; servers++) {
        size_t total = 0;
        for (int i = 0; i < 40; i++) {
            tensors[i] = (gw_shard_tensor){.count = gw_rng_below(&rng, 3) ? gw_rng_below(&rng, 3000)
                                                                          : gw_rng_below(&rng, 3000000),
                                           .element = 4, .grain = 64, .kind = 0};
            total += tensors[i].count * 4;
        }
        gw_shards shares;
        gw_error error = {.rank = -1};
        CHECK_EQ(GW_OK, gw_shards_open(&shares, tensors, 40, servers, &error));
        for (int i = 0; i < 40; i++) {
            size_t owned = 0;
            for (int k = shares.first_of[i]; k < shares.first_of[i + 1]; k++) {
                CHECK(shares.list[k].tensor == i && gw_stripes_count(&shares.list[k].covers) > 0);
                owned += gw_stripes_count(&shares.list[k].covers);
            }
            CHECK(owned == tensors[i].count);
            for (size_t e = 0; e < tensors[i].count; e += 1 + gw_rng_below(&rng, 9000)) {
                int owners = 0;
                for (int k = shares.first_of[i]; k < shares.first_of[i + 1]; k++)
                    owners += gw_stripes_cover(&shares.list[k].covers, e, 1);
                CHECK_EQ(1, owners);
            }
            CHECK(tensors[i].count < 120000 || every_server_has_work(&shares, i, tensors[i].count / 2));
        }
        for (int s = 0; s < servers; s++) {
            double fair = (double)total / servers;
            CHECK((double)shares.space_bytes[s] < fair * 1.05 + GW_SHARD_WHOLE_BYTES);
            CHECK((double)shares.space_bytes[s] > fair * 0.95 - GW_SHARD_WHOLE_BYTES);
            CHECK_EQ(s, gw_server_of_rank(gw_server_rank(s, servers, 9), servers, 9));
        }
        gw_shards_close(&shares);
    }
}

/* A clock table among workers. */

#define WORKERS 6
#define PARTITIONS 3
#define STEPS 12

typedef struct worker {
    gw_time free_at; /* it has computed until then */
    int step;        /* that it computes, or waits for */
    int answers;     /* of this step that came */
    uint64_t round[PARTITIONS];
    gw_time push_at[PARTITIONS], answer_at[PARTITIONS]; /* in flight until then; 0: not */
    bool pushed, dead;
    int pace, dies_in; /* dies_in: a step, or STEPS */
} worker;

typedef struct scene {
    gw_clock_table *clocks;
    gw_sync_rule rule;
    gw_rng rng;
    int workers, partitions;
    bool meet; /* a worker that has made all steps does not leave, but waits for the others */
    worker w[WORKERS];
    int used[PARTITIONS][WORKERS], late[PARTITIONS][WORKERS],
        seen[PARTITIONS][WORKERS]; /* seen: in the answer in flight */
    bool broken;
} scene;

static gw_time delay(scene *s) { return 1 + gw_rng_below(&s->rng, 20); }

static int slowest(const scene *s, int partition) {
    int least = STEPS + 1;
    for (int w = 0; w < s->workers; w++) {
        int pushes = s->used[partition][w] + s->late[partition][w];
        if (!gw_clock_table_left(s->clocks, w) && pushes < least) least = pushes;
    }
    return least;
}

static void send_answers(scene *s, int p, gw_time now) {
    int w;
    while ((w = gw_clock_table_due(s->clocks, p, now)) >= 0) {
        if (s->rule.spare) s->late[p][w] = s->w[w].step + 1 - s->used[p][w]; /* it may have been let go */
        int pushes = s->used[p][w] + s->late[p][w];
        bool any = slowest(s, p) <= STEPS;
        if (s->rule.at_once && any && (uint64_t)(pushes - slowest(s, p)) > s->rule.staleness && pushes > slowest(s, p))
            s->broken = true;
        s->seen[p][w] = pushes;
        s->w[w].round[p] = gw_clock_table_number(s->clocks, p, w);
        s->w[w].answer_at[p] = now + delay(s);
    }
}

static void use_round(scene *s, int p, gw_time now) {
    for (int w = 0; w < s->workers; w++) s->used[p][w] += gw_clock_table_in(s->clocks, p, w);
    gw_clock_table_next(s->clocks, p, now);
}

static void push_comes(scene *s, int w, int p, gw_time now) {
    s->w[w].push_at[p] = 0;
    switch (gw_clock_table_push(s->clocks, p, w, s->w[w].round[p], (uint64_t)s->w[w].step, now)) {
    case GW_PUSH_APPLY: s->used[p][w]++; break;
    case GW_PUSH_LAST: use_round(s, p, now); break;
    case GW_PUSH_LATE: s->late[p][w]++; break;
    case GW_PUSH_KEPT: break;
    case GW_PUSH_AGAIN:
    case GW_PUSH_WRONG: s->broken = true;
    }
    send_answers(s, p, now);
}

static void answer_comes(scene *s, int w, int p) {
    worker *who = &s->w[w];
    who->answer_at[p] = 0;
    if (s->seen[p][w] != who->step + 1) s->broken = true; /* all of its own, and no more */
    who->answers++;
}

static void die(scene *s, int w, gw_time now) {
    s->w[w].dead = true;
    for (int p = 0; p < s->partitions; p++) s->w[w].push_at[p] = s->w[w].answer_at[p] = 0;
    gw_clock_table_leave(s->clocks, w, now);
    for (int p = 0; p < s->partitions; p++) {
        if (gw_clock_table_complete(s->clocks, p)) use_round(s, p, now);
        send_answers(s, p, now);
    }
}

static void act(scene *s, int w, gw_time now) {
    worker *who = &s->w[w];
    if (who->dead || who->step == STEPS) return;
    for (int p = 0; p < s->partitions && !who->dead; p++) {
        if (who->push_at[p] && who->push_at[p] <= now) push_comes(s, w, p, now);
        if (who->answer_at[p] && who->answer_at[p] <= now) answer_comes(s, w, p);
    }
    if (who->pushed && who->answers == s->partitions) {
        who->pushed = false;
        who->answers = 0;
        who->step++;
        who->free_at = now + 1 + gw_rng_below(&s->rng, (uint64_t)(10 * who->pace));
        if (who->step == STEPS && !s->meet) die(s, w, now); /* it leaves cleanly */
        else if (who->step == who->dies_in) die(s, w, now);
    } else if (!who->pushed && who->free_at <= now) {
        who->pushed = true;
        for (int p = 0; p < s->partitions; p++) who->push_at[p] = now + delay(s);
    }
}

static bool play(uint64_t seed, gw_sync_rule rule, bool deaths) {
    scene s = {.rule = rule, .rng = gw_rng_make(seed, 0), .meet = seed / 12 % 2};
    gw_error error = {.rank = -1};
    s.workers = 2 + (int)gw_rng_below(&s.rng, WORKERS - 1);
    s.partitions = 1 + (int)gw_rng_below(&s.rng, PARTITIONS);
    if (rule.spare >= s.workers) return true;
    CHECK_EQ(GW_OK, gw_clock_table_open(&s.clocks, &rule, s.workers, s.partitions, &error));
    for (int w = 0; w < s.workers; w++) {
        s.w[w].pace = 1 + (int)gw_rng_below(&s.rng, 10);
        s.w[w].dies_in = deaths && gw_rng_below(&s.rng, 4) == 0 ? 1 + (int)gw_rng_below(&s.rng, STEPS) : STEPS + 1;
    }
    bool over = false;
    for (gw_time now = 1; now < 100000 && !over && !s.broken; now++) {
        over = true;
        for (int i = 0; i < s.workers; i++) {
            act(&s, (int)((now + (gw_time)i) % (gw_time)s.workers), now);
            over &= s.w[i].dead || s.w[i].step == STEPS;
        }
    }
    for (int w = 0; w < s.workers; w++)
        for (int p = 0; p < s.partitions; p++) {
            int pushes = s.used[p][w] + s.late[p][w];
            bool all = s.w[w].step == STEPS ? pushes == STEPS : pushes >= s.w[w].step && pushes <= s.w[w].step + 1;
            if (!all || (s.late[p][w] && !rule.spare)) s.broken = true;
        }
    gw_clock_table_close(s.clocks);
    if (!over || s.broken)
        printf("    seed %llu, at once %d, lead %llu, spare %d\n", (unsigned long long)seed, rule.at_once,
               (unsigned long long)rule.staleness, rule.spare);
    return over && !s.broken;
}

static void a_thousand_seeds(void) {
    for (uint64_t seed = 0; seed < 1000; seed++) {
        gw_sync_rule rule = {.at_once = seed % 4 != 0, .spare = seed % 4 ? 0 : (int)(seed / 4 % 3)};
        if (rule.at_once) rule.staleness = seed % 4 == 1 ? UINT64_MAX : seed / 4 % 5;
        /* A round that needs all workers cannot complete without the dead. */
        CHECK(play(seed, rule, rule.at_once || rule.spare));
    }
}

/* Time in which answers are held back, and because of whom. */
static void waiting_times_are_reported(void) {
    gw_sync_rule bsp = {.at_once = false};
    gw_clock_table *clocks = NULL;
    gw_error error = {.rank = -1};
    CHECK_EQ(GW_OK, gw_clock_table_open(&clocks, &bsp, 3, 2, &error));
    for (int p = 0; p < 2; p++) CHECK_EQ(GW_PUSH_KEPT, gw_clock_table_push(clocks, p, 0, 0, 0, 100));
    CHECK(gw_clock_table_awaits(clocks, 1) && gw_clock_table_awaits(clocks, 2) && !gw_clock_table_awaits(clocks, 0));
    for (int p = 0; p < 2; p++) CHECK_EQ(GW_PUSH_KEPT, gw_clock_table_push(clocks, p, 1, 0, 0, 200));
    for (int p = 0; p < 2; p++) {
        CHECK_EQ(GW_PUSH_LAST, gw_clock_table_push(clocks, p, 2, 0, 0, 1000));
        gw_clock_table_next(clocks, p, 1000);
    }
    CHECK_EQ(900, gw_clock_table_timed(clocks, 0, 2000).held);
    CHECK_EQ(800, gw_clock_table_timed(clocks, 1, 2000).held);
    CHECK_EQ(0, gw_clock_table_timed(clocks, 2, 2000).held);
    CHECK_EQ(100, gw_clock_table_timed(clocks, 1, 2000).held_others);
    CHECK_EQ(900, gw_clock_table_timed(clocks, 2, 2000).held_others);
    CHECK_EQ(GW_PUSH_WRONG, gw_clock_table_push(clocks, 0, 0, 1, 1, 2000)); /* before its answer */
    gw_clock_table_close(clocks);
}

TEST_MAIN(CASE(shards_cover_every_element_once_and_balance), CASE(a_thousand_seeds), CASE(waiting_times_are_reported))
