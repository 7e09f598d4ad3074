/* helper_train_step.c - one training step of a model on random data, everything written as raw files into a directory
 * for another framework to repeat (train_torch.py): MODEL BATCH SEED DIRECTORY. */
#include <stdio.h>
#include <stdlib.h>

#include "base/rng.h"
#include "nn/loss.h"
#include "nn/model_text.h"
#include "nn/pass.h"

static FILE *open_in(const char *directory, const char *name) {
    char path[4096];
    snprintf(path, sizeof path, "%s/%s", directory, name);
    FILE *file = fopen(path, "w");
    if (!file) {
        perror(path);
        exit(1);
    }
    return file;
}

static void save(const char *directory, const char *name, const void *data, size_t count) {
    FILE *file = open_in(directory, name);
    if (fwrite(data, 4, count, file) != count || fclose(file) != 0) {
        perror(name);
        exit(1);
    }
}

static void save_table(const char *directory, const char *name, const gw_parameter *table, int count) {
    FILE *file = open_in(directory, name);
    for (int i = 0; i < count; i++) {
        fprintf(file, "%s", table[i].name);
        for (int d = 0; d < table[i].ndims; d++) fprintf(file, " %d", table[i].dims[d]);
        fputc('\n', file);
    }
    fclose(file);
}

static void check(gw_status status, const gw_error *error) {
    if (status == GW_OK) return;
    fprintf(stderr, "%s\n", error->text);
    exit(1);
}

static void save_text(const char *model, const char *directory) {
    static char text[GW_MODEL_TEXT_BYTES];
    gw_error error = {0};
    check(gw_model_text(model, NULL, text, &error), &error);
    FILE *file = open_in(directory, "model.txt");
    fputs(text, file);
    fclose(file);
}

static void random_batch(const gw_spec *spec, gw_pass *pass, int32_t *labels, size_t rows, int classes, uint64_t seed) {
    gw_rng rng = gw_rng_make(seed, 1000);
    size_t inputs = (size_t)gw_pass_batch(pass) * gw_shape_count(spec->input);
    for (size_t i = 0; i < inputs; i++)
        if (spec->vocabulary)
            ((int32_t *)gw_pass_input(pass))[i] = (int32_t)gw_rng_below(&rng, (uint64_t)spec->vocabulary);
        else gw_pass_input(pass)[i] = (float)(2 * gw_rng_unit(&rng) - 1);
    for (size_t i = 0; i < rows; i++) labels[i] = (int32_t)gw_rng_below(&rng, (uint64_t)classes);
}

int main(int argc, char **argv) {
    if (argc != 5) return 2;
    const char *directory = argv[4];
    int batch = atoi(argv[2]);
    uint64_t seed = (uint64_t)atoi(argv[3]);
    gw_error error = {0};
    gw_spec *spec;
    gw_model *model;
    gw_pass *pass;
    check(gw_model_spec(argv[1], NULL, &spec, &error), &error);
    check(gw_model_create(spec, &(gw_model_options){.seed = seed}, &model, &error), &error);
    check(gw_pass_create(model, &(gw_pass_options){.batch = batch, .trains = true}, &pass, &error), &error);
    gw_shape out = gw_model_output(model);
    size_t rows = (size_t)batch * (size_t)gw_shape_positions(out), outputs = rows * (size_t)out.channels;
    int32_t *labels = malloc(rows * sizeof *labels);
    random_batch(spec, pass, labels, rows, out.channels, seed);
    save_text(argv[1], directory);
    save(directory, "input", gw_pass_input(pass), (size_t)batch * gw_shape_count(spec->input));
    save(directory, "labels", labels, rows);
    save(directory, "weights", model->weights, model->count);
    save_table(directory, "parameters.txt", model->table, model->parameters);
    save_table(directory, "buffers.txt", model->buffer_table, model->buffer_tensors);
    check(gw_pass_forward(pass, true, NULL, &error), &error);
    save(directory, "output", gw_pass_output(pass), outputs);
    gw_loss loss = gw_loss_cross_entropy(gw_pass_output(pass), labels, (int64_t)rows, out.channels, 1.0f / (float)rows,
                                         gw_pass_output_gradient(pass));
    float mean = (float)(loss.sum / (double)loss.counted);
    check(gw_pass_backward(pass, false, NULL, &error), &error);
    save(directory, "loss", &mean, 1);
    save(directory, "gradients", model->gradients, model->count);
    save(directory, "buffers", model->buffers, model->buffer_count);
    free(labels);
    gw_pass_destroy(pass);
    gw_model_destroy(model);
    gw_spec_destroy(spec);
    return 0;
}
