/* test_untrusted_pages.c - ranks of a host that write nonsense into shared memory: what they say is refused with a
 * sentence, and no other rank crashes, hangs, or reaches memory that is not shared. */
#include "free_port.h"
#include "gradwire.h"
#include "ranks.h"
#include "shm/shm_coll_internal.h"

#include <fcntl.h>
#include <sys/prctl.h>

#define KEY 7
#define ELEMENTS ((size_t)1 << 18)

/* Two ranks in this process. Rank 1 is the liar: the test writes what it says. */
typedef struct pair {
    gw_peer_map *maps[2];
    gw_shm_coll *colls[2];
    float *shared, *own; /* of rank 0 */
    gw_shm_coll_op op;
    gw_error error;
} pair;

static void open_maps(pair *p) {
    *p = (pair){0};
    for (int r = 0; r < 2; r++) CHECK_EQ(GW_OK, gw_peer_map_open(&p->maps[r], r, 2, 4096, &p->error));
    for (int r = 0; r < 2; r++) {
        uint8_t endpoint[GW_SHM_ENDPOINT_BYTES];
        gw_peer_map_endpoint(p->maps[1 - r], endpoint);
        CHECK_EQ(GW_OK, gw_peer_map_attach(p->maps[r], 1 - r, endpoint, &p->error));
    }
    CHECK_STR("", p->error.text);
}

static void open_pair(pair *p) {
    const int members[2] = {0, 1};
    bool attached[2] = {false, false};
    open_maps(p);
    for (int r = 0; r < 2; r++)
        CHECK_EQ(GW_OK, gw_shm_coll_open(&p->colls[r], p->maps[r], members, 2, r, KEY, &p->error));
    for (int turn = 0; turn < 4; turn++)
        CHECK_EQ(GW_OK, gw_shm_coll_attach(p->colls[turn % 2], &attached[turn % 2], &p->error));
    CHECK(attached[0] && attached[1]);
    p->shared = gw_peer_map_share(p->maps[0], ELEMENTS * sizeof(float), 0, true, &p->error);
    p->own = calloc(ELEMENTS, sizeof(float));
}

static void close_pair(pair *p) {
    for (int r = 0; r < 2; r++) gw_shm_coll_close(p->colls[r]);
    for (int r = 0; r < 2; r++) gw_peer_map_close(p->maps[r]);
    free(p->own);
}

/* Rank 0 starts an all-reduce in its shared or private memory. */
static void start(pair *p, size_t count, bool shared) {
    float *memory = shared ? p->shared : p->own;
    p->op = (gw_shm_coll_op){.task = GW_SHM_TASK_ALLREDUCE, .number = 1, .signature = {5, 6}, .in = memory,
                             .out = memory, .count = count, .reduction = {.dtype = GW_F32, .op = GW_SUM, .world = 2}};
    gw_shm_coll_start(p->colls[0], &p->op);
}

/* Rank 1 arrives with the same call, and with what it says of its buffers. */
static void arrive(pair *p, gw_shm_ref in, gw_shm_ref out) {
    coll_entry *entry = coll_entry_of(p->colls[1], 0, 1);
    memcpy(entry->call.signature, p->op.signature, sizeof entry->call.signature);
    entry->call.in = in;
    entry->call.out = out;
    atomic_store(&entry->arrived, 1);
}

/* Rank 0 polls a few times. Each poll returns. */
static gw_status poll_some(pair *p) {
    uint64_t completed = 0;
    gw_status status = GW_OK;
    for (int i = 0; i < 100 && !status && !completed; i++)
        status = gw_shm_coll_poll(p->colls[0], &completed, NULL, &p->error);
    return status;
}

static void expect_refused(pair *p, int rank, const char *sentence) {
    CHECK_EQ(GW_PROTOCOL, poll_some(p));
    CHECK_EQ(rank, p->error.rank);
    if (!strstr(p->error.text, sentence)) CHECK_STR(sentence, p->error.text);
    close_pair(p);
}

static void a_page_of_another_size_is_refused(void) {
    gw_peer_map *maps[2];
    gw_error error = {0};
    uint8_t endpoint[GW_SHM_ENDPOINT_BYTES];
    CHECK_EQ(GW_OK, gw_peer_map_open(&maps[0], 0, 2, 8 << 20, &error));
    CHECK_EQ(GW_OK, gw_peer_map_open(&maps[1], 1, 2, 4096, &error));
    gw_peer_map_endpoint(maps[1], endpoint);
    CHECK_EQ(GW_PROTOCOL, gw_peer_map_attach(maps[0], 1, endpoint, &error));
    CHECK_EQ(1, error.rank);
    CHECK(strstr(error.text, "no shared memory with rank 1: its shared page") && strstr(error.text, "bytes"));
    for (int r = 0; r < 2; r++) gw_peer_map_close(maps[r]);
}

