/* An all-reduce through a codec that keeps what it did not send, and the state that a checkpoint saves. Only a tenth of
 * the values travel in each run. What is left out is added to the next run, so the sum over all runs arrives. */
#include <gradwire/coded.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define COUNT 4096

static gw_status open_coded(gw_coded **coded, gw_comm *comm) {
    gw_coded_options options = GW_CODED_OPTIONS_DEFAULT;
    options.strategy = "compress=topk:ratio=0.1";
    options.name = "gradient";
    options.count = COUNT;
    return gw_coded_open(coded, comm, &options);
}

/* Saves the state, closes the collective, and opens another one with that state, as a program does that was stopped. */
static gw_status restart(gw_coded **coded, gw_comm *comm) {
    size_t bytes = gw_coded_state_bytes(*coded);
    void *state = malloc(bytes); /* a program writes it to its checkpoint, a file for each rank */
    gw_status status = state ? gw_coded_state_save(*coded, state) : GW_MEMORY;
    gw_coded_close(*coded);
    *coded = NULL;
    if (!status) status = open_coded(coded, comm);
    if (!status) status = gw_coded_state_restore(*coded, state, bytes);
    free(state);
    return status;
}

int main(void) {
    static float gradient[COUNT], mean[COUNT], sum[COUNT];
    gw_comm *comm;
    gw_coded *coded = NULL;
    if (gw_init(&comm, NULL) != GW_OK) return fprintf(stderr, "%s\n", gw_last_error(NULL)), 1;
    gw_status status = open_coded(&coded, comm);
    for (int run = 0; run < 40 && !status; run++) {
        if (run == 20) status = restart(&coded, comm);
        for (int i = 0; i < COUNT; i++) gradient[i] = run < 20 ? (float)(gw_rank(comm) + 1) : 0; /* the rest follows */
        if (!status) status = gw_coded_run(coded, gradient, mean);
        for (int i = 0; i < COUNT; i++) sum[i] += mean[i];
    }
    if (status) return fprintf(stderr, "%s\n", gw_last_error(comm)), 1;
    printf("rank %d of %d: every value arrived: %.1f\n", gw_rank(comm), gw_size(comm), sum[COUNT - 1]);
    gw_coded_close(coded);
    return gw_finalize(comm) != GW_OK;
}
