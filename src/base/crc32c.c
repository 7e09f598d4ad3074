/* crc32c.c - see crc32c.h. A bit-reflected CRC: a value's lowest bit is the coefficient of the highest power of x.
 *
 * A vector kernel folds 256 or 128 bytes at a time (Gopal et al., "Fast CRC Computation for Generic Polynomials Using
 * PCLMULQDQ Instruction"). The word kernel computes three neighbouring blocks at once, because the crc32 instruction
 * takes three cycles and one can be started in each, and then joins the three sums. The two use different parts of a
 * core, so large blocks go half through one and half through the other, in one loop. Both multiply by constants
 * x^n mod P: a carry-less product of reflected values is one bit too high, and the crc32 instruction multiplies by
 * x^32, so n is 33 less than the distance in bits. */
#include "base/crc32c.h"

#include "base/cpu.h"

#include <stdatomic.h>
#include <string.h>

/* ---- the table ---- */

/* The sums of 0 to 15 in four bits, for the reflected polynomial 0x82f63b78. */
static const uint32_t nibbles[16] = {0x00000000, 0x105ec76f, 0x20bd8ede, 0x30e349b1, 0x417b1dbc, 0x5125dad3,
                                     0x61c69362, 0x7198540d, 0x82f63b78, 0x92a8fc17, 0xa24bb5a6, 0xb21572c9,
                                     0xc38d26c4, 0xd3d3e1ab, 0xe330a81a, 0xf36e6f75};

static bool always(void) { return true; }

static uint32_t update_by_table(uint32_t crc, const void *data, size_t bytes) {
    const uint8_t *at = data;
    crc = ~crc;
    for (size_t i = 0; i < bytes; i++) {
        crc ^= at[i];
        crc = (crc >> 4) ^ nibbles[crc & 15];
        crc = (crc >> 4) ^ nibbles[crc & 15];
    }
    return ~crc;
}

#if defined(__x86_64__)
#include <immintrin.h>

/* ---- by words: SSE4.2 ---- */

#define WORDS __attribute__((target("sse4.2,pclmul")))
#define BLOCK_BYTES ((size_t)1024)
#define X_ONE_BLOCK 0x170076fa  /* x^(8 * BLOCK_BYTES - 33) mod P */
#define X_TWO_BLOCKS 0xa51b6135 /* x^(16 * BLOCK_BYTES - 33) mod P */

static bool has_words(void) { return __builtin_cpu_supports("sse4.2") && __builtin_cpu_supports("pclmul"); }

static inline uint64_t load64(const uint8_t *at) {
    uint64_t value;
    memcpy(&value, at, sizeof value);
    return value;
}

/* crc times x^(n + 33), where factor is x^n; without the last reduction, which crc32 makes. */
WORDS static inline uint64_t times(uint64_t crc, uint32_t factor) {
    __m128i product = _mm_clmulepi64_si128(_mm_cvtsi64_si128((long long)crc), _mm_cvtsi32_si128((int)factor), 0);
    return (uint64_t)_mm_cvtsi128_si64(product);
}

WORDS static inline uint64_t three_blocks(uint64_t a, const uint8_t *at) {
    uint64_t b = 0, c = 0;
    for (size_t i = 0; i < BLOCK_BYTES; i += 8) {
        a = _mm_crc32_u64(a, load64(at + i));
        b = _mm_crc32_u64(b, load64(at + BLOCK_BYTES + i));
        c = _mm_crc32_u64(c, load64(at + 2 * BLOCK_BYTES + i));
    }
    return c ^ _mm_crc32_u64(0, times(a, X_TWO_BLOCKS) ^ times(b, X_ONE_BLOCK));
}

WORDS static uint32_t update_by_words(uint32_t crc, const void *data, size_t bytes) {
    const uint8_t *at = data;
    uint64_t sum = ~crc;
    for (; bytes >= 3 * BLOCK_BYTES; at += 3 * BLOCK_BYTES, bytes -= 3 * BLOCK_BYTES) sum = three_blocks(sum, at);
    for (; bytes >= 8; at += 8, bytes -= 8) sum = _mm_crc32_u64(sum, load64(at));
    uint32_t last = (uint32_t)sum;
    for (; bytes > 0; at++, bytes--) last = _mm_crc32_u8(last, *at);
    return ~last;
}

/* ---- blocks: vectors and words side by side ---- */

#define STREAMS 3
#define STEP_BYTES ((size_t)40) /* of each stream of words, beside one round of products: they take as long as it */

