/* rdma.c - see rdma.h: opening, polling, sleeping, resetting and closing. Software providers move only when their
 * completion queue is read, so every poll() reads it. */
#include "transport/rdma/rdma_internal.h"

#include "base/fork_descriptors.h"
#include "base/log.h"
#include "transport/tcp/tcp.h"
#include "transport/transport_registry.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/timerfd.h>
#include <unistd.h>

#define COMPLETIONS 16                 /* read at once */
#define TCP_POLLS 64                   /* the inner tcp transport is polled once in this many polls */
#define NAP_NS 100000                  /* of sleep where the provider has no wait object */
#define LINGER (1000 * GW_MILLISECOND) /* close() waits this long for the last messages to arrive */
#define SLOTS_MAX 4096                 /* receive buffers advertised to one peer */
#define CHUNK_BYTES (512 * 1024)       /* half as many calls and completions as with 256 KiB: 8 to 15 % less time */

/* ---- receives ---- */

static ssize_t post_receive(rdma *r, record *rec) {
    void *descriptor = r->buffer_memory ? r->buffer_memory->descriptor : NULL;
    return fi_recv(r->fabric.endpoint, rec->buffer, GW_RDMA_MESSAGE_BYTES, descriptor, FI_ADDR_UNSPEC, rec);
}

/* A receive that libfabric refuses for now waits for the next poll(). */
static void repost(rdma *r, record *rec) {
    ssize_t result = post_receive(r, rec);
    if (result == 0) return;
    if (result == -FI_EAGAIN) {
        rec->next = r->unposted;
        r->unposted = rec;
    } else {
        gw_log(GW_LOG_ERROR, r->rank, "rdma: a receive cannot be posted: %s", r->fabric.library.strerror((int)-result));
    }
}

static void repost_all(rdma *r) {
    record *list = r->unposted;
    r->unposted = NULL;
    while (list) {
        record *rec = list;
        list = rec->next;
        repost(r, rec);
    }
}

/* ---- polling ---- */

static void complete(rdma *r, const struct fi_cq_data_entry *entry) {
    record *rec = entry->op_context;
    if (entry->flags & FI_REMOTE_CQ_DATA && !(entry->flags & FI_RECV && entry->flags & FI_MSG)) {
        gw_rdma_written(r, entry->data);
        if (r->fabric.takes_receive && rec) repost(r, rec);
    } else if (rec && rec->kind == RECORD_RECEIVE) {
        gw_rdma_take_message(r, rec->buffer, entry->len);
        repost(r, rec);
    } else if (rec) {
        gw_rdma_done(r, rec);
    }
}

static void complete_error(rdma *r) {
    struct fi_cq_err_entry entry = {0};
    if (fi_cq_readerr(r->fabric.completions, &entry, 0) <= 0) return;
    record *rec = entry.op_context;
    const char *why = r->fabric.library.strerror(entry.err);
    if (!rec) gw_log(GW_LOG_DEBUG, r->rank, "rdma: %s", why);
    else if (rec->kind != RECORD_RECEIVE) gw_rdma_failed(r, rec, why);
    else if (entry.err != FI_ECANCELED) repost(r, rec); /* too long, or from a broken connection: not a peer's */
}

static bool receive(rdma *r) {
    struct fi_cq_data_entry entries[COMPLETIONS];
    if (!r->fabric.completions) return false; /* after a reset, until the next hello */
    if (r->unposted) repost_all(r);
    ssize_t count = fi_cq_read(r->fabric.completions, entries, COMPLETIONS);
    for (ssize_t i = 0; i < count; i++) complete(r, &entries[i]);
    if (count == -FI_EAVAIL) complete_error(r);
    bool stamped = gw_rdma_stamps_read(r);
    return count > 0 || count == -FI_EAVAIL || stamped;
}

