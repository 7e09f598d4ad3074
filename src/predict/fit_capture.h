/* fit_capture.h - speeds of machines and times of layers from a capture (trace/capture.h).
 *
 * Links: overlapping messages between two hosts form one busy period of the link. Alpha is the time of periods with one
 * small message; beta is the remaining time per byte of periods with many bytes. Both take the 10th percentile, because
 * other activity can only lengthen a period. Codecs: gradient bytes of all steps, divided by the time spent in encoding
 * and decoding. Layers: medians of forward and backward times, and the bytes of the tensors named after the layer.
 * Architectures: all-reduces over the network that ran alone, divided by the rounds and bytes of their plan in closed
 * form (arch/cost.h); a link's effective speed may differ between a ring and a tree. Reductions: the median speed. */
#ifndef GW_PREDICT_FIT_CAPTURE_H
#define GW_PREDICT_FIT_CAPTURE_H

#include "arch/link_file.h"
#include "insight/capture_index.h"
#include "predict/machine.h"
#include "profile/profile.h"

/* A table like the doctor's; links without messages stay unknown. The caller frees it: gw_doctor_table_free. */
gw_status gw_capture_links(const gw_insight *insight, gw_doctor_table *table, gw_error *error);
/* The speeds of the codec in use; false: there was none, or it was not recorded. */
bool gw_capture_codec(const gw_insight *insight, gw_machine *machine);
/* The speed of reductions; false: none was recorded. */
bool gw_capture_reduce(const gw_insight *insight, gw_machine *machine);

typedef struct gw_capture_arch {
    gw_arch_speed speed;
    int operations; /* that the fit used */
    double error;   /* their median relative error */
} gw_capture_arch;

/* latency: used if no short all-reduce was recorded. */
gw_status gw_capture_archs(const gw_insight *insight, double latency, gw_capture_arch found[GW_MACHINE_ARCHS_MAX],
                           int *count, gw_error *error);
/* GW_INVALID: no layers were recorded. The caller frees the profile: gw_profile_free. */
gw_status gw_capture_layers(const gw_insight *insight, const char *name, gw_profile *profile, gw_error *error);

#endif
