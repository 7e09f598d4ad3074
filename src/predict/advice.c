/* advice.c - see advice.h: facts become findings. */
#include "predict/advice.h"

#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "base/units.h"
#include "predict/forecast.h"
#include "predict/median.h"

#define WORTH 0.05           /* part of a step that a finding is about, at least */
#define LONGER 1.1           /* a slow rank computes so many times as long as the others */
#define MORE_THAN_ALONE 1.25 /* waiting that is so many times an exchange alone is not only for communication */
#define START_UPS_LEAST 0.5  /* part of communication that is latency */

enum { FINDINGS_MAX = 8, GAIN_TEXT = 24 };

typedef struct findings {
    gw_advice_line list[FINDINGS_MAX];
    double order[FINDINGS_MAX]; /* most first */
    int count;
} findings;

const char *gw_advice_word(gw_advice_kind kind) {
    static const char *const words[] = {
#define GW_ADVICE_WORD(name, word) word,
        GW_ADVICE_KINDS(GW_ADVICE_WORD)
#undef GW_ADVICE_WORD
    };
    return words[kind];
}

__attribute__((format(printf, 5, 6))) static gw_advice_line *add(findings *f, gw_advice_kind kind, double gain,
                                                                 double order, const char *format, ...) {
    gw_advice_line *line = &f->list[f->count];
    va_list args;
    *line = (gw_advice_line){.kind = kind, .gain = gain};
    f->order[f->count++] = order;
    va_start(args, format);
    vsnprintf(line->text, sizeof line->text, format, args);
    va_end(args);
    return line;
}

/* Times as fast, if a step becomes shorter by so much. */
static double gain_of(const gw_advice_facts *facts, double saved) {
    double left = facts->step - saved;
    return facts->step / fmax(left, 1e-3 * facts->step);
}

static const char *times(double gain, char text[GAIN_TEXT]) {
    snprintf(text, GAIN_TEXT, "%.*f times", gain < 2 ? 2 : gain < 10 ? 1 : 0, gain);
    return text;
}

static double percent(double part, double whole) { return whole > 0 ? 100 * part / whole : 0; }

/* ---- ranks ---- */

/* The median of the other ranks: how long they compute, or how long is waited for them. */
static double others_median(const gw_advice_facts *facts, int rank, bool computing) {
    double *others = calloc((size_t)facts->ranks + 1, sizeof *others), median = 0;
    int count = 0;
    for (int r = 0; others && r < facts->ranks; r++)
        if (r != rank) others[count++] = computing ? facts->rank[r].compute : facts->rank[r].awaited;
    if (count) median = gw_median(others, count);
    free(others);
    return median;
}

static void find_rank(const gw_advice_facts *facts, findings *f) {
    int rank = 0;
    char ratio[GAIN_TEXT];
    for (int r = 1; r < facts->ranks; r++)
        if (facts->rank[r].awaited > facts->rank[rank].awaited) rank = r;
    double awaited = facts->rank[rank].awaited, compute = facts->rank[rank].compute,
           others = others_median(facts, rank, true);
    double gain = gain_of(facts, awaited), share = percent(awaited, facts->step);
    if (awaited - others_median(facts, rank, false) < WORTH * facts->step) return; /* all are late in turn */
    if (others > 0 && compute >= LONGER * others)
        add(f, GW_ADVICE_SLOW_RANK, gain, gain,
            "rank %d computes %s as long as the others, who wait %.0f %% of a step for it: look for other work on its "
            "host",
            rank, times(compute / others, ratio), share);
    else
        add(f, GW_ADVICE_LATE_RANK, gain, gain,
            "rank %d begins its exchanges late%s: the others wait %.0f %% of a step for it; look at what it does "
            "between layers (loading data)",
            rank, others > 0 ? ", though it computes no longer than the others" : "", share);
}

/* What ranks wait longer than an exchange takes alone, they wait for each other. Returns the communication. */
static double find_uneven(const gw_advice_facts *facts, findings *f) {
    char alone[GW_UNIT_TEXT];
    double each_other = facts->exposed - facts->exchange, gain = gain_of(facts, each_other);
    if (!facts->exchange || facts->exposed < MORE_THAN_ALONE * facts->exchange) return facts->exposed;
    if (each_other >= WORTH * facts->step)
        add(f, GW_ADVICE_UNEVEN, gain, gain,
            "ranks wait %.0f %% of a step for each other, now for one and now for another (an exchange alone takes "
            "%s): "
            "look for cores that they share with each other or with other work",
            percent(each_other, facts->step), gw_duration_format(facts->exchange, alone));
    return facts->exchange;
}

