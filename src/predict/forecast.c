/* forecast.c - see forecast.h. */
#include "predict/forecast.h"

#include <math.h>
#include <stdarg.h>
#include <string.h>

#include "compress/compress.h"
#include "schedule/schedule.h"
#include "strategy/accuracy_risk.h"
#include "strategy/combine.h"

enum {
    FITS_MAX = 10,
    HOSTS_MAX = 8, /* of a prediction */
    SERVED_RANKS_MAX = 16,
    SHARES = 16, /* one prediction gets this part of the time, at most */
};
#define FIT_GOOD 0.01  /* relative error of a step at which the fit ends */
#define FIT_POOR 0.15  /* above it the model does not explain the job */
#define FACTOR_MAX 1e4 /* of the figure that is fitted, up and down */
#define BETTER 1.02    /* a candidate that changes more words must be so many times as fast */

typedef struct search {
    const gw_forecast_job *job;
    gw_forecast *found;
    int hosts; /* that are predicted */
    gw_time share, until;
    gw_error *error;
} search;

static gw_status predict(const search *s, const gw_strategy *strategy, const gw_machine *machine,
                         gw_prediction *prediction, gw_error *error) {
    gw_time until = gw_clock_now() + s->share;
    gw_predict_config config = {.profile = s->job->profile,
                                .strategy = strategy,
                                .machine = machine,
                                .fabric = {.kind = GW_FABRIC_SWITCH},
                                .ranks = s->hosts * s->job->per_host,
                                .per_host = s->job->per_host,
                                .until = until < s->until ? until : s->until};
    return gw_predict(&config, prediction, error);
}

/* ---- the machine ---- */

static double communication(const gw_time_breakdown *path) {
    double sum = 0;
    for (int part = GW_TIME_LATENCY; part < GW_TIME_PARTS; part++) sum += path->seconds[part];
    return sum;
}

static double latency_share(const gw_prediction *p) {
    double all = communication(&p->path);
    return all > 0 ? p->path.seconds[GW_TIME_LATENCY] / all : 0;
}

/* The job's machine with links that are slower by this factor, in latency or in rate. */
static gw_machine slower(const gw_machine *machine, double factor, bool latency) {
    gw_machine m = *machine;
    if (latency) m.latency *= factor;
    else m.rate /= factor;
    for (int i = 0; i < m.link_count; i++) {
        if (latency) m.links[i].latency *= factor;
        else m.links[i].rate /= factor;
    }
    return m;
}

/* A step grows with the factor. Steps of the logarithm are those of a secant, or a halving between two bounds. */
static gw_status fit(search *s, double wanted) {
    gw_forecast *f = s->found;
    double low = log(1 / FACTOR_MAX), high = log(FACTOR_MAX), at = 0, last = 0, last_error = 0;
    bool latency = false;
    gw_status status = GW_OK;
    for (int turn = 0; turn < FITS_MAX && !status; turn++) {
        f->machine = slower(&s->job->machine, exp(at), latency);
        status = predict(s, &s->job->strategy, &f->machine, &f->now, s->error);
        if (status) break;
        if (turn == 0) latency = latency_share(&f->now) > 0.5;
        double error = log(f->now.step_seconds / wanted), slope = turn ? (error - last_error) / (at - last) : 0;
        if (fabs(error) < FIT_GOOD) break;
        if (error < 0) low = at;
        else high = at;
        last_error = error;
        last = at;
        at = slope > 1e-3 ? at - error / slope : at - 2 * error; /* slope 0: all is hidden */
        if (!(at > low && at < high)) at = (low + high) / 2;
    }
    return status;
}

/* Many hosts take long to predict. Fewer exchange almost as many bytes each, and the fit makes up for the rest. Servers
 * are as many as the strategy says, so they need all ranks. */
static gw_status fit_some_hosts(search *s, double wanted) {
    int servers = gw_strategy_servers(&s->job->strategy), all = s->job->ranks / s->job->per_host;
    gw_status status;
    if (servers && s->job->ranks > SERVED_RANKS_MAX)
        return gw_fail(s->error, GW_TIMEOUT, "servers of %d ranks take long to predict: ask gradwire predict",
                       s->job->ranks);
    s->hosts = !servers && all > HOSTS_MAX ? HOSTS_MAX : all;
    while ((status = fit(s, wanted)) == GW_TIMEOUT && s->hosts > 3 && !servers) {
        *s->error = (gw_error){.rank = -1};
        s->hosts /= 2;
    }
    return status;
}

static gw_status explain(search *s) {
    double wanted = gw_profile_seconds(s->job->profile) * s->job->machine.compute + s->job->exposed;
    gw_status status = fit_some_hosts(s, wanted);
    if (status) return status;
    double error = s->found->now.step_seconds / wanted - 1;
    if (fabs(error) > FIT_POOR)
        return gw_fail(s->error, GW_UNSUPPORTED, "the model predicts this job %.0f %% %s than it was measured",
                       100 * fabs(error), error > 0 ? "slower" : "faster");
    s->found->latency_share = latency_share(&s->found->now);
    return GW_OK;
}

/* ---- candidates ---- */

