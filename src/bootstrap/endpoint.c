/* endpoint.c - see endpoint.h. */
#include "bootstrap/endpoint.h"

#include "base/little_endian.h"
#include "base/process.h"
#include "bootstrap/auth.h"

#include <assert.h>
#include <fcntl.h>
#include <openssl/evp.h>
#include <openssl/rand.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define REPLY_MAGIC UINT32_C(0x31525747) /* "GWR1" */

enum { AT_RANK = 0, AT_PID = 4, AT_STARTED = 8, AT_ADDRESS = 16, AT_HOST = AT_ADDRESS + GW_ADDRESS_WIRE_BYTES };
enum { AT_IDENTITY = AT_HOST + GW_ENDPOINT_HOST, AT_PUBLIC_KEY = AT_IDENTITY + GW_ENDPOINT_IDENTITY };
enum { AT_TRANSPORT = AT_PUBLIC_KEY + GW_KEY_BYTES };

/* A host whose boot id or namespaces cannot be read shares memory with nobody: that is slow, but never wrong. */
static void system_facts(char *text, size_t room, size_t *machine) {
    char boot[64] = "", net[64] = "", pid[64] = "";
    int fd = open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC);
    bool ok = fd >= 0 && read(fd, boot, sizeof boot - 1) > 0;
    if (fd >= 0) close(fd);
    ok = readlink("/proc/self/ns/net", net, sizeof net - 1) > 0 && ok;
    ok = readlink("/proc/self/ns/pid", pid, sizeof pid - 1) > 0 && ok;
    uint64_t alone = 0;
    if (!ok && RAND_bytes((uint8_t *)&alone, sizeof alone) != 1) alone = (uint64_t)getpid();
    *machine = (size_t)snprintf(text, room, "%s|%llu", boot, (unsigned long long)alone);
    snprintf(text + *machine, room - *machine, "|%s|%s", net, pid);
}

gw_status gw_endpoint_describe(int rank, const gw_address *address, gw_endpoint *mine, gw_error *error) {
    char facts[256];
    uint8_t digest[EVP_MAX_MD_SIZE];
    gw_endpoint made = {.rank = rank, .pid = (uint32_t)getpid(), .started = gw_process_started(0),
                        .address = *address};
    if (gethostname(made.host, sizeof made.host - 1) != 0 || !made.host[0]) strcpy(made.host, "unnamed");
    for (char *c = made.host; *c; c++)
        if (*c < ' ' || *c > '~') *c = '?';
    size_t machine;
    system_facts(facts, sizeof facts, &machine);
    for (int half = 0; half < 2; half++) {
        if (EVP_Digest(facts, half ? strlen(facts) : machine, digest, NULL, EVP_sha256(), NULL) != 1)
            return gw_fail(error, GW_SYSTEM, "libcrypto cannot compute SHA-256: check its installation");
        for (int i = 0; i < GW_ENDPOINT_MACHINE / 2; i++)
            snprintf(made.identity + half * GW_ENDPOINT_MACHINE + 2 * i, 3, "%02x", digest[i]);
    }
    *mine = made;
    return GW_OK;
}

void gw_endpoint_write(const gw_endpoint *endpoint, uint8_t bytes[GW_ENDPOINT_BYTES]) {
    memset(bytes, 0, GW_ENDPOINT_BYTES);
    gw_le_put(bytes + AT_RANK, (uint32_t)endpoint->rank, 4);
    gw_le_put(bytes + AT_PID, endpoint->pid, 4);
    gw_le_put(bytes + AT_STARTED, endpoint->started, 8);
    gw_address_write(&endpoint->address, bytes + AT_ADDRESS);
    memcpy(bytes + AT_HOST, endpoint->host, strnlen(endpoint->host, GW_ENDPOINT_HOST - 1));
    memcpy(bytes + AT_IDENTITY, endpoint->identity, GW_ENDPOINT_IDENTITY);
    memcpy(bytes + AT_PUBLIC_KEY, endpoint->public_key, GW_KEY_BYTES);
    memcpy(bytes + AT_TRANSPORT, endpoint->transport, GW_ENDPOINT_TRANSPORT_BYTES);
}

/* Printable ASCII, at least one character, then zeros to the end. */
static bool printable(const uint8_t *bytes, size_t room) {
    size_t length = strnlen((const char *)bytes, room);
    if (length == 0 || length == room) return false;
    for (size_t i = 0; i < length; i++)
        if (bytes[i] < ' ' || bytes[i] > '~') return false;
    for (size_t i = length; i < room; i++)
        if (bytes[i] != 0) return false;
    return true;
}