/* Vectors take the first part of a block, and three streams of words the rest. */
typedef struct block_size {
    size_t rounds;
    uint32_t one, two, three; /* x^(8 * n * rounds * STEP_BYTES - 33): past so many streams */
} block_size;

static const block_size block_sizes[] = {{512, 0x68bfa742, 0xc71795dd, 0x8f619e7d},
                                         {128, 0xca110698, 0xe2f1a204, 0x278840ed},
                                         {32, 0xdd66cbbb, 0x22c3799f, 0x23d5e7e5}};
#define BLOCK_SIZES (sizeof block_sizes / sizeof block_sizes[0])

/* Separate names, because arrays of sums would lie in memory. */
typedef struct word_sums {
    uint64_t a, b, c;
} word_sums;

WORDS static inline word_sums step_words(word_sums w, const uint8_t *at, size_t stride, size_t bytes) {
#pragma GCC unroll 5
    for (size_t i = 0; i < bytes; i += 8) {
        w.a = _mm_crc32_u64(w.a, load64(at + i));
        w.b = _mm_crc32_u64(w.b, load64(at + stride + i));
        w.c = _mm_crc32_u64(w.c, load64(at + 2 * stride + i));
    }
    return w;
}

WORDS static inline uint32_t join_block(uint32_t vectors, word_sums w, const block_size *size) {
    uint64_t moved = times(vectors, size->three) ^ times(w.a, size->two) ^ times(w.b, size->one);
    return (uint32_t)(w.c ^ _mm_crc32_u64(0, moved));
}

/* The pair of factors that move a vector's lanes so many bits on: x^(bits + 31) for the first half of a lane, and
 * x^(bits - 33) for the second. */
#define MOVE_2048 0xdcb17aa4, 0xb9e02b86
#define MOVE_1024 0x6992cea2, 0x0d3b6092
#define MOVE_512 0x740eef02, 0x9e4addf8
#define MOVE_256 0x3da6d0cb, 0xba4fc28e
#define MOVE_128 0xf20c0dfe, 0x493c7d27

WORDS static inline __m128i pair(uint32_t first, uint32_t second) {
    return _mm_set_epi64x((long long)second, (long long)first);
}

WORDS static inline __m128i fold_lane(__m128i sum, __m128i next) {
    __m128i factors = pair(MOVE_128);
    __m128i low = _mm_clmulepi64_si128(sum, factors, 0x00), high = _mm_clmulepi64_si128(sum, factors, 0x11);
    return _mm_xor_si128(_mm_xor_si128(low, high), next);
}

WORDS static inline uint32_t reduce_lane(__m128i lane) {
    uint64_t first = _mm_crc32_u64(0, (uint64_t)_mm_extract_epi64(lane, 0));
    return (uint32_t)_mm_crc32_u64(first, (uint64_t)_mm_extract_epi64(lane, 1));
}

/* ---- by vectors of 32 bytes: AVX2 and VPCLMULQDQ ---- */

#define HALVES __attribute__((target("avx2,vpclmulqdq,pclmul,sse4.2")))
#define HALF_ROUND_BYTES ((size_t)128)

static bool has_halves(void) { return gw_cpu() >= GW_CPU_AVX2 && has_words() && __builtin_cpu_supports("vpclmulqdq"); }

typedef struct half_round {
    __m256i a, b, c, d;
} half_round;

HALVES static inline __m256i load_half(const uint8_t *at) { return _mm256_loadu_si256((const void *)at); }

HALVES static inline half_round load_halves(const uint8_t *at) {
    return (half_round){load_half(at), load_half(at + 32), load_half(at + 64), load_half(at + 96)};
}

HALVES static inline __m256i fold_half(__m256i sum, __m256i factors, __m256i next) {
    __m256i low = _mm256_clmulepi64_epi128(sum, factors, 0x00), high = _mm256_clmulepi64_epi128(sum, factors, 0x11);
    return _mm256_xor_si256(_mm256_xor_si256(low, high), next);
}

HALVES static inline half_round fold_halves(half_round v, half_round next) {
    __m256i factors = _mm256_broadcastsi128_si256(pair(MOVE_1024));
    return (half_round){fold_half(v.a, factors, next.a), fold_half(v.b, factors, next.b),
                        fold_half(v.c, factors, next.c), fold_half(v.d, factors, next.d)};
}

