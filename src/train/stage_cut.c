/* stage_cut.c - see stage_cut.h. Dynamic programming finds the best cut in stages * blocks^2 steps. */
#include "train/stage_cut.h"

#include <stdlib.h>

#include "base/clock.h"
#include "nn/pass.h"

enum { ROUNDS = 3 };

/* ---- blocks ---- */

/* A node that computes nothing belongs to the block before it, or starts the first block. */
gw_status gw_model_blocks_find(const gw_spec *spec, gw_model_blocks *blocks, gw_error *error) {
    int *first = calloc((size_t)spec->node_count + 1, sizeof *first), count = 1;
    if (!first) return gw_fail(error, GW_MEMORY, "no memory for the cuts of a model");
    bool computes = false;
    for (int n = 0; n < spec->node_count; n++) {
        bool works = !spec->nodes[n].kind->computes_nothing;
        if (works && computes && gw_spec_can_cut(spec, n)) first[count++] = n;
        computes |= works;
    }
    first[count] = spec->node_count;
    *blocks = (gw_model_blocks){.first = first, .count = count};
    return GW_OK;
}

void gw_model_blocks_free(gw_model_blocks *blocks) {
    free(blocks->first);
    *blocks = (gw_model_blocks){0};
}

/* ---- measuring ---- */

static gw_status time_round(gw_pass *pass, uint64_t *took, gw_error *error) {
    gw_time begun = gw_clock_now();
    gw_status status = gw_pass_forward(pass, true, NULL, error);
    if (status == GW_OK) status = gw_pass_backward(pass, true, NULL, error);
    *took = gw_clock_now() - begun;
    return status;
}

static gw_status measure(const gw_spec *spec, int first, int end, int batch, uint64_t *cost, gw_error *error) {
    gw_model *model = NULL;
    gw_pass *pass = NULL;
    uint64_t took = 0;
    gw_status status = gw_model_create(spec, &(gw_model_options){.first = first, .end = end}, &model, error);
    if (status == GW_OK)
        status = gw_pass_create(
            model, &(gw_pass_options){.batch = batch, .trains = true, .input_gradient = first > 0}, &pass, error);
    *cost = UINT64_MAX;
    for (int k = 0; k <= ROUNDS && status == GW_OK; k++) {
        status = time_round(pass, &took, error);
        if (k > 0 && took < *cost) *cost = took; /* the first run creates the kernels */
    }
    gw_pass_destroy(pass);
    gw_model_destroy(model);
    return status;
}

gw_status gw_model_blocks_measure(const gw_spec *spec, const gw_model_blocks *blocks, int batch, uint64_t *costs,
                                  gw_error *error) {
    gw_status status = GW_OK;
    for (int p = 0; p < blocks->count && status == GW_OK; p++)
        status = measure(spec, blocks->first[p], blocks->first[p + 1], batch, &costs[p], error);
    return status;
}

/* ---- choosing ---- */

/* The cost of the most expensive stage of blocks 0 .. end-1, if the last stage begins at `cut`. before[cut]: the same
 * cost for the stages before it. */
static uint64_t with_cut(const uint64_t *sums, const uint64_t *before, int cut, int end) {
    uint64_t last = sums[end] - sums[cut];
    return before[cut] > last ? before[cut] : last;
}

gw_status gw_stages_choose(const uint64_t *costs, int blocks, int stages, int *first, gw_error *error) {
    size_t width = (size_t)blocks + 1;
    uint64_t *sums = calloc(width, sizeof *sums), *best = calloc(width * (size_t)stages, sizeof *best);
    int *cuts = calloc(width * (size_t)stages, sizeof *cuts);
    gw_status status = GW_OK;
    if (!sums || !best || !cuts) {
        status = gw_fail(error, GW_MEMORY, "no memory for the stages of a model");
        goto done;
    }
    for (int p = 0; p < blocks; p++) best[p + 1] = sums[p + 1] = sums[p] + costs[p];
    for (int s = 1; s < stages; s++) /* every stage has at least one block */
        for (int end = s + 1; end <= blocks; end++) {
            uint64_t *here = &best[(size_t)s * width + (size_t)end], *before = &best[(size_t)(s - 1) * width];
            *here = UINT64_MAX;
            for (int cut = s; cut < end; cut++)
                if (with_cut(sums, before, cut, end) < *here) {
                    *here = with_cut(sums, before, cut, end);
                    cuts[(size_t)s * width + (size_t)end] = cut;
                }
        }
    first[stages] = blocks;
    for (int s = stages - 1; s >= 0; s--) first[s] = cuts[(size_t)s * width + (size_t)first[s + 1]];
done:
    free(cuts);
    free(best);
    free(sums);
    return status;
}
