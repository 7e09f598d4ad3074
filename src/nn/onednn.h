/* onednn.h - a thin wrapper of oneDNN's C API for the layers. One gw_dnn owns all objects and keeps the first error, so
 * a layer's create needs no error handling: after an error all calls return NULL, accept NULL and do nothing. The
 * caller of the layers asks gw_dnn_status once.
 *
 * One gw_dnn belongs to one thread at a time. */
#ifndef GW_NN_ONEDNN_H
#define GW_NN_ONEDNN_H

#include <oneapi/dnnl/dnnl.h>
#include <stdbool.h>
#include <stddef.h>

#include "base/status.h"
#include "nn/shape.h"

typedef struct gw_dnn gw_dnn;
typedef struct gw_dnn_op gw_dnn_op; /* a primitive with its arguments */
typedef dnnl_memory_desc_t gw_md;

gw_status gw_dnn_create(gw_dnn **dnn, gw_error *error);
void gw_dnn_destroy(gw_dnn *dnn); /* NULL is fine */
/* The calling thread uses one OpenMP thread from now on: each rank is a process, and the ranks of a host share its
 * cores. */
void gw_dnn_enter(gw_dnn *dnn);
/* Call it after the last gw_dnn_operation: allocates the scratchpad that all operations share. */
void gw_dnn_finish(gw_dnn *dnn);
gw_status gw_dnn_status(const gw_dnn *dnn, gw_error *error);
void gw_dnn_fail(gw_dnn *dnn, const char *format, ...) __attribute__((format(printf, 2, 3)));
size_t gw_dnn_bytes(const gw_dnn *dnn); /* allocated by gw_dnn_alloc and gw_dnn_memory_new */

void *gw_dnn_alloc(gw_dnn *dnn, size_t bytes); /* zeroed, aligned to a cache line */
dnnl_memory_t gw_dnn_memory(gw_dnn *dnn, const gw_md *md, void *data);
/* The same; allocates the data. */
dnnl_memory_t gw_dnn_memory_new(gw_dnn *dnn, const gw_md *md);
void gw_dnn_bind(dnnl_memory_t memory, const void *data);

typedef enum gw_post_op { GW_POST_OP_NONE, GW_POST_OP_RELU } gw_post_op;

/* desc: any dnnl_*_desc_t; hint: the forward operation if this is a backward one, else NULL. */
gw_dnn_op *gw_dnn_operation(gw_dnn *dnn, const_dnnl_op_desc_t desc, const gw_dnn_op *hint, gw_post_op after);
gw_dnn_op *gw_dnn_reorder(gw_dnn *dnn, dnnl_memory_t from, dnnl_memory_t to);
/* The memory descriptor that the operation expects or produces; NULL after an error. */
const gw_md *gw_operation_md(const gw_dnn_op *operation, dnnl_query_t what);
const char *gw_operation_name(const gw_dnn_op *operation);
void gw_operation_set(gw_dnn_op *operation, int argument, dnnl_memory_t memory);
void gw_dnn_run(gw_dnn_op *operation);

/* Weights are row-major in the model's memory; an operation may need another layout. */
typedef struct gw_packed {
    dnnl_memory_t plain;
    gw_dnn_op *reorder; /* NULL: both layouts are the same */
} gw_packed;

/* Sets the operation's argument. The caller runs gw_packed_move for `in` before the operation, for `out` after it. */
gw_packed gw_packed_in(gw_dnn *dnn, gw_dnn_op *operation, int argument, dnnl_query_t what, const gw_md *plain);
gw_packed gw_packed_out(gw_dnn *dnn, gw_dnn_op *operation, int argument, dnnl_query_t what, const gw_md *plain);
static inline void gw_packed_move(gw_packed packed) {
    if (packed.reorder) gw_dnn_run(packed.reorder);
}

gw_md gw_md_image(int batch, gw_shape shape);  /* floats, channels last */
gw_md gw_md_plain(int ndims, const int *dims); /* floats, row-major */
gw_md gw_md_any(int ndims, const int *dims);   /* floats, oneDNN chooses the layout */
static inline gw_md gw_md_vector(int count) { return gw_md_plain(1, &count); }

#endif
