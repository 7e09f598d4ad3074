/* stages.c - see stages.h. The best cut is found by dynamic programming: stages * pieces^2 steps. */
#include "train/stages.h"

#include <stdlib.h>

#include "base/clock.h"
#include "train/pass.h"

enum { ROUNDS = 3 };

/* ---- pieces ---- */

/* A node that computes nothing stays with what comes before it, or is the beginning of the first piece. */
gw_status gw_pieces_find(const gw_spec *spec, gw_pieces *pieces, gw_error *error) {
    int *first = calloc((size_t)spec->node_count + 1, sizeof *first), count = 1;
    if (!first) return gw_fail(error, GW_MEMORY, "no memory for the cuts of a model");
    bool computes = false;
    for (int n = 0; n < spec->node_count; n++) {
        bool works = !spec->nodes[n].kind->computes_nothing;
        if (works && computes && gw_spec_can_cut(spec, n)) first[count++] = n;
        computes |= works;
    }
    first[count] = spec->node_count;
    *pieces = (gw_pieces){.first = first, .count = count};
    return GW_OK;
}

void gw_pieces_free(gw_pieces *pieces) {
    free(pieces->first);
    *pieces = (gw_pieces){0};
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
        if (k > 0 && took < *cost) *cost = took; /* kernels are made at the first use */
    }
    gw_pass_destroy(pass);
    gw_model_destroy(model);
    return status;
}

gw_status gw_pieces_measure(const gw_spec *spec, const gw_pieces *pieces, int batch, uint64_t *costs,
                            gw_error *error) {
    gw_status status = GW_OK;
    for (int p = 0; p < pieces->count && status == GW_OK; p++)
        status = measure(spec, pieces->first[p], pieces->first[p + 1], batch, &costs[p], error);
    return status;
}

/* ---- choosing ---- */

/* What the first `end` pieces cost in one stage more, the last of which begins at `cut`. */
static uint64_t with_cut(const uint64_t *sums, const uint64_t *before, int cut, int end) {
    uint64_t last = sums[end] - sums[cut];
    return before[cut] > last ? before[cut] : last;
}

gw_status gw_stages_choose(const uint64_t *costs, int pieces, int stages, int *first, gw_error *error) {
    size_t width = (size_t)pieces + 1;
    uint64_t *sums = calloc(width, sizeof *sums), *best = calloc(width * (size_t)stages, sizeof *best);
    int *cuts = calloc(width * (size_t)stages, sizeof *cuts);
    gw_status status = GW_OK;
    if (!sums || !best || !cuts) {
        status = gw_fail(error, GW_MEMORY, "no memory for the stages of a model");
        goto done;
    }
    for (int p = 0; p < pieces; p++) best[p + 1] = sums[p + 1] = sums[p] + costs[p];
    for (int s = 1; s < stages; s++) /* every stage has at least one piece */
        for (int end = s + 1; end <= pieces; end++) {
            uint64_t *here = &best[(size_t)s * width + (size_t)end], *before = &best[(size_t)(s - 1) * width];
            *here = UINT64_MAX;
            for (int cut = s; cut < end; cut++)
                if (with_cut(sums, before, cut, end) < *here) {
                    *here = with_cut(sums, before, cut, end);
                    cuts[(size_t)s * width + (size_t)end] = cut;
                }
        }
    first[stages] = pieces;
    for (int s = stages - 1; s >= 0; s--) first[s] = cuts[(size_t)s * width + (size_t)first[s + 1]];
done:
    free(cuts);
    free(best);
    free(sums);
    return status;
}
