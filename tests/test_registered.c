/* test_registered.c - gw_register: every collective on registered memory gives the bits that it gives on memory of
 * gw_alloc, wherever the memory begins and ends; what cannot be registered is refused; and what happens to the memory
 * otherwise: realloc, free, fork, exec, threads, the end of the job. */
#include "small_job.h"

#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/syscall.h>

#define PAGE 4096
#define LARGE ((size_t)8 << 20) /* malloc maps it */

static int port;

static gw_comm *join(int rank, int world) {
    gw_comm *comm = NULL;
    gw_options options = job_options(rank, world, port, "transport=shm");
    CHECK_EQ(GW_OK, gw_init(&comm, &options));
    return comm;
}

static void run(int world, void (*body)(int rank)) {
    port = free_port();
    job_fork(world, body);
}

/* ---- values ---- */

enum { WORLD = 2 };

static void fill(float *values, size_t count, int rank, int salt) {
    for (size_t i = 0; i < count; i++) values[i] = (float)((i * 7 + (size_t)salt) % 1000) * .37f + (float)rank;
    if (count > 5) ((uint32_t *)values)[5] = 0x7fc01234u; /* a NaN */
}

/* Calls a collective on `count` elements of each rank: `in` and `out` have room for all ranks. */
static gw_status call(gw_comm *comm, gw_collective what, const float *in, float *out, size_t count) {
    gw_call c = GW_CALL_DEFAULT;
    c.collective = what;
    c.in = in;
    c.out = out;
    c.count = count;
    c.root = what == GW_COLL_BROADCAST || what == GW_COLL_REDUCE || what == GW_COLL_GATHER || what == GW_COLL_SCATTER;
    return gw_run(comm, &c);
}

static const gw_collective collectives[] = {GW_COLL_ALLREDUCE, GW_COLL_REDUCE_SCATTER, GW_COLL_ALLGATHER,
                                            GW_COLL_REDUCE,    GW_COLL_BROADCAST,      GW_COLL_GATHER,
                                            GW_COLL_SCATTER,   GW_COLL_ALLTOALL};

/* One call on memory [in, out] and the same on the reference's; results are compared bit by bit. */
static void compare(gw_comm *comm, float *memory, float *reference, size_t count, gw_collective what, bool in_place) {
    float *in = memory, *out = in_place ? memory : memory + WORLD * count;
    float *ref_in = reference, *ref_out = in_place ? reference : reference + WORLD * count;
    int salt = (int)what;
    fill(memory, 2 * WORLD * count, gw_rank(comm), salt);
    fill(reference, 2 * WORLD * count, gw_rank(comm), salt);
    CHECK_EQ(GW_OK, call(comm, what, in, out, count));
    CHECK_EQ(GW_OK, call(comm, what, ref_in, ref_out, count));
    CHECK(memcmp(memory, reference, 2 * WORLD * count * sizeof *memory) == 0);
}

static bool can_be_in_place(gw_collective what) { return what == GW_COLL_ALLREDUCE || what == GW_COLL_BROADCAST; }

static void compare_all(gw_comm *comm, float *memory, float *reference, size_t count) {
    for (size_t c = 0; c < sizeof collectives / sizeof *collectives; c++) {
        compare(comm, memory, reference, count, collectives[c], false);
        if (can_be_in_place(collectives[c])) compare(comm, memory, reference, count, collectives[c], true);
    }
}

/* registers: bits of the ranks that do. */
static void compare_at(gw_comm *comm, size_t shift, size_t count, unsigned registers) {
    size_t bytes = 2 * WORLD * count * sizeof(float);
    uint8_t *base = NULL;
    CHECK_EQ(0, posix_memalign((void **)&base, PAGE, bytes + shift + PAGE));
    memset(base, 0x5a, bytes + shift + PAGE);
    float *memory = (float *)(base + shift), *reference = gw_alloc(comm, bytes);
    bool mine = registers >> gw_rank(comm) & 1;
    if (mine) CHECK_EQ(GW_OK, gw_register(comm, memory, bytes));
    compare_all(comm, memory, reference, count);
    if (count > 100) compare_all(comm, memory + 3, reference, count - 50); /* a part */
    for (size_t i = 0; i < shift; i++) CHECK(base[i] == 0x5a);
    for (size_t i = 0; i < PAGE; i++) CHECK(base[shift + bytes + i] == 0x5a);
    if (mine) CHECK_EQ(GW_OK, gw_unregister(comm, memory));
    compare_all(comm, memory, reference, count);
    gw_free(comm, reference);
    free(base);
}