/* Words of the axes that differ. */
static void write_change(const gw_strategy *from, const gw_strategy *to, char words[GW_STRATEGY_PRINT_BYTES]) {
    char before[GW_STRATEGY_PRINT_BYTES], after[GW_STRATEGY_PRINT_BYTES];
    size_t used = 0;
    words[0] = 0;
    for (gw_axis axis = 0; axis < GW_AXES; axis++) {
        gw_strategy_print_axis(from, axis, before, sizeof before);
        gw_strategy_print_axis(to, axis, after, sizeof after);
        if (strcmp(before, after) == 0) continue;
        used += (size_t)snprintf(words + used, GW_STRATEGY_PRINT_BYTES - used, "%s%s", used ? " " : "", after);
        if (used >= GW_STRATEGY_PRINT_BYTES) return;
    }
}

/* Predicts the job's strategy with these words. Candidates that cannot work there are left out. */
__attribute__((format(printf, 4, 5))) static void try(search *s, gw_forecast_choice *best, gw_strategy *chosen,
                                                      const char *format, ...) {
    char line[3 * GW_STRATEGY_PRINT_BYTES];
    gw_error none = {.rank = -1};
    gw_strategy strategy = s->job->strategy;
    gw_prediction p;
    va_list args;
    va_start(args, format);
    vsnprintf(line, sizeof line, format, args);
    va_end(args);
    if (gw_strategy_overlay(&strategy, line, NULL, &none) || gw_strategy_equal(&strategy, &s->job->strategy)) return;
    if (gw_clock_now() >= s->until || predict(s, &strategy, &s->found->machine, &p, &none)) return;
    double now = s->found->now.step_seconds, saves = now - p.step_seconds;
    if ((now - best->saves) / p.step_seconds < BETTER || saves <= 0) return;
    best->saves = saves;
    *chosen = strategy;
    write_change(&s->job->strategy, &strategy, best->words);
}

/* Words for the architecture of the job, and for auto where it is another one. */
typedef struct arch_words {
    char list[2][GW_STRATEGY_PRINT_BYTES];
    int count;
} arch_words;

static arch_words archs_of(const gw_strategy *strategy) {
    arch_words archs = {.count = gw_strategy_is(strategy, GW_AXIS_ARCH, "auto") ? 1 : 2};
    gw_strategy_print_axis(strategy, GW_AXIS_ARCH, archs.list[0], sizeof archs.list[0]);
    strcpy(archs.list[1], "arch=auto");
    return archs;
}

static void try_exact(search *s, gw_strategy *chosen) {
    char schedule[GW_STRATEGY_PRINT_BYTES];
    gw_forecast_choice *best = &s->found->exact;
    arch_words archs = archs_of(&s->job->strategy);
    for (int a = 0; a < archs.count; a++) {
        gw_strategy_print_axis(chosen, GW_AXIS_SCHEDULE, schedule, sizeof schedule);
        try(s, best, chosen, "compress=none %s %s", archs.list[a], schedule);
        for (const gw_technique *const *t = gw_schedule_techniques; *t; t++)
            try(s, best, chosen, "compress=none %s schedule=%s", archs.list[a], (*t)->name);
    }
}

/* Whether measurements have shown that the codec, as it is by default, hardly costs accuracy. */
static bool is_safe(const gw_codec *codec, const char *optimizer) {
    gw_strategy plain;
    char word[64];
    gw_error none = {.rank = -1};
    gw_strategy_default(&plain);
    snprintf(word, sizeof word, "compress=%.50s", codec->technique.name);
    return !gw_strategy_overlay(&plain, word, NULL, &none) && !codec->identity &&
           gw_accuracy_risk_of(&plain, optimizer).safe;
}

static void try_safe(search *s, const gw_strategy *exact) {
    char schedule[GW_STRATEGY_PRINT_BYTES];
    gw_strategy chosen = s->job->strategy;
    gw_forecast_choice *best = &s->found->safe;
    arch_words archs = archs_of(&s->job->strategy);
    gw_strategy_print_axis(exact, GW_AXIS_SCHEDULE, schedule, sizeof schedule);
    for (int a = 0; a < archs.count; a++)
        for (const gw_codec *const *c = gw_codecs; *c; c++) {
            if (!is_safe(*c, s->job->optimizer)) continue;
            try(s, best, &chosen, "compress=%s %s", (*c)->technique.name, archs.list[a]);
            try(s, best, &chosen, "compress=%s %s %s", (*c)->technique.name, archs.list[a], schedule);
        }
}

static void try_without_slow_links(search *s) {
    gw_machine even = s->found->machine;
    gw_prediction p;
    gw_error none = {.rank = -1};
    if (!even.link_count) return;
    even.link_count = 0;
    if (predict(s, &s->job->strategy, &even, &p, &none)) return;
    s->found->slow_links_cost = fmax(s->found->now.step_seconds - p.step_seconds, 0);
}

gw_status gw_forecast_make(const gw_forecast_job *job, gw_forecast *forecast, gw_error *error) {
    search s = {.job = job, .found = forecast, .error = error};
    gw_time begun = gw_clock_now(), time = (gw_time)(job->seconds * (double)GW_SECOND);
    s.share = time / SHARES;
    s.until = begun + time / 2; /* codecs get the other half, and what is left of this one */
    *forecast = (gw_forecast){.machine = job->machine};
    gw_strategy exact = job->strategy;
    gw_status status = explain(&s);
    if (status) return status;
    try_without_slow_links(&s);
    try_exact(&s, &exact);
    s.until = begun + time;
    try_safe(&s, &exact);
    return GW_OK;
}
