/* rdma.h - the transport over libfabric: the sender writes payloads directly into the receiver's memory.
 *
 * Peers are authenticated as for tcp: every pair of ranks that talks has one connection of the connection manager (an
 * inner tcp transport). Over it they exchange their fabric addresses and a random cookie that every later message must
 * contain; memory is opened to writes under random keys. The connection stays open, so that the end of a peer is
 * noticed as soon as with tcp.
 *
 * A frame with a payload of up to 16 KiB is one message into buffers that the receiver has posted. A larger payload is
 * written (fi_writedata) into its receive buffer: a GRANT tells the sender the buffers of the messages it grants. A
 * message without a grant is offered first, and written when the receiver has answered with a buffer. With or without a
 * grant, ranks do not copy the payload.
 *
 * Between ranks of different hosts a CRC32C ends every message. That of a payload travels in the message that follows
 * the write, and the receiver verifies it where the payload has landed, before it reports the message.
 *
 * The requirements of a provider (registration modes, sizes, immediate data, a wait object) are read from its fi_info.
 * Everything but adopt() and refused() belongs to the one thread that polls. lost() is called from within poll() only.
 * reset() and close() must not be called from within a callback; send() may be. close() waits up to a second until the
 * last messages have arrived. */
#ifndef GW_TRANSPORT_RDMA_RDMA_H
#define GW_TRANSPORT_RDMA_RDMA_H

#include "base/param.h"
#include "bootstrap/address.h"
#include "transport/transport.h"

/* Requirements beyond the provider's own, so that tests cover them where no provider has them. */
typedef struct gw_rdma_strict {
    bool basic;          /* addresses, not offsets; keys chosen by the provider; memory that exists (FI_MR_BASIC) */
    bool local;          /* source memory must be registered too (FI_MR_LOCAL) */
    bool pinned;         /* registrations must not outlive their use (as with FI_MR_ALLOCATED) */
    bool unordered;      /* a message may overtake the write before it */
    bool no_wait;        /* no wait object: a timer wakes the sleeper */
    size_t message_max;  /* bytes of one transfer; 0: the provider's own limit */
    int immediate_bytes; /* 0: the provider's own; 4: no more than that; -1: none */
} gw_rdma_strict;

/* The entry in the strategy line: the same in builds with and without libfabric (rdma_absent.c). */
#define GW_RDMA_CHOICES GW_CHOICES("auto", "verbs", "efa", "psm3", "psm2", "opx", "tcp", "shm")
#define GW_RDMA_TECHNIQUE                                                                                              \
    {                                                                                                                  \
        .name = "rdma", .about = "libfabric, also within a host: payloads are written into the peer's memory",         \
        .params = GW_PARAMS({.name = "provider",                                                                       \
                             .kind = GW_PARAM_CHOICE,                                                                  \
                             .choices = GW_RDMA_CHOICES,                                                               \
                             .about = "libfabric's; auto takes the first that works, shm is within one host"},         \
                            GW_SECURITY_ABSENT_PARAM, GW_CHECKSUM_PARAM)                                               \
    }

typedef struct gw_rdma_options {
    int rank, world;
    const char *provider;      /* "auto", or a name of gw_rdma_providers */
    const gw_address *address; /* of the interface to use, where the provider speaks IP; NULL: any */
    const bool *summed;        /* by peer: a checksum covers all messages with it; NULL: with nobody. Lent for the call.
                                * Both sides must say the same */
    gw_rdma_strict strict;
} gw_rdma_options;

/* GW_UNSUPPORTED where the build or the machine has no libfabric, or there is no such provider here. */
gw_status gw_rdma_open(gw_transport **out, const gw_rdma_options *options, gw_sink sink, gw_dial dial, void *dial_ctx,
                       gw_error *error);

typedef struct gw_rdma_counters {
    uint64_t messages;           /* sent, of all kinds */
    uint64_t writes;             /* payloads written into a peer's memory */
    uint64_t offers;             /* of these, those that had to ask for their buffer */
    uint64_t copied;             /* payload bytes copied by this rank, going out or coming in */
    uint64_t registered, reused; /* memory registrations made, and found in the cache */
    uint64_t strangers;          /* messages without the right cookie */
} gw_rdma_counters;

gw_rdma_counters gw_rdma_count(const gw_transport *transport);

typedef struct gw_rdma_provider {
    const char *name;     /* as in transport=rdma:provider=NAME */
    const char *own_name; /* libfabric's */
    bool usable;          /* on this host, now */
    char detail[96];      /* the interfaces or devices; or why not */
} gw_rdma_provider;

#define GW_RDMA_PROVIDERS_MAX 16

/* In the order in which "auto" tries them. Returns their number; 0 where there is no libfabric, and error says why. */
int gw_rdma_providers(gw_rdma_provider list[GW_RDMA_PROVIDERS_MAX], gw_error *error);

#endif
