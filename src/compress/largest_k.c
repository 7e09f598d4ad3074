/* largest_k.c - the k largest of a block, exactly, in little more than one pass.
 *
 * The k-th largest of the peaks of groups of 32 is a lower bound of the k-th largest element, because k groups have an
 * element as large. Only groups whose peak reaches the bound are read again; at 1 % about 1.2 k candidates remain,
 * among which the k-th is found. If many elements are equal, the bound itself may be the k-th largest; one more pass
 * decides. Where k is large against the number of groups, histograms over all elements are used instead.
 *
 * The fast paths prefetch the block after this one: a caller goes on there, and memory would be idle meanwhile. */
#include "compress/sparse.h"

#include "base/cpu.h"

#define GROUP 32u
#define GROUPS GW_PEAKS
#define LINE 16u /* elements of a line of the cache */
#define BINS 2048u
#define PEAK_LOWEST_BIT 11 /* of a bound: 1/4,096 of it does not matter */

/* Three histograms, each of the elements that share the upper bits found before it. */
void gw_select_largest_reference(const float *x, size_t count, size_t k, gw_selection *selection) {
    static const int shifts[] = {20, 9, 0}, widths[] = {11, 11, 9};
    uint32_t found = 0, known = 0;
    size_t left = k;
    for (int pass = 0; pass < 3; pass++) {
        uint32_t bins[BINS] = {0}, mask = (1u << widths[pass]) - 1, bin = mask;
        for (size_t i = 0; i < count; i++) {
            uint32_t bits = gw_rank_bits(x[i]);
            if ((bits & known) == found) bins[bits >> shifts[pass] & mask]++;
        }
        while (bin > 0 && bins[bin] < left) left -= bins[bin--];
        found |= bin << shifts[pass];
        known |= mask << shifts[pass];
    }
    selection->above = found ? found : 1;
    selection->ties = found ? left : count;
    selection->listed = false;
}

#if defined(__x86_64__)
#include <immintrin.h>

#define AVX2 __attribute__((target("avx2")))
#define AVX512 __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl")))

/* Lines of the next block that are prefetched for each group that is read again: all of them, or eight. */
static size_t lines_ahead(size_t count, size_t groups) {
    size_t each = groups ? count / LINE / groups : 0;
    return each < 8 ? each : 8;
}

/* The turn'th of them. */
AVX2 static inline void fetch_ahead(const float *next, size_t turn, size_t lines) {
    for (size_t line = turn * lines; line < (turn + 1) * lines; line++)
        _mm_prefetch((const char *)(next + line * LINE), _MM_HINT_T1);
}

/* The groups whose peak is at least `least`; `chosen` has space for 16 more. */
AVX2 static size_t choose_avx2(const uint32_t *peaks, size_t groups, uint32_t least, uint32_t *chosen) {
    size_t some = 0;
    for (size_t g = 0; g < groups; g++) {
        chosen[some] = (uint32_t)g;
        some += peaks[g] >= least;
    }
    return some;
}

AVX512 static size_t choose_avx512(const uint32_t *peaks, size_t groups, uint32_t least, uint32_t *chosen) {
    const __m512i bound = _mm512_set1_epi32((int)least), sixteen = _mm512_set1_epi32(16);
    __m512i number = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    size_t some = 0;
    for (size_t g = 0; g < groups; g += 16, number = _mm512_add_epi32(number, sixteen)) {
        __mmask16 there = groups - g < 16 ? (__mmask16)((1u << (groups - g)) - 1) : (__mmask16)0xffff;
        __mmask16 hits = _mm512_mask_cmpge_epu32_mask(there, _mm512_maskz_loadu_epi32(there, peaks + g), bound);
        _mm512_storeu_si512(chosen + some, _mm512_maskz_compress_epi32(hits, number));
        some += (unsigned)__builtin_popcount(hits);
    }
    return some;
}

AVX2 static inline uint32_t hits8(const float *x, __m256i below) {
    __m256i bits = _mm256_and_si256(_mm256_loadu_si256((const __m256i *)x), _mm256_set1_epi32(0x7fffffff));
    return (uint32_t)_mm256_movemask_ps(_mm256_castsi256_ps(_mm256_cmpgt_epi32(bits, below)));
}

/* Lists the elements of a chosen group from entry `found` on; returns the entries after them. */
AVX2 static inline size_t list_avx2(const float *x, uint32_t first, uint32_t least, gw_kernel_list *s, size_t found) {
    const __m256i below = _mm256_set1_epi32((int)least - 1);
    uint32_t hits = hits8(x + first, below) | hits8(x + first + 8, below) << 8 | hits8(x + first + 16, below) << 16 |
                    hits8(x + first + 24, below) << 24;
    for (; hits; hits &= hits - 1, found++) {
        uint32_t index = first + (uint32_t)__builtin_ctz(hits);
        s->index[found] = (uint16_t)index;
        s->value[found] = x[index];
    }
    return found;
}