/* The doorbell names a file of this user: nothing is written to it. */
static void a_doorbell_that_is_no_pipe_is_refused(void) {
    gw_peer_map *maps[2];
    gw_error error = {0};
    uint8_t endpoint[GW_SHM_ENDPOINT_BYTES];
    char held[8] = {0};
    int32_t file = memfd_create("file", MFD_CLOEXEC);
    CHECK(write(file, "content", 7) == 7);
    for (int r = 0; r < 2; r++) CHECK_EQ(GW_OK, gw_peer_map_open(&maps[r], r, 2, 4096, &error));
    gw_peer_map_endpoint(maps[1], endpoint);
    memcpy(endpoint + 12, &file, sizeof file);
    CHECK_EQ(GW_PROTOCOL, gw_peer_map_attach(maps[0], 1, endpoint, &error));
    CHECK(strstr(error.text, "is not a pipe"));
    gw_peer_map_set_sleeping(maps[1], true);
    gw_peer_map_wake(maps[0], 1);
    CHECK(pread(file, held, 7, 0) == 7);
    CHECK_STR("content", held);
    for (int r = 0; r < 2; r++) gw_peer_map_close(maps[r]);
    close(file);
}

/* Peers can write the owner's table: the owner does not read it. */
static void an_owner_trusts_itself(void) {
    pair p;
    gw_shm_ref before, after;
    open_pair(&p);
    CHECK(gw_peer_map_find(p.maps[0], p.shared, 64, &before));
    gw_peer_map_page *page = p.maps[1]->peers[0].page;
    memset((void *)&page->table[before.id], 0xff, sizeof page->table[0]);
    atomic_store(&page->entries, UINT32_MAX);
    CHECK(gw_peer_map_find(p.maps[0], p.shared, 64, &after));
    CHECK(before.id == after.id && before.version == after.version);
    CHECK(!gw_peer_map_find(p.maps[0], &p, 64, &after));
    close_pair(&p);
}

static int mappings_of(const gw_peer_map *map, int peer, uint32_t id) {
    int count = 0;
    for (const gw_mapping *m = map->peers[peer].mappings[id]; m; m = m->next) count++;
    return count;
}

/* A peer that renames its memory again and again, and does not count the changes, fills no address space. */
static void renamed_memory_does_not_pile_up(void) {
    pair p;
    gw_shm_ref where;
    open_maps(&p);
    void *theirs = gw_peer_map_share(p.maps[1], 4096, 0, true, &p.error);
    CHECK(gw_peer_map_find(p.maps[1], theirs, 64, &where));
    for (int i = 0; i < 100; i++) {
        gw_mapping *mapping = gw_peer_map_pin(p.maps[0], 1, where, &p.error);
        CHECK(mapping != NULL);
        gw_peer_map_unpin(mapping);
        where.version += 2;
        atomic_store(&p.maps[1]->page->table[where.id].version, where.version);
    }
    CHECK_EQ(1, mappings_of(p.maps[0], 1, where.id));
    close_pair(&p);
}

static void a_member_that_does_not_exist_cannot_give_up(void) {
    pair p;
    open_pair(&p);
    start(&p, 64, true);
    atomic_store(&p.colls[1]->page->aborted, 1000);
    expect_refused(&p, -1, "a rank of this host wrote 1000 where the member that gave up belongs");
}

static void an_input_is_needed(void) {
    pair p;
    open_pair(&p);
    start(&p, ELEMENTS, true);
    arrive(&p, (gw_shm_ref){.version = COLL_NOT_NEEDED}, (gw_shm_ref){.version = COLL_NOT_NEEDED});
    expect_refused(&p, 1, "rank 1 published no buffer for operation 1");
}

static void a_buffer_lies_in_its_segment(void) {
    const uint64_t offsets[] = {ELEMENTS * sizeof(float), 4096, UINT64_MAX, (uint64_t)1 << 63};
    for (size_t i = 0; i < sizeof offsets / sizeof offsets[0]; i++) {
        pair p;
        gw_shm_ref where;
        open_pair(&p);
        void *theirs = gw_peer_map_share(p.maps[1], ELEMENTS * sizeof(float), 0, true, &p.error);
        CHECK(gw_peer_map_find(p.maps[1], theirs, 64, &where));
        start(&p, ELEMENTS, true);
        where.offset = offsets[i];
        arrive(&p, where, where);
        expect_refused(&p, 1, "rank 1 published a buffer that does not lie in its shared memory");
    }
}

