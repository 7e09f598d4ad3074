/* links.c - see links.h. At distance d every host sends to the one d places on and receives from the one d places back,
 * all at the same time: each link carries data both ways, as in an all-reduce. */
#include "decide/links.h"

#include <stdlib.h>

#include "base/clock.h"
#include "runtime/comm.h"

#define HOSTS_PAIRED 8 /* beyond, only neighbours are measured */
#define PINGS 16
#define BYTES_LEAST ((size_t)128 << 10)
#define BYTES_MOST ((size_t)16 << 20)
#define LONG_ENOUGH 0.03 /* seconds of a transfer */

typedef struct link_figures {
    double latency, seconds; /* of a message, of a byte; 0: not measured */
} link_figures;

typedef struct measurement {
    gw_comm *comm;
    int hosts, host;     /* of the communicator; the own one */
    int distances;       /* that are measured */
    bool speaks;         /* this rank measures for its host */
    uint8_t *out, *in;   /* BYTES_MOST each, of ranks that speak */
    link_figures *links; /* distances for each receiving host, the same on all ranks in the end */
} measurement;

static int speaker(const measurement *m, int distance) {
    return gw_topology_rank(gw_team_topology(m->comm->team), (m->host + distance + m->hosts) % m->hosts, 0);
}

/* Seconds until both messages have arrived; 0 on ranks that do not speak. */
static gw_status exchange(const measurement *m, int distance, size_t bytes, double *seconds) {
    gw_request *sending = NULL, *receiving = NULL;
    *seconds = 0;
    if (!m->speaks) return GW_OK;
    gw_time begun = gw_clock_now();
    gw_status status = gw_recv_start(m->comm, m->in, bytes, GW_U8, speaker(m, -distance), &receiving);
    if (!status) status = gw_send_start(m->comm, m->out, bytes, GW_U8, speaker(m, distance), &sending);
    if (!status) status = gw_wait(receiving);
    *seconds = (double)(gw_clock_now() - begun) * 1e-9;
    return status ? status : gw_wait(sending);
}

static int ascending(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* A rank sends its next message when it has received one, so a round takes one latency. */
static gw_status measure_latency(const measurement *m, int distance, double *latency) {
    double rounds[PINGS];
    gw_status status = gw_barrier(m->comm);
    for (int i = 0; i < PINGS && !status; i++) status = exchange(m, distance, sizeof(uint64_t), &rounds[i]);
    if (status) return status;
    qsort(rounds, PINGS, sizeof *rounds, ascending);
    *latency = rounds[PINGS / 2];
    return GW_OK;
}

/* Twice as many bytes until the fastest link is busy for long enough: all ranks agree on that. The last two transfers
 * differ by bytes only, so neither latency nor what the kernel takes at once counts. */
static gw_status measure_rate(const measurement *m, int distance, double *seconds_per_byte) {
    double before = 0, took = 0, longest = 0;
    gw_status status = GW_OK;
    size_t bytes = BYTES_LEAST / 2;
    while (!status && longest < LONG_ENOUGH && bytes < BYTES_MOST) {
        bytes *= 2;
        before = took;
        status = gw_barrier(m->comm);
        if (!status) status = exchange(m, distance, bytes, &took);
        if (!status) status = gw_allreduce(m->comm, &took, &longest, 1, GW_F64, GW_MAX);
    }
    if (!status && before == 0) { /* a slow network: the first transfer was long enough */
        before = took;
        bytes *= 2;
        status = exchange(m, distance, bytes, &took);
    }
    double more = took - before;
    *seconds_per_byte = more > took / 4 ? more / ((double)bytes / 2) : took / (double)bytes;
    return status;
}

static gw_status measure_distance(measurement *m, int distance) {
    link_figures *mine = &m->links[(size_t)m->host * (size_t)m->distances + (size_t)distance - 1];
    link_figures found = {0, 0};
    gw_status status = measure_latency(m, distance, &found.latency);
    if (!status) status = measure_rate(m, distance, &found.seconds);
    if (m->speaks) *mine = found;
    return status;
}

static double median_of(const measurement *m, size_t offset) {
    size_t count = (size_t)m->hosts * (size_t)m->distances;
    double *sorted = malloc(count * sizeof *sorted), middle = 0;
    for (size_t i = 0; sorted && i < count; i++)
        sorted[i] = *(const double *)(const void *)((const char *)&m->links[i] + offset);
    if (sorted) qsort(sorted, count, sizeof *sorted, ascending);
    if (sorted) middle = sorted[count / 2];
    free(sorted);
    return middle;
}

static void take(const measurement *m, gw_machine *machine) {
    double seconds = median_of(m, offsetof(link_figures, seconds)), most = machine->rate * 1e3;
    machine->latency = median_of(m, offsetof(link_figures, latency));
    machine->rate = seconds > 1 / most ? 1 / seconds : most;
    machine->link_count = 0;
    for (int to = 0; m->hosts <= HOSTS_PAIRED && to < m->hosts; to++)
        for (int d = 1; d <= m->distances; d++) {
            const link_figures *link = &m->links[(size_t)to * (size_t)m->distances + (size_t)d - 1];
            machine->links[machine->link_count++] =
                (gw_fabric_pair){.from = (to - d + m->hosts) % m->hosts,
                                 .to = to,
                                 .latency = link->latency,
                                 .rate = link->seconds > 1 / most ? 1 / link->seconds : most};
        }
}

gw_status gw_links_measure(gw_comm *comm, gw_machine *machine, gw_error *error) {
    const gw_topology *topology = gw_team_topology(comm->team);
    measurement m = {.comm = comm,
                     .hosts = gw_topology_hosts(topology),
                     .host = gw_topology_host(topology, comm->rank),
                     .speaks = gw_topology_local_rank(topology, comm->rank) == 0};
    if (m.hosts == 1) return GW_OK;
    m.distances = m.hosts <= HOSTS_PAIRED ? m.hosts - 1 : 1;
    size_t figures = (size_t)m.hosts * (size_t)m.distances;
    m.links = calloc(figures, sizeof *m.links);
    m.out = m.speaks ? calloc(2, BYTES_MOST) : NULL;
    m.in = m.out ? m.out + BYTES_MOST : NULL;
    gw_status status =
        m.links && (m.out || !m.speaks) ? GW_OK : gw_fail(error, GW_MEMORY, "out of memory for measuring links");
    for (int d = 1; d <= m.distances && !status; d++) status = measure_distance(&m, d);
    if (!status) status = gw_allreduce(comm, m.links, m.links, 2 * figures, GW_F64, GW_MAX);
    if (!status) take(&m, machine);
    free(m.out);
    free(m.links);
    return status ? gw_fail(error, status, "%s", gw_last_error(comm)) : GW_OK;
}
