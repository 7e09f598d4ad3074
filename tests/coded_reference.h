/* coded_reference.h - reduce-scatters and all-gathers through a codec in one process, by plain loops: every encoding
 * and decoding of all ranks in the order that gradwire/coded.h promises. Inputs are small whole numbers, so that sums
 * inside a host are exact in any order. */
#ifndef GW_TEST_CODED_REFERENCE_H
#define GW_TEST_CODED_REFERENCE_H

#include "arch/owners.h"
#include "reducer/coded_payload.h"
#include "test.h"

#define REFERENCE_WORLD 8

typedef struct coded_scene {
    gw_collective collective;
    gw_topology topology;
    bool two_levels, average, coded;
    size_t counts[REFERENCE_WORLD];
    size_t columns;
    const char *name;
    gw_codec_setup setup;
    uint64_t seed;
} coded_scene;

typedef struct coded_reference {
    coded_scene scene;
    gw_lanes lanes;
    gw_coding coding[REFERENCE_WORLD][REFERENCE_WORLD];        /* by host and part; all-gather: host 0 */
    gw_coded_tensor encoder[REFERENCE_WORLD][REFERENCE_WORLD]; /* likewise */
} coded_reference;

static size_t scene_total(const coded_scene *s) {
    size_t total = 0;
    for (int r = 0; r < s->topology.world; r++) total += s->counts[r];
    return total;
}

static size_t scene_offset(const coded_scene *s, int rank) {
    size_t at = 0;
    for (int r = 0; r < rank; r++) at += s->counts[r];
    return at;
}

static float scene_input(int rank, uint64_t step, size_t i) {
    uint64_t x = (i * 2654435761u + (uint64_t)rank * 40503u + step * 97) % 4096;
    return (float)((int)(x % 61) - 30) * (x % 17 == 0 ? 16 : 1);
}

/* What a rank gives: all parts, or its own. */
static void scene_fill(const coded_scene *s, int rank, uint64_t step, float *in) {
    bool gathers = s->collective == GW_COLL_ALLGATHER;
    size_t count = gathers ? s->counts[rank] : scene_total(s);
    for (size_t i = 0; i < count; i++) in[i] = scene_input(rank, step, i);
}

/* The rank of a host that encodes a part. */
static int encoder_of(const coded_reference *x, int host, int part) {
    gw_lanes own = gw_lanes_of(&x->scene.topology, part, !x->scene.two_levels);
    return gw_lane_rank(&x->lanes, &x->scene.topology, own.first, host);
}

static void open_encoder(coded_reference *x, int host, int part, int rank) {
    const coded_scene *s = &x->scene;
    gw_error error = {0};
    char name[256];
    int added = s->collective == GW_COLL_ALLGATHER ? 1 : x->lanes.hosts;
    size_t columns = s->columns ? s->columns : s->counts[part];
    gw_coded_tensor *t = &x->encoder[host][part];
    snprintf(name, sizeof name, "%s, part %d", s->name, part);
    gw_codec_tensor what = gw_codec_tensor_make(name, columns ? s->counts[part] / columns : 0, columns);
    CHECK_EQ(GW_OK, gw_coding_open(&x->coding[host][part], &s->setup, s->seed, rank, added, &error));
    CHECK_EQ(GW_OK, gw_coding_name(&x->coding[host][part], t, &what, false, &error));
    if (!t->exact && gw_codec_stateful(&s->setup))
        CHECK_EQ(GW_OK, gw_codec_state_make(&t->state, &s->setup, gw_codec_whole(&t->what), &error));
}

static coded_reference *reference_open(const coded_scene *scene) {
    coded_reference *x = calloc(1, sizeof *x);
    x->scene = *scene;
    x->lanes = gw_lanes_of(&x->scene.topology, 0, !scene->two_levels);
    int hosts = scene->collective == GW_COLL_ALLGATHER ? 1 : x->lanes.hosts;
    for (int h = 0; scene->coded && h < hosts; h++)
        for (int p = 0; p < scene->topology.world; p++)
            open_encoder(x, h, p, scene->collective == GW_COLL_ALLGATHER ? p : encoder_of(x, h, p));
    return x;
}

static void reference_close(coded_reference *x) {
    for (int h = 0; h < REFERENCE_WORLD; h++)
        for (int p = 0; p < REFERENCE_WORLD; p++) gw_coding_tensor_free(&x->encoder[h][p]);
    free(x);
}

/* sum += scale * (what arrives of these values) */
static void transfer(coded_reference *x, int host, int part, uint64_t step, const float *values, float scale,
                     float *sum) {
    gw_coding *coding = &x->coding[host][part];
    gw_coded_tensor *t = &x->encoder[host][part];
    gw_error error = {0};
    size_t count = x->scene.counts[part];
    if (!x->scene.coded) {
        for (size_t i = 0; i < count; i++) sum[i] += scale * values[i];
        return;
    }
    coding->call.step = step;
    gw_codec_range whole = gw_codec_whole(&t->what);
    uint8_t *payload = malloc(gw_coding_bound(coding, t, &coding->setup, whole) + 4), *end = payload;
    gw_coding_prepare(coding, t, values);
    CHECK_EQ(GW_OK, gw_coding_encode(coding, t, &coding->setup, &t->state, whole, values, &end, &error));
    gw_coding_guard(coding, t);
    const uint8_t *at = payload;
    CHECK_EQ(GW_OK, gw_coding_decode_add(coding, t, &coding->setup, whole, 0, &at, end, scale, sum, &error));
    free(payload);
}

static bool on_host(const coded_reference *x, int rank, int host) {
    return gw_lanes_of(&x->scene.topology, rank, !x->scene.two_levels).host == host;
}

static void reference_reduce_scatter(coded_reference *x, uint64_t step, float *const *out) {
    const coded_scene *s = &x->scene;
    size_t total = scene_total(s);
    float *host_sum = malloc(total * sizeof(float) + 4), *in = malloc(total * sizeof(float) + 4);
    for (int p = 0; p < s->topology.world; p++) memset(out[p], 0, s->counts[p] * sizeof(float));
    for (int h = 0; h < x->lanes.hosts; h++) {
        memset(host_sum, 0, total * sizeof(float));
        for (int r = 0; r < s->topology.world; r++) {
            if (!on_host(x, r, h)) continue;
            scene_fill(s, r, step, in);
            for (size_t i = 0; i < total; i++) host_sum[i] += in[i];
        }
        for (int p = 0; p < s->topology.world; p++)
            transfer(x, h, p, step, host_sum + scene_offset(s, p), s->average ? 1.0f / (float)s->topology.world : 1.0f,
                     out[p]);
    }
    free(host_sum);
    free(in);
}

static void reference_allgather(coded_reference *x, uint64_t step, float *const *out) {
    const coded_scene *s = &x->scene;
    size_t total = scene_total(s);
    float *in = malloc(total * sizeof(float) + 4);
    memset(out[0], 0, total * sizeof(float));
    for (int p = 0; p < s->topology.world; p++) {
        scene_fill(s, p, step, in);
        transfer(x, 0, p, step, in, 1, out[0] + scene_offset(s, p));
    }
    for (int r = 1; r < s->topology.world; r++) memcpy(out[r], out[0], total * sizeof(float));
    free(in);
}

/* out[r]: what rank r gets. */
static void reference_run(coded_reference *x, uint64_t step, float *const *out) {
    if (x->scene.collective == GW_COLL_ALLGATHER) reference_allgather(x, step, out);
    else reference_reduce_scatter(x, step, out);
}

#endif
