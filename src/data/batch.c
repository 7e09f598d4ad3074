/* batch.c - batches of examples as the input of a model. */
#include <assert.h>
#include <string.h>

#include "base/rng.h"
#include "data/dataset_internal.h"

#define AUGMENT_STREAM (UINT64_C(2) << 62) /* distinct from the streams of other uses of a seed */

/* The shift of an image: output pixel (y, x) comes from (y + down, x + right), of the mirrored image if flip. */
typedef struct image_move {
    int down, right;
    bool flip;
} image_move;

static int64_t example(const gw_dataset *dataset, const uint32_t *order, int64_t place) {
    int64_t index = order ? order[place] : place;
    assert(index >= 0 && index < dataset->info.count);
    (void)dataset;
    return index;
}

/* Maps a random word to 0 .. bound - 1. */
static int scaled(uint32_t word, int bound) { return (int)((uint64_t)word * (uint64_t)bound >> 32); }

static image_move draw(const gw_augment *augment, int64_t index) {
    uint32_t drawn[4];
    gw_philox(gw_rng_make(augment->seed, AUGMENT_STREAM).key, (uint64_t)index, augment->epoch, drawn);
    int choices = 2 * augment->pad + 1;
    return (image_move){.down = scaled(drawn[0], choices) - augment->pad,
                        .right = scaled(drawn[1], choices) - augment->pad,
                        .flip = augment->flip && (drawn[2] & 1)};
}

/* Normalises `count` consecutive pixels. */
static void normalise(const gw_dataset *dataset, const uint8_t *pixels, int64_t count, float *out) {
    int channels = dataset->info.channels;
    for (int c = 0; c < channels; c++) {
        float scale = dataset->scale[c], bias = dataset->bias[c];
        for (int64_t i = c; i < count * channels; i += channels) out[i] = (float)pixels[i] * scale + bias;
    }
}

static void moved(const gw_dataset *dataset, const uint8_t *pixels, const image_move *move, float *out) {
    static const uint8_t black[GW_CHANNELS_MAX];
    int height = dataset->info.height, width = dataset->info.width, channels = dataset->info.channels;
    for (int y = 0; y < height; y++) {
        int from_y = y + move->down;
        for (int x = 0; x < width; x++, out += channels) {
            int from_x = x + move->right;
            bool inside = from_y >= 0 && from_y < height && from_x >= 0 && from_x < width;
            if (move->flip) from_x = width - 1 - from_x;
            normalise(dataset, inside ? pixels + ((int64_t)from_y * width + from_x) * channels : black, 1, out);
        }
    }
}

void gw_dataset_batch(const gw_dataset *dataset, const gw_augment *augment, const uint32_t *order, int64_t first,
                      int64_t count, float *images, int *labels) {
    assert(dataset->info.kind == GW_DATASET_IMAGES);
    int64_t pixels = (int64_t)dataset->info.height * dataset->info.width, size = pixels * dataset->info.channels;
    for (int64_t i = 0; i < count; i++) {
        int64_t index = example(dataset, order, first + i);
        const uint8_t *image = dataset->images.pixels + index * size;
        if (images && augment) {
            image_move move = draw(augment, index);
            moved(dataset, image, &move, images + i * size);
        } else if (images) {
            normalise(dataset, image, pixels, images + i * size);
        }
        labels[i] = dataset->images.labels[index];
    }
}

void gw_dataset_windows(const gw_dataset *dataset, const uint32_t *order, int64_t first, int64_t count, int *inputs,
                        int *targets) {
    assert(dataset->info.kind == GW_DATASET_TEXT);
    int window = dataset->info.window;
    for (int64_t i = 0; i < count; i++) {
        const uint8_t *text = dataset->part + example(dataset, order, first + i) * window;
        for (int t = 0; t < window; t++) {
            if (inputs) inputs[i * window + t] = text[t];
            targets[i * window + t] = text[t + 1];
        }
    }
}
