/* zmq_keys.h - the names and keys of the ZeroMQ transport, all derived from one key of the job. */
#ifndef GW_TRANSPORT_ZMQ_ZMQ_KEYS_H
#define GW_TRANSPORT_ZMQ_ZMQ_KEYS_H

#include "transport/zmq/zmq_transport.h"

#define GW_ZMQ_KEY_TEXT 41 /* a CURVE key in Z85, with its final zero */
#define GW_ZMQ_ID_BYTES 25 /* 'g', rank, generation, proof of the job's key */

/* The CURVE keys of a side, "server" or "client". False where libzmq has no CURVE. */
bool gw_zmq_key_pair(const uint8_t key[GW_ZMQ_KEY_BYTES], const char *label, char public_key[GW_ZMQ_KEY_TEXT],
                     char secret_key[GW_ZMQ_KEY_TEXT]);

/* The routing id of messages from one rank to another. False where libcrypto fails. */
bool gw_zmq_id(const uint8_t key[GW_ZMQ_KEY_BYTES], int from, int to, uint32_t generation, uint8_t id[GW_ZMQ_ID_BYTES]);
/* Reads rank and generation from an id. The caller must verify it, by comparing it with gw_zmq_id's. */
bool gw_zmq_id_read(const uint8_t id[GW_ZMQ_ID_BYTES], int world, int *from, uint32_t *generation);

#endif
