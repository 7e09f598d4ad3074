/* draw.h - techniques and parameters that a seed draws from the registries. */
#ifndef GW_SIM_DRAW_H
#define GW_SIM_DRAW_H

#include "base/rng.h"
#include "strategy/strategy.h"

/* Any technique of an axis. */
const gw_technique *gw_draw_technique(gw_rng *rng, gw_axis axis);
/* A technique with its parameters, as written after the = in a strategy line. Usually one of its examples. If it has
 * parameters that are sizes or choices, half of the draws use random values for these instead. Sizes are 256 KiB at
 * most, because simulated models are small. Returns text. */
const char *gw_draw_setting(gw_rng *rng, const gw_technique *technique, char text[GW_TECHNIQUE_TEXT_BYTES]);

#endif
