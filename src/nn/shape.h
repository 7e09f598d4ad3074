/* shape.h - the shape of one example between two layers: an image, a sequence (height = positions, width 1), or a
 * vector (height and width 1). The layout in memory is NHWC. */
#ifndef GW_NN_SHAPE_H
#define GW_NN_SHAPE_H

#include <stdbool.h>
#include <stddef.h>

typedef struct gw_shape {
    int height, width, channels;
} gw_shape;

static inline int gw_shape_positions(gw_shape shape) { return shape.height * shape.width; }
static inline size_t gw_shape_count(gw_shape shape) { return (size_t)shape.height * shape.width * shape.channels; }

#endif
