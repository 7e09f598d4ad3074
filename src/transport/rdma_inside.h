/* rdma_inside.h - the state of the rdma transport, shared by its own files only. Everything belongs to the polling
 * thread. */
#ifndef GW_TRANSPORT_RDMA_INSIDE_H
#define GW_TRANSPORT_RDMA_INSIDE_H

#include "base/rng.h"
#include "transport/rdma_memory.h"

#define RECORDS_PER_PEER 16 /* transfers under way, so that one peer that does not move holds up no other */
#define RECORDS_MAX 512
#define DETAIL_BYTES 256

typedef enum record_kind { RECORD_RECEIVE, RECORD_MESSAGE, RECORD_WRITE } record_kind;

/* One transfer that libfabric knows of. */
typedef struct record {
    struct fi_context2 context; /* libfabric's, while it is under way; first, for that is what a completion names */
    record_kind kind;
    int peer;
    gw_packet *packet;      /* sent() is due when it is done; NULL: the transport's own */
    struct record *next;    /* of those that are free, or due */
    uint8_t *buffer;        /* GW_RDMA_MESSAGE_BYTES; sends and receives */
    size_t length;          /* bytes in it, of a message that is due */
    gw_rdma_memory *source; /* of a write; NULL: need not be registered */
    /* A write without immediate data, in parts where it is long, that a message of its own tells of: */
    bool apart;
    gw_rdma_landing target;
    uint64_t started;      /* bytes handed to libfabric */
    struct record *teller; /* kept for the message that follows the last part; NULL: it has gone, or comes later */
} record;

/* A landing that a peer has been told of, or is to be. */
typedef struct slot {
    bool used;
    bool untold;             /* a CLEAR is due */
    gw_frame frame;          /* of the message that is to land */
    void *at;                /* the engine's, lent until it has arrived or reset() */
    gw_rdma_memory *memory;  /* its registration */
    gw_rdma_landing landing; /* as the peer is told of it */
} slot;

/* A landing that a peer has told us of. */
typedef struct advert {
    bool used;
    uint32_t comm, channel;
    uint64_t op;
    gw_rdma_landing landing;
} advert;

typedef struct peer {
    bool greeted;                               /* our hello is on its way */
    bool known;                                 /* theirs is here: address and cookie hold */
    bool lost;                                  /* lost() was said */
    bool closed;                                /* the connection has ended; lost() is due when all has come */
    bool listed;                                /* in the backlog */
    bool flushing;                              /* a send() from within a callback only queues */
    gw_status status;                           /* not GW_OK: lost() is due, for this reason */
    char detail[DETAIL_BYTES];
    fi_addr_t address;
    uint8_t fabric_address[GW_RDMA_ADDRESS_BYTES]; /* what that stands for */
    size_t fabric_address_bytes;
    uint8_t cookie[GW_RDMA_COOKIE_BYTES];       /* to show */
    uint64_t stamps_address, stamps_key;        /* of its table of stamps */
    uint8_t expects[GW_RDMA_COOKIE_BYTES];      /* to be shown */
    gw_packet *head, *tail;                     /* not yet begun */
    gw_packet *offered;                         /* their landings are awaited */
    int under_way;                              /* records */
    uint64_t said, heard, last;                 /* messages and writes, ours, theirs; last: all of theirs, from BYE */
    bool parting;                               /* BYE has come: last holds */
    bool answered;                              /* all of theirs has come, and they were told */
    bool confirmed;                             /* they have told us so */
    bool awaited;                               /* its stamps are looked for */
    slot *slots;
    uint32_t slot_room, slots_used, slots_untold;
    advert *adverts; /* by the peer's slot number */
    uint32_t advert_room;
    gw_packet hello, bye, answer;
    uint8_t hello_out[GW_RDMA_HELLO_BYTES], hello_in[GW_RDMA_HELLO_BYTES];
} peer;

typedef struct rdma {
    gw_transport base;
    int rank, world;
    gw_transport *side; /* the authenticated connections */
    gw_rdma_fabric fabric;
    gw_rdma_cache cache;
    gw_rng rng;         /* nonces */
    uint32_t slots_max; /* for each peer: its number and the peer's are one immediate */
    peer *peers;
    record *records, *receives; /* all there are */
    uint8_t *buffers;           /* of both */
    size_t buffer_bytes;
    gw_rdma_memory *buffer_memory; /* NULL: need not be registered */
    int record_count;
    record *spare, *due; /* due: begun, and refused by libfabric for now */
    record *unposted;    /* receives, likewise */
    uint8_t *stamps;     /* rdma_stamp.c: by slot, then peer; NULL: immediate data comes by libfabric */
    gw_rdma_memory *stamp_memory;
    int *awaited; /* peers that may stamp */
    int awaited_count;
    int *backlog; /* peers with something to send */
    int backlog_count;
    int events, timer;   /* epoll over the side's, the completions' and the timer's descriptors */
    int watched;         /* the completions' descriptor in epoll, -1: none */
    bool timer_set;
    uint32_t polls;
    bool side_due;  /* look at the side in the next poll */
    bool unsettled; /* some peer's lost() may be due */
    bool inside;    /* poll() is running */
    bool closing;   /* nothing is told to the sink any more */
    gw_rdma_counters counters;
} rdma;

/* rdma.c: there is an endpoint again after a reset; where that fails, all peers are lost. */
void gw_rdma_awake(rdma *r);

/* rdma_peer.c: hello and goodbye over the authenticated connection, and the loss of peers. */
gw_sink gw_rdma_side_sink(rdma *r);
void gw_rdma_greet(rdma *r, int rank);
/* The peer is lost for this reason; said by the next gw_rdma_settle. */
void gw_rdma_fail_peer(rdma *r, int rank, gw_status status, const char *format, ...)
    __attribute__((format(printf, 4, 5)));
bool gw_rdma_settle(rdma *r);
void gw_rdma_part(rdma *r, int rank); /* says BYE */
gw_status gw_rdma_draw_cookies(rdma *r, gw_error *error);

/* rdma_send.c */
void gw_rdma_list(rdma *r, int rank);  /* there is something to send */
bool gw_rdma_flush(rdma *r, int rank); /* sends what can be sent; true if anything was */
bool gw_rdma_flush_due(rdma *r);
void gw_rdma_done(rdma *r, record *done);                    /* a completion */
void gw_rdma_failed(rdma *r, record *done, const char *why); /* a completion that is an error */
void gw_rdma_learn(rdma *r, int rank, const gw_frame *frame, const gw_rdma_landing *landing);

/* rdma_stamp.c; nothing happens where the provider needs no stamps. */
gw_status gw_rdma_stamps_make(rdma *r, gw_error *error); /* memory, once */
gw_status gw_rdma_stamps_open(rdma *r, gw_error *error); /* to the peers of a generation */
ssize_t gw_rdma_write_stamped(rdma *r, record *rec, const gw_rdma_landing *landing, uint64_t stamp);
void gw_rdma_stamp_await(rdma *r, int rank, uint32_t slot_number);
bool gw_rdma_stamps_wait(const rdma *r); /* there are some to be read */
bool gw_rdma_stamps_read(rdma *r);       /* true if there were */

/* rdma_receive.c */
slot *gw_rdma_slot_take(rdma *r, int rank, const gw_frame *frame, void *at, uint64_t bytes, gw_error *error);
void gw_rdma_heard(rdma *r, const uint8_t *bytes, size_t length);
void gw_rdma_written(rdma *r, uint64_t immediate);

#endif