AVX512 static inline size_t list16(const float *x, uint32_t first, __m512i bound, gw_kernel_list *s, size_t found) {
    const __m512i lane = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    __m512i value = _mm512_loadu_si512(x + first);
    __m512i bits = _mm512_and_si512(value, _mm512_set1_epi32(0x7fffffff));
    __mmask16 hits = _mm512_cmpge_epu32_mask(bits, bound);
    __m512i index = _mm512_add_epi32(lane, _mm512_set1_epi32((int)first));
    _mm256_storeu_si256((__m256i *)(s->index + found), _mm512_cvtepi32_epi16(_mm512_maskz_compress_epi32(hits, index)));
    _mm512_storeu_si512(s->value + found, _mm512_maskz_compress_epi32(hits, value));
    return found + (unsigned)__builtin_popcount(hits);
}

/* Lists the elements of at least `least`, of whole groups; false where they are too many. Groups are listed first: a
 * branch for each would be mispredicted too often. */
AVX2 static bool list_groups_avx2(const float *x, size_t count, const uint32_t *peaks, uint32_t least,
                                  gw_kernel_list *s) {
    uint32_t chosen[GROUPS + 16];
    size_t some = choose_avx2(peaks, count / GROUP, least, chosen), found = 0;
    size_t lines = lines_ahead(count, some);
    for (size_t c = 0; c < some; c++) {
        fetch_ahead(x + count, c, lines);
        if (found + GROUP > GW_SELECTION_LIST) return false;
        found = list_avx2(x, chosen[c] * GROUP, least, s, found);
    }
    s->count = found;
    return true;
}

AVX512 static bool list_groups_avx512(const float *x, size_t count, const uint32_t *peaks, uint32_t least,
                                      gw_kernel_list *s) {
    const __m512i bound = _mm512_set1_epi32((int)least);
    uint32_t chosen[GROUPS + 16];
    size_t some = choose_avx512(peaks, count / GROUP, least, chosen), found = 0;
    size_t lines = lines_ahead(count, some);
    for (size_t c = 0; c < some; c++) {
        fetch_ahead(x + count, c, lines);
        if (found + GROUP > GW_SELECTION_LIST) return false;
        found = list16(x, chosen[c] * GROUP, bound, s, found);
        found = list16(x, chosen[c] * GROUP + 16, bound, s, found);
    }
    s->count = found;
    return true;
}

static bool list_rest(const float *x, size_t from, size_t count, uint32_t least, gw_kernel_list *s) {
    for (size_t i = from; i < count; i++) {
        if (gw_rank_bits(x[i]) < least) continue;
        if (s->count == GW_SELECTION_LIST) return false;
        s->index[s->count] = (uint16_t)i;
        s->value[s->count++] = x[i];
    }
    return true;
}

static bool list_peaks(const float *x, size_t count, const uint32_t *peaks, uint32_t least, gw_kernel_list *s) {
    bool avx512 = gw_cpu() >= GW_CPU_AVX512;
    bool fits = avx512 ? list_groups_avx512(x, count, peaks, least, s) : list_groups_avx2(x, count, peaks, least, s);
    return fits && list_rest(x, count / GROUP * GROUP, count, least, s);
}

/* Many equal elements: the k-th is `least` itself where fewer than k are above it. */
AVX2 static bool select_equal(const float *x, size_t count, size_t k, uint32_t least, gw_selection *s) {
    const __m256i bound = _mm256_set1_epi32((int)least), top = _mm256_set1_epi32((int)GW_INFINITY_BITS);
    const __m256i magnitude = _mm256_set1_epi32(0x7fffffff);
    __m256i above = _mm256_setzero_si256();
    uint32_t lanes[8];
    size_t larger = 0, i = 0;
    for (; i + 8 <= count; i += 8) {
        __m256i bits = _mm256_and_si256(_mm256_loadu_si256((const __m256i *)(x + i)), magnitude);
        above = _mm256_sub_epi32(above, _mm256_cmpgt_epi32(_mm256_min_epi32(bits, top), bound));
    }
    _mm256_storeu_si256((__m256i *)lanes, above);
    for (int lane = 0; lane < 8; lane++) larger += lanes[lane];
    for (; i < count; i++) larger += gw_rank_bits(x[i]) > least;
    if (larger >= k) return false;
    s->above = least;
    s->ties = k - larger;
    s->listed = false;
    return true;
}

/* False: too many candidates, because many are nearly equal. */
static bool select_fast(const float *x, size_t count, const uint32_t *peaks, size_t k, gw_selection *s) {
    uint32_t least = gw_kth_largest(peaks, (count + GROUP - 1) / GROUP, k, PEAK_LOWEST_BIT);
    if (least > GW_INFINITY_BITS) least = GW_INFINITY_BITS;
    if (least == 0) least = 1; /* zeros are never selected */
    gw_kernel_list all;
    gw_selection others;
    if (!list_peaks(x, count, peaks, least, &all)) return select_equal(x, count, k, least, s);
    gw_selection_cut(&all, k, gw_selection_bound(&all, k), s, &others);
    return true;
}
#endif

