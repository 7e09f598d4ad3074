/* fit_search.c - see fit.h: searches the figures that predict measured steps best. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/suggest.h"
#include "predict/fit.h"
#include "predict/median.h"

enum { ROUNDS = 20, SWEEPS = 2, DAMPINGS = 4 };

#define DIFFERENCE 0.01 /* of a figure's logarithm, for slopes */
#define LARGE 0.05      /* an error */
#define PULL 1e-7       /* keeps a figure that hardly matters at its start */

/* Figures that a fit may move, and where it begins if the machine's value is 0. */
static const struct {
    const char *name;
    double begin;
} movable[] = {
    {"latency", 50e-6},       {"rate", 0},   {"queue", 50e3}, {"message", 5e-6},      {"memory", 0},
    {"memory_latency", 5e-6}, {"reduce", 0}, {"compute", 0},  {"interference", 10e9}, {"update", 20e9},
    {"decide", 100e-6},
};

#define MOVABLE ((int)(sizeof movable / sizeof movable[0]))

_Static_assert(sizeof movable / sizeof movable[0] <= GW_FIT_MOVES_MAX, "all of them can be moved at once");

static int find_movable(const char *name) {
    int at = 0;
    while (at < MOVABLE && strcmp(movable[at].name, name) != 0) at++;
    return at < MOVABLE ? at : -1;
}

static bool named(const gw_fit_moves *moves, const char *name) {
    for (int i = 0; i < moves->count; i++)
        if (strcmp(moves->names[i], name) == 0) return true;
    return false;
}

static gw_status refuse_word(const char *word, gw_error *error) {
    const char *names[MOVABLE + 2] = {[MOVABLE] = "none"};
    char hint[GW_HINT_BYTES], quoted[GW_QUOTE_BYTES];
    for (int i = 0; i < MOVABLE; i++) names[i] = movable[i].name;
    return gw_fail(error, GW_INVALID, "--move %s: %s", gw_suggest_quote(word, quoted),
                   gw_suggest_hint(word, names, hint));
}

gw_status gw_fit_moves_parse(const char *text, gw_fit_moves *moves, gw_error *error) {
    char copy[256], *rest = copy, *word;
    gw_fit_moves made = {.count = 0};
    if (strlen(text) >= sizeof copy) return refuse_word(text, error);
    strcpy(copy, text);
    while (strcmp(text, "none") != 0 && (word = strsep(&rest, ","))) {
        int at = find_movable(word);
        if (at < 0) return refuse_word(word, error);
        if (named(&made, word)) return gw_fail(error, GW_INVALID, "--move %s: %s stands there twice", text, word);
        made.names[made.count++] = movable[at].name;
    }
    *moves = made;
    return GW_OK;
}

/* Searching. */

typedef struct search {
    gw_fit_steps *steps;
    const gw_fabric_spec *fabric;
    gw_machine *machine;
    double *figures[GW_FIT_MOVES_MAX]; /* the varied figures of the machine */
    double start[GW_FIT_MOVES_MAX];
    bool matters[GW_FIT_MOVES_MAX]; /* a prediction depends on it */
    int count;
    gw_fit_progress *progress;
    void *ctx;
    int tried;
    gw_error *error;
    gw_status status;
} search;

typedef struct point {
    double at[GW_FIT_MOVES_MAX];  /* logarithms of factors on the start */
    double off[GW_FIT_STEPS_MAX]; /* logarithms of predicted over measured */
    double apart;                 /* the mean of their losses */
    double distance;              /* the same, and a very weak pull to the start */
} point;

/* Huber 1964: an error beyond LARGE counts by itself and not by its square, so that a few steps which the model cannot
 * explain do not move the figures. */
static double weight_of(double off) { return fabs(off) <= LARGE ? 1 : LARGE / fabs(off); }

static double loss_of(double off) { return fabs(off) <= LARGE ? off * off : LARGE * (2 * fabs(off) - LARGE); }

static void put(search *s, const point *p) {
    for (int i = 0; i < s->count; i++) *s->figures[i] = s->start[i] * exp(p->at[i]);
}

static double predict(search *s, gw_fit_step *step) {
    gw_prediction p = {.step_seconds = step->measured};
    gw_predict_config config = {.profile = &step->profile, .strategy = &step->strategy, .machine = s->machine,
                                .fabric = *s->fabric, .ranks = step->ranks, .per_host = step->per_host};
    s->status = gw_predict(&config, &p, s->error);
    return step->predicted = p.step_seconds;
}

static void measure(search *s, point *p) {
    double sum = 0, pull = 0;
    put(s, p);
    for (int i = 0; i < s->count; i++) pull += p->at[i] * p->at[i];
    for (int i = 0; i < s->steps->count && !s->status; i++) {
        gw_fit_step *step = &s->steps->steps[i];
        p->off[i] = log(predict(s, step) / step->measured);
        sum += loss_of(p->off[i]);
    }
    s->tried++;
    p->apart = s->status ? INFINITY : sum / s->steps->count;
    p->distance = p->apart + PULL * pull;
    if (s->progress) s->progress(s->ctx, s->tried, sqrt(p->apart));
}

/* Measures *from with a figure at another place; it becomes *best if it is nearer. */
static void try_at(search *s, int figure, double place, const point *from, point *best) {
    point here = *from;
    here.at[figure] = place;
    measure(s, &here);
    s->matters[figure] |= fabs(here.apart - from->apart) > 1e-12 * from->apart;
    if (here.distance < best->distance) *best = here;
}