static bool flush_backlog(rdma *r) {
    bool moved = false;
    for (int i = 0; i < r->backlog_count;) {
        peer *p = &r->peers[r->backlog[i]];
        moved |= gw_rdma_flush(r, r->backlog[i]);
        if ((p->head || p->clears_due) && p->status == GW_OK) {
            i++;
            continue;
        }
        p->listed = false;
        r->backlog[i] = r->backlog[--r->backlog_count];
    }
    return moved;
}

/* Packets wait for a peer whose hello comes over tcp. */
static bool awaits_hello(const rdma *r) {
    for (int i = 0; i < r->backlog_count; i++)
        if (!r->peers[r->backlog[i]].known) return true;
    return false;
}

static bool poll_tcp(rdma *r, gw_time now) {
    if (++r->polls % TCP_POLLS && !r->tcp_due && !awaits_hello(r)) return false;
    r->tcp_due = false;
    return r->tcp->ops->poll(r->tcp, now);
}

static bool rdma_poll(gw_transport *transport, gw_time now) {
    rdma *r = (rdma *)transport;
    assert(!r->inside);
    r->inside = true;
    bool moved = receive(r);
    moved |= poll_tcp(r, now);
    if (r->due) moved |= gw_rdma_flush_due(r);
    moved |= flush_backlog(r);
    moved |= gw_rdma_settle(r);
    r->inside = false;
    return moved;
}

static void rdma_send(gw_transport *transport, int rank, gw_packet *packet) {
    rdma *r = (rdma *)transport;
    assert(rank >= 0 && rank < r->world && rank != r->rank);
    peer *p = &r->peers[rank];
    bool first = p->head == NULL;
    packet->next = NULL;
    if (first) p->head = packet;
    else p->tail->next = packet;
    p->tail = packet;
    if (p->status != GW_OK || p->lost) return;
    if (!p->greeted) gw_rdma_greet(r, rank);
    if (first) gw_rdma_flush(r, rank);
    if (p->head) gw_rdma_list(r, rank);
}

static void rdma_release(gw_transport *transport, int rank, uint64_t ticket) {
    (void)transport, (void)rank, (void)ticket; /* nothing is lent beyond arrived() */
}

/* ---- sleeping ---- */

static int rdma_wait_fd(gw_transport *transport) { return ((rdma *)transport)->events; }

static void set_timer(rdma *r, long ns) { /* 0: off */
    struct itimerspec when = {.it_value = {.tv_nsec = ns}};
    if (r->timer_set != (ns > 0)) timerfd_settime(r->timer, 0, &when, NULL);
    r->timer_set = ns > 0;
}

/* The completion queue's descriptor wakes a sleeper. A timer wakes it where there is no descriptor, or where libfabric
 * refused an operation for now (FI_EAGAIN) and does not report when to try again. */
static bool rdma_arm(gw_transport *transport, bool sleeping) {
    rdma *r = (rdma *)transport;
    r->tcp_due = true;
    if (!sleeping) set_timer(r, 0);
    if (r->tcp->ops->arm(r->tcp, sleeping)) return true;
    if (!sleeping || !r->fabric.completions) return false;
    if (r->unsettled) return true;
    struct fid *wait = &r->fabric.completions->fid;
    bool wakes = r->watched >= 0;
    if (wakes && fi_trywait(r->fabric.fabric, &wait, 1) != 0) return true;
    if (gw_rdma_stamps_wait(r)) return true; /* fi_trywait makes progress, so stamps may have arrived */
    if (!wakes || r->backlog_count || r->due || r->unposted) set_timer(r, NAP_NS);
    return false;
}

/* ---- life ---- */