static bool hexadecimal(const uint8_t *bytes, size_t count) {
    for (size_t i = 0; i < count; i++)
        if (!((bytes[i] >= '0' && bytes[i] <= '9') || (bytes[i] >= 'a' && bytes[i] <= 'f'))) return false;
    return true;
}

static gw_status wrong(gw_error *error, const char *what) {
    return gw_fail(error, GW_PROTOCOL,
                   "%s in a message of the rendezvous makes no sense: do all ranks run the same "
                   "version of gradwire?",
                   what);
}

gw_status gw_endpoint_read(gw_endpoint *endpoint, const uint8_t bytes[GW_ENDPOINT_BYTES], int world, gw_error *error) {
    gw_endpoint read = {0};
    if (gw_le_get32(bytes + AT_RANK) >= (uint32_t)world) return wrong(error, "the rank");
    read.rank = (int)gw_le_get32(bytes + AT_RANK);
    read.pid = gw_le_get32(bytes + AT_PID);
    if (read.pid == 0 || read.pid > INT32_MAX) return wrong(error, "the process id");
    read.started = gw_le_get64(bytes + AT_STARTED);
    if (!gw_address_read(&read.address, bytes + AT_ADDRESS)) return wrong(error, "the address");
    if (!printable(bytes + AT_HOST, GW_ENDPOINT_HOST)) return wrong(error, "the host name");
    if (!hexadecimal(bytes + AT_IDENTITY, GW_ENDPOINT_IDENTITY)) return wrong(error, "the host identity");
    memcpy(read.host, bytes + AT_HOST, GW_ENDPOINT_HOST);
    memcpy(read.identity, bytes + AT_IDENTITY, GW_ENDPOINT_IDENTITY);
    memcpy(read.public_key, bytes + AT_PUBLIC_KEY, GW_KEY_BYTES);
    memcpy(read.transport, bytes + AT_TRANSPORT, GW_ENDPOINT_TRANSPORT_BYTES);
    *endpoint = read;
    return GW_OK;
}

void gw_reply_write(const gw_reply *reply, uint8_t bytes[GW_REPLY_BYTES]) {
    gw_le_put(bytes, REPLY_MAGIC, 4);
    gw_le_put(bytes + 4, (uint32_t)reply->status, 4);
    gw_le_put(bytes + 8, (uint32_t)(reply->rank + 1), 4);
    gw_le_put(bytes + 12, reply->length, 4);
}

gw_status gw_reply_read(gw_reply *reply, const uint8_t bytes[GW_REPLY_BYTES], int world, gw_error *error) {
    uint32_t status = gw_le_get32(bytes + 4), blamed = gw_le_get32(bytes + 8), length = gw_le_get32(bytes + 12);
    if (gw_le_get32(bytes) != REPLY_MAGIC) return wrong(error, "the magic");
    if (status > GW_ABORTED) return wrong(error, "the status");
    if (blamed > GW_WORLD_MAX) return wrong(error, "the rank to blame");
    bool table = status == GW_OK;
    if (table ? length != (uint64_t)world * GW_ENDPOINT_BYTES : length == 0 || length >= GW_ERROR_TEXT_BYTES)
        return wrong(error, "the length");
    *reply = (gw_reply){.status = (gw_status)status, .rank = (int)blamed - 1, .length = length};
    return GW_OK;
}

static gw_status read_sentence(const gw_reply *reply, const uint8_t *body, gw_error *error) {
    uint8_t text[GW_ERROR_TEXT_BYTES] = {0};
    assert(reply->length < sizeof text);
    memcpy(text, body, reply->length);
    if (!printable(text, sizeof text)) return wrong(error, "the sentence");
    return gw_fail_rank(error, reply->status, reply->rank, "%s", (const char *)text);
}

gw_status gw_reply_body_read(const gw_reply *reply, const uint8_t *body, int world, gw_endpoint *all, gw_error *error) {
    if (reply->status != GW_OK) return read_sentence(reply, body, error);
    for (int rank = 0; rank < world; rank++) {
        gw_status status = gw_endpoint_read(&all[rank], body + (size_t)rank * GW_ENDPOINT_BYTES, world, error);
        if (status != GW_OK) return status;
        if (all[rank].rank != rank) return wrong(error, "the order of ranks");
    }
    return GW_OK;
}
