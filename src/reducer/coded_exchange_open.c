/* coded_exchange_open.c - which form an exchange takes, who owns what of a tensor, and all its memory. See
 * coded_exchange.h. */
#include "reducer/coded_exchange_internal.h"

#include <stdlib.h>
#include <string.h>

const char *gw_coded_form_name(gw_coded_form form) {
    static const char *const names[] = {"auto", "merged", "owned", "gathered"};
    return names[form];
}

gw_coded_form gw_coded_exchange_chosen(const gw_coded_exchange *x) { return x->form; }
size_t gw_coded_exchange_memory_bytes(const gw_coded_exchange *x) { return x->memory; }
const gw_codec_guard *gw_coded_exchange_guard(const gw_coded_exchange *x, int t) { return &x->tensors[t].guard; }
gw_codec_state *gw_coded_exchange_state(gw_coded_exchange *x, int t) {
    return gw_codec_stateful(&x->coding.setup) && !x->tensors[t].exact ? &x->tensors[t].state : NULL;
}

gw_codec_state *gw_coded_exchange_owner_state(gw_coded_exchange *x, int t) {
    return x->tensors[t].second.tensor.count ? &x->tensors[t].second : NULL;
}

static void swap_states(gw_codec_state *a, gw_codec_state *b) {
    gw_codec_state held = *a;
    *a = *b;
    *b = held;
}

void gw_coded_exchange_adopt(gw_coded_exchange *x, gw_coded_exchange *from) {
    for (int i = 0; i < x->count; i++)
        for (int k = 0; k < from->count; k++) {
            gw_coded_tensor *mine = &x->tensors[i], *theirs = &from->tensors[k];
            if (mine->what.key != theirs->what.key || strcmp(mine->what.name, theirs->what.name) != 0) continue;
            swap_states(&mine->state, &theirs->state);
            swap_states(&mine->second, &theirs->second);
            mine->guard = theirs->guard;
        }
}

float gw_coded_exchange_owner_residual(const gw_coded_exchange *x, int t, uint64_t element) {
    const gw_codec_state *second = &x->tensors[t].second;
    if (!second->residual || element < second->first || element >= second->first + second->count) return 0;
    return second->residual[element - second->first];
}

/* Shares. */

/* What rank owns of a tensor. */
gw_codec_range gw_coded_share(const gw_coded_exchange *x, const gw_coded_tensor *t, int rank) {
    uint32_t block = x->coding.setup.codec->block ? x->coding.setup.codec->block : 1;
    uint64_t blocks = (t->what.count + block - 1) / block;
    int turned = (rank + (int)(t->what.key % (uint64_t)x->world)) % x->world;
    size_t first, length;
    gw_part((size_t)blocks, x->world, turned, &first, &length);
    uint64_t from = (uint64_t)first * block, to = (uint64_t)(first + length) * block;
    if (to > t->what.count) to = t->what.count;
    return (gw_codec_range){.tensor = &t->what, .first = from, .count = from < to ? to - from : 0};
}

/* Bytes of one part of a message, the largest over ranks and passes. */
static size_t part_room(const gw_coded_exchange *x, bool gathered) {
    size_t largest = 0;
    for (int rank = 0; rank < x->world; rank++) {
        size_t first = 0, second = 0;
        for (int i = 0; i < x->count; i++) {
            const gw_coded_tensor *t = &x->tensors[i];
            gw_codec_range range = gathered ? gw_codec_whole(&t->what) : gw_coded_share(x, t, rank);
            first += gw_coding_bound(&x->coding, t, &x->coding.setup, range);
            if (!gathered) second += gw_coding_bound(&x->coding, t, &x->coding.second, range);
        }
        if (first > largest) largest = first;
        if (second > largest) largest = second;
    }
    return largest;
}

/* Opening. */

