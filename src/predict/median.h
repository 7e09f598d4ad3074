/* median.h - the median of an array. */
#ifndef GW_PREDICT_MEDIAN_H
#define GW_PREDICT_MEDIAN_H

/* Sorts the values; for an even count returns the mean of the middle two. count > 0. */
double gw_median(double *values, int count);

#endif
