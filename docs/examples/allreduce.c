/* The smallest gradwire program: every rank contributes its number, all get the sum. */
#include <gradwire.h>
#include <stdio.h>

int main(void) {
    gw_comm *comm;
    if (gw_init(&comm, NULL) != GW_OK) return fprintf(stderr, "%s\n", gw_last_error(NULL)), 1;
    float mine = (float)gw_rank(comm), sum = 0;
    gw_status status = gw_allreduce(comm, &mine, &sum, 1, GW_F32, GW_SUM);
    if (status != GW_OK) return fprintf(stderr, "%s\n", gw_last_error(comm)), 1;
    printf("rank %d of %d: the sum is %g\n", gw_rank(comm), gw_size(comm), sum);
    return gw_finalize(comm) != GW_OK;
}