/* An endpoint, receives on it, and secrets for a new generation. */
static gw_status start(rdma *r, gw_error *error) {
    gw_status status = gw_rdma_fabric_start(&r->fabric, error);
    if (status != GW_OK) return status;
    gw_rdma_fabric_leave_bbr(&r->fabric, r->fabric.address, r->fabric.address_bytes, true);
    if (r->fabric.register_local) {
        r->buffer_memory =
            gw_rdma_memory_take(&r->cache, r->buffers, r->buffer_bytes, FI_SEND | FI_RECV | FI_WRITE, error);
        if (!r->buffer_memory) return error->status;
    }
    status = gw_rdma_stamps_open(r, error);
    if (status != GW_OK) return status;
    for (int i = 0; i < r->fabric.receives; i++) {
        ssize_t result = post_receive(r, &r->receives[i]);
        if (result)
            return gw_fail(error, GW_SYSTEM, "rdma: provider %s: receive %d of %d cannot be posted: %s", r->fabric.name,
                           i + 1, r->fabric.receives, r->fabric.library.strerror((int)-result));
    }
    r->watched = r->fabric.wait_fd;
    struct epoll_event event = {.events = EPOLLIN};
    if (r->watched >= 0 && epoll_ctl(r->events, EPOLL_CTL_ADD, r->watched, &event) != 0) r->watched = -1;
    return gw_rdma_draw_cookies(r, error);
}

/* Regions that are bound to the endpoint are closed before it; all others after it, when no transfer can be running. */
static void stop(rdma *r) {
    if (r->watched >= 0) epoll_ctl(r->events, EPOLL_CTL_DEL, r->watched, NULL);
    r->watched = -1;
    if (r->fabric.bind_memory) gw_rdma_cache_empty(&r->cache);
    gw_rdma_fabric_stop(&r->fabric);
    gw_rdma_cache_empty(&r->cache);
    r->buffer_memory = r->stamp_memory = NULL;
}

static void forget(rdma *r) {
    for (int i = 0; i < r->world; i++) {
        peer *p = &r->peers[i];
        for (uint32_t s = 0; s < p->slot_room; s++) p->slots[s].used = p->slots[s].clear_due = false;
        for (uint32_t a = 0; a < p->advert_room; a++) p->adverts[a].used = false;
        *p = (peer){.summed = p->summed, .slots = p->slots, .slot_room = p->slot_room, .adverts = p->adverts,
                    .advert_room = p->advert_room};
    }
    r->backlog_count = r->awaited_count = 0;
    r->unsettled = false;
    r->spare = r->due = r->unposted = NULL;
    for (int i = 0; i < r->record_count; i++) {
        r->records[i].next = r->spare;
        r->spare = &r->records[i];
    }
}

/* The user gets the error only after the reset, and most jobs then end. Opening an endpoint takes up to a second, so
 * reset() does not open the next one: the first hello does. */
static void rdma_reset(gw_transport *transport, uint32_t generation) {
    rdma *r = (rdma *)transport;
    assert(!r->inside);
    stop(r);
    for (int i = 0; i < r->world; i++) { /* a killed peer has left its segment behind */
        const peer *p = &r->peers[i];
        if (p->known) gw_rdma_fabric_unlink(&r->fabric, p->fabric_address, p->fabric_address_bytes);
    }
    forget(r);
    r->tcp->ops->reset(r->tcp, generation);
}

void gw_rdma_reopen(rdma *r) {
    if (r->fabric.endpoint) return;
    gw_error error = {.rank = -1};
    gw_status status = start(r, &error);
    if (status) stop(r);
    for (int i = 0; status && i < r->world; i++)
        if (i != r->rank) gw_rdma_fail_peer(r, i, status, "%s", error.text);
}

/* Everything is sent, and every peer has received it, has said goodbye, or is gone. */
static bool parted(rdma *r, bool *said) {
    bool all = true;
    for (int i = 0; i < r->world; i++) {
        peer *p = &r->peers[i];
        if (!p->known || p->status != GW_OK || p->closed) continue;
        if (p->under_way || p->head) return false;
        if (!*said) gw_rdma_say_bye(r, i);
        all = all && (p->confirmed || (p->parting && p->received >= p->last));
    }
    *said = true;
    return all;
}

static void linger(rdma *r) {
    gw_time until = gw_clock_now() + LINGER;
    bool said = false;
    r->closing = true;
    while (gw_clock_now() < until && !parted(r, &said)) {
        r->tcp_due = true;
        if (!rdma_poll(&r->base, gw_clock_now())) usleep(50);
    }
}

