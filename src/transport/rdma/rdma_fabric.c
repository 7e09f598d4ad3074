/* rdma_fabric.c - see rdma_fabric.h. */
#include "transport/rdma/rdma_fabric.h"

#include "transport/library_sockets.h"
#include "transport/rdma/rdma_libfabric_locks.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define API FI_VERSION(1, 11)
#define RECEIVES 128 /* posted at most */

/* In the order in which auto tries them. auto never takes shm, which reaches one host only. */
static const struct {
    const char *name, *own_name;
    bool automatic, speaks_ip;
} known[] = {
    {"verbs", "verbs;ofi_rxm", true, true}, {"efa", "efa", true, false}, {"psm3", "psm3", true, false},
    {"psm2", "psm2", true, false},          {"opx", "opx", true, false}, {"tcp", "tcp;ofi_rxm", true, true},
    {"shm", "shm", false, false},
};
enum { KNOWN = sizeof known / sizeof known[0] };

static struct fi_info *demands(const gw_rdma_library *library, const char *own_name, const gw_rdma_strict *strict) {
    struct fi_info *hints = library->dupinfo(NULL);
    if (!hints) return NULL;
    hints->caps = FI_MSG | FI_RMA;
    hints->mode = FI_CONTEXT | FI_CONTEXT2 | FI_RX_CQ_DATA;
    hints->ep_attr->type = FI_EP_RDM;
    hints->domain_attr->threading = FI_THREAD_DOMAIN;
    hints->domain_attr->control_progress = FI_PROGRESS_MANUAL;
    hints->domain_attr->data_progress = FI_PROGRESS_MANUAL;
    hints->domain_attr->mr_mode = FI_MR_LOCAL | FI_MR_ALLOCATED | FI_MR_VIRT_ADDR | FI_MR_PROV_KEY | FI_MR_ENDPOINT;
    if (strict->basic) hints->domain_attr->mr_mode = FI_MR_BASIC;
    hints->fabric_attr->prov_name = strdup(own_name);
    return hints;
}

/* 0, or libfabric's error. Asks for the job's interface where the provider speaks IP. An RDMA port with an address of
 * another network is accepted too; a socket of the tcp provider is not. */
static int look_for(const gw_rdma_library *library, int which, const gw_rdma_strict *strict, const gw_address *address,
                    struct fi_info **info) {
    struct fi_info *hints = demands(library, known[which].own_name, strict);
    char host[GW_ADDRESS_TEXT];
    int result = -FI_ENODATA;
    if (!hints) return -FI_ENOMEM;
    bool here = address && known[which].speaks_ip;
    if (here) result = library->getinfo(API, gw_address_host_text(address, host), NULL, FI_SOURCE, hints, info);
    if (result && !(here && strcmp(known[which].name, "tcp") == 0))
        result = library->getinfo(API, NULL, NULL, 0, hints, info);
    library->freeinfo(hints);
    return result;
}

static gw_status find(gw_rdma_fabric *f, const gw_rdma_options *o, gw_error *error) {
    bool automatic = strcmp(o->provider, "auto") == 0;
    int result = -FI_ENODATA;
    for (int i = 0; i < KNOWN && result; i++) {
        if (automatic ? !known[i].automatic : strcmp(o->provider, known[i].name) != 0) continue;
        result = look_for(&f->library, i, &o->strict, o->address, &f->info);
    }
    if (result == 0) return GW_OK;
    f->info = NULL;
    return gw_fail(error, GW_UNSUPPORTED,
                   "rdma: libfabric has no provider \"%s\" that works here (%s); choose another: provider=tcp",
                   o->provider, f->library.strerror(-result));
}

static size_t smaller(size_t a, size_t b) { return a < b ? a : b; }

/* Over tcp;ofi_rxm immediate data must not go through libfabric: rdma_immediate.c says why. */
static void avoid_rxm_immediate(gw_rdma_fabric *f, const gw_rdma_strict *strict) {
    const struct fi_tx_attr *tx = f->info->tx_attr;
    if (strncmp(f->name, "tcp;", 4) != 0) return;
    f->in_order = (tx->msg_order & f->info->rx_attr->msg_order & FI_ORDER_SAW) && !strict->unordered;
    f->stamps = f->in_order && f->immediate_bytes && tx->iov_limit >= 2 && tx->rma_iov_limit >= 2;
    f->immediate_bytes = f->stamps ? 8 : 0;
}

