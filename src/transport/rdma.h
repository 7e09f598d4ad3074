/* rdma.h - the transport over libfabric: payloads are written by one side straight into the other's memory.
 *
 * Who may take part is decided by the gateway, as for tcp: every pair of ranks that talks has one authenticated
 * connection (an inner tcp transport), over which they tell each other their address on the fabric and a random cookie
 * that every later message has to show; memory is opened to writes under random keys. The connection stays, so that the
 * end of a peer is noticed as soon as with tcp.
 *
 * A frame and a payload of up to 16 KiB go as one message into buffers that the receiver has posted. Whatever is larger
 * is written (fi_writedata) into its landing: a GRANT tells the sender the landings of the messages it grants; one that
 * goes without a grant is offered first, and written when the receiver has said where. Neither is copied by a rank.
 *
 * What a provider demands (registration modes, sizes, immediate data, a wait object) is read from its fi_info.
 * Everything but adopt() and refused() belongs to the one thread that polls. lost() is said from within poll() only.
 * reset() and close() must not be called from within a callback; send() may be. close() waits for up to a second until
 * what was sent last has arrived. */
#ifndef GW_TRANSPORT_RDMA_H
#define GW_TRANSPORT_RDMA_H

#include "transport/address.h"
#include "transport/transport.h"

/* Demands on top of the provider's own, so that tests can see them honoured where no provider makes them. */
typedef struct gw_rdma_strict {
    bool basic;          /* addresses, not offsets; keys chosen by the provider; memory that exists (FI_MR_BASIC) */
    bool local;          /* memory that is sent must be registered too (FI_MR_LOCAL) */
    bool pinned;         /* registrations must not outlive their use (as with FI_MR_ALLOCATED) */
    bool unordered;      /* a message may overtake the write before it */
    bool no_wait;        /* no wait object: a timer wakes the sleeper */
    size_t message_max;  /* bytes of one transfer; 0: the provider's own limit */
    int immediate_bytes; /* 0: the provider's own; 4: no more than that; -1: none */
} gw_rdma_strict;

typedef struct gw_rdma_options {
    int rank, world;
    const char *provider;      /* "auto", or a name of gw_rdma_providers */
    const gw_address *address; /* of the interface to use, where the provider speaks IP; NULL: any */
    gw_rdma_strict strict;
} gw_rdma_options;

/* GW_UNSUPPORTED where the build or the machine has no libfabric, or there is no such provider here. */
gw_status gw_rdma_open(gw_transport **out, const gw_rdma_options *options, gw_sink sink, gw_dial dial, void *dial_ctx,
                       gw_error *error);

typedef struct gw_rdma_counters {
    uint64_t messages;            /* sent, of whatever kind */
    uint64_t writes;              /* payloads written into a peer's memory */
    uint64_t offers;              /* of these, those that had to ask for their landing */
    uint64_t copied;              /* payload bytes copied by this rank, going out or coming in */
    uint64_t registered, reused;  /* memory registrations made, and found made */
    uint64_t strangers;           /* messages that did not show the cookie */
} gw_rdma_counters;

gw_rdma_counters gw_rdma_count(const gw_transport *transport);

typedef struct gw_rdma_provider {
    const char *name;     /* as in transport=rdma:provider=NAME */
    const char *own_name; /* libfabric's */
    bool usable;          /* here and now */
    char detail[96];      /* the interfaces or devices; or why not */
} gw_rdma_provider;

#define GW_RDMA_PROVIDERS_MAX 16

/* In the order in which "auto" tries them. Returns their number; 0 where there is no libfabric, and error says why. */
int gw_rdma_providers(gw_rdma_provider list[GW_RDMA_PROVIDERS_MAX], gw_error *error);

#endif
