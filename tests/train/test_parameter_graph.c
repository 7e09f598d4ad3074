/* test_parameter_graph.c - the graph of a model's parameters, and the orders that TicTac makes of it. */
#include "nn/parameter_graph.h"

#include "nn/model_text.h"
#include "schedule/forward_graph.h"
#include "train_test.h"

enum { MOST = 400 };

static gw_spec *spec_of(const char *name) {
    gw_spec *spec = NULL;
    gw_error error = {0};
    CHECK_EQ(GW_OK, gw_model_spec(name, NULL, &spec, &error));
    return spec;
}

static gw_parameter_graph graph_of(const gw_spec *spec, int first) {
    gw_parameter_graph graph = {0};
    gw_error error = {0};
    CHECK_EQ(GW_OK, gw_parameter_graph_make(spec, first, spec->node_count, &graph, &error));
    return graph;
}

static bool is(const gw_parameter_graph *g, int parameter, int count, const int *wanted) {
    int begin = g->begin[parameter];
    return g->begin[parameter + 1] - begin == count &&
           (!count || memcmp(g->before + begin, wanted, (size_t)count * sizeof *wanted) == 0);
}

static void branches_meet_where_they_are_added(void) {
    gw_spec *spec = spec_of("branches");
    gw_parameter_graph g = graph_of(spec, 0);
    CHECK_EQ(14, g.count); /* weight and bias of seven layers */
    CHECK(is(&g, 0, 0, NULL));
    CHECK(is(&g, 1, 1, (int[]){0}));
    CHECK(is(&g, 2, 1, (int[]){1}));     /* wide, behind a pool */
    CHECK(is(&g, 6, 1, (int[]){1}));     /* narrow, from the same pool */
    CHECK(is(&g, 10, 2, (int[]){9, 5})); /* dense, behind both */
    gw_parameter_graph_free(&g);
    gw_spec_destroy(spec);
}

static void a_stage_begins_with_nothing(void) {
    gw_spec *spec = spec_of("mlp");
    gw_parameter_graph g = graph_of(spec, 2);
    CHECK_EQ(4, g.count);
    CHECK(is(&g, 0, 0, NULL) && is(&g, 1, 1, (int[]){0}) && is(&g, 2, 1, (int[]){1}));
    gw_parameter_graph_free(&g);
    gw_spec_destroy(spec);
}

/* Times by the numbers of floats and operations, as on a slow network. */
static void orders(const char *name, int tic[MOST], int tac[MOST], int *count) {
    gw_schedule_tensor tensors[MOST];
    double transfer[MOST], compute[MOST] = {0};
    gw_error error = {0};
    gw_spec *spec = spec_of(name);
    gw_parameter_graph g = graph_of(spec, 0);
    gw_forward_graph *graph = NULL;
    *count = g.count;
    for (int p = 0; p < g.count; p++) {
        tensors[p] = (gw_schedule_tensor){.count = spec->parameters[p].count, .element = 4,
                                          .after = g.before + g.begin[p], .after_count = g.begin[p + 1] - g.begin[p]};
        transfer[p] = 50 + (double)spec->parameters[p].count / 25;
    }
    for (int i = 0; i < spec->node_count; i++) {
        const gw_graph_node *node = &spec->nodes[i];
        if (node->parameters) compute[node->first_parameter + node->parameters - 1] += (double)node->flops / 1000;
    }
    CHECK_EQ(GW_OK, gw_forward_graph_open(&graph, tensors, g.count, &error));
    gw_forward_graph_tic(graph, tic);
    gw_forward_graph_tac(graph, transfer, compute, tac);
    gw_forward_graph_close(graph);
    gw_parameter_graph_free(&g);
    gw_spec_destroy(spec);
}

static void tic_tac_and_forward_order_differ(void) {
    int tic[MOST], tac[MOST], count, tic_forward = 0, tac_forward = 0, same = 0;
    orders("branches", tic, tac, &count);
    for (int p = 0; p < count; p++) tic_forward += tic[p] == p, tac_forward += tac[p] == p, same += tic[p] == tac[p];
    CHECK(tic_forward < count && tac_forward < count && same < count);
    orders("mlp", tic, tac, &count);
    for (int p = 0; p < count; p++) CHECK(tic[p] == p && tac[p] == p);
}

TEST_MAIN(CASE(branches_meet_where_they_are_added), CASE(a_stage_begins_with_nothing),
          CASE(tic_tac_and_forward_order_differ))