HALVES static uint32_t join_halves(half_round v) {
    __m256i factors = _mm256_broadcastsi128_si256(pair(MOVE_256));
    __m256i sum = fold_half(fold_half(fold_half(v.a, factors, v.b), factors, v.c), factors, v.d);
    return reduce_lane(fold_lane(_mm256_castsi256_si128(sum), _mm256_extracti128_si256(sum, 1)));
}

HALVES static uint32_t block_by_halves(uint32_t crc, const uint8_t *at, const block_size *size) {
    size_t stride = size->rounds * STEP_BYTES;
    const uint8_t *words = at + size->rounds * HALF_ROUND_BYTES;
    half_round v = load_halves(at);
    v.a = _mm256_xor_si256(v.a, _mm256_zextsi128_si256(_mm_cvtsi32_si128((int)crc)));
    word_sums w = step_words((word_sums){0, 0, 0}, words, stride, STEP_BYTES);
    for (size_t r = 1; r < size->rounds; r++) {
        v = fold_halves(v, load_halves(at + r * HALF_ROUND_BYTES));
        w = step_words(w, words + r * STEP_BYTES, stride, STEP_BYTES);
    }
    return join_block(join_halves(v), w, size);
}

HALVES static uint32_t update_by_halves(uint32_t crc, const void *data, size_t bytes) {
    const uint8_t *at = data;
    for (size_t i = 0; i < BLOCK_SIZES; i++) {
        size_t block = block_sizes[i].rounds * (HALF_ROUND_BYTES + STREAMS * STEP_BYTES);
        for (; bytes >= block; at += block, bytes -= block) crc = ~block_by_halves(~crc, at, &block_sizes[i]);
    }
    return update_by_words(crc, at, bytes);
}

/* ---- by vectors of 64 bytes: AVX-512 and VPCLMULQDQ ---- */

#define VECTORS __attribute__((target("avx512f,avx512dq,avx512vl,vpclmulqdq,pclmul,sse4.2")))
#define ROUND_BYTES ((size_t)256)

static bool has_vectors(void) { return gw_cpu() >= GW_CPU_AVX512 && has_halves(); }

typedef struct vector_round {
    __m512i a, b, c, d;
} vector_round;

VECTORS static inline vector_round load_vectors(const uint8_t *at) {
    return (vector_round){_mm512_loadu_si512(at), _mm512_loadu_si512(at + 64), _mm512_loadu_si512(at + 128),
                          _mm512_loadu_si512(at + 192)};
}

VECTORS static inline vector_round begin_vectors(uint32_t crc, const uint8_t *at) {
    vector_round v = load_vectors(at);
    v.a = _mm512_xor_si512(v.a, _mm512_zextsi128_si512(_mm_cvtsi32_si128((int)crc)));
    return v;
}

VECTORS static inline __m512i fold(__m512i sum, __m512i factors, __m512i next) {
    __m512i low = _mm512_clmulepi64_epi128(sum, factors, 0x00), high = _mm512_clmulepi64_epi128(sum, factors, 0x11);
    return _mm512_ternarylogic_epi64(low, high, next, 0x96); /* xor */
}

VECTORS static inline vector_round fold_vectors(vector_round v, vector_round next) {
    __m512i factors = _mm512_broadcast_i32x4(pair(MOVE_2048));
    return (vector_round){fold(v.a, factors, next.a), fold(v.b, factors, next.b), fold(v.c, factors, next.c),
                          fold(v.d, factors, next.d)};
}

/* The four vectors to one, its lanes to one, and that to 32 bits. */
VECTORS static uint32_t join_vectors(vector_round v) {
    __m512i factors = _mm512_broadcast_i32x4(pair(MOVE_512));
    __m512i sum = fold(fold(fold(v.a, factors, v.b), factors, v.c), factors, v.d);
    __m128i lane = fold_lane(_mm512_extracti32x4_epi32(sum, 0), _mm512_extracti32x4_epi32(sum, 1));
    lane = fold_lane(lane, _mm512_extracti32x4_epi32(sum, 2));
    return reduce_lane(fold_lane(lane, _mm512_extracti32x4_epi32(sum, 3)));
}

VECTORS static uint32_t block_by_vectors(uint32_t crc, const uint8_t *at, const block_size *size) {
    size_t stride = size->rounds * STEP_BYTES;
    const uint8_t *words = at + size->rounds * ROUND_BYTES;
    vector_round v = begin_vectors(crc, at);
    word_sums w = step_words((word_sums){0, 0, 0}, words, stride, STEP_BYTES);
    for (size_t r = 1; r < size->rounds; r++) {
        v = fold_vectors(v, load_vectors(at + r * ROUND_BYTES));
        w = step_words(w, words + r * STEP_BYTES, stride, STEP_BYTES);
    }
    return join_block(join_vectors(v), w, size);
}

