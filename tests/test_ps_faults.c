/* test_ps_faults.c - a server and its workers on a virtual clock, at random speeds; any of them dies at any moment.
 * Workers may come back; the server continues from its replica or from a snapshot. For every seed: no worker continues
 * that leads by more than allowed, no push is used twice, none is lost except those that a snapshot lacks, and every
 * answer has seen all pushes of its worker. CLOCK_TABLE_SEEDS: how many seeds (1000). */
#include "base/rng.h"
#include "ps/clock_table.h"
#include "ps/placement.h"
#include "test.h"

#include <string.h>

enum { WORKERS = 5, PARTITIONS = 3, STEPS = 14, LIVES = 6, NUMBERS = 128, END = 60000 };

/* What stands in a server's weights: which pushes. */
typedef struct weights {
    bool used[PARTITIONS][WORKERS][LIVES][NUMBERS];
} weights;

typedef struct server {
    gw_clock_table *clocks;
    weights has;
} server;

typedef struct worker {
    bool dead;
    int life, made, pace;
    gw_time free_at;
    bool pushed;
    int answers;
    uint64_t first, number[PARTITIONS];
    gw_time push_at[PARTITIONS], answer_at[PARTITIONS]; /* in flight until then; 0: not */
    bool answered[PARTITIONS];
} worker;

typedef struct scene {
    gw_rng rng;
    gw_sync_rule rule;
    int workers, partitions;
    server main, copy;
    gw_time copied_at[PARTITIONS][WORKERS]; /* the replica has said so then; 0: nothing is being copied */
    void *snapshot;
    size_t snapshot_bytes;
    weights snapshot_has;
    int snapshot_life[WORKERS];
    bool replica;
    bool lost[PARTITIONS][WORKERS][LIVES][NUMBERS]; /* pushes that were used and are in no state any more */
    worker w[WORKERS];
    const char *broken;
} scene;

static gw_time delay(scene *s) { return 1 + gw_rng_below(&s->rng, 20); }

static void open_clock_table(scene *s, server *at) {
    gw_error error = {.rank = -1};
    at->clocks = NULL;
    CHECK_EQ(GW_OK, gw_clock_table_open(&at->clocks, &s->rule, s->workers, s->partitions, &error));
}

static void answer_due(scene *s, int p, gw_time now) {
    int w;
    while ((w = gw_clock_table_due(s->main.clocks, p, now)) >= 0) {
        uint64_t mine = gw_clock_table_clock(s->main.clocks, p, w), least = UINT64_MAX;
        for (int i = 0; i < s->workers; i++)
            if (!gw_clock_table_left(s->main.clocks, i) && gw_clock_table_clock(s->main.clocks, p, i) < least)
                least = gw_clock_table_clock(s->main.clocks, p, i);
        if (least != UINT64_MAX && mine > least && mine - least > s->rule.staleness) s->broken = "leads by too much";
        if (s->replica && s->copied_at[p][w]) s->broken = "answered before the replica had it";
        s->w[w].answer_at[p] = now + delay(s);
    }
}

static void use(scene *s, server *at, int p, int w, uint64_t number) {
    bool *used = &at->has.used[p][w][s->w[w].life][number];
    if (*used) s->broken = "used twice";
    *used = true;
}

static void push_comes(scene *s, int p, int w, gw_time now) {
    worker *who = &s->w[w];
    who->push_at[p] = 0;
    gw_push what = gw_clock_table_push(s->main.clocks, p, w, who->number[p], 0, now);
    if (what == GW_PUSH_APPLY) {
        use(s, &s->main, p, w, who->number[p]);
        if (s->replica) {
            gw_clock_table_unsafe(s->main.clocks, p, w);
            s->copied_at[p][w] = now + delay(s);
        }
    } else if (what != GW_PUSH_AGAIN) {
        s->broken = "a push was refused";
    }
    answer_due(s, p, now);
}