static gw_coded_form cheaper_form(const gw_coded_exchange *x) {
    if (gw_codec_merges(&x->coding.setup)) return GW_FORM_IN_FLIGHT;
    if (x->coding.setup.codec->block == 0) return GW_FORM_ONE_PASS;
    if (x->halves) return GW_FORM_TWO_PASS;
    size_t first = 0, second = 0, p = (size_t)x->world;
    for (int i = 0; i < x->count; i++) {
        gw_codec_range whole = gw_codec_whole(&x->tensors[i].what);
        first += gw_coding_bound(&x->coding, &x->tensors[i], &x->coding.setup, whole);
        second += gw_coding_bound(&x->coding, &x->tensors[i], &x->coding.second, whole);
    }
    return (p - 1) * first <= (p - 1) * (first + second) / p ? GW_FORM_ONE_PASS : GW_FORM_TWO_PASS;
}

static gw_status make_state(gw_coded_exchange *x, gw_coded_tensor *t, gw_error *error) {
    gw_status status = GW_OK;
    if (t->exact) return GW_OK;
    if (gw_codec_stateful(&x->coding.setup))
        status = gw_codec_state_make(&t->state, &x->coding.setup, gw_codec_whole(&t->what), error);
    gw_codec_range own = gw_coded_share(x, t, x->rank);
    if (!status && x->form == GW_FORM_TWO_PASS && own.count && gw_codec_stateful(&x->coding.second))
        status = gw_codec_state_make(&t->second, &x->coding.second, own, error);
    return status;
}

static void lay_out_merged(gw_coded_exchange *x) {
    size_t unit = x->coding.setup.codec->merge_unit;
    for (int i = 0; i < x->count; i++) {
        gw_coded_tensor *t = &x->tensors[i];
        if (t->exact) x->exact_count += t->what.count;
        for (uint32_t r = 0; !t->exact && r < x->rounds; r++) {
            gw_codec_call call = x->coding.call;
            call.round = r;
            x->places[i].at[r] = x->merged_bytes[r];
            x->places[i].bytes[r] = gw_codec_bound(&x->coding.setup, &call, gw_codec_whole(&t->what));
            x->merged_bytes[r] += (x->places[i].bytes[r] + unit - 1) / unit * unit; /* whole units are reduced */
        }
    }
}

static gw_status take_memory(gw_coded_exchange *x, gw_error *error) {
    size_t p = (size_t)x->world, out, in, sum = 0;
    if (x->form == GW_FORM_IN_FLIGHT) {
        lay_out_merged(x);
        out = x->merged_bytes[0] + x->merged_bytes[1];
        in = x->exact_count * sizeof(float);
    } else {
        x->room = part_room(x, x->form == GW_FORM_ONE_PASS);
        out = x->form == GW_FORM_ONE_PASS ? x->room : p * x->room;
        in = p * x->room;
        for (int i = 0; x->form == GW_FORM_TWO_PASS && i < x->count; i++)
            sum += gw_coded_share(x, &x->tensors[i], x->rank).count;
    }
    x->sum_count = sum;
    x->memory = out + in + sum * sizeof(float);
    x->out = malloc(out + 4);
    x->in = malloc(in + 4);
    x->sum = malloc(sum * sizeof(float) + 4);
    x->out_lengths = calloc(p, sizeof *x->out_lengths);
    x->in_lengths = calloc(p, sizeof *x->in_lengths);
    x->parts = calloc(p, sizeof *x->parts);
    if (x->parts && x->out && x->in && x->sum && x->out_lengths && x->in_lengths) return GW_OK;
    return gw_fail(error, GW_MEMORY, "out of memory for %zu bytes of compressed gradients", x->memory);
}

