/* rdma_internal.h - the state of the rdma transport, shared by its own files only. Everything belongs to the polling
 * thread. */
#ifndef GW_TRANSPORT_RDMA_RDMA_INTERNAL_H
#define GW_TRANSPORT_RDMA_RDMA_INTERNAL_H

#include "base/rng.h"
#include "transport/rdma/rdma_memory.h"

#define RECORDS_PER_PEER 16 /* running transfers, so that a stuck peer does not block the others */
#define RECORDS_MAX 512
#define DETAIL_BYTES 256

typedef enum record_kind { RECORD_RECEIVE, RECORD_MESSAGE, RECORD_WRITE } record_kind;

/* One transfer that libfabric runs. */
typedef struct record {
    struct fi_context2 context; /* libfabric's, while it runs; first, because a completion has its address */
    record_kind kind;
    int peer;
    gw_packet *packet;      /* for sent() when it is done; NULL: the transport's own */
    struct record *next;    /* in the list of spare or due ones */
    uint8_t *buffer;        /* GW_RDMA_MESSAGE_BYTES; sends and receives */
    size_t length;          /* bytes in buffer, of a message that is due */
    gw_rdma_memory *source; /* of a write; NULL: need not be registered */
    /* A write without immediate data, in parts where it is long; a WRITTEN message follows it: */
    bool apart;
    gw_rdma_recv_buffer target;
    uint64_t started;        /* bytes handed to libfabric */
    struct record *notifier; /* reserved for that message; NULL: it is sent, or taken later */
} record;

/* A receive buffer that is, or will be, advertised to a peer. */
typedef struct slot {
    bool used;
    bool clear_due;                  /* a CLEAR is due */
    gw_frame frame;                  /* of the message that is written here */
    void *at;                        /* the engine's, lent until it has arrived or reset() */
    gw_rdma_memory *memory;          /* its registration */
    gw_rdma_recv_buffer recv_buffer; /* as sent to the peer */
} slot;

/* A receive buffer that a peer has advertised to us. */
typedef struct advert {
    bool used;
    uint32_t comm, channel;
    uint64_t op;
    gw_rdma_recv_buffer recv_buffer;
} advert;

typedef struct peer {
    bool summed;      /* a checksum covers all messages; constant */
    bool greeted;     /* our hello is sent */
    bool known;       /* its hello is here: address and cookie are valid */
    bool lost;        /* lost() was called */
    bool closed;      /* the connection has ended; lost() is due when all has arrived */
    bool listed;      /* in the backlog */
    bool flushing;    /* a send() from within a callback only queues */
    gw_status status; /* not GW_OK: lost() is due, for this reason */
    char detail[DETAIL_BYTES];
    fi_addr_t address;
    uint8_t fabric_address[GW_RDMA_ADDRESS_BYTES]; /* the same as bytes */
    size_t fabric_address_bytes;
    uint8_t cookie[GW_RDMA_COOKIE_BYTES];  /* in our messages to it */
    uint64_t stamps_address, stamps_key;   /* of its table of stamps */
    uint8_t expects[GW_RDMA_COOKIE_BYTES]; /* in its messages to us */
    gw_packet *head, *tail;                /* not yet begun */
    gw_packet *offered;                    /* wait for the peer's receive buffer */
    int under_way;                         /* records */
    uint64_t sent, received, last;         /* messages and writes; last: all that it sent, from BYE */
    bool parting;                          /* BYE is here: last is valid */
    bool answered;                         /* all that it sent is here, and HEARD was sent */
    bool confirmed;                        /* HEARD is here */
    bool awaited;                          /* its stamps are polled */
    slot *slots;
    uint32_t slot_room, slots_used, clears_due;
    advert *adverts; /* by the peer's slot number */
    uint32_t advert_room;
    gw_packet hello, bye, answer;
    uint8_t hello_out[GW_RDMA_HELLO_BYTES], hello_in[GW_RDMA_HELLO_BYTES];
} peer;

