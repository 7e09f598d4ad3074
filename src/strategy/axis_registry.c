/* axis_registry.c - the axes and their tables of techniques. A table is here, or in the folder that implements its
 * techniques (plans in plan/, codecs in compress/, ...). A technique is in one table only. */
#include <string.h>

#include "compress/compress.h"
#include "plan/plan.h"
#include "schedule/schedule.h"
#include "strategy/strategy.h"
#include "sync/sync.h"
#include "transport/transport_registry.h"

#define TECHNIQUE(...) (&(const gw_technique){__VA_ARGS__})

#define SERVERS                                                                                                        \
    {                                                                                                                  \
        .name = "servers", .kind = GW_PARAM_INTEGER, .preset = 1, .lowest = 1, .highest = 1024,                        \
        .about = "ranks that also run a server"                                                                        \
    }

#define SERVERS_OF_THE_REST                                                                                            \
    {                                                                                                                  \
        .name = "servers", .kind = GW_PARAM_INTEGER, .highest = 1024,                                                  \
        .about = "ranks that also run a server, for all other tensors; 0: those are all-reduced"                       \
    }

#define REPLICAS                                                                                                       \
    {                                                                                                                  \
        .name = "replicas", .kind = GW_PARAM_INTEGER, .preset = 0, .lowest = 0, .highest = 1,                          \
        .about = "1: every server has a replica on another rank, so that the loss of one rank loses nothing"           \
    }

#define SNAPSHOT                                                                                                       \
    {                                                                                                                  \
        .name = "snapshot", .kind = GW_PARAM_INTEGER, .preset = 0, .lowest = 0, .highest = 1e9,                        \
        .about = "steps between two snapshots of a server (to GRADWIRE_SNAPSHOTS); 0: no snapshots"                    \
    }

#define ARCH(name, id) &gw_plan_##name.technique,
#define NO_ARCH(name, id)

static const gw_technique *const archs[] = {
    TECHNIQUE(.name = "auto", .about = "chosen by size, ranks and hosts", .params = GW_PARAMS(GW_PARAM_CHUNK)),
    GW_PLANS(ARCH, NO_ARCH)
    TECHNIQUE(.name = "ps", .about = "training steps through parameter servers beside some of the workers",
              .params = GW_PARAMS(SERVERS, REPLICAS, SNAPSHOT, GW_PARAM_CHUNK)),
    TECHNIQUE(.name = "sfb", .about = "fully connected layers as sufficient factors where that is cheaper (Poseidon)",
              .params = GW_PARAMS(SERVERS_OF_THE_REST, GW_PARAM_CHUNK)),
    NULL,
};

static const struct {
    const char *about;
    const gw_technique *const *table; /* NULL at the end; the first is the default */
} axes[GW_AXES] = {
    [GW_AXIS_ARCH] = {"with whom?", archs},
    [GW_AXIS_SYNC] = {"when may a worker go on?", gw_sync_techniques},
    [GW_AXIS_COMPRESS] = {"how many bytes?", gw_compress_techniques},
    [GW_AXIS_SCHEDULE] = {"in what order, in what buckets or slices?", gw_schedule_techniques},
    [GW_AXIS_TRANSPORT] = {"over what?", gw_transport_techniques},
};

const char *const gw_axis_names[GW_AXES + 1] = {"arch", "sync", "compress", "schedule", "transport", NULL};

const char *gw_axis_name(gw_axis axis) { return gw_axis_names[axis]; }

const char *gw_axis_about(gw_axis axis) { return axes[axis].about; }

const gw_technique *const *gw_techniques(gw_axis axis) { return axes[axis].table; }

bool gw_axis_parse(const char *name, gw_axis *axis) {
    for (int i = 0; i < GW_AXES; i++) {
        if (strcmp(gw_axis_names[i], name) != 0) continue;
        *axis = (gw_axis)i;
        return true;
    }
    return false;
}
