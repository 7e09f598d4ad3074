/* accuracy_rows.h - the rows of bench/results/accuracies.csv, as the build embeds them (cmake/accuracies.cmake). */
#ifndef GW_STRATEGY_ACCURACY_ROWS_H
#define GW_STRATEGY_ACCURACY_ROWS_H

/* One run of `gradwire train`. */
typedef struct gw_accuracy_row {
    const char *model, *data;
    int workers, epochs, seed;
    const char *optimizer, *line; /* of the strategy */
    double accuracy;              /* of the test after the last epoch, 0 to 1 */
} gw_accuracy_row;

extern const gw_accuracy_row gw_accuracy_rows[]; /* a row without a model at the end */

#endif
