/* strategy.c - a strategy that has been read: what it holds, whether it is possible, how it is written. */
#include "strategy/strategy.h"

#include <assert.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

/* Appends to text as snprintf would, at *used, which counts what did not fit too. */
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

int gw_strategy_print(const gw_strategy *strategy, char *text, size_t size) {
    size_t used = 0;
    for (int axis = 0; axis < GW_AXES; axis++) {
        append(text, size, &used, "%s%s=%s", axis ? " " : "", gw_axis_name((gw_axis)axis),
               strategy->axes[axis].technique->name);
        params_print(&strategy->axes[axis], text, size, &used);
    }
    return (int)used;
}

bool gw_strategy_equal(const gw_strategy *a, const gw_strategy *b) {
    for (int axis = 0; axis < GW_AXES; axis++) {
        const gw_setting *x = &a->axes[axis], *y = &b->axes[axis];
        if (x->technique != y->technique) return false;
        for (int i = 0; i < GW_TECHNIQUE_PARAMS_MAX; i++)
            if (x->values[i] != y->values[i]) return false;
    }
    return true;
}

gw_status gw_strategy_check(const gw_strategy *strategy, const gw_strategy_facts *facts, gw_error *error) {
    const char *transport = gw_strategy_name(strategy, GW_AXIS_TRANSPORT);
    bool sim = strcmp(transport, "sim") == 0;
    if (sim && !facts->simulated)
        return gw_fail(error, GW_UNSUPPORTED,
                       "transport=sim exists only in the simulator (allowed here: auto, tcp, rdma, shm, zmq, mpi)");
    if (!sim && facts->simulated && strcmp(transport, "auto") != 0)
        return gw_fail(error, GW_UNSUPPORTED,
                       "transport=%s is not possible in the simulator, whose links are simulated (allowed here: "
                       "auto, sim)",
                       transport);
    if (gw_strategy_is(strategy, GW_AXIS_ARCH, "mpi") && strcmp(transport, "mpi") != 0)
        return gw_fail(error, GW_UNSUPPORTED,
                       "arch=mpi hands the all-reduce to MPI, and transport=%s has none (allowed with it: "
                       "transport=mpi)",
                       transport);
    if (strcmp(transport, "shm") == 0 && facts->hosts > 1)
        return gw_fail(error, GW_UNSUPPORTED,
                       "transport=shm reaches only ranks of one host, and this job has %d hosts (allowed here: auto, "
                       "tcp, rdma, zmq, mpi)",
                       facts->hosts);
    return GW_OK;
}

const char *gw_strategy_name(const gw_strategy *strategy, gw_axis axis) { return strategy->axes[axis].technique->name; }

bool gw_strategy_is(const gw_strategy *strategy, gw_axis axis, const char *technique) {
    return strcmp(gw_strategy_name(strategy, axis), technique) == 0;
}

#define ONE(kind) (1u << GW_PARAM_##kind)

/* Where the value of a parameter stands; kinds is a set of ONE(...). */
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