/* It has reached the replica a little before the server gets the acknowledgement. */
static void copy_comes(scene *s, int p, int w, gw_time now) {
    s->copied_at[p][w] = 0;
    use(s, &s->copy, p, w, s->w[w].number[p]);
    gw_clock_table_used(s->copy.clocks, p, w, s->w[w].number[p], 0);
    gw_clock_table_safe(s->main.clocks, p, w);
    answer_due(s, p, now);
}

static void answer_comes(scene *s, int p, int w) {
    worker *who = &s->w[w];
    who->answer_at[p] = 0;
    who->answered[p] = true;
    who->answers++;
    for (uint64_t n = who->first; n <= who->number[p]; n++)
        if (!s->main.has.used[p][w][who->life][n] && !s->lost[p][w][who->life][n])
            s->broken = "an answer without own pushes";
    who->number[p] = gw_clock_table_number(s->main.clocks, p, w);
}

static void leave(scene *s, int w, gw_time now) {
    gw_clock_table_leave(s->main.clocks, w, now);
    for (int p = 0; p < s->partitions; p++) answer_due(s, p, now);
}

static void act(scene *s, int w, gw_time now) {
    worker *who = &s->w[w];
    if (who->dead || who->made == STEPS) return;
    for (int p = 0; p < s->partitions; p++) {
        if (who->push_at[p] && who->push_at[p] <= now) push_comes(s, p, w, now);
        if (s->copied_at[p][w] && s->copied_at[p][w] <= now) copy_comes(s, p, w, now);
        if (who->answer_at[p] && who->answer_at[p] <= now) answer_comes(s, p, w);
    }
    if (who->pushed && who->answers == s->partitions) {
        who->pushed = false;
        who->answers = 0;
        who->free_at = now + 1 + gw_rng_below(&s->rng, (uint64_t)(10 * who->pace));
        if (++who->made == STEPS) leave(s, w, now);
    } else if (!who->pushed && who->free_at <= now) {
        who->pushed = true;
        for (int p = 0; p < s->partitions; p++) {
            who->answered[p] = false;
            who->push_at[p] = now + delay(s);
        }
    }
}

/* A process is lost: messages in flight are lost too, and all others continue from `state`. */

static uint64_t floor_of(const scene *s, int fresh) {
    gw_ps_member who[WORKERS] = {0};
    gw_error error = {.rank = -1};
    gw_placement placement;
    for (int w = 0; w < s->workers; w++) {
        who[w] = (gw_ps_member){.member = w, .serves = -1, .copies = -1, .fresh = w == fresh || s->w[w].dead,
                                .leaves = s->w[w].made == STEPS};
        for (int p = 0; p < s->partitions; p++)
            if (s->w[w].number[p] > who[w].pushes && !who[w].fresh) who[w].pushes = s->w[w].number[p];
    }
    CHECK_EQ(GW_OK, gw_placement_open(&placement, who, s->workers, 1, 0, &error));
    uint64_t floor = gw_placement_slowest_clock(&placement);
    gw_placement_close(&placement);
    return floor;
}

static void restore(scene *s, server *at, const void *state, size_t bytes, int fresh, bool old, gw_time now) {
    int from[WORKERS];
    gw_clock_table *before = at->clocks;
    for (int w = 0; w < s->workers; w++) from[w] = w == fresh || (old && s->snapshot_life[w] != s->w[w].life) ? -1 : w;
    open_clock_table(s, at);
    if (!gw_clock_table_restore(at->clocks, state, bytes, from, old)) s->broken = "a state was refused";
    if (fresh >= 0) gw_clock_table_admit(at->clocks, fresh, floor_of(s, fresh));
    for (int w = 0; w < s->workers; w++)
        if (s->w[w].dead || s->w[w].made == STEPS) gw_clock_table_leave(at->clocks, w, now);
    gw_clock_table_close(before);
}

