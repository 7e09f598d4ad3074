/* coded_exchange_open.c - what of a part belongs to whom, and all memory of an exchange. See coded_exchange.h. */
#include "reducer/coded_exchange_internal.h"

#include <stdlib.h>
#include <string.h>

gw_coded_form gw_coded_exchange_chosen(const gw_coded_exchange *x) { return x->form; }
size_t gw_coded_exchange_memory_bytes(const gw_coded_exchange *x) { return x->memory; }

/* Runs. */

gw_coded_runs gw_coded_runs_of(const gw_coded_exchange *x, const gw_coded_part *part, int owner) {
    const gw_owners *owners = &part->tensor->owners;
    gw_coded_runs runs = {.lane = gw_owners_in_lanes(owners, x->lane, x->lane + 1), .at = part->first,
                          .to = part->first + part->count, .range = {.tensor = &part->tensor->what}};
    runs.of = owner < 0 ? runs.lane : gw_owners_at_host(owners, x->lane, x->lane + 1, owner);
    runs.skipped = gw_stripes_place(&runs.lane, part->first);
    return runs;
}

bool gw_coded_runs_next(gw_coded_runs *runs) {
    runs->at = runs->range.count ? runs->range.first + runs->range.count : runs->at;
    if (!gw_stripes_next(&runs->of, &runs->at, runs->to, &runs->range.count)) return false;
    runs->range.first = runs->at;
    runs->offset = (size_t)(gw_stripes_place(&runs->lane, runs->at) - runs->skipped);
    return true;
}

/* Bytes at most of what one owner has of all parts, owner -1: of the whole lane; and its elements. */
static size_t bound_of(const gw_coded_exchange *x, const gw_codec_setup *setup, int owner, size_t *elements) {
    size_t bytes = 0;
    *elements = 0;
    for (int i = 0; i < x->count; i++) {
        gw_coded_runs runs = gw_coded_runs_of(x, &x->parts[i], owner);
        while (gw_coded_runs_next(&runs)) {
            bytes += gw_coding_bound(&x->coding, x->parts[i].tensor, setup, runs.range);
            *elements += runs.range.count;
        }
    }
    return bytes;
}

/* Bytes of one member's piece of a message, the largest over members and passes. */
static size_t piece_room(const gw_coded_exchange *x) {
    size_t elements, largest = 0;
    if (x->form == GW_FORM_ONE_PASS) return bound_of(x, &x->coding.setup, -1, &elements);
    for (int owner = 0; owner < x->world; owner++) {
        size_t first = bound_of(x, &x->coding.setup, owner, &elements);
        size_t second = bound_of(x, &x->coding.second, owner, &elements);
        if (first > largest) largest = first;
        if (second > largest) largest = second;
    }
    return largest;
}

/* Opening. */

static size_t merged_bound(const gw_coded_exchange *x, const gw_coded_part *part, uint32_t round) {
    gw_codec_call call = x->coding.call;
    gw_coded_runs runs = gw_coded_runs_of(x, part, -1);
    size_t bytes = 0;
    call.round = round;
    while (gw_coded_runs_next(&runs)) bytes += gw_codec_bound(&x->coding.setup, &call, runs.range);
    return bytes;
}

static void lay_out_merged(gw_coded_exchange *x) {
    size_t unit = x->coding.setup.codec->merge_unit;
    for (int i = 0; i < x->count; i++) {
        gw_coded_part *part = &x->parts[i];
        gw_coded_runs runs = gw_coded_runs_of(x, part, -1);
        while (part->tensor->exact && gw_coded_runs_next(&runs)) x->exact_count += runs.range.count;
        for (uint32_t r = 0; !part->tensor->exact && r < x->rounds; r++) {
            x->places[i].at[r] = x->merged_bytes[r];
            x->places[i].bytes[r] = merged_bound(x, part, r);
            x->merged_bytes[r] += (x->places[i].bytes[r] + unit - 1) / unit * unit; /* whole units are reduced */
        }
    }
}