/* The liar writes over the call that rank 0 has published itself: that all data is in the slots. */
static void the_own_call_is_not_read_back(void) {
    pair p;
    const gw_shm_ref in_slot = {.id = COLL_FITS_SLOTS};
    open_pair(&p);
    start(&p, ELEMENTS, false);
    coll_entry *own = coll_entry_of(p.colls[1], 0, 0);
    own->call.in = in_slot;
    own->call.out = (gw_shm_ref){0};
    arrive(&p, in_slot, (gw_shm_ref){0});
    for (int m = 0; m < 2; m++) atomic_store(&coll_entry_of(p.colls[1], 0, m)->served, 1);
    CHECK_EQ(GW_OK, poll_some(&p));
    CHECK_EQ(COLL_STAGED, p.colls[0]->mode);
    close_pair(&p);
}

/* Rank 0 seems to have filled more windows than there are, and everybody to have reduced and drained any number. */
static void the_own_counters_are_not_read_back(void) {
    pair p;
    open_pair(&p);
    start(&p, ELEMENTS, false);
    arrive(&p, (gw_shm_ref){0}, (gw_shm_ref){0});
    for (int m = 0; m < 2; m++) {
        const uint64_t words[] = {0, 1000, UINT64_MAX, UINT64_MAX};
        memcpy((void *)&p.colls[1]->progress[m], words, sizeof words);
    }
    CHECK_EQ(GW_OK, poll_some(&p));
    close_pair(&p);
}

/* ---- a liar in a real job: rank 2 joins, then writes into all shared memory that it can reach ---- */

enum { JOBS = 8, AT_ONCE = 4, RANKS = 3, REGIONS = 64 };
#define LIE_NS (1500 * GW_MILLISECOND)

typedef struct region {
    uint8_t *at;
    size_t bytes;
} region;

static int liar_port, liar_seed;

/* Shared segments in this process: its own page, those of its peers, host-local collectives, buffers. */
static int find_regions(region *regions) {
    FILE *maps = fopen("/proc/self/maps", "re");
    char line[512];
    int count = 0;
    while (maps && count < REGIONS && fgets(line, sizeof line, maps)) {
        unsigned long from, to;
        if (!strstr(line, "memfd:gradwire") || sscanf(line, "%lx-%lx rw-s", &from, &to) != 2) continue;
        regions[count++] = (region){(uint8_t *)(uintptr_t)from, to - from};
    }
    if (maps) fclose(maps);
    return count;
}

static uint64_t next_random(uint64_t *state) {
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return *state >> 24;
}

/* Numbers near those that are there, and those that overflow. */
static uint64_t lie(uint64_t *state, uint64_t before) {
    static const uint64_t nasty[] = {0, 1, 2, 3, 1000, 1 << 20, INT32_MAX, UINT32_MAX, UINT64_MAX, (uint64_t)1 << 63};
    uint64_t draw = next_random(state);
    if (draw % 4 == 0) return before + draw / 4 % 7 - 3;
    if (draw % 4 == 1) return before ^ (uint64_t)1 << draw / 4 % 64;
    if (draw % 4 == 2) return draw << 17 ^ draw;
    return nasty[draw / 4 % (sizeof nasty / sizeof nasty[0])];
}

static void write_lies(const region *regions, int count, uint64_t *state) {
    for (int i = 0; i < 64; i++) {
        const region *r = &regions[next_random(state) % (uint64_t)count];
        size_t reach = next_random(state) % 8 ? 80 << 10 : 4 << 20, most = reach < r->bytes ? reach : r->bytes;
        uint8_t *at = r->at + next_random(state) % (most / 8) * 8;
        uint64_t before, word;
        memcpy(&before, at, sizeof before);
        word = lie(state, before);
        memcpy(at, &word, next_random(state) % 2 ? 8 : 4);
    }
    usleep((useconds_t)(next_random(state) % 300));
}

