/* coded_exchange_open.c - what of a part belongs to whom, and all memory of an exchange. See coded_exchange.h. */
#include "reducer/coded_exchange_internal.h"

#include <stdlib.h>
#include <string.h>

#include "reducer/payload_pool.h"

gw_coded_form gw_coded_exchange_chosen(const gw_coded_exchange *x) { return x->form; }

size_t gw_coded_exchange_memory_bytes(const gw_coded_exchange *x) {
    return x->kept_bytes + (x->own ? gw_coded_exchange_payload_bytes(x) : 0);
}

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

static size_t aligned(size_t bytes) {
    return (bytes + GW_PAYLOAD_ALIGNMENT - 1) / GW_PAYLOAD_ALIGNMENT * GW_PAYLOAD_ALIGNMENT;
}

static size_t lengths_bytes(const gw_coded_exchange *x) { return aligned((size_t)x->world * sizeof(uint64_t)); }

size_t gw_coded_exchange_payload_bytes(const gw_coded_exchange *x) {
    return aligned(x->out_bytes) + aligned(x->in_bytes) + 3 * lengths_bytes(x);
}

void gw_coded_exchange_lend(gw_coded_exchange *x, uint8_t *memory) {
    uint8_t *lengths = memory + aligned(x->out_bytes) + aligned(x->in_bytes);
    x->out = memory;
    x->in = memory + aligned(x->out_bytes);
    x->out_lengths = (uint64_t *)(void *)lengths;
    x->in_lengths = (uint64_t *)(void *)(lengths + lengths_bytes(x));
    x->unit_counts = (size_t *)(void *)(lengths + 2 * lengths_bytes(x));
}

/* What a member has between the halves: its reduced part and the payloads of earlier rounds, or the payload of its
 * sum. */
static size_t kept_room(const gw_coded_exchange *x) {
    size_t unit = x->coding.setup.codec->merge_unit, p = (size_t)x->world, elements;
    if (!x->halves || x->form == GW_FORM_ONE_PASS) return 0;
    if (x->form == GW_FORM_TWO_PASS) return bound_of(x, &x->coding.second, x->rank, &elements);
    size_t last = x->merged_bytes[x->rounds - 1], own = (last / unit + p - 1) / p * unit;
    return own + (x->rounds > 1 ? x->merged_bytes[0] : 0);
}

static void size_payloads(gw_coded_exchange *x) {
    size_t p = (size_t)x->world;
    if (x->form == GW_FORM_IN_FLIGHT) {
        lay_out_merged(x);
        x->out_bytes = x->merged_bytes[0] + x->merged_bytes[1];
        x->in_bytes = x->exact_count * sizeof(float);
        return;
    }
    x->room = piece_room(x);
    x->out_bytes = x->form == GW_FORM_ONE_PASS ? x->room : p * x->room;
    x->in_bytes = p * x->room;
}

static gw_status take_memory(gw_coded_exchange *x, bool lent, gw_error *error) {
    size_payloads(x);
    x->kept_bytes = kept_room(x);
    x->kept = malloc(x->kept_bytes + 4);
    if (!lent) x->own = aligned_alloc(GW_PAYLOAD_ALIGNMENT, gw_coded_exchange_payload_bytes(x));
    if (!x->kept || (!lent && !x->own))
        return gw_fail(error, GW_MEMORY, "out of memory for %zu bytes of compressed gradients",
                       gw_coded_exchange_payload_bytes(x));
    if (x->own) gw_coded_exchange_lend(x, x->own);
    return GW_OK;
}

static gw_status check_pieces_of(const gw_coded_exchange *x, int owner, gw_error *error) {
    gw_status status = GW_OK;
    for (int i = 0; i < x->count && !status; i++) {
        gw_coded_runs runs = gw_coded_runs_of(x, &x->parts[i], owner);
        while (!status && gw_coded_runs_next(&runs)) {
            status = gw_coding_check_bound(&x->coding, x->parts[i].tensor, &x->coding.setup, runs.range, error);
            if (!status)
                status = gw_coding_check_bound(&x->coding, x->parts[i].tensor, &x->coding.second, runs.range, error);
        }
    }
    return status;
}

/* Payloads that are merged in flight have no length words. */
static gw_status check_pieces(const gw_coded_exchange *x, gw_error *error) {
    gw_status status = GW_OK;
    if (x->form == GW_FORM_ONE_PASS) return check_pieces_of(x, -1, error);
    for (int owner = 0; x->form == GW_FORM_TWO_PASS && owner < x->world && !status; owner++)
        status = check_pieces_of(x, owner, error);
    return status;
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
    if (!status) status = check_pieces(x, error);
    if (!status) status = take_memory(x, config->lent, error);
    if (!status) status = gw_coded_watch_open(x, config->watched, error);
    if (status) gw_coded_exchange_close(x);
    else *out = x;
    return status;
}

void gw_coded_exchange_close(gw_coded_exchange *x) {
    if (!x) return;
    if (x->op) gw_op_release(x->op); /* the engine has failed */
    if (x->exact_op) gw_op_release(x->exact_op);
    for (int i = 0; i < x->count; i++) x->parts[i].tensor->parts--;
    gw_coded_watch_close(x);
    free(x->parts);
    free(x->places);
    free(x->own);
    free(x->kept);
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

/* Two-pass: an owner gets what all others have for it, and sends its sum to all. */
size_t gw_coded_exchange_moved_bytes(const gw_coded_exchange *x) {
    size_t others = (size_t)x->world - 1, first = 0, second = 0, first_most = 0, second_most = 0, elements;
    if (x->form != GW_FORM_TWO_PASS) return 2 * gw_coded_exchange_sent_bytes(x);
    for (int owner = 0; owner < x->world; owner++) {
        size_t there = bound_of(x, &x->coding.setup, owner, &elements);
        size_t back = bound_of(x, &x->coding.second, owner, &elements);
        first += there;
        second += back;
        if (there > first_most) first_most = there;
        if (back > second_most) second_most = back;
    }
    return first + second + (others - 1) * (first_most + second_most); /* its own part stays */
}