static void values_of_rank(int rank) {
    static const size_t shifts[] = {0, 4, 16, 64, 2048, 4092}, counts[] = {600, 1024, 3000, 30011, 200000};
    gw_comm *comm = join(rank, WORLD);
    for (size_t s = 0; comm && s < 6; s++)
        for (size_t c = 0; c < 5; c++) compare_at(comm, shifts[s], counts[c], 3);
    compare_at(comm, 16, 30011, 1);
    compare_at(comm, 16, 3001, 2);
    gw_finalize(comm);
}

static void values_are_those_of_gw_alloc(void) { run(WORLD, values_of_rank); }

/* Parts are claimed where ranks outnumber cores: any rank works on any part. */
static void claimed_of_rank(int rank) {
    gw_comm *comm = join(rank, 5);
    for (size_t count = 5000; comm && count < 700000; count *= 5) {
        float *block = malloc(2 * count * sizeof *block + 64), *values = block + 1;
        CHECK_EQ(GW_OK, gw_register(comm, values, 2 * count * sizeof *values));
        for (int turn = 0; turn < 8; turn++) {
            float *out = turn % 2 ? values : values + count;
            for (size_t i = 0; i < count; i++) values[i] = (float)((i + (size_t)turn) % 100) + (float)rank;
            CHECK_EQ(GW_OK, gw_allreduce(comm, values, out, count, GW_F32, GW_SUM));
            size_t wrong = 0;
            for (size_t i = 0; i < count; i++) wrong += out[i] != (float)((i + (size_t)turn) % 100) * 5 + 10;
            CHECK_EQ(0, wrong);
        }
        CHECK_EQ(GW_OK, gw_unregister(comm, values));
        free(block);
    }
    gw_finalize(comm);
}

static void claimed_parts_are_right(void) { run(5, claimed_of_rank); }

/* ---- refusals ---- */

static void refuse(gw_comm *comm, gw_status status, void *memory, size_t bytes, const char *why) {
    CHECK_EQ(status, gw_register(comm, memory, bytes));
    if (!strstr(gw_last_error(NULL), why)) CHECK_STR(why, gw_last_error(NULL));
    CHECK_EQ(GW_OK, gw_async_error(comm));
}

static void *map(int protection, int flags, int fd) { return mmap(NULL, 4 * PAGE, protection, flags, fd, 0); }