static void read_demands(gw_rdma_fabric *f, const gw_rdma_strict *strict) {
    const struct fi_info *info = f->info;
    int mode = info->domain_attr->mr_mode;
    bool basic = mode == FI_MR_BASIC;
    snprintf(f->name, sizeof f->name, "%s", info->fabric_attr->prov_name);
    f->virtual_addresses = basic || (mode & FI_MR_VIRT_ADDR);
    f->provider_keys = basic || (mode & FI_MR_PROV_KEY);
    f->register_local = (mode & FI_MR_LOCAL) || strict->local;
    f->bind_memory = mode & FI_MR_ENDPOINT;
    f->pinned = basic || (mode & FI_MR_ALLOCATED) || strict->pinned;
    f->takes_receive = (info->mode | info->rx_attr->mode) & FI_RX_CQ_DATA;
    f->may_wait = !strict->no_wait;
    f->immediate_bytes = info->domain_attr->cq_data_size >= 8 ? 8 : info->domain_attr->cq_data_size >= 4 ? 4 : 0;
    if (strict->immediate_bytes && strict->immediate_bytes < f->immediate_bytes)
        f->immediate_bytes = strict->immediate_bytes < 0 ? 0 : strict->immediate_bytes;
    f->message_max = info->ep_attr->max_msg_size;
    if (strict->message_max) f->message_max = smaller(f->message_max, strict->message_max);
    f->inject_max = info->tx_attr->inject_size;
    f->receives = (int)smaller(RECEIVES, info->rx_attr->size ? info->rx_attr->size : RECEIVES);
    avoid_rxm_immediate(f, strict);
}

static gw_status refuse(const gw_rdma_fabric *f, const char *what, int result, gw_error *error) {
    return gw_fail(error, GW_SYSTEM, "rdma: provider %s: %s: %s", f->name, what, f->library.strerror(-result));
}

gw_status gw_rdma_fabric_open(gw_rdma_fabric *f, const gw_rdma_options *options, gw_error *error) {
    *f = (gw_rdma_fabric){.wait_fd = -1};
    /* Copies through shared memory are two and a half times as fast as CMA (4 MiB over two ranks: 1.1 against 2.8 ms).
     * This provider reads the setting only from the environment; a value that the user has set has precedence. */
    if (strcmp(options->provider, "shm") == 0) setenv("FI_SHM_DISABLE_CMA", "1", 0);
    gw_status status = gw_rdma_library_load(&f->library, error);
    if (!status && strcmp(options->provider, "shm") == 0) status = gw_rdma_locks_redirect(f->library.handle, error);
    if (!status) status = find(f, options, error);
    if (status) return status;
    read_demands(f, &options->strict);
    int result = 0;
    if (f->info->domain_attr->mr_key_size > 8 || f->message_max < GW_RDMA_MESSAGE_BYTES)
        status = gw_fail(error, GW_UNSUPPORTED,
                         "rdma: provider %s has keys of %zu bytes and messages of %zu bytes at "
                         "most; 8 or less and %d or more are needed",
                         f->name, f->info->domain_attr->mr_key_size, f->message_max, GW_RDMA_MESSAGE_BYTES);
    if (!status && (result = f->library.fabric(f->info->fabric_attr, &f->fabric, NULL)))
        status = refuse(f, "its fabric cannot be opened", result, error);
    if (!status && (result = fi_domain(f->fabric, f->info, &f->domain, NULL)))
        status = refuse(f, "its domain cannot be opened", result, error);
    if (status) gw_rdma_fabric_close(f);
    return status;
}

static int open_completions(gw_rdma_fabric *f) {
    struct fi_cq_attr attributes = {.format = FI_CQ_FORMAT_DATA, .wait_obj = FI_WAIT_FD};
    f->wait_fd = -1;
    if (f->may_wait && fi_cq_open(f->domain, &attributes, &f->completions, NULL) == 0) {
        if (fi_control(&f->completions->fid, FI_GETWAIT, &f->wait_fd) == 0) return 0;
        fi_close(&f->completions->fid);
        f->completions = NULL;
        f->wait_fd = -1;
    }
    attributes.wait_obj = FI_WAIT_NONE;
    return fi_cq_open(f->domain, &attributes, &f->completions, NULL);
}

static int open_endpoint(gw_rdma_fabric *f) {
    struct fi_av_attr addresses = {.type = f->info->domain_attr->av_type};
    int result = open_completions(f);
    if (addresses.type == FI_AV_UNSPEC) addresses.type = FI_AV_TABLE;
    if (!result) result = fi_av_open(f->domain, &addresses, &f->peers, NULL);
    if (!result) result = fi_endpoint(f->domain, f->info, &f->endpoint, NULL);
    if (!result) result = fi_ep_bind(f->endpoint, &f->peers->fid, 0);
    if (!result) result = fi_ep_bind(f->endpoint, &f->completions->fid, FI_TRANSMIT | FI_RECV);
    return result ? result : fi_enable(f->endpoint);
}

