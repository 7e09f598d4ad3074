/* stragglers.c - see stragglers.h. */
#include "train/stragglers.h"

void gw_train_workers_compare(gw_train_worker *w, int count) {
    uint64_t all = 0;
    for (int i = 0; i < count; i++) all += w[i].waiting;
    for (int i = 0; i < count && count > 1; i++) {
        uint64_t others = (all - w[i].waiting) / (uint64_t)(count - 1);
        w[i].awaited = others > w[i].waiting ? others - w[i].waiting : 0;
    }
}

int gw_train_workers_slow(const gw_train_worker *w, int count) {
    uint64_t all = 0;
    int slow = 0;
    for (int i = 0; i < count; i++) {
        all += w[i].compute;
        if (w[i].compute > w[slow].compute) slow = i;
    }
    if (count < 2) return -1;
    uint64_t others = (all - w[slow].compute) / (uint64_t)(count - 1);
    return w[slow].compute > others + others / 10 ? slow : -1;
}
