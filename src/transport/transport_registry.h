/* transport_registry.h - the transports that a strategy line can name.
 *
 * A transport describes itself in one gw_transport_type, as a libfabric provider does: its words in the strategy line,
 * its properties, and how it is opened. Everything else (strategy line, job set-up, doctor, benchmarks, tests) reads
 * the table and compares properties, never names. A new transport is one file and one line of transport_table.h. One
 * that needs a library has a folder with a NAME.cmake and a NAME_absent.c (cmake/transports.cmake). */
#ifndef GW_TRANSPORT_TRANSPORT_REGISTRY_H
#define GW_TRANSPORT_TRANSPORT_REGISTRY_H

#include "base/technique.h"
#include "bootstrap/auth.h"
#include "bootstrap/endpoint.h"
#include "transport/transport.h"
#include "transport/transport_table.h"

/* The parameter that says how connections are protected; and that of a transport whose data cannot be. */
#define GW_SECURITY_PARAM                                                                                              \
    {                                                                                                                  \
        .name = "security", .kind = GW_PARAM_CHOICE, .choices = gw_security_choice_names,                              \
        .about = "clear, mac (nobody changes it unseen), tls (nor reads it); auto: mac between hosts"                  \
    }
#define GW_SECURITY_ABSENT_PARAM                                                                                       \
    {                                                                                                                  \
        .name = "security", .kind = GW_PARAM_CHOICE, .choices = GW_CHOICES("auto", "clear"),                           \
        .about = "data is always clear, mac and tls need tcp; auto warns of that between hosts"                        \
    }

/* gw_transport_summed reads it. */
#define GW_CHECKSUM_PARAM                                                                                              \
    {                                                                                                                  \
        .name = "checksum", .kind = GW_PARAM_CHOICE, .choices = GW_CHOICES("auto", "off", "on"),                       \
        .about = "a CRC32C of every message; auto: with ranks of other hosts"                                          \
    }

/* The arguments with which a transport is opened; each transport uses those that it needs. Pointers are lent for the
 * call, ctx for the transport's life. */
typedef struct gw_transport_options {
    int rank, world;
    const int *host_of;   /* by rank, the number of its host; known to open, not to listen */
    const double *values; /* of the technique's parameters, in their order */
    gw_sink sink;
    gw_time deadline;          /* ns that open may wait for the peers */
    const gw_address *address; /* of the interface to use */
    const char *ports;         /* that listen may take, "LOW-HIGH"; NULL or "": any */
    void *ctx;                 /* of the next two */
    gw_dial dial;              /* asks the connection manager for a socket, which ops->adopt then gets */
    /* A key of the job for the use that the label names (gw_auth_derive). */
    gw_status (*derive_key)(void *ctx, const char *label, uint8_t key[GW_AUTH_KEY_BYTES], gw_error *error);
} gw_transport_options;

/* The doctor's report about a transport, or about one of its providers or libraries, on this host. */
typedef struct gw_transport_probe {
    char name[48]; /* as in a strategy: "rdma:provider=tcp" */
    bool usable;
    char detail[512]; /* the library or devices that it uses, or why it is not usable */
} gw_transport_probe;

#define GW_TRANSPORT_PROBES_MAX 24 /* probes of all transports together */

typedef struct gw_transport_type {
    gw_technique technique; /* first */
    bool single_host;       /* reaches only ranks of its own host */
    bool tcp_sockets;       /* payloads go through the kernel's TCP, also within a host */
    bool native_allreduce;  /* its library can run a whole all-reduce (gw_transport_ops.native) */
    bool unprotected;       /* its library sends data that nothing protects; its connections carry only that library's
                               keys */
    bool simulated;         /* exists only in the simulator, which opens it itself */
    const char *launcher;   /* the only command that starts its ranks; NULL: any does */
    int threads;            /* of its own, per rank */
    /* The shared-memory transport for ranks of one host, to which gw_alloc and the host-local collectives belong too.
     * NULL: this transport serves all peers. */
    const struct gw_transport_type *within_host;
    /* GW_UNSUPPORTED, and why, where this build or host lacks its library. NULL: it needs no library, or its launcher
     * decides which library it uses. */
    gw_status (*available)(gw_error *error);
    /* A transport is opened either by `open` after the rendezvous, or by `listen` before it. `listen` fills in this
     * rank's endpoint; later `attach` gets the endpoint of each peer. If both are NULL, only within_host is opened. */
    gw_status (*open)(gw_transport **out, const gw_transport_options *options, gw_error *error);
    gw_status (*listen)(gw_transport **out, const gw_transport_options *options,
                        uint8_t endpoint[GW_ENDPOINT_TRANSPORT_BYTES], gw_error *error);
    gw_status (*attach)(gw_transport *transport, int peer, const gw_address *address,
                        const uint8_t endpoint[GW_ENDPOINT_TRANSPORT_BYTES], gw_error *error);
    /* The providers or libraries that it can use here, at most room of them; returns their number. Called only where
     * the transport is available. NULL: there is nothing to choose. */
    int (*probe)(gw_transport_probe *list, int room);
} gw_transport_type;

#define GW_TRANSPORT_DECLARE(name) extern const gw_transport_type gw_transport_##name;
GW_TRANSPORTS(GW_TRANSPORT_DECLARE)
extern const gw_transport_type gw_transport_sim; /* of the simulator; not in the table */

/* The table in this order, NULL at the end. */
extern const gw_transport_type *const gw_transport_types[];
/* The transport axis: the techniques of the table, then sim; NULL at the end. */
extern const gw_technique *const gw_transport_techniques[];
/* technique is one of gw_transport_techniques. */
const gw_transport_type *gw_transport_type_of(const gw_technique *technique);
/* By rank, whether a checksum covers the messages with it, as the value of GW_CHECKSUM_PARAM says. The caller frees it;
 * NULL: no memory. */
bool *gw_transport_summed(const gw_transport_options *options, double checksum);
/* What the transport's parameter `security` asks for; auto where it has none. */
gw_security_choice gw_transport_security(const gw_transport_type *type, const double *values);
/* name may have parameters: "rdma:provider=tcp". NULL: the table has none of that name. */
const gw_transport_type *gw_transport_type_find(const char *name);

/* A choice between other transports, such as auto. */
static inline bool gw_transport_type_chooses(const gw_transport_type *type) {
    return type->within_host && type->within_host != type;
}

/* Neither a library nor a launcher is needed: it works on every host. */
static inline bool gw_transport_type_built_in(const gw_transport_type *type) {
    return !type->available && !type->launcher;
}

#endif
