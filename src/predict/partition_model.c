/* partition_model.c - exchanges over parameter servers: what of a bucket each server gets (ps/shards.h), in partitions
 * of the production size (ps/ps_bind.c), the payloads of pushes and answers (ps/ps_codec.c), and what both sides
 * compute. */
#include <stdlib.h>

#include "predict/dispatch_model.h"
#include "ps/ps.h"
#include "ps/shards.h"
#include "sync/sync.h"

/* What a server gets of a bucket. */
typedef struct share {
    size_t left;  /* bytes of values that are not in a partition yet */
    double bytes; /* of values */
    double push[GW_CODING_ROUNDS_MAX], answer[GW_CODING_ROUNDS_MAX]; /* bytes of payloads, by round */
    int rounds;
} share;

/* How servers treat what they get. */
typedef struct service {
    const gw_dispatch_model *model;
    const gw_dispatch_tensors *tensors;
    bool weights;       /* answers are weights */
    bool merges;        /* payloads are merged, round by round of the codec */
    bool codes_answers; /* merged payloads, encoded sums or differences of weights; false: values as they are */
    size_t most;        /* bytes of values in a partition */
    gw_shards shards;
    share *shares; /* of each server */
} service;

/* So much that its payload is GW_PARTITION_BYTES, as ps/ps_codec.c does. */
static size_t partition_bytes(const gw_dispatch_model *m) {
    const gw_codec_setup *setup = &m->coding.setup;
    size_t chunk = (size_t)gw_strategy_integer(m->strategy, GW_AXIS_ARCH, "chunk");
    if (chunk || !m->encodes) return chunk ? chunk : GW_PARTITION_BYTES;
    gw_codec_tensor values = gw_codec_tensor_make("partition", 1, GW_CODED_PARTITION_BYTES / sizeof(float));
    if (setup->codec->refuses && setup->codec->refuses(setup, &values, m->coding.call.world))
        return GW_CODED_PARTITION_BYTES;
    size_t payload = gw_codec_bound(setup, &m->coding.call, gw_codec_whole(&values));
    if (payload <= GW_PARTITION_BYTES) return GW_CODED_PARTITION_BYTES;
    size_t bytes = (size_t)GW_CODED_PARTITION_BYTES / 1024 * GW_PARTITION_BYTES / payload * 1024;
    return bytes > GW_PARTITION_BYTES ? bytes : GW_PARTITION_BYTES;
}

static gw_status open_shards(service *s, gw_error *error) {
    const gw_dispatch_tensors *tensors = s->tensors;
    gw_shard_tensor *described = calloc((size_t)tensors->count + 1, sizeof *described);
    if (!described) return gw_fail(error, GW_MEMORY, "out of memory for shards");
    size_t block = gw_codec_block(&s->model->coding.setup);
    for (int t = 0; t < tensors->count; t++) {
        size_t own = tensors->factors[t].batch ? 0 : tensors->what[t].count;
        size_t grain = tensors->coded[t].exact ? GW_PS_GRAIN : block % GW_PS_GRAIN ? block * GW_PS_GRAIN : block;
        described[t] = (gw_shard_tensor){.count = own, .element = sizeof(float), .grain = grain};
    }
    gw_status status = gw_shards_open(&s->shards, described, tensors->count, s->model->servers, error);
    free(described);
    return status;
}

static gw_status open_service(service *s, const gw_dispatch_model *m, const gw_dispatch_tensors *tensors,
                              gw_error *error) {
    bool rule = gw_sync_of(m->strategy->axes[GW_AXIS_SYNC].technique)->rule != NULL;
    gw_coded_form form = gw_coded_form_served(&m->coding.setup, rule);
    *s = (service){.model = m, .tensors = tensors, .weights = rule, .most = partition_bytes(m),
                   .merges = m->encodes && form == GW_FORM_IN_FLIGHT,
                   .codes_answers = m->encodes && form != GW_FORM_ONE_PASS,
                   .shares = calloc((size_t)m->servers, sizeof *s->shares)};
    if (!s->shares) return gw_fail(error, GW_MEMORY, "out of memory for %d servers", m->servers);
    return open_shards(s, error);
}

static void close_service(service *s) {
    gw_shards_close(&s->shards);
    free(s->shares);
}

/* Payloads. */

static void add_merged(const service *s, const gw_coded_tensor *t, gw_codec_range range, share *to) {
    const gw_coding *coding = &s->model->coding;
    gw_codec_call call = coding->call;
    int rounds = t->exact ? 1 : (int)gw_codec_rounds(&coding->setup);
    if (rounds > to->rounds) to->rounds = rounds;
    for (; (int)call.round < rounds; call.round++) {
        size_t bytes = t->exact ? range.count * sizeof(float) : gw_codec_bound(&coding->setup, &call, range);
        to->push[call.round] += (double)gw_coding_padded(bytes);
        to->answer[call.round] += (double)gw_coding_padded(bytes);
    }
}