static void rdma_close(gw_transport *transport) {
    rdma *r = (rdma *)transport;
    assert(!r->inside);
    if (r->tcp && r->fabric.endpoint) linger(r);
    stop(r);
    gw_rdma_fabric_close(&r->fabric);
    if (r->tcp) r->tcp->ops->close(r->tcp);
    gw_fd_close(r->timer);
    gw_fd_close(r->events);
    for (int i = 0; r->peers && i < r->world; i++) {
        free(r->peers[i].slots);
        free(r->peers[i].adverts);
    }
    free(r->peers);
    free(r->records);
    free(r->receives);
    free(r->buffers);
    free(r->backlog);
    free(r->stamps);
    free(r->awaited);
    free(r);
}

static void rdma_adopt(gw_transport *transport, int rank, int stream, uint32_t generation, int fd, bool dialled,
                       const gw_traffic_keys *keys) {
    gw_tcp_adopt(((rdma *)transport)->tcp, rank, stream, generation, fd, dialled, keys);
}

static void rdma_refused(gw_transport *transport, int rank, uint32_t generation, gw_status status, const char *detail) {
    gw_tcp_refused(((rdma *)transport)->tcp, rank, generation, status, detail);
}

static const gw_transport_ops ops = {
    .name = "rdma", .chunk_bytes = CHUNK_BYTES, .writes_there = true, .ordered = false, .hangs_up = true,
    .send = rdma_send, .release = rdma_release, .poll = rdma_poll, .wait_fd = rdma_wait_fd, .arm = rdma_arm,
    .reset = rdma_reset, .close = rdma_close, .adopt = rdma_adopt, .refused = rdma_refused,
};

/* ---- opening ---- */

static gw_status make_room(rdma *r, gw_error *error) {
    size_t world = (size_t)r->world, receives = (size_t)r->fabric.receives;
    size_t records = world * RECORDS_PER_PEER < RECORDS_MAX ? world * RECORDS_PER_PEER : RECORDS_MAX;
    r->record_count = (int)records;
    r->buffer_bytes = (records + receives) * GW_RDMA_MESSAGE_BYTES;
    r->peers = calloc(world, sizeof *r->peers);
    r->backlog = calloc(world, sizeof *r->backlog);
    r->records = calloc(records, sizeof *r->records);
    r->receives = calloc(receives, sizeof *r->receives);
    r->buffers = aligned_alloc(4096, r->buffer_bytes);
    if (!r->peers || !r->backlog || !r->records || !r->receives || !r->buffers)
        return gw_fail(error, GW_MEMORY, "rdma: no memory for %d peers", r->world);
    for (size_t i = 0; i < records; i++) r->records[i].buffer = r->buffers + i * GW_RDMA_MESSAGE_BYTES;
    for (size_t i = 0; i < receives; i++) {
        r->receives[i].kind = RECORD_RECEIVE;
        r->receives[i].buffer = r->buffers + (records + i) * GW_RDMA_MESSAGE_BYTES;
    }
    uint64_t slots = GW_RDMA_PLACES / world;
    r->slots_max = slots < SLOTS_MAX ? (uint32_t)slots : SLOTS_MAX;
    return gw_rdma_stamps_make(r, error);
}

static gw_status open_tcp(rdma *r, const bool *summed, gw_dial dial, void *dial_ctx, gw_error *error) {
    gw_tcp_options options = {
        .rank = r->rank, .world = r->world, .streams = 1, .congestion = "auto", .summed = summed};
    gw_status status = gw_tcp_open(&r->tcp, &options, gw_rdma_tcp_sink(r), dial, dial_ctx, error);
    if (status) return status;
    struct epoll_event event = {.events = EPOLLIN};
    r->events = gw_fd_register(epoll_create1(EPOLL_CLOEXEC));
    r->timer = gw_fd_register(timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK));
    if (r->events < 0 || r->timer < 0 || epoll_ctl(r->events, EPOLL_CTL_ADD, r->timer, &event) != 0 ||
        epoll_ctl(r->events, EPOLL_CTL_ADD, r->tcp->ops->wait_fd(r->tcp), &event) != 0)
        return gw_fail(error, GW_SYSTEM, "rdma: no epoll or timer: %s; see ulimit -n", strerror(errno));
    return GW_OK;
}

