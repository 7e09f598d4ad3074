/* strategy.c - reads the settings of a parsed strategy, checks whether a job can use it, and prints it. */
#include "strategy/strategy.h"

#include "transport/transport_registry.h"

#include <assert.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

/* Appends to text at *used, as snprintf does; *used also counts the characters that did not fit. */
__attribute__((format(printf, 4, 5))) static void append(char *text, size_t size, size_t *used, const char *format,
                                                         ...) {
    va_list args;
    va_start(args, format);
    int added = *used < size ? vsnprintf(text + *used, size - *used, format, args) : vsnprintf(NULL, 0, format, args);
    va_end(args);
    if (added > 0) *used += (size_t)added;
}

static void params_print(const gw_setting *setting, char *text, size_t size, size_t *used) {
    const gw_param *params = setting->technique->params;
    char value[GW_PARAM_TEXT_BYTES];
    char before = ':';
    for (int i = 0; params && params[i].name; i++) {
        if (setting->values[i] == params[i].preset) continue;
        append(text, size, used, "%c%s", before, params[i].name);
        if (params[i].kind != GW_PARAM_FLAG)
            append(text, size, used, "=%s", gw_param_print(&params[i], setting->values[i], value));
        before = ',';
    }
}

int gw_strategy_print_axis(const gw_strategy *strategy, gw_axis axis, char *text, size_t size) {
    size_t used = 0;
    append(text, size, &used, "%s=%s", gw_axis_name(axis), strategy->axes[axis].technique->name);
    params_print(&strategy->axes[axis], text, size, &used);
    return (int)used;
}

int gw_strategy_print(const gw_strategy *strategy, char *text, size_t size) {
    size_t used = 0;
    for (int axis = 0; axis < GW_AXES; axis++) {
        char word[GW_STRATEGY_PRINT_BYTES];
        gw_strategy_print_axis(strategy, (gw_axis)axis, word, sizeof word);
        append(text, size, &used, "%s%s", axis ? " " : "", word);
    }
    if (strategy->accuracy == GW_ACCURACY_SAFE) append(text, size, &used, " accuracy=safe");
    return (int)used;
}

bool gw_strategy_equal(const gw_strategy *a, const gw_strategy *b) {
    for (int axis = 0; axis < GW_AXES; axis++) {
        const gw_setting *x = &a->axes[axis], *y = &b->axes[axis];
        if (x->technique != y->technique) return false;
        for (int i = 0; i < GW_TECHNIQUE_PARAMS_MAX; i++)
            if (x->values[i] != y->values[i]) return false;
    }
    return a->accuracy == b->accuracy;
}

bool gw_strategy_is_open(const gw_strategy *strategy, gw_axis axis) {
    return !strategy->fixed && !(strategy->named & 1u << axis);
}

#define ALLOWED_BYTES 256

static bool fits(const gw_technique *technique, const gw_strategy_facts *facts) {
    const gw_transport_type *type = gw_transport_type_of(technique);
    if (facts->simulated) return type->simulated || technique == gw_transport_techniques[0];
    return !type->simulated && !(type->single_host && facts->hosts > 1);
}

/* Lists the transports that a job with these facts can use, separated by commas. */
static const char *allowed(const gw_strategy_facts *facts, char text[ALLOWED_BYTES]) {
    size_t used = 0;
    text[0] = '\0';
    for (const gw_technique *const *at = gw_transport_techniques; *at; at++)
        if (fits(*at, facts)) append(text, ALLOWED_BYTES, &used, "%s%s", used ? ", " : "", (*at)->name);
    return text;
}

static const char *allowed_native(char text[ALLOWED_BYTES]) {
    size_t used = 0;
    text[0] = '\0';
    for (const gw_transport_type *const *at = gw_transport_types; *at; at++)
        if ((*at)->native_allreduce)
            append(text, ALLOWED_BYTES, &used, "%stransport=%s", used ? ", " : "", (*at)->technique.name);
    return text;
}

gw_status gw_strategy_check(const gw_strategy *strategy, const gw_strategy_facts *facts, gw_error *error) {
    const gw_transport_type *type = gw_strategy_transport(strategy);
    const char *transport = type->technique.name;
    char list[ALLOWED_BYTES];
    if (type->simulated && !facts->simulated)
        return gw_fail(error, GW_UNSUPPORTED, "transport=%s exists only in the simulator (allowed here: %s)", transport,
                       allowed(facts, list));
    if (facts->simulated && !fits(&type->technique, facts))
        return gw_fail(error, GW_UNSUPPORTED,
                       "transport=%s is not possible in the simulator, whose links are simulated (allowed here: %s)",
                       transport, allowed(facts, list));
    if (gw_strategy_is(strategy, GW_AXIS_ARCH, "mpi") && !type->native_allreduce)
        return gw_fail(error, GW_UNSUPPORTED,
                       "arch=mpi hands the all-reduce to MPI, and transport=%s has none (allowed with it: %s)",
                       transport, allowed_native(list));
    if (type->single_host && facts->hosts > 1)
        return gw_fail(error, GW_UNSUPPORTED,
                       "transport=%s reaches only ranks of one host, and this job has %d hosts (allowed here: %s)",
                       transport, facts->hosts, allowed(facts, list));
    return GW_OK;
}

const char *gw_strategy_name(const gw_strategy *strategy, gw_axis axis) { return strategy->axes[axis].technique->name; }

bool gw_strategy_is(const gw_strategy *strategy, gw_axis axis, const char *technique) {
    return strcmp(gw_strategy_name(strategy, axis), technique) == 0;
}

#define ONE(kind) (1u << GW_PARAM_##kind)

/* The value of a parameter; kinds is a set of ONE(...). */
static const double *find(const gw_setting *setting, const char *name, unsigned kinds) {
    int i = gw_technique_param(setting->technique, name);
    assert(i >= 0 && "the technique has a parameter of this name");
    assert(kinds & 1u << setting->technique->params[i].kind && "and it is of this kind");
    (void)kinds;
    return &setting->values[i];
}

int64_t gw_strategy_integer(const gw_strategy *strategy, gw_axis axis, const char *param) {
    return (int64_t)*find(&strategy->axes[axis], param, ONE(INTEGER) | ONE(BYTES));
}

double gw_strategy_number(const gw_strategy *strategy, gw_axis axis, const char *param) {
    return *find(&strategy->axes[axis], param, ONE(NUMBER));
}

bool gw_strategy_flag(const gw_strategy *strategy, gw_axis axis, const char *param) {
    return *find(&strategy->axes[axis], param, ONE(FLAG)) != 0;
}

const char *gw_strategy_choice(const gw_strategy *strategy, gw_axis axis, const char *param) {
    const gw_setting *setting = &strategy->axes[axis];
    const double *value = find(setting, param, ONE(CHOICE));
    return setting->technique->params[value - setting->values].choices[(int)*value];
}

const gw_transport_type *gw_strategy_transport(const gw_strategy *strategy) {
    return gw_transport_type_of(strategy->axes[GW_AXIS_TRANSPORT].technique);
}

bool gw_strategy_shares_memory(const gw_strategy *strategy) {
    const gw_transport_type *type = gw_strategy_transport(strategy);
    return type->within_host || type->simulated; /* simulated hosts have shared memory too */
}
