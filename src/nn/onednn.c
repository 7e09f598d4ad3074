/* onednn.c - see onednn.h. Debian's oneDNN runs on OpenMP, so gw_dnn_enter sets the number of OpenMP threads. */
#include "nn/onednn.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void omp_set_num_threads(int threads); /* of libgomp; declared here because not every compiler has omp.h */

#define ARGUMENTS_MAX 12
#define ALIGNMENT 64

struct gw_dnn_op {
    gw_dnn *dnn;
    dnnl_primitive_desc_t desc;
    dnnl_primitive_t primitive;
    dnnl_exec_arg_t arguments[ARGUMENTS_MAX];
    int count;
    gw_dnn_op *next;
};

typedef struct owned_memory {
    dnnl_memory_t memory;
    struct owned_memory *next;
} owned_memory;

/* A block begins with this, in a cache line of its own. */
typedef struct block {
    struct block *next;
} block;

struct gw_dnn {
    dnnl_engine_t engine;
    dnnl_stream_t stream;
    gw_dnn_op *operations;
    owned_memory *memories;
    block *blocks;
    size_t bytes, scratch_bytes;
    gw_error error; /* the first */
};

static const char *status_text(dnnl_status_t status) {
    switch (status) {
    case dnnl_out_of_memory: return "out of memory";
    case dnnl_invalid_arguments: return "invalid arguments";
    case dnnl_unimplemented: return "not implemented for this CPU";
    default: return "runtime error";
    }
}

void gw_dnn_fail(gw_dnn *dnn, const char *format, ...) {
    char text[GW_ERROR_TEXT_BYTES];
    va_list list;
    va_start(list, format);
    vsnprintf(text, sizeof text, format, list);
    va_end(list);
    gw_fail(&dnn->error, GW_UNSUPPORTED, "%s", text);
}

/* Returns true on success. */
static bool check(gw_dnn *dnn, dnnl_status_t status, const char *what) {
    if (status == dnnl_success) return true;
    gw_dnn_fail(dnn, "oneDNN: %s: %s", what, status_text(status));
    return false;
}

void gw_dnn_enter(gw_dnn *dnn) {
    (void)dnn;
    omp_set_num_threads(1);
}

gw_status gw_dnn_create(gw_dnn **dnn, gw_error *error) {
    gw_dnn *made = calloc(1, sizeof *made);
    if (!made) return gw_fail(error, GW_MEMORY, "no memory for a oneDNN engine");
    gw_dnn_enter(made);
    if (check(made, dnnl_engine_create(&made->engine, dnnl_cpu, 0), "creating an engine"))
        check(made, dnnl_stream_create(&made->stream, made->engine, dnnl_stream_default_flags), "creating a stream");
    gw_status status = gw_dnn_status(made, error);
    if (status != GW_OK) {
        gw_dnn_destroy(made);
        return status;
    }
    *dnn = made;
    return GW_OK;
}

static void operation_destroy(gw_dnn_op *operation) {
    if (operation->primitive) dnnl_primitive_destroy(operation->primitive);
    if (operation->desc) dnnl_primitive_desc_destroy(operation->desc);
    free(operation);
}

void gw_dnn_destroy(gw_dnn *dnn) {
    if (!dnn) return;
    for (gw_dnn_op *o = dnn->operations, *next; o; o = next) {
        next = o->next;
        operation_destroy(o);
    }
    for (owned_memory *m = dnn->memories, *next; m; m = next) {
        next = m->next;
        dnnl_memory_destroy(m->memory);
        free(m);
    }
    for (block *b = dnn->blocks, *next; b; b = next) {
        next = b->next;
        free(b);
    }
    if (dnn->stream) dnnl_stream_destroy(dnn->stream);
    if (dnn->engine) dnnl_engine_destroy(dnn->engine);
    free(dnn);
}

gw_status gw_dnn_status(const gw_dnn *dnn, gw_error *error) {
    if (dnn->error.status == GW_OK) return GW_OK;
    return gw_fail(error, dnn->error.status, "%s", dnn->error.text);
}

size_t gw_dnn_bytes(const gw_dnn *dnn) { return dnn->bytes; }