typedef struct rdma {
    gw_transport base;
    int rank, world;
    gw_transport *tcp; /* the inner tcp transport: the authenticated connections */
    gw_rdma_fabric fabric;
    gw_rdma_cache cache;
    gw_rng rng;         /* nonces */
    uint32_t slots_max; /* for each peer: slot number and rank share one immediate */
    peer *peers;
    record *records, *receives; /* all of them, owned */
    uint8_t *buffers;           /* of both */
    size_t buffer_bytes;
    gw_rdma_memory *buffer_memory; /* NULL: need not be registered */
    int record_count;
    record *spare, *due; /* due: refused by libfabric for now */
    record *unposted;    /* receives, likewise */
    uint8_t *stamps;     /* rdma_immediate.c: by slot, then peer; NULL: libfabric delivers immediate data */
    gw_rdma_memory *stamp_memory;
    int *awaited; /* peers whose stamps are polled */
    int awaited_count;
    int *backlog; /* peers with something to send */
    int backlog_count;
    int events, timer; /* epoll over the descriptors of tcp, the completion queue and the timer */
    int watched;       /* the completion queue's descriptor in epoll, -1: none */
    bool timer_set;
    uint32_t polls;
    bool tcp_due;   /* poll tcp in the next poll */
    bool unsettled; /* some peer's lost() may be due */
    bool inside;    /* poll() is running */
    bool closing;   /* the sink is not called any more */
    gw_rdma_counters counters;
} rdma;

/* rdma.c: opens an endpoint again after a reset; where that fails, all peers are lost. */
void gw_rdma_reopen(rdma *r);

/* rdma_peer.c: hello and goodbye over the authenticated connection, and the loss of peers. */
gw_sink gw_rdma_tcp_sink(rdma *r);
void gw_rdma_greet(rdma *r, int rank);
/* The peer is lost for this reason; the next gw_rdma_settle reports it. */
void gw_rdma_fail_peer(rdma *r, int rank, gw_status status, const char *format, ...)
    __attribute__((format(printf, 4, 5)));
bool gw_rdma_settle(rdma *r);
void gw_rdma_say_bye(rdma *r, int rank); /* says BYE */
gw_status gw_rdma_draw_cookies(rdma *r, gw_error *error);

/* rdma_send.c */
void gw_rdma_list(rdma *r, int rank);  /* there is something to send */
bool gw_rdma_flush(rdma *r, int rank); /* sends as much as possible; true if it sent anything */
bool gw_rdma_flush_due(rdma *r);
void gw_rdma_done(rdma *r, record *done);                    /* a completion */
void gw_rdma_failed(rdma *r, record *done, const char *why); /* a completion that is an error */
void gw_rdma_learn(rdma *r, int rank, const gw_frame *frame, const gw_rdma_recv_buffer *recv_buffer);

/* rdma_immediate.c; no effect where the provider needs no stamps. */
gw_status gw_rdma_stamps_make(rdma *r, gw_error *error); /* memory, once */
gw_status gw_rdma_stamps_open(rdma *r, gw_error *error); /* registers it for the peers of a generation */
ssize_t gw_rdma_write_stamped(rdma *r, record *rec, const gw_rdma_recv_buffer *recv_buffer, uint64_t stamp);
void gw_rdma_stamp_await(rdma *r, int rank, uint32_t slot_number);
bool gw_rdma_stamps_wait(const rdma *r); /* there are some to be read */
bool gw_rdma_stamps_read(rdma *r);       /* true if there were */

/* rdma_receive.c */
slot *gw_rdma_slot_take(rdma *r, int rank, const gw_frame *frame, void *at, uint64_t bytes, gw_error *error);
void gw_rdma_take_message(rdma *r, const uint8_t *bytes, size_t length);
void gw_rdma_written(rdma *r, uint64_t immediate);

#endif
