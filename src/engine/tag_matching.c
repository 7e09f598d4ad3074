/* tag_matching.c - see tag_matching.h. Cost: a walk along the posted receives for each announced send, and along the
 * unmatched sends for each posted receive; usually one step. */
#include "engine/tag_matching.h"

#include <stdlib.h>

gw_tag_matching *gw_tags_open(int size) {
    gw_tag_matching *tags = calloc(1, sizeof *tags);
    gw_tag_peer *peers = calloc((size_t)size, sizeof *peers);
    if (!tags || !peers) {
        free(tags);
        free(peers);
        return NULL;
    }
    tags->peers = peers;
    tags->size = size;
    return tags;
}

static gw_tag_send *spare_send(gw_tag_matching *tags) {
    gw_tag_send *send = tags->spare;
    if (!send) return malloc(sizeof *send);
    tags->spare = send->next;
    return send;
}

static void give_back(gw_tag_matching *tags, gw_tag_send *send) {
    send->next = tags->spare;
    tags->spare = send;
}

static void give_back_all(gw_tag_matching *tags, gw_tag_send **list) {
    for (gw_tag_send *send = *list, *next; send; send = next) {
        next = send->next;
        give_back(tags, send);
    }
    *list = NULL;
}

void gw_tags_clear(gw_tag_matching *tags) {
    for (int r = 0; r < tags->size; r++) {
        give_back_all(tags, &tags->peers[r].held);
        tags->peers[r].kept = 0;
    }
    give_back_all(tags, &tags->sends);
    tags->recvs = NULL;
}

void gw_tags_close(gw_tag_matching *tags) {
    if (!tags) return;
    gw_tags_clear(tags);
    for (gw_tag_send *send = tags->spare, *next; send; send = next) {
        next = send->next;
        free(send);
    }
    free(tags->peers);
    free(tags);
}

/* The send that the one with this number follows in the peer's held list; NULL: it becomes the first. */
static gw_tag_send *predecessor(const gw_tag_peer *peer, uint64_t number) {
    if (peer->held && peer->held_last->number <= number) return peer->held_last;
    gw_tag_send *before = NULL;
    for (gw_tag_send *at = peer->held; at && at->number <= number; at = at->next) before = at;
    return before;
}

gw_tag_verdict gw_tags_announce(gw_tag_matching *tags, const gw_tag_send *send) {
    gw_tag_peer *peer = &tags->peers[send->source];
    gw_tag_send *before = predecessor(peer, send->number);
    if (send->number < peer->announced || (before && before->number == send->number)) return GW_TAG_SEEN;
    if (peer->kept == GW_TAG_SENDS_MAX) return GW_TAG_TOO_MANY;
    gw_tag_send *kept = spare_send(tags);
    if (!kept) return GW_TAG_NO_MEMORY;
    *kept = *send;
    kept->next = before ? before->next : peer->held;
    if (before) before->next = kept;
    else peer->held = kept;
    if (!kept->next) peer->held_last = kept;
    peer->kept++;
    return GW_TAG_NEW;
}

static bool accepts(const gw_tag_recv *recv, const gw_tag_send *send) {
    return recv->tag == send->tag && (recv->source == GW_ANY_SOURCE || recv->source == send->source);
}

/* Removes and returns the first posted receive that accepts this send; NULL: none. */
static gw_tag_recv *take_recv(gw_tag_matching *tags, const gw_tag_send *send) {
    gw_tag_recv *before = NULL, *recv = tags->recvs;
    for (; recv && !accepts(recv, send); recv = recv->next) before = recv;
    if (!recv) return NULL;
    if (before) before->next = recv->next;
    else tags->recvs = recv->next;
    if (tags->newest == recv) tags->newest = before;
    return recv;
}

/* Copies a matched send, which is in no list any more, and frees it. */
static void release(gw_tag_matching *tags, gw_tag_send *matched, gw_tag_send *copy) {
    *copy = *matched;
    tags->peers[matched->source].kept--;
    give_back(tags, matched);
}

static void keep(gw_tag_matching *tags, gw_tag_send *send) {
    send->next = NULL;
    if (tags->sends) tags->last->next = send;
    else tags->sends = send;
    tags->last = send;
}

bool gw_tags_next(gw_tag_matching *tags, int source, gw_tag_send *send, gw_tag_recv **recv) {
    gw_tag_peer *peer = &tags->peers[source];
    while (peer->held && peer->held->number == peer->announced) {
        gw_tag_send *first = peer->held;
        peer->held = first->next;
        peer->announced++;
        *recv = take_recv(tags, first);
        if (*recv) {
            release(tags, first, send);
            return true;
        }
        keep(tags, first);
    }
    return false;
}

gw_tag_recv *gw_tags_first(const gw_tag_matching *tags, int source) {
    gw_tag_recv *recv = tags->recvs;
    while (recv && recv->source != source) recv = recv->next;
    return recv;
}

bool gw_tags_post(gw_tag_matching *tags, gw_tag_recv *recv, gw_tag_send *send) {
    gw_tag_send *before = NULL, *at = tags->sends;
    for (; at && !accepts(recv, at); at = at->next) before = at;
    if (at) {
        if (before) before->next = at->next;
        else tags->sends = at->next;
        if (tags->last == at) tags->last = before;
        release(tags, at, send);
        return true;
    }
    recv->next = NULL;
    if (tags->recvs) tags->newest->next = recv;
    else tags->recvs = recv;
    tags->newest = recv;
    return false;
}
