/* largest_k.c - the k largest of a block, exactly, in little more than one pass.
 *
 * The k-th largest of the peaks of groups of 32 is a lower bound of the k-th largest element, because k groups have an
 * element as large. Two histograms find that peak nearly exactly. Only groups whose peak reaches the bound are read
 * again; at 1 % about 1.2 k candidates remain, among which the k-th is found. If many elements are equal, the bound
 * itself may be the k-th largest; one more pass decides. Where k is large against the number of groups, histograms over
 * all elements are used instead. */
#include "compress/sparse.h"

#include "base/cpu.h"

#define GROUP 32u
#define GROUPS (GW_SPARSE_BLOCK / GROUP)
#define BIN_SHIFT 20 /* exponent and three bits of the mantissa */
#define BINS 2048u

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

#define PART_SHIFT 11 /* a bin has 512 parts */
#define PARTS (1u << (BIN_SHIFT - PART_SHIFT))

/* The k-th largest peak, rounded down by less than a 4,000th. It is at least 1, so that zeros are never selected, and
 * never a NaN. Finds its bin first, then its part of the bin; peaks of other bins are counted in an unused entry. */
static uint32_t kth_peak(const uint32_t *peaks, size_t groups, size_t k) {
    uint16_t bins[BINS] = {0}, parts[PARTS + 1] = {0};
    uint32_t bin = BINS - 1, part = PARTS - 1;
    for (size_t g = 0; g < groups; g++) bins[peaks[g] >> BIN_SHIFT]++;
    for (; bin > 0 && bins[bin] < k; bin--) k -= bins[bin];
    for (size_t g = 0; g < groups; g++) {
        bool inside = peaks[g] >> BIN_SHIFT == bin;
        parts[inside ? peaks[g] >> PART_SHIFT & (PARTS - 1) : PARTS]++;
    }
    for (; part > 0 && parts[part] < k; part--) k -= parts[part];
    uint32_t found = bin << BIN_SHIFT | part << PART_SHIFT;
    if (found > GW_INFINITY_BITS) return GW_INFINITY_BITS;
    return found ? found : 1;
}

static void swap(uint32_t *a, uint32_t *b) {
    uint32_t t = *a;
    *a = *b;
    *b = t;
}

/* The k-th largest of count (k from 1): quickselect, the pivot being the middle of three. Reorders a. */
static uint32_t kth_largest(uint32_t *a, size_t count, size_t k) {
    size_t low = 0, high = count - 1, want = k - 1;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (a[middle] > a[low]) swap(&a[middle], &a[low]);
        if (a[high] > a[low]) swap(&a[high], &a[low]);
        if (a[high] > a[middle]) swap(&a[high], &a[middle]);
        uint32_t pivot = a[middle];
        size_t i = low, j = high;
        for (;;) {
            while (a[i] > pivot) i++;
            while (pivot > a[j]) j--;
            if (i >= j) break;
            swap(&a[i++], &a[j--]);
        }
        if (want <= j) high = j;
        else low = j + 1;
    }
    return a[want];
}

#define FINE_SHIFT 14 /* 512 bins from a number to its double */

static uint32_t fine_bin(uint32_t bits, uint32_t least) {
    uint32_t bin = (bits - least) >> FINE_SHIFT;
    return bin < BINS ? bin : BINS - 1;
}

/* Finds the k-th largest of the listed elements, which are all at least `least`: one histogram leaves few to sort. */
static void select_listed(const float *x, size_t k, uint32_t least, gw_selection *s) {
    uint16_t bins[BINS] = {0};
    uint32_t same[GW_SELECTION_LIST], bin = BINS - 1;
    for (size_t i = 0; i < s->list_count; i++) bins[fine_bin(gw_rank_bits(x[s->list[i]]), least)]++;
    size_t above = 0, count = 0, larger = 0;
    for (; above + bins[bin] < k; bin--) above += bins[bin];
    for (size_t i = 0; i < s->list_count; i++) {
        same[count] = gw_rank_bits(x[s->list[i]]);
        count += fine_bin(same[count], least) == bin;
    }
    s->above = kth_largest(same, count, k - above);
    for (size_t i = 0; i < count; i++) larger += same[i] > s->above;
    s->ties = k - above - larger;
}

__attribute__((target("avx2"))) static inline uint32_t hits8(const float *x, __m256i below) {
    __m256i bits = _mm256_and_si256(_mm256_loadu_si256((const __m256i *)x), _mm256_set1_epi32(0x7fffffff));
    return (uint32_t)_mm256_movemask_ps(_mm256_castsi256_ps(_mm256_cmpgt_epi32(bits, below)));
}

/* Lists the elements of at least `least`, of whole groups; false where they are too many. Groups are listed first: a
 * branch for each would be mispredicted too often. */
__attribute__((target("avx2"))) static bool list_hits(const float *x, size_t groups, const uint32_t *peaks,
                                                      uint32_t least, gw_selection *s) {
    const __m256i below = _mm256_set1_epi32((int)least - 1);
    uint16_t chosen[GROUPS];
    size_t some = 0, found = 0;
    for (size_t g = 0; g < groups; g++) {
        chosen[some] = (uint16_t)g;
        some += peaks[g] >= least;
    }
    for (size_t c = 0; c < some; c++) {
        uint32_t first = chosen[c] * GROUP;
        uint32_t hits = hits8(x + first, below) | hits8(x + first + 8, below) << 8 |
                        hits8(x + first + 16, below) << 16 | hits8(x + first + 24, below) << 24;
        if (found + GROUP > GW_SELECTION_LIST) return false;
        do s->list[found++] = (uint16_t)(first + (uint32_t)__builtin_ctz(hits));
        while (hits &= hits - 1);
    }
    s->list_count = found;
    return true;
}

static bool list_rest(const float *x, size_t from, size_t count, uint32_t least, gw_selection *s) {
    for (size_t i = from; i < count; i++) {
        if (gw_rank_bits(x[i]) < least) continue;
        if (s->list_count == GW_SELECTION_LIST) return false;
        s->list[s->list_count++] = (uint16_t)i;
    }
    return true;
}

/* Many equal elements: the k-th is `least` itself where fewer than k are above it. */
__attribute__((target("avx2"))) static bool select_equal(const float *x, size_t count, size_t k, uint32_t least,
                                                         gw_selection *s) {
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
static bool select_fast(const float *x, size_t count, size_t k, gw_selection *s) {
    uint32_t peaks[GROUPS];
    gw_kernel_peaks32(x, count, peaks);
    uint32_t least = kth_peak(peaks, (count + GROUP - 1) / GROUP, k);
    if (!list_hits(x, count / GROUP, peaks, least, s) || !list_rest(x, count / GROUP * GROUP, count, least, s))
        return select_equal(x, count, k, least, s);
    s->listed = true;
    s->above = least;
    s->ties = count;
    if (s->list_count > k) select_listed(x, k, least, s);
    return true;
}
#endif

/* Where k is large against the number of groups, most groups would be read again. */
void gw_select_largest(const float *x, size_t count, size_t k, gw_selection *selection) {
#if defined(__x86_64__)
    size_t groups = (count + GROUP - 1) / GROUP;
    if (gw_cpu() >= GW_CPU_AVX2 && 2 * k <= groups && select_fast(x, count, k, selection)) return;
#endif
    gw_select_largest_reference(x, count, k, selection);
}