static void find_cores(const gw_advice_facts *facts, findings *f) {
    char ratio[GAIN_TEXT];
    if (!facts->cores || facts->local_ranks <= facts->cores) return;
    double more = (double)facts->local_ranks / facts->cores;
    add(f, GW_ADVICE_CORES, 1, 1,
        "%d ranks share %d core%s of this host, so computing takes up to %s as long: use at "
        "most one rank a core",
        facts->local_ranks, facts->cores, facts->cores == 1 ? "" : "s", times(more, ratio));
}

/* ---- links ---- */

/* The slowest link; NULL: none is slow. Links that are not slow have the median rate. */
static const gw_fabric_pair *slow_link(const gw_machine *m) {
    const gw_fabric_pair *slow = NULL;
    for (int i = 0; i < m->link_count; i++)
        if (m->links[i].rate < m->rate && (!slow || m->links[i].rate < slow->rate)) slow = &m->links[i];
    return slow;
}

/* Whether every link from and to a host is slow. */
static bool host_is_slow(const gw_machine *m, int host) {
    for (int i = 0; i < m->link_count; i++)
        if ((m->links[i].from == host || m->links[i].to == host) && m->links[i].rate >= m->rate) return false;
    return true;
}

static void find_link(const gw_advice_facts *facts, const gw_forecast *forecast, findings *f) {
    const gw_fabric_pair *link = slow_link(&facts->machine);
    char rate[GW_UNIT_TEXT], usual[GW_UNIT_TEXT], which[64];
    if (!link || forecast->slow_links_cost < WORTH * facts->step) return;
    double gain = gain_of(facts, forecast->slow_links_cost);
    bool from = host_is_slow(&facts->machine, link->from), to = host_is_slow(&facts->machine, link->to);
    if (from || to) snprintf(which, sizeof which, "the links of host %d", from ? link->from : link->to);
    else snprintf(which, sizeof which, "the link from host %d to host %d", link->from, link->to);
    add(f, GW_ADVICE_SLOW_LINK, gain, gain,
        "%s carr%s %s, the others %s: as fast as they it is predicted to make a "
        "step %.2f times as fast (gradwire doctor measures links)",
        which, from || to ? "y" : "ies", gw_bandwidth_format(link->rate, rate),
        gw_bandwidth_format(facts->machine.rate, usual), gain);
}

/* ---- communication ---- */

typedef char head_text[160];

/* What is known of communication, before a colon. */
static const char *head(const gw_advice_facts *facts, const gw_forecast *forecast, head_text text) {
    double exposed = percent(facts->exposed, facts->step);
    char size[GW_UNIT_TEXT], step[GW_UNIT_TEXT], alone[GW_UNIT_TEXT];
    if (forecast && forecast->latency_share > START_UPS_LEAST && facts->messages > 0)
        snprintf(text, sizeof(head_text),
                 "a step waits %.0f %% of its time for communication, most of it start-ups of "
                 "%.0f messages of %s",
                 exposed, facts->messages, gw_bytes_format((uint64_t)(facts->bytes / facts->messages), size));
    else if (facts->busy >= 0)
        snprintf(text, sizeof(head_text),
                 "the wire is busy %.0f %% of a step, and a step waits %.0f %% of its time for it", 100 * facts->busy,
                 exposed);
    else if (facts->exchange > 0)
        snprintf(text, sizeof(head_text),
                 "a step of %s waits %.0f %% of its time for communication (an exchange alone "
                 "takes %s)",
                 gw_duration_format(facts->step, step), exposed, gw_duration_format(facts->exchange, alone));
    else snprintf(text, sizeof(head_text), "a step waits %.0f %% of its time for communication", exposed);
    return text;
}

