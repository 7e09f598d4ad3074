/* registry.c - the axes, and the techniques of each: a table here, or that of the room which carries them out (the
 * codecs are in compress/). A technique stands in one table only. */
#include <string.h>

#include "compress/compress.h"
#include "schedule/schedule.h"
#include "strategy/strategy.h"
#include "sync/sync.h"

#define KIB 1024.0
#define GIB (KIB * KIB * KIB)

#define TECHNIQUE(...) (&(const gw_technique){__VA_ARGS__})

#define CHUNK                                                                                                          \
    {                                                                                                                  \
        .name = "chunk", .kind = GW_PARAM_BYTES, .automatic = true, .lowest = 64, .highest = GIB,                      \
        .about = "the largest message"                                                                                 \
    }

#define SERVERS                                                                                                        \
    {                                                                                                                  \
        .name = "servers", .kind = GW_PARAM_INTEGER, .preset = 1, .lowest = 1, .highest = 1024,                        \
        .about = "ranks that also run a server"                                                                        \
    }

#define REPLICAS                                                                                                       \
    {                                                                                                                  \
        .name = "replicas", .kind = GW_PARAM_INTEGER, .preset = 0, .lowest = 0, .highest = 1,                          \
        .about = "1: every server has a second on another rank, so that the loss of one loses nothing"                 \
    }

#define SNAPSHOT                                                                                                       \
    {                                                                                                                  \
        .name = "snapshot", .kind = GW_PARAM_INTEGER, .preset = 0, .lowest = 0, .highest = 1e9,                        \
        .about = "steps after which servers write down what they know (to GRADWIRE_SNAPSHOTS); 0: never"               \
    }

#define STREAMS                                                                                                        \
    {                                                                                                                  \
        .name = "streams", .kind = GW_PARAM_INTEGER, .preset = 1, .lowest = 1, .highest = 8,                           \
        .about = "connections to each peer"                                                                            \
    }

#define CONGESTION                                                                                                     \
    {                                                                                                                  \
        .name = "congestion", .kind = GW_PARAM_CHOICE,                                                                 \
        .choices = GW_CHOICES("auto", "cubic", "bbr", "reno", "system"),                                               \
        .about = "congestion control; system is the kernel's own choice"                                               \
    }

#define CLEAR                                                                                                          \
    {                                                                                                                  \
        .name = "clear", .kind = GW_PARAM_FLAG,                                                                        \
        .about = "not encrypted: faster, where nobody else reads the network"                                          \
    }

#define LIBRARY                                                                                                        \
    {                                                                                                                  \
        .name = "library", .kind = GW_PARAM_CHOICE, .choices = GW_CHOICES("auto", "openmpi", "mpich"),                 \
        .about = "which MPI; auto is the one that started the job"                                                     \
    }

#define PROVIDER                                                                                                       \
    {                                                                                                                  \
        .name = "provider", .kind = GW_PARAM_CHOICE,                                                                   \
        .choices = GW_CHOICES("auto", "verbs", "efa", "psm3", "psm2", "opx", "tcp", "shm"),                            \
        .about = "libfabric's; auto takes the first that works, shm is within one host"                                \
    }

static const gw_technique *const archs[] = {
    TECHNIQUE(.name = "auto", .about = "chosen by size, ranks and hosts", .params = GW_PARAMS(CHUNK)),
    TECHNIQUE(.name = "ring", .about = "around a ring in 2(n-1) steps, fewest bytes", .params = GW_PARAMS(CHUNK)),
    TECHNIQUE(.name = "halving", .about = "recursive halving and doubling in 2 log n steps",
              .params = GW_PARAMS(CHUNK)),
    TECHNIQUE(.name = "tree", .about = "double binary tree, few start-ups at any size", .params = GW_PARAMS(CHUNK)),
    TECHNIQUE(.name = "direct", .about = "each rank reduces its slice from all others", .params = GW_PARAMS(CHUNK)),
    TECHNIQUE(.name = "hierarchical", .about = "shared memory within a host, ring across hosts",
              .params = GW_PARAMS(CHUNK)),
    TECHNIQUE(.name = "mpi", .about = "MPI's own all-reduce; only with transport=mpi", .params = GW_PARAMS(CHUNK)),
    TECHNIQUE(.name = "ps", .about = "training steps through parameter servers beside some of the workers",
              .params = GW_PARAMS(SERVERS, REPLICAS, SNAPSHOT, CHUNK)),
    NULL,
};

static const gw_technique *const transports[] = {
    TECHNIQUE(.name = "auto", .about = "shm within a host, tcp across", .params = GW_PARAMS(STREAMS, CONGESTION)),
    TECHNIQUE(.name = "tcp", .about = "TCP, also within a host", .params = GW_PARAMS(STREAMS, CONGESTION)),
    TECHNIQUE(.name = "rdma", .about = "libfabric, also within a host: payloads are written into the peer's memory",
              .params = GW_PARAMS(PROVIDER)),
    TECHNIQUE(.name = "shm", .about = "shared memory; only where all ranks are on one host"),
    TECHNIQUE(.name = "zmq", .about = "ZeroMQ, encrypted, for networks with odd rules", .params = GW_PARAMS(CLEAR)),
    TECHNIQUE(.name = "mpi", .about = "messages of MPI, for fabrics that only MPI knows", .params = GW_PARAMS(LIBRARY)),
    TECHNIQUE(.name = "sim", .about = "simulated links; only in the simulator"),
    NULL,
};

static const struct {
    const char *about;
    const gw_technique *const *table; /* NULL at the end; the first is the default */
} axes[GW_AXES] = {
    [GW_AXIS_ARCH] = {"with whom?", archs},
    [GW_AXIS_SYNC] = {"when may a worker go on?", gw_sync_techniques},
    [GW_AXIS_COMPRESS] = {"how many bytes?", gw_compress_techniques},
    [GW_AXIS_SCHEDULE] = {"in what order, in what pieces?", gw_schedule_techniques},
    [GW_AXIS_TRANSPORT] = {"over what?", transports},
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
