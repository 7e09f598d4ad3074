/* candidates.c - see candidates.h. Schedules keep their automatic sizes, which suit most networks
 * (docs/explanation/schedules.md), and those that fuse have two more entries. Schedules that cut by measured times are
 * not listed: a run could not be repeated bit for bit. */
#include "decide/candidates.h"

#include <stdio.h>
#include <string.h>

#include "compress/compress.h"
#include "plan/plan.h"
#include "schedule/schedule.h"
#include "strategy/accuracy_risk.h"
#include "strategy/combine.h"
#include "sync/sync.h"

static const char *const fused_sizes[] = {"4M", "25M", NULL};

typedef struct listing {
    const gw_strategy *asked;
    const gw_candidate_facts *facts;
    gw_strategy *list;
    int count;
} listing;

static bool known(const listing *l, const gw_strategy *strategy) {
    for (int i = 0; i < l->count; i++)
        if (gw_strategy_equal(&l->list[i], strategy)) return true;
    return false;
}

/* Sets one axis; a NULL word leaves it as it was asked for. */
static void set(gw_strategy *strategy, const char *axis, const char *word) {
    char text[128];
    gw_error error = {.rank = -1};
    snprintf(text, sizeof text, "%s=%s", axis, word ? word : "");
    if (word) gw_strategy_overlay(strategy, text, NULL, &error);
}

static void add(listing *l, const char *arch, const char *schedule, const char *codec) {
    gw_strategy strategy = *l->asked;
    set(&strategy, "arch", arch);
    set(&strategy, "schedule", schedule);
    set(&strategy, "compress", codec);
    if (l->count < GW_CANDIDATES_MAX && !known(l, &strategy)) l->list[l->count++] = strategy;
}

/* A codec with a momentum of its own has no state that fits other owners. */
static bool keeps_arch(const gw_strategy *asked) {
    gw_codec_setup setup;
    gw_error error = {.rank = -1};
    const gw_setting *setting = &asked->axes[GW_AXIS_COMPRESS];
    if (gw_codec_from_setting(setting->technique, setting->values, &setup, &error)) return true;
    return setup.codec->needs && setup.codec->needs(&setup) & GW_NEEDS_GRADIENTS;
}

/* Plans of an all-reduce that work over messages, with enough ranks a host. */
static bool suits(const gw_plan_builder *builder, const gw_candidate_facts *facts) {
    int host_of[] = {0, 0};
    gw_plan_request request = {.collective = GW_COLL_ALLREDUCE,
                               .topology = {.world = 2, .host_of = host_of},
                               .count = 2,
                               .root = -1,
                               .chunk_count = 1,
                               .pipeline = 1};
    if (facts->hosts == 1 || builder->refuses(&request)) return false;
    return !builder->local || facts->per_host > 1;
}

/* One schedule with every architecture. */
static void add_archs(listing *l, const char *schedule, const char *codec) {
    bool open = gw_strategy_is_open(l->asked, GW_AXIS_ARCH) && !keeps_arch(l->asked);
    add(l, NULL, schedule, codec);
    for (const gw_technique *const *arch = gw_techniques(GW_AXIS_ARCH); open && *arch; arch++) {
        const gw_plan_builder *builder = gw_plan_find((*arch)->name);
        if (builder && suits(builder, l->facts) && (!codec || builder->by_hosts))
            add(l, (*arch)->name, schedule, codec);
    }
}

static void add_sizes(listing *l, const char *schedule, const char *codec) {
    char text[64];
    for (const char *const *size = fused_sizes; *size; size++) {
        snprintf(text, sizeof text, "%s:fuse=%s", schedule, *size);
        add_archs(l, text, codec);
    }
}

static bool is_listed(const gw_technique *schedule) {
    double values[GW_TECHNIQUE_PARAMS_MAX];
    const gw_policy *policy = gw_policy_of(schedule);
    gw_technique_default(schedule, values);
    return !policy->after_backward && !policy->settings(values).measured;
}

/* Every schedule that hides communication. */
static void add_schedules(listing *l, const char *codec) {
    bool open = gw_strategy_is_open(l->asked, GW_AXIS_SCHEDULE);
    add_archs(l, NULL, codec);
    for (const gw_technique *const *s = gw_schedule_techniques; open && *s; s++)
        if (is_listed(*s)) add_archs(l, (*s)->name, codec);
}

/* Other sizes of buckets. */
static void add_sized_schedules(listing *l, const char *codec) {
    bool open = gw_strategy_is_open(l->asked, GW_AXIS_SCHEDULE);
    for (const gw_technique *const *s = gw_schedule_techniques; open && *s; s++)
        if (is_listed(*s) && gw_technique_param(*s, "fuse") >= 0) add_sizes(l, (*s)->name, codec);
}

/* Whether no earlier row has the same line. */
static bool is_first(const gw_accuracy_row *row) {
    for (const gw_accuracy_row *other = gw_accuracy_rows; other < row; other++)
        if (strcmp(other->line, row->line) == 0) return false;
    return true;
}

/* Every codec that has been measured, with the parameters that it had, and has turned out to be safe. */
static void add_coded(listing *l) {
    for (const gw_accuracy_row *row = gw_accuracy_rows; row->model; row++) {
        gw_strategy measured;
        gw_error error = {.rank = -1};
        char word[GW_TECHNIQUE_TEXT_BYTES];
        if (!is_first(row) || gw_strategy_parse(row->line, &measured, &error)) continue;
        if (!gw_strategy_compresses(&measured)) continue;
        gw_accuracy_risk risk = gw_accuracy_risk_of(&measured, l->facts->optimizer);
        gw_strategy_print_axis(&measured, GW_AXIS_COMPRESS, word, sizeof word);
        if (risk.safe && !risk.exact) add_schedules(l, word + strlen("compress="));
    }
}

static bool takes_codecs(const gw_strategy *asked) {
    return gw_strategy_is_open(asked, GW_AXIS_COMPRESS) && asked->accuracy == GW_ACCURACY_SAFE;
}

bool gw_candidates_apply(const gw_strategy *asked) {
    const gw_sync *sync = gw_sync_of(asked->axes[GW_AXIS_SYNC].technique);
    bool together = !sync->rule && !sync->exchanges && !sync->local && !sync->runs_ahead;
    bool open = gw_strategy_is_open(asked, GW_AXIS_ARCH) || gw_strategy_is_open(asked, GW_AXIS_SCHEDULE);
    return (open || takes_codecs(asked)) && together && !gw_strategy_servers(asked) &&
           !gw_strategy_is(asked, GW_AXIS_ARCH, "mpi");
}

int gw_candidates_list(const gw_strategy *asked, const gw_candidate_facts *facts, gw_strategy *list) {
    listing l = {.asked = asked, .facts = facts, .list = list};
    add(&l, NULL, NULL, NULL);
    add_schedules(&l, NULL);
    if (takes_codecs(asked)) add_coded(&l);
    add_sized_schedules(&l, NULL); /* last: a ranking may run out of time */
    return l.count;
}