#if defined(__x86_64__)
/* Writes up to 7 entries more. */
AVX2 static void ranks_avx2(const float *value, size_t count, uint32_t *rank) {
    const __m256i top = _mm256_set1_epi32((int)GW_INFINITY_BITS), magnitude = _mm256_set1_epi32(0x7fffffff);
    for (size_t i = 0; i < count; i += 8) {
        __m256i bits = _mm256_and_si256(_mm256_loadu_si256((const __m256i *)(value + i)), magnitude);
        _mm256_storeu_si256((__m256i *)(rank + i), _mm256_min_epi32(bits, top));
    }
}

/* Appends those of the mask; up to 15 entries more are written. */
AVX512 static inline void append16(gw_selection *s, __mmask16 mask, __m512i index, __m512 value) {
    _mm512_storeu_ps(s->value + s->list_count, _mm512_maskz_compress_ps(mask, value));
    __m256i number = _mm512_cvtepi32_epi16(_mm512_maskz_compress_epi32(mask, index));
    _mm256_storeu_si256((__m256i *)(s->list + s->list_count), number);
    s->list_count += (unsigned)__builtin_popcount(mask);
}

AVX512 static void divide_avx512(const gw_kernel_list *all, uint32_t least, gw_selection *s, gw_selection *others) {
    const __m512i bound = _mm512_set1_epi32((int)least), magnitude = _mm512_set1_epi32(0x7fffffff);
    for (size_t i = 0; i < all->count; i += 16) {
        __mmask16 there = all->count - i < 16 ? (__mmask16)((1u << (all->count - i)) - 1) : (__mmask16)0xffff;
        __m512 value = _mm512_loadu_ps(all->value + i);
        __m512i index = _mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i *)(all->index + i)));
        __m512i rank = _mm512_and_si512(_mm512_castps_si512(value), magnitude);
        __mmask16 hits = _mm512_mask_cmpge_epu32_mask(there, rank, bound);
        append16(s, hits, index, value);
        append16(others, _kandn_mask16(hits, there), index, value);
    }
}
#endif

/* The first `ties` of those of that rank are selected. */
static void divide_plain(const gw_kernel_list *all, uint32_t kth, size_t ties, gw_selection *s, gw_selection *others) {
    for (size_t i = 0; i < all->count; i++) {
        uint32_t rank = gw_rank_bits(all->value[i]);
        bool tie = rank == kth && ties > 0, in = rank > kth || tie;
        ties -= tie;
        others->list[others->list_count] = s->list[s->list_count] = all->index[i];
        others->value[others->list_count] = s->value[s->list_count] = all->value[i];
        s->list_count += in;
        others->list_count += !in;
    }
}

static void ranks(const gw_kernel_list *all, uint32_t *rank) {
#if defined(__x86_64__)
    if (gw_cpu() >= GW_CPU_AVX2) {
        ranks_avx2(all->value, all->count, rank);
        return;
    }
#endif
    for (size_t i = 0; i < all->count; i++) rank[i] = gw_rank_bits(all->value[i]);
}

uint32_t gw_selection_bound(const gw_kernel_list *all, size_t k) {
    uint32_t rank[GW_SELECTION_LIST + 8];
    if (all->count <= k) return 0;
    ranks(all, rank);
    return gw_kth_largest(rank, all->count, k, 0);
}

void gw_selection_cut(const gw_kernel_list *all, size_t k, uint32_t above, gw_selection *s, gw_selection *others) {
    size_t higher = 0, equal = 0;
    s->list_count = others->list_count = 0;
    s->listed = true;
    s->above = above;
#if defined(__x86_64__)
    if (gw_cpu() >= GW_CPU_AVX512) {
        divide_avx512(all, above, s, others);
        if (s->list_count <= k) return;
        s->list_count = others->list_count = 0;
    }
#endif
    for (size_t i = 0; i < all->count; i++) {
        higher += gw_rank_bits(all->value[i]) > above;
        equal += gw_rank_bits(all->value[i]) == above;
    }
    divide_plain(all, above, higher + equal > k ? k - higher : equal, s, others);
}

/* Where k is large against the number of groups, most groups would be read again. */
void gw_select_largest(const float *x, size_t count, const uint32_t *peaks, size_t k, gw_selection *selection) {
#if defined(__x86_64__)
    size_t groups = (count + GROUP - 1) / GROUP;
    if (gw_cpu() >= GW_CPU_AVX2 && 2 * k <= groups && select_fast(x, count, peaks, k, selection)) return;
#else
    (void)peaks;
#endif
    gw_select_largest_reference(x, count, k, selection);
}
