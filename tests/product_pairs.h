/* product_pairs.h - a covering selection of a product: rows in which every pair of values of two axes meets.
 *
 * Greedy and deterministic: each row is the best of some candidates; a candidate begins with a pair that has not met
 * yet and takes, axis by axis, the value with which most new pairs meet. */
#ifndef GW_TEST_PRODUCT_PAIRS_H
#define GW_TEST_PRODUCT_PAIRS_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define AXES_MAX 10
#define VALUES_MAX 16
#define ROWS_MAX 512
#define CANDIDATES 24

typedef struct pair_rows {
    int axes, count;
    int sizes[AXES_MAX]; /* values of each axis */
    int row[ROWS_MAX][AXES_MAX];
} pair_rows;

typedef struct pair_search {
    bool met[AXES_MAX][VALUES_MAX][AXES_MAX][VALUES_MAX]; /* [a][x][b][y], both ways round */
    int left;                                             /* pairs that have not met */
    uint64_t seed;
} pair_search;

static uint32_t pair_random(pair_search *s, int below) {
    s->seed = s->seed * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (uint32_t)(s->seed >> 33) % (uint32_t)below;
}

/* New pairs of value x on axis a with what the row already has (-1: nothing yet). */
static int pair_gain(const pair_search *s, const pair_rows *rows, const int *row, int a, int x) {
    int gain = 0;
    for (int b = 0; b < rows->axes; b++) gain += b != a && row[b] >= 0 && !s->met[a][x][b][row[b]];
    return gain;
}

/* The first pair that has not met, counted from a random place. */
static void pair_begin(pair_search *s, const pair_rows *rows, int *row) {
    int skip = (int)pair_random(s, s->left);
    for (int a = 0; a < rows->axes; a++)
        for (int b = a + 1; b < rows->axes; b++)
            for (int x = 0; x < rows->sizes[a]; x++)
                for (int y = 0; y < rows->sizes[b]; y++) {
                    if (s->met[a][x][b][y] || skip-- > 0) continue;
                    row[a] = x;
                    row[b] = y;
                    return;
                }
}

static int pair_candidate(pair_search *s, const pair_rows *rows, int *row) {
    int gained = 1;
    for (int a = 0; a < rows->axes; a++) row[a] = -1;
    pair_begin(s, rows, row);
    int first = (int)pair_random(s, rows->axes);
    for (int i = 0; i < rows->axes; i++) {
        int a = (first + i) % rows->axes, best = -1, shift = (int)pair_random(s, rows->sizes[a]);
        if (row[a] >= 0) continue;
        for (int v = 0; v < rows->sizes[a]; v++) {
            int x = (v + shift) % rows->sizes[a], gain = pair_gain(s, rows, row, a, x);
            if (gain <= best) continue;
            best = gain;
            row[a] = x;
        }
        gained += best;
    }
    return gained;
}

static void pair_note(pair_search *s, const pair_rows *rows, const int *row) {
    for (int a = 0; a < rows->axes; a++)
        for (int b = 0; b < rows->axes; b++) {
            if (a == b) continue;
            bool *met = &s->met[a][row[a]][b][row[b]];
            s->left -= a < b && !*met;
            *met = true;
        }
}

static pair_rows *pairs_make(int axes, const int *sizes, uint64_t seed) {
    pair_rows *rows = calloc(1, sizeof *rows);
    pair_search *s = calloc(1, sizeof *s);
    if (!rows || !s) abort();
    rows->axes = axes;
    s->seed = seed;
    memcpy(rows->sizes, sizes, (size_t)axes * sizeof *sizes);
    for (int a = 0; a < axes; a++)
        for (int b = a + 1; b < axes; b++) s->left += sizes[a] * sizes[b];
    while (s->left > 0) {
        int best = 0, candidate[AXES_MAX];
        if (rows->count == ROWS_MAX) abort();
        for (int c = 0; c < CANDIDATES; c++) {
            int gained = pair_candidate(s, rows, candidate);
            if (gained <= best) continue;
            best = gained;
            memcpy(rows->row[rows->count], candidate, sizeof candidate);
        }
        pair_note(s, rows, rows->row[rows->count++]);
    }
    free(s);
    return rows;
}

#endif
