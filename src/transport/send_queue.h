/* send_queue.h - packets queued for one peer, the most urgent first. */
#ifndef GW_TRANSPORT_SEND_QUEUE_H
#define GW_TRANSPORT_SEND_QUEUE_H

#include "transport/transport.h"

typedef struct gw_packet_queue {
    gw_packet *head, *tail; /* NULL: empty. Only the first ones may have progress */
} gw_packet_queue;

static inline int gw_packet_urgency(const gw_packet *packet) {
    return packet->frame.kind == GW_FRAME_DATA ? packet->urgency : GW_URGENT_SIGNAL;
}

/* A packet overtakes less urgent packets, unless they are partly sent. Grants and credits are the most urgent: the peer
 * may be unable to send until it has them. */
static inline void gw_packet_enqueue(gw_packet_queue *queue, gw_packet *packet) {
    int urgency = gw_packet_urgency(packet);
    gw_packet *before = queue->tail && gw_packet_urgency(queue->tail) >= urgency ? queue->tail : NULL;
    for (gw_packet *at = before ? NULL : queue->head; at; at = at->next) {
        if (gw_packet_urgency(at) < urgency && !at->progress) break;
        before = at;
    }
    packet->next = before ? before->next : queue->head;
    if (before) before->next = packet;
    else queue->head = packet;
    if (!packet->next) queue->tail = packet;
}

#endif