/* What is smaller than a block goes through vectors alone. */
VECTORS static uint32_t finish_by_vectors(uint32_t crc, const uint8_t *at, size_t bytes) {
    if (bytes < 2 * ROUND_BYTES) return update_by_words(crc, at, bytes);
    vector_round v = begin_vectors(~crc, at);
    for (at += ROUND_BYTES, bytes -= ROUND_BYTES; bytes >= ROUND_BYTES; at += ROUND_BYTES, bytes -= ROUND_BYTES)
        v = fold_vectors(v, load_vectors(at));
    return update_by_words(~join_vectors(v), at, bytes);
}

VECTORS static uint32_t update_by_vectors(uint32_t crc, const void *data, size_t bytes) {
    const uint8_t *at = data;
    for (size_t i = 0; i < BLOCK_SIZES; i++) {
        size_t block = block_sizes[i].rounds * (ROUND_BYTES + STREAMS * STEP_BYTES);
        for (; bytes >= block; at += block, bytes -= block) crc = ~block_by_vectors(~crc, at, &block_sizes[i]);
    }
    return finish_by_vectors(crc, at, bytes);
}

/* ---- by matrices: AVX-512 and GFNI ---- */

#define MATRICES __attribute__((target("avx512f,avx512dq,avx512vl,avx512bw,gfni,vpclmulqdq,pclmul,sse4.2")))
#define MATRIX_ROUND_BYTES (2 * ROUND_BYTES)
#define MATRIX_STEP_BYTES ((size_t)32) /* of each stream of words, beside one round of matrices */

/* Only where it was measured to be faster: a Zen 5 core starts two of these products in a cycle, and half a carry-less
 * one. */
static bool has_matrices(void) { return has_vectors() && __builtin_cpu_supports("gfni") && __builtin_cpu_is("amd"); }

/* Just below 256, 64 and 16 KiB; the powers are x^(8 * n * rounds * MATRIX_STEP_BYTES - 33). */
static const block_size matrix_block_sizes[] = {{428, 0xfb28710c, 0xd5a313cd, 0xb89440d3},
                                                {107, 0x1a6889b8, 0x7d1ddda1, 0xda51e8f2},
                                                {26, 0x26f6a60a, 0x363bd6b3, 0x4be7fd90}};
#define MATRIX_BLOCK_SIZES (sizeof matrix_block_sizes / sizeof matrix_block_sizes[0])

/* Bytes in the same place of the four vectors of a vector_round are 32 bits, whose powers of x are a basis of all
 * remainders mod P. So what the four become MATRIX_ROUND_BYTES further on is a product with a matrix of 32 by 32 bits,
 * the same in every place. Here it is in pieces of 8 by 8: row `to`, column `from`. */
static const uint64_t matrix_move[4][4] = {
    {0x4b26ba322ee188fb, 0xa219529892e66f30, 0xd713e5b4bf6b0061, 0xaabd781b9c918801},
    {0xe78810dbb762332d, 0x71debd84088e7d59, 0xc8eeddd1a3ef1cee, 0x51499365cad4abfc},
    {0xfbe66125e6977806, 0xfeed0962179d174f, 0x6bdca78711ff8bd4, 0x42d657fe06f451a0},
    {0xeb21ee972efd5aa5, 0xefbeaefefdb62051, 0x600319e5ca23f0eb, 0x1023bdd1a3fc43d5}};

typedef struct matrix {
    vector_round a, b, c, d; /* its rows */
} matrix;

MATRICES static inline vector_round matrix_row(const uint64_t row[4]) {
    return (vector_round){_mm512_set1_epi64((long long)row[0]), _mm512_set1_epi64((long long)row[1]),
                          _mm512_set1_epi64((long long)row[2]), _mm512_set1_epi64((long long)row[3])};
}

MATRICES static inline __m512i times_row(vector_round row, vector_round v, __m512i next) {
    __m512i a = _mm512_gf2p8affine_epi64_epi8(v.a, row.a, 0), b = _mm512_gf2p8affine_epi64_epi8(v.b, row.b, 0);
    __m512i c = _mm512_gf2p8affine_epi64_epi8(v.c, row.c, 0), d = _mm512_gf2p8affine_epi64_epi8(v.d, row.d, 0);
    return _mm512_ternarylogic_epi64(_mm512_ternarylogic_epi64(a, b, c, 0x96), d, next, 0x96); /* xor */
}

