/* forward_graph.h - which tensors have to arrive before an operation of the next forward pass can run, and the orders
 * of transfers that follow from it: TIC and TAC of TicTac (Hashemi, Jyothi, Campbell 2019).
 *
 * Every tensor has one operation, the one that uses it (of a layer with several tensors, the last has the compute). An
 * operation needs its own tensor and, transitively, all that the operations before it need. Pure; one thread. */
#ifndef GW_SCHEDULE_FORWARD_GRAPH_H
#define GW_SCHEDULE_FORWARD_GRAPH_H

#include "schedule/schedule.h"

typedef struct gw_forward_graph gw_forward_graph;

/* From the tensors' `after`. Tensors without elements are never waited for. */
gw_status gw_forward_graph_open(gw_forward_graph **graph, const gw_schedule_tensor *tensors, int count,
                                gw_error *error);
void gw_forward_graph_close(gw_forward_graph *graph); /* NULL is fine */

/* Each writes the places of all tensors in the order of transfers: place[t], from 0. */

/* From the graph alone: first the tensor of the operation that needs fewest others. */
void gw_forward_graph_tic(gw_forward_graph *graph, int *place);
/* With the times of a transfer and of the operation of each tensor: of two transfers a goes before b if
 * min(P_b, M_a) < min(P_a, M_b). M is the time of the transfer, P the compute that only this transfer holds up. If both
 * are equal, the one with the smaller M+ goes first: the least time of all transfers that an operation still waits for,
 * this one and others. All are recomputed after each pick. */
void gw_forward_graph_tac(gw_forward_graph *graph, const double *transfer_us, const double *compute_us, int *place);
/* Predicts when the forward pass ends: transfers one after the other in this order, operations one at a time as they
 * become possible, the first in forward order first. */
double gw_forward_graph_span(gw_forward_graph *graph, const int *place, const double *transfer_us,
                             const double *compute_us);

#endif
