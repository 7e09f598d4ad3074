/* channel.c - see channel.h. */
#include "bootstrap/channel.h"

#include "base/fork_descriptors.h"
#include "base/little_endian.h"

#include <errno.h>
#include <openssl/crypto.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#define HEAD_BYTES ((size_t)4)
#define BODY_MAX ((size_t)4096)
#define RECORD_MAX (HEAD_BYTES + BODY_MAX + GW_SEAL_TAG_BYTES)

struct gw_channel {
    int fd;
    gw_seal *sealer, *opener; /* NULL: clear */
    bool broken;              /* a record was not what the peer has sent */
    uint8_t out[RECORD_MAX], in[RECORD_MAX];
    size_t out_have, out_sent; /* bytes of the record on its way out */
    size_t in_have;            /* bytes of the record that arrives */
    size_t given, ready;       /* of its opened body: given away, and there; ready 0: it is not opened */
};

gw_status gw_channel_open(gw_channel **out, int fd, const gw_traffic_keys *keys, gw_error *error) {
    gw_channel *channel = calloc(1, sizeof *channel);
    gw_status status = channel ? GW_OK : gw_fail(error, GW_MEMORY, "out of memory for a connection");
    if (channel) channel->fd = fd;
    if (!status && keys->security != GW_SECURITY_CLEAR) {
        status = gw_seal_make(&channel->sealer, keys->security, &keys->send, error);
        if (!status) status = gw_seal_make(&channel->opener, keys->security, &keys->receive, error);
    }
    if (status && channel) gw_channel_close(channel);
    else if (status) gw_fd_close(fd);
    else *out = channel;
    return status;
}

void gw_channel_close(gw_channel *channel) {
    if (!channel) return;
    gw_fd_close(channel->fd);
    gw_seal_free(channel->sealer);
    gw_seal_free(channel->opener);
    OPENSSL_cleanse(channel, sizeof *channel); /* what was said may be secret */
    free(channel);
}

int gw_channel_fd(const gw_channel *channel) { return channel ? channel->fd : -1; }

bool gw_channel_flush(gw_channel *channel) {
    while (channel->out_sent < channel->out_have) {
        ssize_t sent = send(channel->fd, channel->out + channel->out_sent, channel->out_have - channel->out_sent,
                            MSG_NOSIGNAL | MSG_DONTWAIT);
        if (sent < 0 && errno == EINTR) continue;
        if (sent < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return false;
        if (sent < 0) break;
        channel->out_sent += (size_t)sent;
    }
    channel->out_have = channel->out_sent = 0;
    return true;
}

ssize_t gw_channel_send(gw_channel *channel, const void *bytes, size_t count) {
    if (!channel->sealer) return send(channel->fd, bytes, count, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (count == 0) return 0;
    if (!gw_channel_flush(channel)) return -1; /* errno is EAGAIN */
    if (count > BODY_MAX) count = BODY_MAX;
    uint8_t *body = channel->out + HEAD_BYTES;
    gw_le_put(channel->out, count, (int)HEAD_BYTES);
    memcpy(body, bytes, count);
    if (!gw_seal_protect(channel->sealer, body, body, count, body + count)) {
        errno = EIO;
        return -1;
    }
    channel->out_have = HEAD_BYTES + count + GW_SEAL_TAG_BYTES;
    gw_channel_flush(channel);
    return (ssize_t)count;
}

/* Until `want` bytes of the record are there: 1, else as recv(). */
static ssize_t fill(gw_channel *channel, size_t want) {
    while (channel->in_have < want) {
        ssize_t got = recv(channel->fd, channel->in + channel->in_have, want - channel->in_have, MSG_DONTWAIT);
        if (got <= 0) return got;
        channel->in_have += (size_t)got;
    }
    return 1;
}

/* 1: a record is open, else as recv(). */
static ssize_t open_record(gw_channel *channel) {
    ssize_t got = fill(channel, HEAD_BYTES);
    if (got <= 0) return got;
    uint8_t *body = channel->in + HEAD_BYTES;
    size_t count = gw_le_get32(channel->in);
    bool sound = count >= 1 && count <= BODY_MAX;
    if (sound && (got = fill(channel, HEAD_BYTES + count + GW_SEAL_TAG_BYTES)) <= 0) return got;
    if (!sound || !gw_seal_verify(channel->opener, body, body, count, body + count)) {
        channel->broken = true;
        errno = EBADMSG;
        return -1;
    }
    channel->ready = count;
    channel->given = channel->in_have = 0;
    return 1;
}

ssize_t gw_channel_receive(gw_channel *channel, void *into, size_t room) {
    if (!channel->opener) return recv(channel->fd, into, room, MSG_DONTWAIT);
    if (channel->broken) {
        errno = EBADMSG;
        return -1;
    }
    if (channel->given == channel->ready) {
        ssize_t got = open_record(channel);
        if (got <= 0) return got;
    }
    size_t count = channel->ready - channel->given < room ? channel->ready - channel->given : room;
    memcpy(into, channel->in + HEAD_BYTES + channel->given, count);
    channel->given += count;
    return (ssize_t)count;
}

const char *gw_channel_why(int code) {
    return code == EBADMSG ? "its bytes were changed on the way: something between the hosts alters or adds traffic"
                           : strerrordesc_np(code);
}
