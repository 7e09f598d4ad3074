/* machine.h - the speeds of machines that a prediction uses, as a small text file. `gradwire fit` writes it from
 * measurements.
 *
 *     gradwire-machines 1
 *     latency 5e-05
 *     rate 1.25e+09
 *     burst 0
 *     queue 0
 *     ahead 0
 *     message 0
 *     memory 1e+10
 *     memory_latency 1e-06
 *     reduce 5e+09
 *     multiply 9e+09
 *     compute 1
 *     interference 0
 *     update 0
 *     decide 0
 *     at_once 0
 *     arch tree 6.1e-05 9.8e+08
 *     link 0 1 5.2e-05 1.24e+09
 *     codec topk 4.2e+09 1.5e+10
 *     error 0.012
 *     end
 *
 * latency: seconds from host to host.
 * rate: bytes per second of a host's link.
 * burst: bytes that an idle link sends at once, if a shaper makes it a token bucket.
 * queue: bytes queued in front of a busy link; messages of other connections wait for them.
 * ahead: bytes of a connection that are already in the kernel's send buffer, so that grants (clear-to-send messages)
 *     cannot overtake them.
 * message: additional seconds per message.
 * memory, memory_latency: bytes per second that all ranks of a host read and write together, and their latency.
 * reduce: bytes per second that a rank adds.
 * multiply: products per second that a rank adds up where factors become a gradient (arch=sfb).
 * compute: factor on the profile's times (ranks that share cores compute more slowly).
 * interference: bytes whose exchange costs a rank a second of computing if it begins while the rank computes, because
 *     collectives use its device or cores and their memory; 0: none.
 * update: bytes of parameters per second that the optimiser updates before the forward pass; 0: it takes no time. A
 *     profile that was scaled to a measured throughput contains the optimiser's time already.
 * decide: seconds until a bucket that a reordering schedule starts is announced to the ranks, besides the message.
 * at_once: buckets in flight at the same time; 0: as many as the schedule starts, as in gradwire; 1: one after the
 *     other, as in libraries that run collectives in one queue.
 * arch: latency and rate of a link for all-reduces of that architecture, instead of the general ones.
 * link: latency and rate from one host to another; used if this link is slow and the job has as many hosts as were
 *     measured.
 * codec: bytes of f32 per second, encoded and decoded.
 * error: the median relative error of the fit.
 *
 * Missing lines keep the values of gw_machine_default; lines that begin with # are comments. */
#ifndef GW_PREDICT_MACHINE_H
#define GW_PREDICT_MACHINE_H

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
    double reduce, multiply;
    double compute, interference, update, decide;
    double at_once; /* a whole number */
    double error;   /* 0: not fitted */
    gw_codec_speed codecs[GW_MACHINE_CODECS_MAX];
    int codec_count;
    gw_arch_speed archs[GW_MACHINE_ARCHS_MAX];
    int arch_count;
    gw_fabric_pair links[GW_MACHINE_LINKS_MAX]; /* by host number; none if more were measured */
    int link_count;
} gw_machine;

/* 10 Gbit/s, 50 us, and the speeds of one core of an AMD EPYC with AVX2 (docs/explanation/prediction.md). */
gw_machine gw_machine_default(void);
/* Latency and rate of a link for an architecture: its own figures, or the general ones. */
gw_arch_speed gw_machine_arch(const gw_machine *machine, const char *name);
bool gw_machine_set_arch(gw_machine *machine, const gw_arch_speed *speed); /* false: no room */
int gw_machine_link_hosts(const gw_machine *machine); /* hosts that the links connect; 0: no link is known */
/* Speeds of a codec by its name; the speed of memory if it is not known. */
gw_codec_speed gw_machine_codec(const gw_machine *machine, const char *name);
bool gw_machine_set_codec(gw_machine *machine, const char *name, double encode, double decode); /* false: no room */

/* The figure that a line of the file names; NULL: there is none. */
double *gw_machine_figure(gw_machine *machine, const char *name);

void gw_machine_print(const gw_machine *machine, FILE *out);
/* Strict; errors name the line. On failure *machine is untouched. */
gw_status gw_machine_parse(const char *bytes, size_t size, const char *name, gw_machine *machine, gw_error *error);
gw_status gw_machine_read(const char *path, gw_machine *machine, gw_error *error);
gw_status gw_machine_write(const gw_machine *machine, const char *path, gw_error *error);

#endif