gw_status gw_rdma_open(gw_transport **out, const gw_rdma_options *options, gw_sink sink, gw_dial dial, void *dial_ctx,
                       gw_error *error) {
    if (options->world < 1 || options->rank < 0 || options->rank >= options->world)
        return gw_fail(error, GW_INVALID, "rdma: rank %d is not one of a world of %d", options->rank, options->world);
    rdma *r = calloc(1, sizeof *r);
    if (!r) return gw_fail(error, GW_MEMORY, "rdma: no memory for the transport");
    r->base = (gw_transport){&ops, sink};
    r->rank = options->rank;
    r->world = options->world;
    r->events = r->timer = r->watched = -1;
    gw_rdma_cache_open(&r->cache, &r->fabric);
    gw_status status = gw_rdma_fabric_open(&r->fabric, options, error);
    if (!status) status = make_room(r, error);
    if (!status) status = open_tcp(r, options->summed, dial, dial_ctx, error);
    if (status) goto fail;
    for (int i = 0; options->summed && i < r->world; i++) r->peers[i].summed = options->summed[i];
    forget(r);
    status = start(r, error);
    if (status) goto fail;
    gw_log(GW_LOG_DEBUG, r->rank, "rdma by %s, %d bytes of immediate data, %s", r->fabric.name,
           r->fabric.immediate_bytes, r->watched >= 0 ? "with a wait object" : "without a wait object");
    *out = &r->base;
    return GW_OK;
fail:
    rdma_close(&r->base);
    return status;
}

gw_rdma_counters gw_rdma_count(const gw_transport *transport) {
    const rdma *r = (const rdma *)transport;
    gw_rdma_counters counters = r->counters;
    counters.registered = r->cache.registered;
    counters.reused = r->cache.reused;
    return counters;
}

/* ---- the table's entry ---- */

enum { PROVIDER, SECURITY, CHECKSUM }; /* of the technique's parameters */

static gw_status available(gw_error *error) {
    gw_rdma_library library;
    return gw_rdma_library_load(&library, error);
}

static gw_status open_by_table(gw_transport **out, const gw_transport_options *o, gw_error *error) {
    const gw_param *params = gw_transport_rdma.technique.params;
    bool *summed = gw_transport_summed(o, o->values[CHECKSUM]);
    if (!summed) return gw_fail(error, GW_MEMORY, "rdma: no memory for %d peers", o->world);
    gw_rdma_options options = {.rank = o->rank, .world = o->world, .address = o->address, .summed = summed,
                               .provider = params[PROVIDER].choices[(int)o->values[PROVIDER]]};
    gw_status status = gw_rdma_open(out, &options, o->sink, o->dial, o->ctx, error);
    free(summed);
    return status;
}

static int probe(gw_transport_probe *list, int room) {
    gw_rdma_provider providers[GW_RDMA_PROVIDERS_MAX];
    int count = gw_rdma_providers(providers, NULL);
    if (count > room) count = room;
    for (int i = 0; i < count; i++) {
        list[i].usable = providers[i].usable;
        snprintf(list[i].name, sizeof list[i].name, "rdma:provider=%s", providers[i].name);
        snprintf(list[i].detail, sizeof list[i].detail, "%s", providers[i].detail);
    }
    return count;
}

const gw_transport_type gw_transport_rdma = {
    .technique = GW_RDMA_TECHNIQUE,
    .unprotected = true,
    .available = available,
    .open = open_by_table,
    .probe = probe,
};