void *gw_dnn_alloc(gw_dnn *dnn, size_t bytes) {
    if (dnn->error.status != GW_OK) return NULL;
    size_t rounded = (bytes + 2 * ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
    block *made = aligned_alloc(ALIGNMENT, rounded);
    if (!made) {
        gw_fail(&dnn->error, GW_MEMORY, "no memory for %zu bytes of a layer", bytes);
        return NULL;
    }
    memset(made, 0, rounded);
    made->next = dnn->blocks;
    dnn->blocks = made;
    dnn->bytes += rounded;
    return (char *)made + ALIGNMENT;
}

dnnl_memory_t gw_dnn_memory(gw_dnn *dnn, const gw_md *md, void *data) {
    if (dnn->error.status != GW_OK || !md) return NULL;
    owned_memory *owned = calloc(1, sizeof *owned);
    if (!owned) {
        gw_dnn_fail(dnn, "no memory for a tensor");
        return NULL;
    }
    if (!check(dnn, dnnl_memory_create(&owned->memory, md, dnn->engine, data), "creating a tensor")) {
        free(owned);
        return NULL;
    }
    owned->next = dnn->memories;
    dnn->memories = owned;
    return owned->memory;
}

dnnl_memory_t gw_dnn_memory_new(gw_dnn *dnn, const gw_md *md) {
    if (dnn->error.status != GW_OK || !md) return NULL;
    return gw_dnn_memory(dnn, md, gw_dnn_alloc(dnn, dnnl_memory_desc_get_size(md)));
}

void gw_dnn_bind(dnnl_memory_t memory, const void *data) {
    if (memory) dnnl_memory_set_data_handle(memory, (void *)(uintptr_t)data);
}

/* --- operations --- */

/* NULL after an error. The caller destroys it. */
static dnnl_primitive_attr_t attributes(gw_dnn *dnn, gw_post_op after) {
    dnnl_primitive_attr_t attr = NULL;
    dnnl_post_ops_t then = NULL;
    if (!check(dnn, dnnl_primitive_attr_create(&attr), "creating attributes")) return NULL;
    bool good = check(dnn, dnnl_primitive_attr_set_scratchpad_mode(attr, dnnl_scratchpad_mode_user), "scratch memory");
    if (good && after == GW_POST_OP_RELU) {
        good = check(dnn, dnnl_post_ops_create(&then), "creating attributes") &&
               check(dnn, dnnl_post_ops_append_eltwise(then, 1, dnnl_eltwise_relu, 0, 0), "appending relu") &&
               check(dnn, dnnl_primitive_attr_set_post_ops(attr, then), "appending relu");
        if (then) dnnl_post_ops_destroy(then);
    }
    if (good) return attr;
    dnnl_primitive_attr_destroy(attr);
    return NULL;
}

/* Takes ownership of desc, also on failure. */
static gw_dnn_op *finish_operation(gw_dnn *dnn, dnnl_primitive_desc_t desc) {
    gw_dnn_op *operation = calloc(1, sizeof *operation);
    if (!operation) {
        dnnl_primitive_desc_destroy(desc);
        gw_dnn_fail(dnn, "no memory for an operation");
        return NULL;
    }
    operation->dnn = dnn;
    operation->desc = desc;
    operation->next = dnn->operations;
    dnn->operations = operation;
    if (!check(dnn, dnnl_primitive_create(&operation->primitive, desc), "creating an operation")) return NULL;
    const gw_md *scratch = gw_operation_md(operation, dnnl_query_scratchpad_md);
    size_t bytes = scratch ? dnnl_memory_desc_get_size(scratch) : 0;
    if (bytes > dnn->scratch_bytes) dnn->scratch_bytes = bytes;
    if (bytes) gw_operation_set(operation, DNNL_ARG_SCRATCHPAD, gw_dnn_memory(dnn, scratch, NULL));
    return operation;
}

gw_dnn_op *gw_dnn_operation(gw_dnn *dnn, const_dnnl_op_desc_t desc, const gw_dnn_op *hint, gw_post_op after) {
    if (dnn->error.status != GW_OK) return NULL;
    dnnl_primitive_attr_t attr = attributes(dnn, after);
    if (!attr) return NULL;
    dnnl_primitive_desc_t made = NULL;
    bool good = check(dnn, dnnl_primitive_desc_create(&made, desc, attr, dnn->engine, hint ? hint->desc : NULL),
                      "describing an operation");
    dnnl_primitive_attr_destroy(attr);
    return good ? finish_operation(dnn, made) : NULL;
}

static const gw_md *md_of(dnnl_memory_t memory) {
    const gw_md *md = NULL;
    if (memory) dnnl_memory_get_memory_desc(memory, &md);
    return md;
}

gw_dnn_op *gw_dnn_reorder(gw_dnn *dnn, dnnl_memory_t from, dnnl_memory_t to) {
    if (dnn->error.status != GW_OK) return NULL;
    dnnl_primitive_attr_t attr = attributes(dnn, GW_POST_OP_NONE);
    if (!attr) return NULL;
    dnnl_primitive_desc_t made = NULL;
    bool good =
        check(dnn, dnnl_reorder_primitive_desc_create(&made, md_of(from), dnn->engine, md_of(to), dnn->engine, attr),
              "describing a reorder");
    dnnl_primitive_attr_destroy(attr);
    gw_dnn_op *operation = good ? finish_operation(dnn, made) : NULL;
    gw_operation_set(operation, DNNL_ARG_FROM, from);
    gw_operation_set(operation, DNNL_ARG_TO, to);
    return operation;
}

const gw_md *gw_operation_md(const gw_dnn_op *operation, dnnl_query_t what) {
    return operation ? dnnl_primitive_desc_query_md(operation->desc, what, 0) : NULL;
}

const char *gw_operation_name(const gw_dnn_op *operation) {
    const char *name = "";
    if (operation) dnnl_primitive_desc_query(operation->desc, dnnl_query_impl_info_str, 0, &name);
    return name;
}

void gw_operation_set(gw_dnn_op *operation, int argument, dnnl_memory_t memory) {
    if (!operation || !memory) return;
    if (operation->count == ARGUMENTS_MAX) {
        gw_dnn_fail(operation->dnn, "an operation has more than %d arguments", ARGUMENTS_MAX);
        return;
    }
    operation->arguments[operation->count++] = (dnnl_exec_arg_t){.arg = argument, .memory = memory};
}

void gw_dnn_run(gw_dnn_op *operation) {
    if (!operation || operation->dnn->error.status != GW_OK) return;
    check(operation->dnn,
          dnnl_primitive_execute(operation->primitive, operation->dnn->stream, operation->count, operation->arguments),
          "running an operation");
}

void gw_dnn_finish(gw_dnn *dnn) {
    if (dnn->error.status != GW_OK || dnn->scratch_bytes == 0) return;
    void *scratch = gw_dnn_alloc(dnn, dnn->scratch_bytes);
    for (gw_dnn_op *o = dnn->operations; o && scratch; o = o->next)
        for (int i = 0; i < o->count; i++)
            if (o->arguments[i].arg == DNNL_ARG_SCRATCHPAD) gw_dnn_bind(o->arguments[i].memory, scratch);
}

/* --- layouts --- */

static gw_packed pack(gw_dnn *dnn, gw_dnn_op *operation, int argument, dnnl_query_t what, const gw_md *plain, bool in) {
    gw_packed packed = {.plain = gw_dnn_memory(dnn, plain, NULL)};
    const gw_md *wanted = gw_operation_md(operation, what);
    if (!wanted || !packed.plain) return packed;
    if (dnnl_memory_desc_equal(wanted, plain)) {
        gw_operation_set(operation, argument, packed.plain);
        return packed;
    }
    dnnl_memory_t own = gw_dnn_memory_new(dnn, wanted);
    gw_operation_set(operation, argument, own);
    packed.reorder = in ? gw_dnn_reorder(dnn, packed.plain, own) : gw_dnn_reorder(dnn, own, packed.plain);
    return packed;
}

gw_packed gw_packed_in(gw_dnn *dnn, gw_dnn_op *operation, int argument, dnnl_query_t what, const gw_md *plain) {
    return pack(dnn, operation, argument, what, plain, true);
}

gw_packed gw_packed_out(gw_dnn *dnn, gw_dnn_op *operation, int argument, dnnl_query_t what, const gw_md *plain) {
    return pack(dnn, operation, argument, what, plain, false);
}

static gw_md md_by_tag(int ndims, const int *dims, dnnl_format_tag_t tag) {
    gw_md md = {0};
    dnnl_dims_t wide = {0};
    for (int i = 0; i < ndims; i++) wide[i] = dims[i];
    dnnl_memory_desc_init_by_tag(&md, ndims, wide, dnnl_f32, tag);
    return md;
}

gw_md gw_md_image(int batch, gw_shape shape) {
    return md_by_tag(4, (int[]){batch, shape.channels, shape.height, shape.width}, dnnl_nhwc);
}

gw_md gw_md_plain(int ndims, const int *dims) {
    static const dnnl_format_tag_t tags[] = {dnnl_format_tag_undef, dnnl_a, dnnl_ab, dnnl_abc, dnnl_abcd};
    return md_by_tag(ndims, dims, tags[ndims]);
}

gw_md gw_md_any(int ndims, const int *dims) { return md_by_tag(ndims, dims, dnnl_format_tag_any); }
