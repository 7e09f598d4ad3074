/* test_untrusted_servers.c - a worker with its server among liars, as in fuzz/fuzz_ps.c but with inputs that seeds
 * give: in every test run messages come with wrong headers, and altered states are restored. */
#include <stddef.h>
#include <stdint.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#include "../fuzz/fuzz_ps.c"

#include "base/rng.h"
#include "test.h"

enum { INPUTS = 6000, RECORDS = 30 };

/* Most records change nothing, or one field a little: otherwise the first one would end the job. */
static record draw_record(gw_rng *rng) {
    record r = {.what = (uint8_t)gw_rng_u32(rng), .from = (uint8_t)gw_rng_u32(rng), .bytes = (uint8_t)gw_rng_u32(rng),
                .partition = (uint16_t)gw_rng_u32(rng), .worker = (uint16_t)gw_rng_u32(rng)};
    if (gw_rng_below(rng, 6) == 0) r.changes = (uint8_t)(1u << gw_rng_below(rng, 8));
    r.value = gw_rng_below(rng, 2) ? gw_rng_u64(rng) >> gw_rng_below(rng, 64) : gw_rng_below(rng, 8);
    return r;
}

/* Each strategy in turn, with and without a server apart and a restored state. */
static void liars_among_servers(void) {
    uint8_t input[2 + RECORDS * sizeof(record)];
    setenv("GRADWIRE_LOG", "error", 1);
    for (uint32_t seed = 0; seed < INPUTS; seed++) {
        gw_rng rng = gw_rng_make(seed, 0);
        input[0] = (uint8_t)(seed % (sizeof lines / sizeof lines[0]));
        input[1] = (uint8_t)gw_rng_below(&rng, 4);
        for (size_t i = 0; i < RECORDS; i++) {
            record r = draw_record(&rng);
            memcpy(input + 2 + i * sizeof r, &r, sizeof r);
        }
        LLVMFuzzerTestOneInput(input, sizeof input);
    }
}

/* Every partition of rank 0's server is pushed to by rank 1, correctly. Returns whether rank 0 refused it. */
static bool pushes_are_refused(bool has_buffer, gw_error *error) {
    job j = {0};
    open_job(&j, 0, false);
    gw_ps *ps = gw_step_engine_servers(j.engine);
    if (!has_buffer) {
        free(ps->recv_buffer[1]);
        ps->recv_buffer[1] = NULL;
    }
    for (int i = 0; i < ps->partition_count && !refused(&j); i++) {
        if (ps->partitions[i].server != ps->own) continue;
        lie(&j, &(record){.what = 0, .from = 0, .partition = (uint16_t)i}, NULL, 0);
        run_events(&j);
    }
    bool was_refused = refused(&j);
    *error = *gw_step_engine_error(j.engine);
    close_job(&j);
    return was_refused;
}

/* As a server has none for a rank that only serves. */
static void pushes_without_a_buffer_are_refused(void) {
    gw_error error;
    CHECK(!pushes_are_refused(true, &error));
    CHECK(pushes_are_refused(false, &error));
    CHECK_EQ(GW_PROTOCOL, error.status);
    CHECK(strstr(error.text, "which nobody expects"));
}

TEST_MAIN(CASE(liars_among_servers), CASE(pushes_without_a_buffer_are_refused))
