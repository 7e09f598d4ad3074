/* median.h - the middle of some figures. */
#ifndef GW_MODEL_MEDIAN_H
#define GW_MODEL_MEDIAN_H

/* Sorts them; of an even number the mean of the middle two. count > 0. */
double gw_median(double *values, int count);

#endif
