/* dnn.h - oneDNN's C API, as the layers need it: everything made is owned by one gw_dnn and released with it, and the
 * first error is kept there, so that a layer's create reads as a list of what it needs. After an error everything
 * returns NULL, accepts NULL and does nothing; whoever drives asks gw_dnn_status once.
 *
 * One gw_dnn belongs to one thread at a time. */
#ifndef GW_TRAIN_DNN_H
#define GW_TRAIN_DNN_H

#include <oneapi/dnnl/dnnl.h>
#include <stdbool.h>
#include <stddef.h>

#include "base/status.h"
#include "train/shape.h"

typedef struct gw_dnn gw_dnn;
typedef struct gw_operation gw_operation; /* a primitive with its arguments */
typedef dnnl_memory_desc_t gw_md;

gw_status gw_dnn_create(gw_dnn **dnn, gw_error *error);
void gw_dnn_destroy(gw_dnn *dnn); /* NULL is fine */
/* The calling thread computes alone from now on: a process is a rank, and ranks share the cores. */
void gw_dnn_enter(gw_dnn *dnn);
/* After the last operation was made: gives them their common scratch memory. */
void gw_dnn_finish(gw_dnn *dnn);
gw_status gw_dnn_status(const gw_dnn *dnn, gw_error *error);
void gw_dnn_fail(gw_dnn *dnn, const char *format, ...) __attribute__((format(printf, 2, 3)));
size_t gw_dnn_bytes(const gw_dnn *dnn); /* everything allocated below */

void *gw_dnn_alloc(gw_dnn *dnn, size_t bytes); /* zeroed, aligned to a cache line */
dnnl_memory_t gw_dnn_memory(gw_dnn *dnn, const gw_md *md, void *data);
/* The same with memory of its own. */
dnnl_memory_t gw_dnn_memory_new(gw_dnn *dnn, const gw_md *md);
void gw_dnn_bind(dnnl_memory_t memory, const void *data);

typedef enum gw_after { GW_AFTER_NOTHING, GW_AFTER_RELU } gw_after;

/* desc: any dnnl_*_desc_t; hint: the forward operation where this is a backward one. */
gw_operation *gw_dnn_operation(gw_dnn *dnn, const_dnnl_op_desc_t desc, const gw_operation *hint, gw_after after);
gw_operation *gw_dnn_reorder(gw_dnn *dnn, dnnl_memory_t from, dnnl_memory_t to);
/* What it wants or gives, NULL after an error. */
const gw_md *gw_operation_md(const gw_operation *operation, dnnl_query_t what);
const char *gw_operation_name(const gw_operation *operation);
void gw_operation_set(gw_operation *operation, int argument, dnnl_memory_t memory);
void gw_run(gw_operation *operation);

/* Weights lie row-major in the model's memory; an operation may want them otherwise. */
typedef struct gw_packed {
    dnnl_memory_t plain;
    gw_operation *reorder; /* NULL: the layouts agree */
} gw_packed;

/* Makes them the operation's argument: `in` are reordered before it runs, `out` after it. */
gw_packed gw_packed_in(gw_dnn *dnn, gw_operation *operation, int argument, dnnl_query_t what, const gw_md *plain);
gw_packed gw_packed_out(gw_dnn *dnn, gw_operation *operation, int argument, dnnl_query_t what, const gw_md *plain);
static inline void gw_packed_move(gw_packed packed) {
    if (packed.reorder) gw_run(packed.reorder);
}

gw_md gw_md_image(int batch, gw_shape shape);  /* floats, channels last */
gw_md gw_md_plain(int ndims, const int *dims); /* floats, row-major */
gw_md gw_md_any(int ndims, const int *dims);   /* floats, as the operation likes */
static inline gw_md gw_md_vector(int count) { return gw_md_plain(1, &count); }

#endif