static gw_status take_memory(gw_coded_exchange *x, gw_error *error) {
    size_t p = (size_t)x->world, out, in;
    if (x->form == GW_FORM_IN_FLIGHT) {
        lay_out_merged(x);
        out = x->merged_bytes[0] + x->merged_bytes[1];
        in = x->exact_count * sizeof(float);
    } else {
        x->room = piece_room(x);
        out = x->form == GW_FORM_ONE_PASS ? x->room : p * x->room;
        in = p * x->room;
    }
    if (x->form == GW_FORM_TWO_PASS) bound_of(x, &x->coding.second, x->rank, &x->sum_count);
    x->memory = out + in + x->sum_count * sizeof(float);
    x->out = malloc(out + 4);
    x->in = malloc(in + 4);
    x->sum = malloc(x->sum_count * sizeof(float) + 4);
    x->out_lengths = calloc(p, sizeof *x->out_lengths);
    x->in_lengths = calloc(p, sizeof *x->in_lengths);
    x->unit_counts = calloc(p, sizeof *x->unit_counts);
    if (x->unit_counts && x->out && x->in && x->sum && x->out_lengths && x->in_lengths) return GW_OK;
    return gw_fail(error, GW_MEMORY, "out of memory for %zu bytes of compressed gradients", x->memory);
}

static gw_status take_parts(gw_coded_exchange *x, const gw_coded_exchange_config *config, gw_error *error) {
    x->parts = calloc((size_t)config->count + 1, sizeof *x->parts);
    x->places = calloc((size_t)config->count + 1, sizeof *x->places);
    if (!x->parts || !x->places) return gw_fail(error, GW_MEMORY, "out of memory for an exchange");
    x->count = config->count;
    for (int i = 0; i < x->count; i++) {
        x->parts[i] = config->parts[i];
        x->parts[i].tensor->parts++;
    }
    return GW_OK;
}

gw_status gw_coded_exchange_open(gw_coded_exchange **out, gw_core *core, gw_team *team,
                                 const gw_coded_exchange_config *config, gw_error *error) {
    gw_coded_exchange *x = calloc(1, sizeof *x);
    if (!x) return gw_fail(error, GW_MEMORY, "out of memory for an exchange");
    x->core = core;
    x->team = team;
    x->rank = gw_team_rank(team);
    x->world = gw_team_size(team);
    x->lane = config->lane;
    x->ranks = config->ranks;
    x->arch = config->arch;
    x->rounds = gw_codec_rounds(&config->setup);
    x->halves = config->halves;
    x->phase = PHASE_OVER;
    x->form = gw_coded_form_of(&config->setup, x->world, x->halves);
    gw_status status = gw_coding_open(&x->coding, &config->setup, config->seed, x->rank, x->world, error);
    if (!status) status = take_parts(x, config, error);
    if (!status) status = take_memory(x, error);
    if (status) gw_coded_exchange_close(x);
    else *out = x;
    return status;
}

void gw_coded_exchange_close(gw_coded_exchange *x) {
    if (!x) return;
    if (x->op) gw_op_release(x->op); /* the engine has failed */
    if (x->exact_op) gw_op_release(x->exact_op);
    for (int i = 0; i < x->count; i++) x->parts[i].tensor->parts--;
    free(x->parts);
    free(x->places);
    free(x->out);
    free(x->in);
    free(x->sum);
    free(x->out_lengths);
    free(x->in_lengths);
    free(x->unit_counts);
    free(x);
}

size_t gw_coded_exchange_sent_bytes(const gw_coded_exchange *x) {
    size_t others = (size_t)x->world - 1, p = (size_t)x->world, elements;
    if (x->form == GW_FORM_IN_FLIGHT)
        return 2 * others * (x->merged_bytes[0] + x->merged_bytes[1] + x->exact_count * sizeof(float)) / p;
    if (x->form == GW_FORM_ONE_PASS) return others * bound_of(x, &x->coding.setup, -1, &elements);
    size_t first = 0, second = 0;
    for (int owner = 0; owner < x->world; owner++) {
        if (owner != x->rank) first += bound_of(x, &x->coding.setup, owner, &elements);
        second += bound_of(x, &x->coding.second, owner, &elements);
    }
    return first + others * second / p;
}
