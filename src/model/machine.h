/* machine.h - what a prediction knows of the machines: a handful of speeds, as a small file that people can read and
 * change. `gradwire fit` writes it from measurements.
 *
 *     gradwire-model 1
 *     latency 5e-05
 *     rate 1.25e+09
 *     burst 0
 *     queue 0
 *     ahead 0
 *     message 0
 *     memory 1e+10
 *     memory_latency 1e-06
 *     reduce 5e+09
 *     compute 1
 *     at_once 0
 *     arch tree 6.1e-05 9.8e+08
 *     link 0 1 5.2e-05 1.24e+09
 *     codec topk 4.2e+09 1.5e+10
 *     error 0.012
 *     end
 *
 * latency: seconds from host to host; rate: bytes per second of a host's link; burst: bytes that such a link carries
 * at once after it was idle, where a shaper makes it a token bucket; queue: bytes that stand in front of a busy link,
 * and that messages of other connections wait for; ahead: bytes of a connection that the kernel has taken before they
 * leave, so that grants cannot overtake them; message: seconds that a message costs besides; memory: bytes per
 * second that the ranks of a host read and write together, and its latency; reduce: bytes per second that a rank adds;
 * compute: what the profile's times are multiplied by (ranks that share cores compute more slowly); at_once: how many
 * pieces are under way together, 0: as many as the schedule starts, as in gradwire, 1: one after the other, as in
 * libraries that run collectives in one queue; arch: latency and rate of a link as that architecture's all-reduces had
 * them, in place of those of all; link: latency and rate from one host to another, which count where there are as many
 * hosts and this link is slower than others; codec: bytes of f32 per second encoded and decoded; error: the median
 * relative error of the fit. Lines that are left out keep the values of gw_machine_default; those that begin with # are
 * for people. */
#ifndef GW_MODEL_MACHINE_H
#define GW_MODEL_MACHINE_H

#include <stdio.h>

#include "base/status.h"
#include "sim/fabric.h"

#define GW_MACHINE_CODECS_MAX 32
#define GW_MACHINE_ARCHS_MAX 16
#define GW_MACHINE_LINKS_MAX 64

typedef struct gw_arch_speed {
    char name[32];
    double latency, rate; /* seconds, bytes per second */
} gw_arch_speed;

typedef struct gw_codec_speed {
    char name[32];
    double encode, decode; /* bytes of f32 per second */
} gw_codec_speed;

typedef struct gw_machine {
    double latency, rate, burst, queue, ahead;
    double message;
    double memory, memory_latency;
    double reduce;
    double compute;
    double at_once; /* a whole number */
    double error; /* 0: not fitted */
    gw_codec_speed codecs[GW_MACHINE_CODECS_MAX];
    int codec_count;
    gw_arch_speed archs[GW_MACHINE_ARCHS_MAX];
    int arch_count;
    gw_fabric_pair links[GW_MACHINE_LINKS_MAX]; /* by hosts' numbers; none where more were measured */
    int link_count;
} gw_machine;

/* 10 Gbit/s, 50 us, and the speeds of one core of an AMD EPYC with AVX2 (docs/model.md). */
gw_machine gw_machine_default(void);
/* What links are to an architecture: its own figures, or those of all. */
gw_arch_speed gw_machine_arch(const gw_machine *machine, const char *name);
bool gw_machine_set_arch(gw_machine *machine, const gw_arch_speed *speed); /* false: no room */
int gw_machine_link_hosts(const gw_machine *machine); /* that the links are between; 0: none is known */
/* Speeds of a codec by its name; those of a plain copy where it is not known. */
gw_codec_speed gw_machine_codec(const gw_machine *machine, const char *name);
bool gw_machine_set_codec(gw_machine *machine, const char *name, double encode, double decode); /* false: no room */

void gw_machine_print(const gw_machine *machine, FILE *out);
/* Strict; complaints name the line. On failure *machine is untouched. */
gw_status gw_machine_parse(const char *bytes, size_t size, const char *name, gw_machine *machine, gw_error *error);
gw_status gw_machine_read(const char *path, gw_machine *machine, gw_error *error);
gw_status gw_machine_write(const gw_machine *machine, const char *path, gw_error *error);

#endif