gw_status gw_coded_exchange_open(gw_coded_exchange **out, gw_core *core, gw_team *team,
                                 const gw_coded_exchange_config *config, gw_error *error) {
    gw_coded_exchange *x = calloc(1, sizeof *x);
    if (!x) return gw_fail(error, GW_MEMORY, "out of memory for an exchange");
    x->core = core;
    x->team = team;
    x->rank = gw_team_rank(team);
    x->world = gw_team_size(team);
    x->rounds = gw_codec_rounds(&config->setup);
    x->halves = config->halves;
    x->count = config->count;
    x->phase = PHASE_OVER;
    x->tensors = calloc((size_t)config->count + 1, sizeof *x->tensors);
    x->places = calloc((size_t)config->count + 1, sizeof *x->places);
    gw_status status = x->tensors && x->places ? GW_OK : gw_fail(error, GW_MEMORY, "out of memory for an exchange");
    if (!status) status = gw_coding_open(&x->coding, &config->setup, config->seed, x->rank, x->world, error);
    for (int i = 0; !status && i < x->count; i++)
        status =
            gw_coding_name(&x->coding, &x->tensors[i], &config->tensors[i], config->exact && config->exact[i], error);
    x->form = config->form == GW_FORM_AUTO ? cheaper_form(x) : config->form;
    if (!status && (x->form == GW_FORM_IN_FLIGHT) != gw_codec_merges(&x->coding.setup))
        status = gw_fail(error, GW_UNSUPPORTED,
                         "compress=%s: its payloads %s be reduced in flight, so the form cannot "
                         "be %s",
                         x->coding.setup.codec->technique.name, gw_codec_merges(&x->coding.setup) ? "must" : "cannot",
                         gw_coded_form_name(x->form));
    if (!status && x->halves && x->form == GW_FORM_ONE_PASS)
        status = gw_fail(error, GW_UNSUPPORTED,
                         "compress=%s: every rank gathers whole payloads, so there is no half of the exchange at which "
                         "to stop (schedule=dear)",
                         x->coding.setup.codec->technique.name);
    for (int i = 0; !status && i < x->count; i++) status = make_state(x, &x->tensors[i], error);
    if (!status) status = take_memory(x, error);
    if (status) gw_coded_exchange_close(x);
    else *out = x;
    return status;
}

void gw_coded_exchange_close(gw_coded_exchange *x) {
    if (!x) return;
    if (x->op) gw_op_release(x->op); /* the engine has failed */
    if (x->exact_op) gw_op_release(x->exact_op);
    for (int i = 0; x->tensors && i < x->count; i++) gw_coding_tensor_free(&x->tensors[i]);
    free(x->tensors);
    free(x->places);
    free(x->out);
    free(x->in);
    free(x->sum);
    free(x->out_lengths);
    free(x->in_lengths);
    free(x->parts);
    free(x);
}

size_t gw_coded_exchange_state_bytes(const gw_coded_exchange *x) {
    const gw_codec_setup *setup = &x->coding.setup, *second = &x->coding.second;
    size_t bytes = 0;
    for (int i = 0; i < x->count; i++) {
        const gw_coded_tensor *t = &x->tensors[i];
        if (t->exact) continue;
        if (gw_codec_stateful(setup)) bytes += gw_codec_state_bytes(setup, gw_codec_whole(&t->what));
        gw_codec_range own = gw_coded_share(x, t, x->rank);
        if (x->form == GW_FORM_TWO_PASS && own.count && gw_codec_stateful(second))
            bytes += gw_codec_state_bytes(second, own);
    }
    return bytes;
}

size_t gw_coded_exchange_sent_bytes(const gw_coded_exchange *x) {
    size_t first = 0, second = 0, others = (size_t)x->world - 1, p = (size_t)x->world;
    if (x->form == GW_FORM_IN_FLIGHT)
        return 2 * others * (x->merged_bytes[0] + x->merged_bytes[1] + x->exact_count * sizeof(float)) / p;
    for (int i = 0; i < x->count; i++) {
        gw_codec_range whole = gw_codec_whole(&x->tensors[i].what);
        first += gw_coding_bound(&x->coding, &x->tensors[i], &x->coding.setup, whole);
        second += gw_coding_bound(&x->coding, &x->tensors[i], &x->coding.second, whole);
    }
    return x->form == GW_FORM_ONE_PASS ? others * first : others * (first + second) / p;
}