static void refused_of_rank(int rank) {
    static uint8_t initialised[4 * PAGE] = {1};
    uint8_t on_stack[4 * PAGE] = {0};
    gw_comm *comm = join(rank, WORLD);
    const int both = PROT_READ | PROT_WRITE, private = MAP_PRIVATE | MAP_ANONYMOUS;
    uint8_t *block = malloc(LARGE), *gap = map(both, private, -1);
    CHECK_EQ(GW_INVALID, gw_register(NULL, block, LARGE));
    refuse(comm, GW_INVALID, NULL, 5, "there is no memory");
    refuse(comm, GW_INVALID, block, 0, "there is no memory");
    refuse(comm, GW_INVALID, block, SIZE_MAX - 5, "no end");
    refuse(comm, GW_INVALID, (void *)(uintptr_t)0x10000, LARGE, "not memory of this process (is it of a device?)");
    refuse(comm, GW_UNSUPPORTED, block + 16, PAGE, "no whole page");
    refuse(comm, GW_UNSUPPORTED, initialised, sizeof initialised, "a mapping of a file");
    refuse(comm, GW_UNSUPPORTED, on_stack, sizeof on_stack, "on a stack");
    refuse(comm, GW_UNSUPPORTED, gw_alloc(comm, LARGE), LARGE, "shared memory already");
    refuse(comm, GW_UNSUPPORTED, map(PROT_READ, private, -1), 4 * PAGE, "read and written");
    refuse(comm, GW_UNSUPPORTED, map(both | PROT_EXEC, private, -1), 4 * PAGE, "executable");
    refuse(comm, GW_UNSUPPORTED, map(both, MAP_SHARED | MAP_ANONYMOUS, -1), 4 * PAGE, "shared memory already");
    int file = open("/proc/self/exe", O_RDONLY);
    refuse(comm, GW_UNSUPPORTED, map(both, MAP_PRIVATE, file), 4 * PAGE, "a mapping of a file");
    close(file);
    munmap(gap + PAGE, PAGE);
    refuse(comm, GW_INVALID, gap, 4 * PAGE, "not memory of this process");
    void *locked = map(both, private, -1);
    /* mlock itself does nothing under sanitizers */
    if (syscall(SYS_mlock, locked, 2 * PAGE) == 0)
        refuse(comm, GW_UNSUPPORTED, locked, 4 * PAGE, "it is locked (mlock)");
    CHECK_EQ(GW_OK, gw_register(comm, block, LARGE));
    refuse(comm, GW_UNSUPPORTED, block, LARGE, "shared memory already");
    refuse(comm, GW_UNSUPPORTED, block + LARGE / 2, LARGE / 4, "shared memory already");
    gw_free(comm, block); /* not from gw_alloc: nothing happens */
    CHECK_EQ(GW_INVALID, gw_unregister(comm, block + PAGE));
    CHECK(strstr(gw_last_error(NULL), "no registered memory begins there"));
    CHECK_EQ(GW_OK, gw_unregister(comm, block));
    CHECK_EQ(GW_INVALID, gw_unregister(comm, block));
    CHECK_EQ(GW_OK, gw_unregister(comm, NULL));
    int32_t one = 1, sum = 0;
    CHECK_EQ(GW_OK, gw_allreduce(comm, &one, &sum, 1, GW_I32, GW_SUM));
    CHECK_EQ(WORLD, sum);
    free(block);
    gw_finalize(comm);
}

static void what_cannot_be_is_refused(void) { run(WORLD, refused_of_rank); }

static void alone_it_does_nothing(void) {
    gw_comm *comm = NULL;
    gw_options options = job_options(0, 1, free_port(), NULL);
    int x;
    CHECK_EQ(GW_OK, gw_init(&comm, &options));
    CHECK_EQ(GW_OK, gw_register(comm, &x, sizeof x));
    CHECK_EQ(GW_OK, gw_unregister(comm, &x));
    gw_finalize(comm);
}

/* ---- the life of the memory ---- */

/* Whether a forked child's writes are seen here. */
static bool is_shared_with_children(volatile uint8_t *at) {
    uint8_t was = *at;
    pid_t child = fork();
    if (child == 0) {
        *at = (uint8_t)~was;
        _exit(0);
    }
    waitpid(child, NULL, 0);
    bool shared = *at != was;
    *at = was;
    return shared;
}

/* All-reduces ones in `in` to `out`, which may be the same. */
static void ones(gw_comm *comm, int32_t *in, int32_t *out, size_t count) {
    for (size_t i = 0; i < count; i++) in[i] = 1 + (int32_t)i % 50;
    CHECK_EQ(GW_OK, gw_allreduce(comm, in, out, count, GW_I32, GW_SUM));
    size_t wrong = 0;
    for (size_t i = 0; i < count; i++) wrong += out[i] != gw_size(comm) * (1 + (int32_t)i % 50);
    CHECK_EQ(0, wrong);
}

static bool holds(const uint8_t *memory, size_t bytes, int salt) {
    for (size_t i = 0; i < bytes; i++)
        if (memory[i] != (uint8_t)(i * 31 + (size_t)salt)) return false;
    return true;
}

static void put(uint8_t *memory, size_t bytes, int salt) {
    for (size_t i = 0; i < bytes; i++) memory[i] = (uint8_t)(i * 31 + (size_t)salt);
}

