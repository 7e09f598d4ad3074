/* registry.c - every technique there is, one table an axis. The first entry of a table is the default. */
#include <string.h>

#include "strategy/strategy.h"

#define KIB 1024.0
#define GIB (KIB * KIB * KIB)

#define PARAMS(...) ((const gw_param[]){__VA_ARGS__, {.name = NULL}})
#define CHOICES(...) ((const char *const[]){__VA_ARGS__, NULL})

#define CHUNK                                                                                                          \
    {                                                                                                                  \
        .name = "chunk", .kind = GW_PARAM_BYTES, .automatic = true, .lowest = 64, .highest = GIB,                      \
        .about = "the largest message"                                                                                 \
    }

#define STREAMS                                                                                                        \
    {                                                                                                                  \
        .name = "streams", .kind = GW_PARAM_INTEGER, .preset = 1, .lowest = 1, .highest = 8,                           \
        .about = "connections to each peer"                                                                            \
    }

#define CONGESTION                                                                                                     \
    {                                                                                                                  \
        .name = "congestion", .kind = GW_PARAM_CHOICE, .choices = CHOICES("auto", "cubic", "bbr", "reno", "system"),   \
        .about = "congestion control; system is the kernel's own choice"                                               \
    }

#define CLEAR                                                                                                          \
    {                                                                                                                  \
        .name = "clear", .kind = GW_PARAM_FLAG,                                                                        \
        .about = "not encrypted: faster, where nobody else reads the network"                                          \
    }

#define LIBRARY                                                                                                        \
    {                                                                                                                  \
        .name = "library", .kind = GW_PARAM_CHOICE, .choices = CHOICES("auto", "openmpi", "mpich"),                    \
        .about = "which MPI; auto is the one that started the job"                                                     \
    }

static const gw_technique archs[] = {
    {.name = "auto", .about = "chosen by size, ranks and hosts", .params = PARAMS(CHUNK)},
    {.name = "ring", .about = "around a ring in 2(n-1) steps, fewest bytes", .params = PARAMS(CHUNK)},
    {.name = "halving", .about = "recursive halving and doubling in 2 log n steps", .params = PARAMS(CHUNK)},
    {.name = "tree", .about = "double binary tree, few start-ups at any size", .params = PARAMS(CHUNK)},
    {.name = "direct", .about = "each rank reduces its slice from all others", .params = PARAMS(CHUNK)},
    {.name = "hierarchical", .about = "shared memory within a host, ring across hosts", .params = PARAMS(CHUNK)},
    {.name = "mpi", .about = "MPI's own all-reduce; only with transport=mpi", .params = PARAMS(CHUNK)},
    {.name = NULL},
};

static const gw_technique syncs[] = {
    {.name = "bsp", .about = "every rank waits for all in every step"},
    {.name = NULL},
};

static const gw_technique compressors[] = {
    {.name = "none", .about = "values travel as they are"},
    {.name = NULL},
};

static const gw_technique schedules[] = {
    {.name = "fifo", .about = "one after the other, in the order of the calls"},
    {.name = NULL},
};

static const gw_technique transports[] = {
    {.name = "auto", .about = "shm within a host, tcp across", .params = PARAMS(STREAMS, CONGESTION)},
    {.name = "tcp", .about = "TCP, also within a host", .params = PARAMS(STREAMS, CONGESTION)},
    {.name = "shm", .about = "shared memory; only where all ranks are on one host"},
    {.name = "zmq", .about = "ZeroMQ, encrypted, for networks with odd rules", .params = PARAMS(CLEAR)},
    {.name = "mpi", .about = "messages of MPI, for fabrics that only MPI knows", .params = PARAMS(LIBRARY)},
    {.name = "sim", .about = "simulated links; only in the simulator"},
    {.name = NULL},
};

static const struct {
    const char *about;
    const gw_technique *table;
} axes[GW_AXES] = {
    [GW_AXIS_ARCH] = {"with whom?", archs},
    [GW_AXIS_SYNC] = {"when may a worker go on?", syncs},
    [GW_AXIS_COMPRESS] = {"how many bytes?", compressors},
    [GW_AXIS_SCHEDULE] = {"in what order, in what pieces?", schedules},
    [GW_AXIS_TRANSPORT] = {"over what?", transports},
};

const char *const gw_axis_names[GW_AXES + 1] = {"arch", "sync", "compress", "schedule", "transport", NULL};

const char *gw_axis_name(gw_axis axis) { return gw_axis_names[axis]; }

const char *gw_axis_about(gw_axis axis) { return axes[axis].about; }

const gw_technique *gw_techniques(gw_axis axis) { return axes[axis].table; }

bool gw_axis_parse(const char *name, gw_axis *axis) {
    for (int i = 0; i < GW_AXES; i++) {
        if (strcmp(gw_axis_names[i], name) != 0) continue;
        *axis = (gw_axis)i;
        return true;
    }
    return false;
}