/* What a range and a shard have in common goes to its server. */
static void add_common(const service *s, const gw_tensor_range *range, const gw_shard *shard) {
    const gw_stripes *covers = &shard->covers;
    size_t count = gw_stripes_place(covers, range->first + range->count) - gw_stripes_place(covers, range->first);
    share *to = &s->shares[shard->server];
    if (count == 0) return;
    const gw_coded_tensor *t = &s->tensors->coded[range->tensor];
    gw_codec_range part = {&t->what, range->first, count}; /* as if its stripes lay together */
    double dense = (double)count * sizeof(float);
    to->bytes += dense;
    to->left += count * sizeof(float);
    if (s->merges) {
        add_merged(s, t, part, to);
        return;
    }
    to->push[0] += s->model->encodes ? gw_dispatch_payload(s->model, t, part, false) : dense;
    to->answer[0] += s->codes_answers ? gw_dispatch_payload(s->model, t, part, true) : dense;
}

static void weigh(const service *s, const gw_schedule *schedule, int bucket) {
    const gw_tensor_range *ranges = gw_schedule_ranges(schedule, bucket);
    for (int i = 0; i < s->model->servers; i++) s->shares[i] = (share){.rounds = 1};
    for (int i = 0; i < gw_schedule_bucket(schedule, bucket)->ranges; i++)
        for (int k = s->shards.first_of[ranges[i].tensor]; k < s->shards.first_of[ranges[i].tensor + 1]; k++)
            add_common(s, &ranges[i], &s->shards.list[k]);
}

/* Work. An update is taken to be as fast as a sum. */
static void set_times(const service *s, double bytes, gw_dispatch_partition *p) {
    const gw_dispatch_model *m = s->model;
    gw_codec_speed speed = gw_machine_codec(m->machine, m->coding.setup.codec->technique.name);
    double sum = bytes / m->machine->reduce, update = s->weights ? sum : 0;
    p->take = s->merges ? (double)p->push_bytes[0] / m->machine->reduce : sum;
    p->finish = update;
    p->answer = s->weights ? sum : 0; /* a copy, because weights go on changing */
    if (!m->encodes) return;
    double encode = bytes / speed.encode, decode = bytes / speed.decode;
    p->encode = encode / p->rounds;
    if (!s->merges) {
        p->take = decode;
        p->finish = decode + (s->weights ? update : s->codes_answers ? encode : 0);
    }
    if (s->codes_answers) p->decode = decode;
    if (s->weights && s->codes_answers) p->answer = encode + decode;
}

static gw_dispatch_partition take_part(const service *s, int server, size_t bytes) {
    const gw_dispatch_model *m = s->model;
    const share *all = &s->shares[server];
    double part = (double)bytes / all->bytes;
    gw_dispatch_partition p = {.rounds = all->rounds,
                               .server = gw_server_rank(server, m->servers, m->teams->hosts * m->teams->locals)};
    for (int r = 0; r < all->rounds; r++) {
        p.push_bytes[r] = (size_t)(all->push[r] * part + 0.5);
        p.answer_bytes[r] = (size_t)(all->answer[r] * part + 0.5);
    }
    set_times(s, (double)bytes, &p);
    return p;
}

/* Lists the partitions of all servers in turn, because their stripes lie side by side in a tensor. */
static gw_status cut(const service *s, gw_dispatch *dispatch, gw_error *error) {
    int servers = s->model->servers;
    size_t count = 0;
    for (int i = 0; i < servers; i++) count += (s->shares[i].left + s->most - 1) / s->most;
    dispatch->partitions = calloc(count + 1, sizeof *dispatch->partitions);
    if (!dispatch->partitions) return gw_fail(error, GW_MEMORY, "out of memory for %zu partitions", count);
    while ((size_t)dispatch->partition_count < count)
        for (int i = 0; i < servers; i++) {
            share *from = &s->shares[i];
            size_t bytes = from->left < s->most ? from->left : s->most;
            if (!bytes) continue;
            dispatch->partitions[dispatch->partition_count++] = take_part(s, i, bytes);
            from->left -= bytes;
        }
    return GW_OK;
}

gw_status gw_partition_model_cut(const gw_dispatch_model *m, const gw_dispatch_tensors *tensors,
                                 const gw_schedule *schedule, gw_dispatch *dispatches, gw_error *error) {
    service s;
    gw_status status = open_service(&s, m, tensors, error);
    for (int p = 0; !status && p < gw_schedule_buckets(schedule); p++) {
        if (tensors->factors[gw_schedule_ranges(schedule, p)[0].tensor].batch) continue;
        weigh(&s, schedule, p);
        status = cut(&s, &dispatches[p], error);
    }
    close_service(&s);
    return status;
}