static void life_of_rank(int rank) {
    gw_comm *comm = join(rank, WORLD), *half = NULL, *again = NULL;
    uint8_t *block = malloc(LARGE);
    put(block, LARGE, 3);
    CHECK(!is_shared_with_children(block + LARGE / 2));
    CHECK_EQ(GW_OK, gw_comm_split(comm, 0, rank, &half));
    CHECK_EQ(GW_OK, gw_register(half, block, LARGE));
    CHECK(holds(block, LARGE, 3));
    CHECK(is_shared_with_children(block + LARGE / 2));
    ones(comm, (int32_t *)block, (int32_t *)block, LARGE / 4); /* of any communicator */
    CHECK_EQ(GW_OK, gw_comm_split(comm, 0, rank, &again));
    ones(again, (int32_t *)block, (int32_t *)block, LARGE / 4);
    gw_finalize(half);
    if (system("true")) CHECK(false); /* fork and exec */
    put(block, LARGE, 4);
    CHECK_EQ(GW_OK, gw_unregister(again, block));
    CHECK(holds(block, LARGE, 4));
    CHECK(!is_shared_with_children(block + LARGE / 2));
    ones(comm, (int32_t *)block, (int32_t *)block, LARGE / 4);
    /* malloc's own calls */
    put(block, LARGE, 5);
    CHECK_EQ(GW_OK, gw_register(comm, block, LARGE));
    block = realloc(block, LARGE / 2);
    CHECK(holds(block, LARGE / 2, 5));
    ones(comm, (int32_t *)block, (int32_t *)block, LARGE / 8);
    put(block, LARGE / 2, 6);
    gw_unregister(comm, block);
    CHECK(holds(block, LARGE / 2, 6));
    CHECK_EQ(GW_OK, gw_register(comm, block, LARGE / 2));
    block = realloc(block, 2 * LARGE); /* copied: the old block is freed while it is registered */
    CHECK(holds(block, LARGE / 2, 6));
    ones(comm, (int32_t *)block, (int32_t *)block, LARGE / 2);
    free(block);
    gw_finalize(again);
    gw_finalize(comm);
}

static void memory_stays_as_good_as_it_was(void) { run(WORLD, life_of_rank); }

static atomic_int warnings;

static void count_warnings(void *ctx, gw_log_level level, int rank, const char *text) {
    (void)ctx, (void)level, (void)rank;
    if (strstr(text, "were freed without gw_unregister")) atomic_fetch_add(&warnings, 1);
}

/* Other memory lies at the address of a registration. Peers must not get what was there. */
static void freed_of_rank(int rank) {
    const int both = PROT_READ | PROT_WRITE, private = MAP_PRIVATE | MAP_ANONYMOUS;
    gw_comm *comm = join(rank, WORLD);
    gw_set_log(count_warnings, NULL);
    for (int turn = 0; turn < 4; turn++) {
        int32_t *block = mmap(NULL, 2 * LARGE, both, private, -1, 0), *out = block + LARGE / 4;
        CHECK_EQ(GW_OK, gw_register(comm, block, LARGE));
        ones(comm, block, turn % 2 ? block : out, LARGE / 4);
        memset(block, 0xee, LARGE);
        munmap(block, LARGE);
        CHECK(mmap(block, LARGE, both, private | MAP_FIXED, -1, 0) == block);
        ones(comm, block, turn % 2 ? block : out, LARGE / 4);
        CHECK_EQ(turn + 1, atomic_load(&warnings));
        ones(comm, block, turn % 2 ? block : out, LARGE / 4);
        CHECK_EQ(GW_INVALID, gw_unregister(comm, block));
        munmap(block, 2 * LARGE);
    }
    gw_set_log(NULL, NULL);
    void *gone = map(both, private, -1);
    CHECK_EQ(GW_OK, gw_register(comm, gone, 4 * PAGE));
    munmap(gone, 4 * PAGE);
    CHECK_EQ(GW_INVALID, gw_unregister(comm, gone));
    CHECK(strstr(gw_last_error(NULL), "freed before it was unregistered"));
    /* a message */
    uint8_t *block = mmap(NULL, LARGE, both, private, -1, 0), first[2] = {0};
    CHECK_EQ(GW_OK, gw_register(comm, block, LARGE));
    CHECK(mmap(block, LARGE, both, private | MAP_FIXED, -1, 0) == block);
    memset(block, 7, LARGE);
    if (rank == 0) CHECK_EQ(GW_OK, gw_send(comm, block, LARGE, GW_U8, 1));
    else CHECK_EQ(GW_OK, gw_recv(comm, block, LARGE, GW_U8, 0));
    memcpy(first, block, 2);
    CHECK(first[0] == 7 && block[LARGE - 1] == 7);
    gw_finalize(comm);
}