/* Tries 1/4, 1 and 4 times the start of each figure in turn, again until none changes. The step time has kinks where
 * communication becomes hidden behind compute, and a descent does not cross them. */
static void look_around(search *s, point *best) {
    for (int sweep = 0; sweep < SWEEPS && !s->status; sweep++) {
        double last = best->distance;
        for (int i = 0; i < s->count && !s->status; i++) {
            point from = *best;
            for (int turn = -1; turn <= 1; turn++)
                if (from.at[i] != turn * log(4)) try_at(s, i, turn * log(4), &from, best);
        }
        if (best->distance == last) break;
    }
}

/* Normal equations of the linearised problem: matrix * move = right. */
typedef struct equations {
    double matrix[GW_FIT_MOVES_MAX][GW_FIT_MOVES_MAX], right[GW_FIT_MOVES_MAX];
} equations;

static void linearise(search *s, const point *from, equations *e) {
    double slopes[GW_FIT_MOVES_MAX][GW_FIT_STEPS_MAX];
    int n = s->steps->count;
    for (int i = 0; i < s->count && !s->status; i++) {
        point near = *from;
        near.at[i] += DIFFERENCE;
        measure(s, &near);
        for (int row = 0; row < n; row++) slopes[i][row] = (near.off[row] - from->off[row]) / DIFFERENCE;
    }
    for (int i = 0; i < s->count && !s->status; i++) {
        e->right[i] = -PULL * from->at[i];
        for (int row = 0; row < n; row++)
            e->right[i] -= weight_of(from->off[row]) * slopes[i][row] * from->off[row] / n;
        for (int k = 0; k <= i; k++) {
            double sum = i == k ? PULL : 0;
            for (int row = 0; row < n; row++) sum += weight_of(from->off[row]) * slopes[i][row] * slopes[k][row] / n;
            e->matrix[i][k] = e->matrix[k][i] = sum;
        }
    }
}

/* Solves by elimination; the matrix is positive definite, and its diagonal is raised by `damping` of itself. */
static void solve(equations e, int n, double damping, double *move) {
    for (int i = 0; i < n; i++) e.matrix[i][i] *= 1 + damping;
    for (int i = 0; i < n; i++)
        for (int row = i + 1; row < n; row++) {
            double share = e.matrix[row][i] / e.matrix[i][i];
            for (int k = i; k < n; k++) e.matrix[row][k] -= share * e.matrix[i][k];
            e.right[row] -= share * e.right[i];
        }
    for (int i = n - 1; i >= 0; i--) {
        double rest = e.right[i];
        for (int k = i + 1; k < n; k++) rest -= e.matrix[i][k] * move[k];
        move[i] = fmax(-log(2), fmin(log(2), rest / e.matrix[i][i]));
    }
}

/* One step of the descent; false: no damping brought *best nearer. */
static bool descend(search *s, point *best, double *damping) {
    equations e;
    linearise(s, best, &e);
    for (int turn = 0; turn < DAMPINGS && !s->status; turn++, *damping *= 10) {
        double move[GW_FIT_MOVES_MAX];
        point next = *best;
        solve(e, s->count, *damping, move);
        for (int i = 0; i < s->count; i++) next.at[i] += move[i];
        measure(s, &next);
        if (next.distance >= best->distance) continue;
        *best = next;
        *damping /= 10;
        return true;
    }
    return false;
}

static void refuse_idle(search *s, const gw_fit_moves *moves) {
    for (int i = 0; i < s->count && !s->status; i++)
        if (!s->matters[i])
            s->status =
                gw_fail(s->error, GW_INVALID, "--move %s: no measured step depends on it, so it cannot be learned%s",
                        moves->names[i],
                        strncmp(moves->names[i], "memory", 6) == 0 ? "; add steps with several ranks on a host" : "");
}

static void find_nearest(search *s, const gw_fit_moves *moves) {
    point best = {.distance = 0};
    double damping = 1e-3, last;
    measure(s, &best);
    look_around(s, &best);
    refuse_idle(s, moves);
    for (int round = 0; round < ROUNDS && !s->status; round++) {
        last = best.distance;
        if (!descend(s, &best, &damping) || best.distance > last * (1 - 1e-3)) break;
    }
    if (!s->status) measure(s, &best);
}

static void choose_figures(search *s, const gw_fit_moves *moves) {
    if (named(moves, "latency") || named(moves, "rate")) s->machine->arch_count = s->machine->link_count = 0;
    for (; s->count < moves->count; s->count++) {
        double *figure = gw_machine_figure(s->machine, moves->names[s->count]);
        if (*figure == 0) *figure = movable[find_movable(moves->names[s->count])].begin;
        s->figures[s->count] = figure;
        s->start[s->count] = *figure;
    }
}

gw_status gw_fit_to_steps(gw_fit_steps *steps, const gw_fit_moves *moves, const gw_fabric_spec *fabric,
                          gw_machine *machine, gw_fit_progress *progress, void *ctx, gw_error *error) {
    gw_machine made = *machine;
    search s = {.steps = steps, .fabric = fabric, .machine = &made, .progress = progress, .ctx = ctx, .error = error};
    choose_figures(&s, moves);
    if (s.count) find_nearest(&s, moves);
    else measure(&s, &(point){.distance = 0});
    if (s.status) return s.status;
    double errors[GW_FIT_STEPS_MAX];
    for (int i = 0; i < steps->count; i++) errors[i] = fabs(steps->steps[i].predicted / steps->steps[i].measured - 1);
    made.error = gw_median(errors, steps->count);
    *machine = made;
    return GW_OK;
}