static bool is_mapped(const char *name) {
    char line[512];
    bool found = false;
    FILE *maps = fopen("/proc/self/maps", "re");
    while (maps && !found && fgets(line, sizeof line, maps)) found = strstr(line, name) != NULL;
    if (maps) fclose(maps);
    return found;
}

/* Removes segments of a killed process that had our pid: libfabric would take them for ours and refuse to open another.
 * Segments of this process are mapped, and stay. */
static void sweep(void) {
    char own[16];
    int length = snprintf(own, sizeof own, "%d:", (int)getpid());
    DIR *folder = opendir("/dev/shm");
    for (struct dirent *entry; folder && (entry = readdir(folder));)
        if (strncmp(entry->d_name, own, (size_t)length) == 0 && !is_mapped(entry->d_name)) shm_unlink(entry->d_name);
    if (folder) closedir(folder);
}

gw_status gw_rdma_fabric_start(gw_rdma_fabric *f, gw_error *error) {
    if (strcmp(f->name, "shm") == 0) sweep();
    int result = open_endpoint(f);
    f->address_bytes = sizeof f->address;
    if (!result) result = fi_getname(&f->endpoint->fid, f->address, &f->address_bytes);
    if (!result) return GW_OK;
    gw_rdma_fabric_stop(f);
    return refuse(f, "its endpoint cannot be opened", result, error);
}

void gw_rdma_fabric_leave_bbr(const gw_rdma_fabric *f, const void *address, size_t bytes, bool own) {
    gw_address where = {0};
    if (strncmp(f->name, "tcp", 3) != 0 || bytes > sizeof where) return;
    memcpy(&where, address, bytes);
    gw_library_sockets_leave_bbr(&where, own);
}

void gw_rdma_fabric_unlink(const gw_rdma_fabric *f, const void *address, size_t bytes) {
    static const char prefix[] = "fi_shm://";
    char name[GW_RDMA_ADDRESS_BYTES + 1];
    if (strcmp(f->name, "shm") != 0 || bytes >= sizeof name) return;
    memcpy(name, address, bytes);
    name[bytes] = '\0';
    if (strncmp(name, prefix, sizeof prefix - 1) == 0) shm_unlink(name + sizeof prefix - 1);
}

void gw_rdma_fabric_stop(gw_rdma_fabric *f) {
    if (f->endpoint) fi_close(&f->endpoint->fid);
    if (f->peers) fi_close(&f->peers->fid);
    if (f->completions) fi_close(&f->completions->fid);
    f->endpoint = NULL;
    f->peers = NULL;
    f->completions = NULL;
    f->wait_fd = -1;
}

void gw_rdma_fabric_close(gw_rdma_fabric *f) {
    gw_rdma_fabric_stop(f);
    if (f->domain) fi_close(&f->domain->fid);
    if (f->fabric) fi_close(&f->fabric->fid);
    if (f->info) f->library.freeinfo(f->info);
    *f = (gw_rdma_fabric){.wait_fd = -1};
}

/* ---- for the doctor ---- */

/* Domains, each once, with commas. */
static void list_domains(const struct fi_info *info, char *text, size_t room) {
    size_t used = 0;
    text[0] = '\0';
    for (const struct fi_info *one = info; one && used < room; one = one->next) {
        const char *name = one->domain_attr->name;
        bool again = false;
        for (const struct fi_info *before = info; before != one; before = before->next)
            again = again || strcmp(before->domain_attr->name, name) == 0;
        if (!again) used += (size_t)snprintf(text + used, room - used, "%s%s", used ? ", " : "", name);
    }
}

int gw_rdma_providers(gw_rdma_provider list[GW_RDMA_PROVIDERS_MAX], gw_error *error) {
    gw_rdma_library library;
    if (gw_rdma_library_load(&library, error) != GW_OK) return 0;
    for (int i = 0; i < KNOWN; i++) {
        struct fi_info *info = NULL;
        int result = look_for(&library, i, &(gw_rdma_strict){0}, NULL, &info);
        list[i] = (gw_rdma_provider){.name = known[i].name, .own_name = known[i].own_name, .usable = result == 0};
        if (!result) list_domains(info, list[i].detail, sizeof list[i].detail);
        else if (result == -FI_ENODATA) strcpy(list[i].detail, "no device, or not in this libfabric");
        else snprintf(list[i].detail, sizeof list[i].detail, "%s", library.strerror(-result));
        if (info) library.freeinfo(info);
    }
    return KNOWN;
}
