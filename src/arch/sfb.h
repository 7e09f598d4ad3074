/* sfb.h - a fully connected layer as its sufficient factors (Poseidon: Zhang et al., USENIX ATC 2017).
 *
 * Over a batch of K examples the gradient of a matrix of M x N is the sum of K outer products u v^T, where u is the
 * gradient of the layer's outputs and v its inputs. Sending u and v to all peers costs K (M + N) numbers a peer instead
 * of the matrix. Pure. */
#ifndef GW_ARCH_SFB_H
#define GW_ARCH_SFB_H

#include <stdbool.h>
#include <stddef.h>

typedef struct gw_sfb_layer {
    size_t rows, cols; /* M, N */
    size_t batch;      /* K: examples of one worker */
} gw_sfb_layer;

/* Numbers that a process sends and receives in a step if the whole matrix is sent. With P1 workers, and P2 servers in
 * the processes of some of them: 2 M N (P1 + P2 - 2) / P2. An all-reduce costs as much as P2 = P1 servers:
 * 4 M N (P1 - 1) / P1. */
double gw_sfb_full(const gw_sfb_layer *layer, int workers, int servers);
/* The same if factors are sent: 2 K (P1 - 1) (M + N). */
double gw_sfb_factors(const gw_sfb_layer *layer, int workers);
/* Whether factors are the cheaper form. */
bool gw_sfb_chosen(const gw_sfb_layer *layer, int workers, int servers);

/* The factors of one worker: left (batch x rows) and right (batch x cols), row major. */
typedef struct gw_sfb_worker {
    const float *left, *right;
    size_t batch;
} gw_sfb_worker;

/* sum (rows x cols, row major) = scale * the outer products of all workers, one example after the other: the bits do
 * not depend on how examples are grouped. The matrix, which is larger than caches, is written once. */
void gw_sfb_sum(float *sum, size_t rows, size_t cols, const gw_sfb_worker *workers, int count, float scale);

#endif