static void freed_memory_is_noticed(void) { run(WORLD, freed_of_rank); }

/* Bytes beside the memory, on its first and last page, belong to others, who may write them at any time. */
static _Atomic bool stop_counting;

static void *count_beside(void *place) {
    uint64_t *values = place, count = 0;
    while (!atomic_load(&stop_counting)) {
        values[0] = values[LARGE / 8] = ++count;
        if (*(volatile uint64_t *)&values[0] != count || *(volatile uint64_t *)&values[LARGE / 8] != count)
            return values;
    }
    return NULL;
}

static void beside_of_rank(int rank) {
    gw_comm *comm = join(rank, WORLD);
    uint64_t *block = malloc(LARGE + 8);
    pthread_t thread;
    void *lost = NULL;
    CHECK_EQ(0, pthread_create(&thread, NULL, count_beside, block));
    for (int turn = 0; turn < 10; turn++) {
        int32_t *values = (int32_t *)(block + 1);
        CHECK_EQ(GW_OK, gw_register(comm, values, LARGE - 8));
        ones(comm, values, values, (LARGE - 8) / 4);
        CHECK_EQ(GW_OK, gw_unregister(comm, values));
    }
    atomic_store(&stop_counting, true);
    pthread_join(thread, &lost);
    CHECK(lost == NULL);
    free(block);
    gw_finalize(comm);
}

static void neighbours_may_write(void) { run(WORLD, beside_of_rank); }

static void end_of_rank(int rank) {
    gw_comm *comm = join(rank, WORLD);
    uint8_t *block = malloc(LARGE), *freed = map(PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1);
    CHECK_EQ(GW_OK, gw_register(comm, block, LARGE));
    CHECK_EQ(GW_OK, gw_register(comm, freed, 4 * PAGE));
    ones(comm, (int32_t *)block, (int32_t *)block, LARGE / 4);
    put(block, LARGE, 8);
    munmap(freed, 4 * PAGE);
    CHECK_EQ(GW_OK, gw_finalize(comm));
    CHECK(holds(block, LARGE, 8));
    CHECK(!is_shared_with_children(block + LARGE / 2));
    free(block);
}

static void the_end_of_the_job_ends_registrations(void) { run(WORLD, end_of_rank); }

static void shrink_of_rank(int rank) {
    gw_comm *comm = join(rank, 3), *rest = NULL;
    int32_t *block = malloc(LARGE);
    CHECK_EQ(GW_OK, gw_register(comm, block, LARGE));
    ones(comm, block, block, LARGE / 4);
    if (rank == 2) _exit(0); /* not by gw_finalize */
    put((uint8_t *)block, LARGE, 9);
    CHECK(gw_allreduce(comm, block, block, LARGE / 4, GW_I32, GW_SUM) != GW_OK);
    CHECK_EQ(GW_OK, gw_shrink(comm, &rest));
    ones(rest, block, block, LARGE / 4);
    CHECK_EQ(GW_OK, gw_unregister(rest, block));
    ones(rest, block, block, LARGE / 4);
    free(block);
    gw_finalize(rest);
    gw_finalize(comm);
}

static void registrations_outlive_a_shrink(void) { run(3, shrink_of_rank); }

TEST_MAIN(CASE(values_are_those_of_gw_alloc), CASE(claimed_parts_are_right), CASE(what_cannot_be_is_refused),
          CASE(alone_it_does_nothing), CASE(memory_stays_as_good_as_it_was), CASE(freed_memory_is_noticed),
          CASE(neighbours_may_write), CASE(the_end_of_the_job_ends_registrations), CASE(registrations_outlive_a_shrink))