static void sit_down(scene *s, const void *state, size_t bytes, int fresh, bool old, gw_time now) {
    if (fresh >= 0) {
        worker *who = &s->w[fresh];
        who->dead = false;
        who->life++;
        who->pushed = false;
        who->answers = 0;
        who->free_at = now + delay(s);
        who->first = floor_of(s, fresh);
    }
    restore(s, &s->main, state, bytes, fresh, old, now);
    if (s->replica) {
        restore(s, &s->copy, state, bytes, fresh, false, now);
        s->copy.has = s->main.has;
    }
    memset(s->copied_at, 0, sizeof s->copied_at);
    for (int w = 0; w < s->workers; w++)
        for (int p = 0; p < s->partitions; p++) {
            worker *who = &s->w[w];
            if (w == fresh) who->number[p] = who->first;
            who->answer_at[p] = 0;
            who->push_at[p] = !who->dead && who->pushed && !who->answered[p] ? now + delay(s) : 0;
        }
}

static void lose_since_snapshot(scene *s) {
    for (int p = 0; p < s->partitions; p++)
        for (int w = 0; w < s->workers; w++)
            for (int l = 0; l < LIVES; l++)
                for (int n = 0; n < NUMBERS; n++)
                    if (s->main.has.used[p][w][l][n] && !s->snapshot_has.used[p][w][l][n]) s->lost[p][w][l][n] = true;
    s->main.has = s->snapshot_has;
}

/* A push that was lost unanswered comes again, and is not lost then. */
static void forget_regained(scene *s) {
    for (int p = 0; p < s->partitions; p++)
        for (int w = 0; w < s->workers; w++) s->lost[p][w][s->w[w].life][s->w[w].number[p]] = false;
}

static void server_dies(scene *s, int fresh, gw_time now) {
    size_t bytes = gw_clock_table_saved_bytes(s->main.clocks);
    void *state = malloc(bytes);
    if (s->replica) {
        gw_clock_table_save(s->copy.clocks, state);
        s->main.has = s->copy.has;
        sit_down(s, state, bytes, fresh, false, now);
    } else {
        lose_since_snapshot(s);
        forget_regained(s);
        sit_down(s, s->snapshot, s->snapshot_bytes, fresh, true, now);
    }
    free(state);
}

static void others_change(scene *s, int fresh, gw_time now) {
    size_t bytes = gw_clock_table_saved_bytes(s->main.clocks);
    void *state = malloc(bytes);
    gw_clock_table_save(s->main.clocks, state);
    sit_down(s, state, bytes, fresh, false, now);
    free(state);
}

static void take_snapshot(scene *s) {
    gw_clock_table_save(s->main.clocks, s->snapshot);
    for (int w = 0; w < s->workers; w++) s->snapshot_life[w] = s->w[w].life;
    s->snapshot_has = s->main.has;
}

static void fate(scene *s, gw_time now) {
    int w = (int)gw_rng_below(&s->rng, (uint64_t)s->workers);
    worker *who = &s->w[w];
    bool comes = who->dead && who->life + 1 < LIVES && who->made < STEPS;
    switch (gw_rng_below(&s->rng, 4)) {
    case 0: server_dies(s, comes ? w : -1, now); break;
    case 1: take_snapshot(s); break;
    default:
        if (who->made == STEPS || (who->dead && !comes)) return;
        if (!comes) who->dead = true;
        others_change(s, comes ? w : -1, now);
    }
}