static void be_the_liar(void) {
    region regions[REGIONS];
    uint64_t state = (uint64_t)liar_seed * 977 + 1;
    int count = find_regions(regions);
    CHECK(count > 0);
    usleep((useconds_t)(next_random(&state) % 20000)); /* some collectives go well */
    for (gw_time end = gw_clock_now() + LIE_NS; count && gw_clock_now() < end;) write_lies(regions, count, &state);
    _exit(test_failures != 0); /* its own library may be broken now */
}

/* Collectives and messages among all, until one fails. */
static void be_honest(gw_comm *comm, int rank) {
    static const size_t counts[] = {8, 3000, 40000, 200000};
    static float in[200000], out[200000];
    float *shared = gw_alloc(comm, sizeof in);
    gw_status status = GW_OK;
    for (gw_time end = gw_clock_now() + LIE_NS; shared && !status && gw_clock_now() < end;)
        for (size_t i = 0; i < 4 && !status; i++) {
            status = gw_allreduce(comm, in, out, counts[i], GW_F32, GW_SUM);
            if (!status) status = gw_allreduce(comm, shared, shared, counts[i], GW_F32, GW_SUM);
            if (!status) status = gw_broadcast(comm, shared, shared, counts[i], GW_F32, 0);
            if (!status && rank == 0) status = gw_send(comm, shared, counts[i], GW_F32, 1);
            if (!status && rank == 1) status = gw_recv(comm, out, counts[i], GW_F32, 0);
        }
    if (status && !*gw_last_error(comm)) CHECK(!"an error without a sentence");
}

static void liars_job(int rank) {
    gw_comm *comm = NULL;
    gw_options options = GW_OPTIONS_DEFAULT;
    options.rank = rank;
    options.world = RANKS;
    options.master_port = liar_port;
    options.strategy = "transport=shm";
    options.token = "a token for the tests";
    options.deadline_s = 3;
    alarm(60);
    CHECK_EQ(GW_OK, gw_init(&comm, &options));
    if (!comm) return;
    float one = 1;
    CHECK_EQ(GW_OK, gw_allreduce(comm, &one, &one, 1, GW_F32, GW_SUM));
    if (rank == RANKS - 1) be_the_liar();
    be_honest(comm, rank);
    gw_finalize(comm);
}

/* The liar may break itself. */
static void run_liars_job(int seed) {
    pid_t pids[RANKS];
    liar_port = free_port();
    liar_seed = seed;
    setenv("GRADWIRE_LOG", "error", 1);
    for (int r = 0; r < RANKS; r++) {
        pids[r] = fork();
        if (pids[r]) continue;
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        liars_job(r);
        exit(test_failures != 0);
    }
    int result = 0;
    for (int r = 0; r < RANKS; r++) {
        waitpid(pids[r], &result, 0);
        if (r < RANKS - 1 && result) printf("    seed %d: rank %d ended with %#x\n", seed, r, result);
        if (r < RANKS - 1) CHECK_EQ(0, result);
    }
}

static void a_liar_in_a_job_harms_no_other_rank(void) {
    pid_t jobs[AT_ONCE];
    char folder[] = "/tmp/gw-liar-XXXXXX", command[64];
    CHECK(mkdtemp(folder) != NULL);
    setenv("GRADWIRE_FLIGHT_DIR", folder, 1);
    fflush(stdout);
    for (int j = 0; j < AT_ONCE; j++) {
        jobs[j] = fork();
        if (jobs[j]) continue;
        test_failures = 0;
        for (int seed = j; seed < JOBS; seed += AT_ONCE) run_liars_job(seed);
        fflush(stdout);
        _exit(test_failures != 0);
    }
    for (int j = 0; j < AT_ONCE; j++) {
        int result = -1;
        waitpid(jobs[j], &result, 0);
        CHECK_EQ(0, result);
    }
    snprintf(command, sizeof command, "rm -r %s", folder);
    CHECK_EQ(0, system(command));
}

#if RANKS_ARE_THREADS /* the thread sanitizer sees lies as races */
TEST_MAIN(CASE(a_page_of_another_size_is_refused))
#else
TEST_MAIN(CASE(a_page_of_another_size_is_refused), CASE(a_doorbell_that_is_no_pipe_is_refused),
          CASE(an_owner_trusts_itself), CASE(renamed_memory_does_not_pile_up),
          CASE(a_member_that_does_not_exist_cannot_give_up), CASE(an_input_is_needed),
          CASE(a_buffer_lies_in_its_segment), CASE(the_own_call_is_not_read_back),
          CASE(the_own_counters_are_not_read_back), CASE(a_liar_in_a_job_harms_no_other_rank))
#endif
