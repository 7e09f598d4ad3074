/* select.c - the k largest of a block, exactly, in little more than one pass.
 *
 * The k-th largest of the peaks of groups of 32 is no larger than the k-th largest element (k groups have an element as
 * large), and so bounds it from below. Rounded down to a bin of a histogram over the upper bits it costs one look at each
 * peak. Only groups whose peak reaches it are looked at again; at 1 % that leaves about 1.4 k candidates, among which the
 * k-th is found. Where k is large against the number of groups the histogram is taken over all elements instead. */
#include "compress/sparse.h"

#include "base/cpu.h"

#define GROUP 32u
#define GROUPS (GW_SPARSE_BLOCK / GROUP)
#define BIN_SHIFT 20 /* exponent and three bits of the mantissa */
#define BINS 2048u
#define CANDIDATES 4096u

/* The lowest bits of the bin that holds the k-th largest, k > 0; at least 1, so that a zero is never meant. */
static uint32_t kth_bin(const uint32_t *bins, size_t k) {
    size_t seen = 0;
    for (uint32_t bin = BINS; bin-- > 0;) {
        seen += bins[bin];
        if (seen >= k) return bin ? bin << BIN_SHIFT : 1;
    }
    return 1;
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

/* All magnitudes counted, and k-th is `above`: so many of its equals belong to the k. */
static size_t ties_of(const uint32_t *a, size_t count, size_t k, uint32_t above) {
    size_t larger = 0;
    for (size_t i = 0; i < count; i++) larger += a[i] > above;
    return k - larger;
}

/* Three histograms, each of the elements that share the upper bits found before it. */
gw_selection gw_select_largest_reference(const float *x, size_t count, size_t k) {
    static const int shifts[] = {20, 9, 0}, widths[] = {11, 11, 9};
    uint32_t found = 0, known = 0;
    size_t left = k;
    for (int pass = 0; pass < 3; pass++) {
        uint32_t bins[BINS] = {0}, mask = (1u << widths[pass]) - 1, bin = mask;
        for (size_t i = 0; i < count; i++) {
            uint32_t bits = gw_magnitude_bits(x[i]);
            if ((bits & known) == found) bins[bits >> shifts[pass] & mask]++;
        }
        while (bin > 0 && bins[bin] < left) left -= bins[bin--];
        found |= bin << shifts[pass];
        known |= mask << shifts[pass];
    }
    return found ? (gw_selection){found, left} : (gw_selection){1, count};
}

/* Magnitudes of at least `least` from groups whose peak has it; CANDIDATES + 1 where there are too many. */
static size_t collect_plain(const float *x, size_t count, const uint32_t *peaks, uint32_t least, uint32_t *out) {
    size_t found = 0;
    for (size_t g = 0; g * GROUP < count; g++) {
        if (peaks[g] < least) continue;
        if (found + GROUP > CANDIDATES) return CANDIDATES + 1;
        size_t end = count - g * GROUP < GROUP ? count : (g + 1) * GROUP;
        for (size_t i = g * GROUP; i < end; i++) {
            out[found] = gw_magnitude_bits(x[i]);
            found += out[found] >= least;
        }
    }
    return found;
}

gw_selection gw_select_largest(const float *x, size_t count, size_t k) {
    uint32_t peaks[GROUPS], bins[BINS], candidate[CANDIDATES];
    size_t groups = (count + GROUP - 1) / GROUP;
    if (gw_cpu() == GW_CPU_PLAIN || 2 * k > groups || k == 0) return gw_select_largest_reference(x, count, k);
    gw_kernel_peaks32(x, count, peaks);
    memset(bins, 0, sizeof bins);
    for (size_t g = 0; g < groups; g++) bins[peaks[g] >> BIN_SHIFT]++;
    uint32_t least = kth_bin(bins, k);
    size_t found = collect_plain(x, count, peaks, least, candidate);
    if (found > CANDIDATES) return gw_select_largest_reference(x, count, k);
    if (found <= k) return (gw_selection){least, count};
    uint32_t above = kth_largest(candidate, found, k);
    return (gw_selection){above, ties_of(candidate, found, k, above)};
}