static bool play(uint64_t seed) {
    scene *s = calloc(1, sizeof *s);
    *s = (scene){.rng = gw_rng_make(seed, 7), .replica = seed % 2, .rule = {.at_once = true}};
    s->rule.staleness = seed % 3 ? gw_rng_below(&s->rng, 4) : UINT64_MAX;
    s->workers = 2 + (int)gw_rng_below(&s->rng, WORKERS - 1);
    s->partitions = 1 + (int)gw_rng_below(&s->rng, PARTITIONS);
    open_clock_table(s, &s->main);
    open_clock_table(s, &s->copy);
    s->snapshot_bytes = gw_clock_table_saved_bytes(s->main.clocks);
    s->snapshot = malloc(s->snapshot_bytes);
    take_snapshot(s);
    for (int w = 0; w < s->workers; w++) s->w[w].pace = 1 + (int)gw_rng_below(&s->rng, 10);
    bool over = false;
    for (gw_time now = 1; now < END && !over && !s->broken; now++) {
        if (now < 4000 && gw_rng_below(&s->rng, 60) == 0) fate(s, now);
        over = true;
        for (int i = 0; i < s->workers; i++) {
            act(s, (int)((now + (gw_time)i) % (gw_time)s->workers), now);
            over &= s->w[i].dead || s->w[i].made == STEPS;
        }
    }
    bool good = over && !s->broken;
    for (int p = 0; p < s->partitions; p++)
        for (int w = 0; w < s->workers; w++)
            for (int n = 0; n < NUMBERS; n++)
                if (s->replica && s->lost[p][w][s->w[w].life][n]) good = false;
    const char *why = s->broken ? s->broken : "not all came to an end";
    if (!good) printf("    seed %llu: %s\n", (unsigned long long)seed, why);
    gw_clock_table_close(s->main.clocks);
    gw_clock_table_close(s->copy.clocks);
    free(s->snapshot);
    free(s);
    return good;
}

static void a_thousand_seeds_of_losses(void) {
    const char *given = getenv("CLOCK_TABLE_SEEDS");
    uint64_t seeds = given ? strtoull(given, NULL, 10) : 1000;
    for (uint64_t seed = 0; seed < seeds; seed++) CHECK(play(seed));
}

/* Rounds: a push that was only kept is pushed again, one that was used is answered again, and a replica knows both. */
static void rounds_continue(void) {
    gw_sync_rule bsp = {.at_once = false};
    gw_clock_table *clocks = NULL, *next = NULL;
    gw_error error = {.rank = -1};
    CHECK_EQ(GW_OK, gw_clock_table_open(&clocks, &bsp, 3, 1, &error));
    CHECK_EQ(GW_OK, gw_clock_table_open(&next, &bsp, 2, 1, &error));
    for (int w = 0; w < 3; w++) gw_clock_table_push(clocks, 0, w, 0, 0, 1);
    gw_clock_table_next(clocks, 0, 1);
    CHECK_EQ(0, gw_clock_table_due(clocks, 0, 1));
    CHECK_EQ(GW_PUSH_KEPT, gw_clock_table_push(clocks, 0, 0, 1, 1, 2));
    void *state = malloc(gw_clock_table_saved_bytes(clocks));
    gw_clock_table_save(clocks, state);
    int from[2] = {0, 2}; /* the middle one is lost */
    CHECK(gw_clock_table_restore(next, state, gw_clock_table_saved_bytes(clocks), from, false));
    CHECK_EQ(3, gw_clock_table_joined(next, 0)); /* round 0, also for the answer that is given again */
    CHECK_EQ(GW_PUSH_KEPT, gw_clock_table_push(next, 0, 0, 1, 1, 3));
    CHECK_EQ(GW_PUSH_AGAIN, gw_clock_table_push(next, 0, 1, 0, 0, 3)); /* it had not got the answer to round 0 */
    CHECK_EQ(1, gw_clock_table_due(next, 0, 3));
    CHECK_EQ(GW_PUSH_LAST, gw_clock_table_push(next, 0, 1, 1, 1, 4));
    gw_clock_table_next(next, 0, 4);
    CHECK_EQ(2, gw_clock_table_joined(next, 0));
    CHECK(!gw_clock_table_restore(next, state, gw_clock_table_saved_bytes(clocks) - 8, from, false));
    CHECK(!gw_clock_table_restore(next, state, gw_clock_table_saved_bytes(clocks), (int[]){0, 3}, false));
    free(state);
    gw_clock_table_close(clocks);
    gw_clock_table_close(next);
}

TEST_MAIN(CASE(a_thousand_seeds_of_losses), CASE(rounds_continue))