static void add_choice(const gw_advice_facts *facts, const gw_forecast *forecast, const gw_forecast_choice *choice,
                       const char *accuracy, double order, findings *f) {
    char gain[GAIN_TEXT];
    head_text text;
    double expected = gain_of(facts, choice->saves);
    bool starts = forecast->latency_share > START_UPS_LEAST;
    bool follows = f->count && f->list[f->count - 1].accuracy; /* the line before has said it */
    gw_advice_line *line = add(f, starts ? GW_ADVICE_START_UPS : GW_ADVICE_WIRE, expected, order,
                               "%s%s%.300s is predicted to make a step %s as fast (accuracy=%s)",
                               follows ? "" : head(facts, forecast, text), follows ? "" : "; ", choice->words,
                               times(expected, gain), accuracy);
    snprintf(line->strategy, sizeof line->strategy, "%s", choice->words);
    line->accuracy = accuracy;
}

static void find_strategies(const gw_advice_facts *facts, const gw_forecast *forecast, findings *f) {
    double exact = facts->chosen ? 1 : gain_of(facts, forecast->exact.saves),
           safe = gain_of(facts, forecast->safe.saves);
    double order = fmax(exact, safe);
    head_text text;
    if (exact >= 1 + WORTH) add_choice(facts, forecast, &forecast->exact, "exact", order, f);
    if (safe >= (1 + WORTH) * fmax(exact, 1)) add_choice(facts, forecast, &forecast->safe, "safe", order, f);
    if (order < 1 + WORTH)
        add(f, GW_ADVICE_WIRE, 1, 1, "%s; no other strategy is predicted to make a step %.0f %% faster",
            head(facts, forecast, text), 100 * WORTH);
}

/* GW_INVALID or GW_UNSUPPORTED, with the reason: nothing can be predicted. */
static gw_status forecast_of(const gw_advice_facts *facts, gw_forecast *forecast, gw_error *error) {
    gw_forecast_job job = {.profile = facts->profile,
                           .machine = facts->machine,
                           .ranks = facts->ranks,
                           .per_host = facts->ranks / facts->hosts,
                           .exposed = facts->exposed,
                           .seconds = facts->seconds,
                           .optimizer = facts->optimizer};
    if (facts->hosts == 1) return gw_fail(error, GW_UNSUPPORTED, "all ranks are on one host, whose cores they share");
    if (facts->ranks % facts->hosts)
        return gw_fail(error, GW_UNSUPPORTED, "%d ranks are not spread evenly over %d hosts", facts->ranks,
                       facts->hosts);
    if (!facts->profile) return gw_fail(error, GW_INVALID, "layers were not recorded, or not of all ranks");
    gw_status status = gw_strategy_parse(facts->strategy, &job.strategy, error);
    return status ? status : gw_forecast_make(&job, forecast, error);
}

static void find_communication(const gw_advice_facts *facts, findings *f) {
    gw_forecast *forecast;
    gw_error error = {.rank = -1};
    head_text text;
    if (facts->exposed < WORTH * facts->step || !(forecast = malloc(sizeof *forecast))) return;
    if (forecast_of(facts, forecast, &error)) {
        add(f, GW_ADVICE_WIRE, 1, 1, "%s; what another strategy would gain is not known: %.200s",
            head(facts, NULL, text), error.text);
    } else {
        find_link(facts, forecast, f);
        find_strategies(facts, forecast, f);
    }
    free(forecast);
}

/* ---- all of them ---- */

void gw_advice_make(const gw_advice_facts *measured, gw_advice *advice) {
    gw_advice_facts known = *measured, *facts = &known;
    findings f = {.count = 0};
    bool taken[FINDINGS_MAX] = {false};
    *advice = (gw_advice){.count = 0};
    if (facts->ranks < 2 || facts->step <= 0) return;
    find_rank(facts, &f);
    facts->exposed = find_uneven(facts, &f);
    find_communication(facts, &f);
    find_cores(facts, &f);
    if (!f.count)
        add(&f, GW_ADVICE_NOTHING, 1, 1, "communication is hidden: %.1f %% of a step is exposed; nothing to gain",
            percent(facts->exposed, facts->step));
    while (advice->count < GW_ADVICE_LINES && advice->count < f.count) {
        int most = -1;
        for (int i = 0; i < f.count; i++)
            if (!taken[i] && (most < 0 || f.order[i] > f.order[most])) most = i;
        taken[most] = true;
        advice->list[advice->count++] = f.list[most];
    }
}