MATRICES static inline vector_round times_matrix(matrix m, vector_round v, vector_round next) {
    return (vector_round){times_row(m.a, v, next.a), times_row(m.b, v, next.b), times_row(m.c, v, next.c),
                          times_row(m.d, v, next.d)};
}

/* Two sets of four vectors, because a product's result is there only after more cycles than one set takes. */
MATRICES static uint32_t block_by_matrices(uint32_t crc, const uint8_t *at, const block_size *size) {
    size_t stride = size->rounds * MATRIX_STEP_BYTES;
    const uint8_t *words = at + size->rounds * MATRIX_ROUND_BYTES;
    matrix m = {matrix_row(matrix_move[0]), matrix_row(matrix_move[1]), matrix_row(matrix_move[2]),
                matrix_row(matrix_move[3])};
    vector_round v = begin_vectors(crc, at), second = load_vectors(at + ROUND_BYTES);
    word_sums w = step_words((word_sums){0, 0, 0}, words, stride, MATRIX_STEP_BYTES);
    for (size_t r = 1; r < size->rounds; r++) {
        at += MATRIX_ROUND_BYTES;
        v = times_matrix(m, v, load_vectors(at));
        second = times_matrix(m, second, load_vectors(at + ROUND_BYTES));
        w = step_words(w, words + r * MATRIX_STEP_BYTES, stride, MATRIX_STEP_BYTES);
    }
    return join_block(join_vectors(fold_vectors(v, second)), w, size);
}

MATRICES static uint32_t update_by_matrices(uint32_t crc, const void *data, size_t bytes) {
    const uint8_t *at = data;
    for (size_t i = 0; i < MATRIX_BLOCK_SIZES; i++) {
        size_t block = matrix_block_sizes[i].rounds * (MATRIX_ROUND_BYTES + STREAMS * MATRIX_STEP_BYTES);
        for (; bytes >= block; at += block, bytes -= block) crc = ~block_by_matrices(~crc, at, &matrix_block_sizes[i]);
    }
    return finish_by_vectors(crc, at, bytes);
}
#endif

#if defined(__aarch64__)
#include <sys/auxv.h>

#define CRC_BIT (1ul << 7) /* HWCAP_CRC32 */

static bool has_words(void) { return (getauxval(AT_HWCAP) & CRC_BIT) != 0; }

static inline uint32_t step_word(uint32_t crc, uint64_t word) {
    __asm__(".arch_extension crc\n\tcrc32cx %w0, %w0, %x1" : "+r"(crc) : "r"(word));
    return crc;
}

static inline uint32_t step_byte(uint32_t crc, uint8_t byte) {
    __asm__(".arch_extension crc\n\tcrc32cb %w0, %w0, %w1" : "+r"(crc) : "r"(byte));
    return crc;
}

static uint32_t update_by_words(uint32_t crc, const void *data, size_t bytes) {
    const uint8_t *at = data;
    crc = ~crc;
    for (; bytes >= 8; at += 8, bytes -= 8) {
        uint64_t word;
        memcpy(&word, at, sizeof word);
        crc = step_word(crc, word);
    }
    for (; bytes > 0; at++, bytes--) crc = step_byte(crc, *at);
    return ~crc;
}
#endif

const gw_crc32c_kernel gw_crc32c_kernels[] = {
#if defined(__x86_64__)
    {"matrices", has_matrices, update_by_matrices},
    {"vectors of 64", has_vectors, update_by_vectors},
    {"vectors of 32", has_halves, update_by_halves},
#endif
#if defined(__x86_64__) || defined(__aarch64__)
    {"words", has_words, update_by_words},
#endif
    {"table", always, update_by_table},
    {NULL, NULL, NULL},
};

uint32_t gw_crc32c(uint32_t crc, const void *data, size_t bytes) {
    static _Atomic(const gw_crc32c_kernel *) chosen; /* every thread would choose the same */
    const gw_crc32c_kernel *kernel = atomic_load_explicit(&chosen, memory_order_relaxed);
    if (!kernel) {
        for (kernel = gw_crc32c_kernels; !kernel->supported();) kernel++;
        atomic_store_explicit(&chosen, kernel, memory_order_relaxed);
    }
    return kernel->update(crc, data, bytes);
}
