/* fit_capture.h - what a recording (trace/capture.h) says of machines and layers.
 *
 * Links. Messages between two hosts that overlap are one busy time of the link. Alpha is what short times of one small
 * message take, beta what is left of long ones for each byte; of both the end of the fastest tenth counts, since
 * whatever else happens makes them longer. Codecs: the gradients of all steps over the time that was spent encoding and
 * decoding. Layers: the median of forward and backward, and the bytes of the tensors that are named after the layer.
 * Architectures: all-reduces over the network that nothing ran beside, divided by the rounds and bytes of their plan in
 * closed form (arch/cost.h): what a link is to a ring need not be what it is to a tree. Sums: the median speed. */
#ifndef GW_MODEL_FIT_CAPTURE_H
#define GW_MODEL_FIT_CAPTURE_H

#include "doctor/file.h"
#include "insight/insight.h"
#include "model/machine.h"
#include "model/profile.h"

/* A table like the doctor's; links that nothing was sent over are not known. The caller's: gw_doctor_table_free. */
gw_status gw_capture_links(const gw_insight *insight, gw_doctor_table *table, gw_error *error);
/* The speeds of the codec that was used; false: none was, or nothing was recorded of it. */
bool gw_capture_codec(const gw_insight *insight, gw_machine *machine);
/* The speed of sums over the network; false: none was recorded. */
bool gw_capture_reduce(const gw_insight *insight, gw_machine *machine);

typedef struct gw_capture_arch {
    gw_arch_speed speed;
    int operations; /* that were looked at */
    double error;   /* median of how far they are from what the speed says */
} gw_capture_arch;

/* latency: where no short all-reduce was recorded. */
gw_status gw_capture_archs(const gw_insight *insight, double latency, gw_capture_arch found[GW_MACHINE_ARCHS_MAX],
                           int *count, gw_error *error);
/* GW_INVALID where no layers were recorded. The caller's: gw_profile_free. */
gw_status gw_capture_layers(const gw_insight *insight, const char *name, gw_profile *profile, gw_error *error);

#endif
