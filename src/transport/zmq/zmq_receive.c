/* zmq_receive.c - received messages: checks their sender, number and generation. The engine reads payloads inside the
 * message, so it reduces them without another copy. */
#include "transport/zmq/zmq_internal.h"

#include <openssl/crypto.h>
#include <stdlib.h>
#include <string.h>

#define ALIGNMENT 8    /* of a payload that the engine may read inside the message */
#define HELD_MAX 65536 /* messages that wait for a reset; peers send few before they need an answer */

/* The sender of a message and its generation. False: not of this job. */
static bool identify(zmq *z, zmq_msg_t *id, int *from, uint32_t *generation) {
    const uint8_t *bytes = zmq_msg_data(id);
    if (zmq_msg_size(id) != GW_ZMQ_ID_BYTES || !gw_zmq_id_read(bytes, z->world, from, generation)) return false;
    peer *p = &z->peers[*from];
    if (*from == z->rank) return false;
    if (p->id_of != (int64_t)*generation) {
        if (!gw_zmq_id(z->key, *from, z->rank, *generation, p->id)) return false;
        p->id_of = *generation;
    }
    return CRYPTO_memcmp(p->id, bytes, GW_ZMQ_ID_BYTES) == 0;
}

/* The payload for the engine: inside its message, or, where it is not aligned, copied to its receive buffer. */
static const void *show(zmq *z, int from, const gw_frame *frame, const uint8_t *data) {
    if ((uintptr_t)data % ALIGNMENT == 0) return data;
    void *recv_buffer = z->base.sink.recv_buffer(z->base.sink.ctx, from, frame);
    if (recv_buffer) memcpy(recv_buffer, data, frame->length);
    return recv_buffer;
}

/* A frame and its payload; body may be empty. */
static void deliver(zmq *z, int from, const uint8_t *head, size_t bytes, zmq_msg_t *body) {
    gw_frame frame;
    gw_error error = {0};
    const uint8_t *data = zmq_msg_size(body) ? zmq_msg_data(body) : head + HEAD_BYTES;
    uint64_t came = zmq_msg_size(body) ? zmq_msg_size(body) : bytes - HEAD_BYTES;
    if (gw_frame_read(&frame, head + NUMBER_BYTES, &error) != GW_OK) {
        gw_zmq_break_off(z, from, GW_PROTOCOL, error.text);
        return;
    }
    if (frame.length != came || (came && frame.kind != GW_FRAME_DATA)) {
        gw_zmq_break_off(z, from, GW_PROTOCOL, "a frame brought more or fewer bytes than it announced");
        return;
    }
    const void *shown = came ? show(z, from, &frame, data) : NULL;
    if (came && !shown) gw_zmq_break_off(z, from, GW_PROTOCOL, "a frame brought bytes that have no place here");
    else z->base.sink.arrived(z->base.sink.ctx, from, &frame, shown, 0);
}

static void take(zmq *z, int from, zmq_msg_t *head, zmq_msg_t *body) {
    peer *p = &z->peers[from];
    const uint8_t *bytes = zmq_msg_data(head);
    size_t size = zmq_msg_size(head);
    if (size == NUMBER_BYTES) p->left = true;
    if (p->lost || p->broken || z->closing) return;
    if (size != NUMBER_BYTES && size < HEAD_BYTES) {
        gw_zmq_break_off(z, from, GW_PROTOCOL, "a message was too short for its head");
    } else if (gw_le_get64(bytes) != p->received) {
        gw_zmq_break_off(z, from, GW_PEER_LOST, "the connection broke and messages were lost with it");
    } else if (size == NUMBER_BYTES) {
        gw_zmq_break_off(z, from, GW_PEER_LOST, "it left the job (gw_finalize)");
    } else {
        p->received++;
        deliver(z, from, bytes, size, body);
    }
}

/* The peer was reset before us: its first messages wait for our reset. */
static void hold(zmq *z, int from, uint32_t generation, zmq_msg_t *head, zmq_msg_t *body) {
    if (z->held_count == HELD_MAX) {
        gw_zmq_break_off(z, from, GW_PROTOCOL, "it sent too many messages of generations that have not begun");
        return;
    }
    held *message = malloc(sizeof *message);
    if (!message) {
        gw_zmq_break_off(z, from, GW_MEMORY, "out of memory for a message of the next generation");
        return;
    }
    *message = (held){.from = from, .generation = generation};
    zmq_msg_init(&message->head);
    zmq_msg_init(&message->body);
    zmq_msg_move(&message->head, head);
    zmq_msg_move(&message->body, body);
    *z->last_held = message;
    z->last_held = &message->next;
    z->held_count++;
}

static bool receive_part(zmq *z, zmq_msg_t *part) {
    zmq_msg_init(part);
    return zmq_msg_recv(part, z->router, ZMQ_DONTWAIT) >= 0;
}

/* *bytes: of head and payload. */
bool gw_zmq_receive(zmq *z, uint64_t *bytes) {
    zmq_msg_t id, head, body, extra;
    int from = -1;
    uint32_t generation = 0;
    if (!receive_part(z, &id)) return false;
    zmq_msg_init(&head);
    zmq_msg_init(&body);
    if (zmq_msg_more(&id)) receive_part(z, &head);
    if (zmq_msg_more(&head)) receive_part(z, &body);
    bool surplus = zmq_msg_more(&body);
    for (bool more = surplus; more; zmq_msg_close(&extra)) {
        receive_part(z, &extra);
        more = zmq_msg_more(&extra);
    }
    *bytes = zmq_msg_size(&head) + zmq_msg_size(&body);
    if (!surplus && identify(z, &id, &from, &generation)) {
        if (generation == z->generation) take(z, from, &head, &body);
        else if (generation > z->generation) hold(z, from, generation, &head, &body);
    }
    zmq_msg_close(&id);
    zmq_msg_close(&head);
    zmq_msg_close(&body);
    return true;
}

/* Messages of later generations stay held. */
bool gw_zmq_release_held(zmq *z) {
    bool due = false;
    for (const held *message = z->first_held; message && !due; message = message->next)
        due = message->generation <= z->generation;
    if (!due) return false;
    held *list = z->first_held;
    z->first_held = NULL;
    z->last_held = &z->first_held;
    z->held_count = 0;
    while (list) {
        held *next = list->next;
        if (list->generation == z->generation) take(z, list->from, &list->head, &list->body);
        else if (list->generation > z->generation) hold(z, list->from, list->generation, &list->head, &list->body);
        zmq_msg_close(&list->head);
        zmq_msg_close(&list->body);
        free(list);
        list = next;
    }
    return true;
}

void gw_zmq_drop_held(zmq *z) {
    while (z->first_held) {
        held *next = z->first_held->next;
        zmq_msg_close(&z->first_held->head);
        zmq_msg_close(&z->first_held->body);
        free(z->first_held);
        z->first_held = next;
    }
}
