/* draw.c - see draw.h. */
#include "sim/draw.h"

#include <stdio.h>
#include <string.h>

#define SIZE_BITS 18

static int pick(gw_rng *rng, int bound) { return (int)gw_rng_below(rng, (uint64_t)bound); }

const gw_technique *gw_draw_technique(gw_rng *rng, gw_axis axis) {
    int count = 0;
    while (gw_techniques(axis)[count]) count++;
    return gw_techniques(axis)[pick(rng, count)];
}

static double draw_value(gw_rng *rng, const gw_param *param) {
    int choices = 0;
    if (param->kind == GW_PARAM_BYTES) {
        double size = (double)((size_t)1 << pick(rng, SIZE_BITS + 1));
        return size < param->lowest ? param->lowest : size > param->highest ? param->highest : size;
    }
    while (param->kind == GW_PARAM_CHOICE && param->choices[choices]) choices++;
    return choices ? pick(rng, choices) : param->preset;
}

static bool is_drawn(const gw_param *param) { return param->kind == GW_PARAM_BYTES || param->kind == GW_PARAM_CHOICE; }

static const char *draw_example(gw_rng *rng, const gw_technique *technique, char text[GW_TECHNIQUE_TEXT_BYTES]) {
    int examples = 0;
    while (gw_technique_example(technique, examples, text)) examples++;
    return gw_technique_example(technique, pick(rng, examples), text);
}

const char *gw_draw_setting(gw_rng *rng, const gw_technique *technique, char text[GW_TECHNIQUE_TEXT_BYTES]) {
    bool any = false;
    for (const gw_param *p = technique->params; p && p->name; p++) any |= is_drawn(p);
    if (!any || pick(rng, 2)) return draw_example(rng, technique, text);
    size_t used = (size_t)snprintf(text, GW_TECHNIQUE_TEXT_BYTES, "%s", technique->name);
    for (const gw_param *p = technique->params; p->name && used < GW_TECHNIQUE_TEXT_BYTES; p++) {
        char value[GW_PARAM_TEXT_BYTES];
        if (!is_drawn(p)) continue;
        gw_param_print(p, draw_value(rng, p), value);
        used += (size_t)snprintf(text + used, GW_TECHNIQUE_TEXT_BYTES - used, "%c%s=%s", strchr(text, ':') ? ',' : ':',
                                 p->name, value);
    }
    return text;
}
