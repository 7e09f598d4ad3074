/* forwarder.c - see forwarder.h. */
#include "lab/forwarder.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/if_tun.h>
#include <net/if.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <unistd.h>

#include "lab/crossing.h"
#include "lab/lab_packet.h"

#define BATCH 32          /* packets read from a device before what is due is written */
#define ETHERNET_BYTES 14 /* of each packet, counted on the links as tc does */
#define PRIORITY (-15)    /* nice: a late forwarder would be a delay that nobody asked for */

struct gw_forwarder {
    gw_lab_options options;
    uint32_t first_address;
    gw_crossing *crossing;
    uint64_t *numbers;  /* of the next packet, by sender and receiver */
    const int *devices; /* by host */
    uint8_t *received;  /* GW_LAB_PACKET_MAX bytes */
};

/* A packet under way from a host to another. */
typedef struct journey {
    gw_forwarder *forwarder;
    gw_lab_packet packet;
    int from, to;
    gw_time arrival;
} journey;

static size_t wire_bytes(const gw_lab_packet *packet, size_t length, size_t segments) {
    size_t each = packet->headers + ETHERNET_BYTES;
    return length - sizeof(struct virtio_net_hdr) + segments * each - packet->headers;
}

/* Sends these segments; fate: of a single one, NULL: none. */
static void pass(const journey *j, size_t first, size_t count, const gw_fate *fate) {
    if (count == 0) return;
    size_t length = gw_lab_packet_bytes(&j->packet, first, count);
    uint8_t *bytes = gw_crossing_room(j->forwarder->crossing, j->from, length);
    if (!bytes) return;
    gw_lab_packet_cut(&j->packet, first, count, bytes);
    if (fate && fate->corrupt)
        gw_lab_packet_corrupt(bytes, length, fate->bit, j->forwarder->options.network.sums_right);
    gw_crossing_send(j->forwarder->crossing, j->from, j->to, length, wire_bytes(&j->packet, length, count),
                     j->arrival + (fate ? fate->late : 0));
}

static bool find_way(journey *j, size_t length, gw_time now) {
    gw_forwarder *f = j->forwarder;
    if (!gw_lab_packet_read(&j->packet, f->received, length)) return false;
    uint32_t to = j->packet.destination - f->first_address;
    if (to >= (uint32_t)f->options.hosts || (int)to == j->from) return false;
    j->to = (int)to;
    j->arrival = now + gw_impairment_delay(&f->options.network, j->from, j->to, now);
    return true;
}

/* Segments without a fate of their own stay together. */
static void forward(gw_forwarder *f, int from, size_t length, gw_time now) {
    journey j = {.forwarder = f, .from = from};
    if (!find_way(&j, length, now)) return;
    uint64_t *number = &f->numbers[from * f->options.hosts + j.to];
    size_t begun = 0;
    for (size_t s = 0; s < j.packet.segments; s++) {
        gw_fate fate = gw_impairment_fate(&f->options.network, from, j.to, (*number)++);
        if (!fate.lost && !fate.duplicate && !fate.corrupt && !fate.late) continue;
        pass(&j, begun, s - begun, NULL);
        begun = s + 1;
        if (fate.lost) continue;
        pass(&j, s, 1, &fate);
        if (fate.duplicate) pass(&j, s, 1, &fate);
    }
    pass(&j, begun, j.packet.segments - begun, NULL);
}

static void read_device(gw_forwarder *f, int host) {
    for (int i = 0; i < BATCH; i++) {
        ssize_t got = read(f->devices[host], f->received, GW_LAB_PACKET_MAX);
        if (got <= 0) return;
        forward(f, host, (size_t)got, gw_clock_now());
    }
}

/* A packet that the kernel refuses is lost, as on any network. */
static void write_due(gw_forwarder *f) {
    gw_crossed packet;
    while (gw_crossing_take(f->crossing, gw_clock_now(), &packet)) {
        ssize_t put = write(f->devices[packet.to], packet.bytes, packet.length);
        (void)put;
    }
}

/* The time until the next event, for ppoll. NULL: none is expected. */
static struct timespec *pause_of(const gw_forwarder *f, struct timespec *pause) {
    gw_time next = gw_crossing_next(f->crossing), now = gw_clock_now();
    gw_time left = next > now ? next - now : 0;
    if (next == UINT64_MAX) return NULL;
    *pause = (struct timespec){.tv_sec = (time_t)(left / GW_SECOND), .tv_nsec = (long)(left % GW_SECOND)};
    return pause;
}

void gw_forwarder_run(void *forwarder, int alive, const int *devices) {
    gw_forwarder *f = forwarder;
    int hosts = f->options.hosts;
    struct pollfd polled[GW_LAB_HOSTS_MAX + 1] = {[GW_LAB_HOSTS_MAX] = {.fd = -1}};
    struct timespec pause;
    f->devices = devices;
    for (int i = 0; i < hosts; i++) polled[i] = (struct pollfd){.fd = devices[i], .events = POLLIN};
    polled[hosts] = (struct pollfd){.fd = alive, .events = POLLIN};
    prctl(PR_SET_TIMERSLACK, 1UL);
    setpriority(PRIO_PROCESS, 0, PRIORITY);
    for (;;) {
        write_due(f);
        if (ppoll(polled, (nfds_t)hosts + 1, pause_of(f, &pause), NULL) <= 0) continue;
        if (polled[hosts].revents) return;
        for (int i = 0; i < hosts; i++)
            if (polled[i].revents) read_device(f, i);
    }
}

int gw_forwarder_device(const char *name, gw_error *error) {
    struct ifreq request = {.ifr_flags = IFF_TUN | IFF_NO_PI | IFF_VNET_HDR};
    int fd = open("/dev/net/tun", O_RDWR | O_NONBLOCK | O_CLOEXEC);
    if (fd < 0) {
        gw_fail(error, GW_SYSTEM,
                "a lab with delay or loss needs /dev/net/tun: %s (modprobe tun; in a container --device /dev/net/tun)",
                strerror(errno));
        return -1;
    }
    snprintf(request.ifr_name, sizeof request.ifr_name, "%s", name);
    if (ioctl(fd, TUNSETIFF, &request) == 0 && ioctl(fd, TUNSETOFFLOAD, (unsigned long)(TUN_F_CSUM | TUN_F_TSO4)) == 0)
        return fd;
    gw_fail(error, GW_SYSTEM, "no TUN device for a host of the lab: %s", strerror(errno));
    close(fd);
    return -1;
}

gw_status gw_forwarder_open(gw_forwarder **out, const gw_lab_options *options, uint32_t first_address,
                            gw_error *error) {
    gw_forwarder *f = calloc(1, sizeof *f);
    *out = NULL;
    if (!f) return gw_fail(error, GW_MEMORY, "no memory for a lab");
    *f = (gw_forwarder){.options = *options, .first_address = first_address};
    f->numbers = calloc((size_t)options->hosts * (size_t)options->hosts, sizeof *f->numbers);
    f->received = malloc(GW_LAB_PACKET_MAX);
    gw_time delay_max = options->network.delay + options->network.jitter + GW_LATE_MAX;
    gw_status status = GW_OK;
    if (!f->numbers || !f->received) status = gw_fail(error, GW_MEMORY, "no memory for a lab");
    if (!status) status = gw_crossing_open(&f->crossing, options->hosts, options->rate, delay_max, error);
    if (status) gw_forwarder_close(f);
    else *out = f;
    return status;
}

void gw_forwarder_close(gw_forwarder *f) {
    if (!f) return;
    gw_crossing_close(f->crossing);
    free(f->received);
    free(f->numbers);
    free(f);
}
