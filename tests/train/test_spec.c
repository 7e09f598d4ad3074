/* test_spec.c - model descriptions: shapes, parameters, and errors. */
#include "nn/activation_memory.h"
#include "nn/model_text.h"
#include "train/train_test.h"

static gw_spec *read_good(const char *text) {
    gw_spec *spec = NULL;
    gw_error error = {0};
    if (gw_spec_parse(text, "m", &spec, &error) != GW_OK) {
        printf("    %s\n", error.text);
        CHECK(!"the text is right");
    }
    return spec;
}

static void shapes(void) {
    gw_spec *spec =
        read_good("# a comment\n\ninput 28 20 3\nconv 8 5 stride 2 pad 1 relu # here too\nmaxpool 3 stride 2 as p\n"
                  "conv 8 3 nobias from p\nadd p\nbatchnorm\nglobalpool\nflatten\ndense 7");
    if (!spec) return;
    CHECK_EQ(8, spec->node_count);
    CHECK_EQ(13, spec->nodes[0].out.height);
    CHECK_EQ(9, spec->nodes[0].out.width);
    CHECK_EQ(6, spec->nodes[1].out.height);
    CHECK_EQ(4, spec->nodes[1].out.width);
    CHECK_EQ(7, gw_spec_output(spec).channels);
    CHECK_EQ(4, spec->nodes[0].line);
    CHECK_EQ(8 * 3 * 25 + 8 + 8 * 8 * 9 + 16 + 8 * 7 + 7, gw_spec_parameters(spec));
    CHECK_EQ(16, gw_spec_buffers(spec));
    CHECK_STR("conv2.weight", spec->parameters[2].name);
    CHECK(spec->parameters[0].decay && !spec->parameters[1].decay && !spec->parameters[3].decay);
    for (int i = 1; i < spec->parameter_count; i++)
        CHECK_EQ(spec->parameters[i - 1].offset + spec->parameters[i - 1].count, spec->parameters[i].offset);
    CHECK_EQ(2ull * 75 * 13 * 9 * 8, spec->nodes[0].flops);
    gw_spec_destroy(spec);
}

static void cuts(void) {
    gw_spec *spec = read_good("input 8 8 3\nconv 4 3 as a\nconv 4 3\nadd a\nflatten\ndense 2\n");
    if (!spec) return;
    CHECK(!gw_spec_can_cut(spec, 0));
    CHECK(gw_spec_can_cut(spec, 1));
    CHECK(!gw_spec_can_cut(spec, 2)); /* a would have to cross too */
    CHECK(gw_spec_can_cut(spec, 3));
    CHECK(gw_spec_can_cut(spec, 4));
    CHECK(!gw_spec_can_cut(spec, 5));
    gw_spec_destroy(spec);
}

static void mistake(const char *text, const char *expected) {
    gw_spec *spec = NULL;
    gw_error error = {0};
    CHECK(gw_spec_parse(text, "my.model", &spec, &error) == GW_INVALID);
    CHECK(spec == NULL);
    if (!strstr(error.text, expected)) printf("    said: %s\n", error.text);
    CHECK(strstr(error.text, expected) != NULL);
    CHECK(strncmp(error.text, "my.model, line ", 15) == 0);
    gw_spec_destroy(spec);
}

static void mistakes(void) {
    mistake("", "without a layer that learns");
    mistake("conv 3 3\n", "line 1: expected input HEIGHT WIDTH CHANNELS");
    mistake("input 28 28\n", "line 1: expected input");
    mistake("input 0 28 1\n", "line 1: expected input");
    mistake("input tokens 8\n", "line 1: expected input");
    mistake("input 1048576 1048576 1048576\n", "line 1: expected input");
    mistake("input 8 8 1\n\nconf 3 3\n", "line 3: no layer is called \"conf\" (did you mean \"conv\"?");
    mistake("input 8 8 1\nconv 3\n", "line 2: conv: expected KERNEL, but the line ends; usage: conv CHANNELS KERNEL");
    mistake("input 8 8 1\nconv x 3\n",
            "line 2: conv: expected CHANNELS, a whole number from 1 to 65536, but found \"x\"");
    mistake("input 8 8 1\nconv 3 3 stride\n", "line 2: conv: expected a number after stride");
    mistake("input 8 8 1\nconv 3 3 fast\n", "line 2: conv: did not expect \"fast\"");
    mistake("input 8 8 1\nconv 3 9 pad 0\n", "line 2: conv: a kernel of 9 does not fit into 8x8 with padding 0");
    mistake("input 8 8 1\nmaxpool 2 pad 2\n", "line 2: maxpool: padding 2 leaves windows of 2 empty");
    mistake("input 8 8 1\ndense 3\n", "line 2: dense: the input is an image of 8x8x1; put flatten");
    mistake("input 8 8 1\nconv 2 3\nadd nothing\n", "line 3: no layer before it is called \"nothing\"");
    mistake("input 8 8 1\nconv 2 3\nadd\n", "line 3: add: expected LABEL");
    mistake("input 8 8 1\nconv 2 3 as a\nconv 3 3\nadd a\n",
            "line 4: add: its inputs differ: 8x8x3, and 8x8x2 of \"a\"");
    mistake("input 8 8 1\nconv 2 3 as a\nconv 2 3 as a\n",
            "line 3: conv: \"a\" is already the name of the layer in line 2");
    mistake("input 8 8 1\nconv 2 3 as\n", "line 2: expected a label after \"as\"");
    mistake("input 8 8 1\nconv 2 3 as a\nconv 2 3\nconv 2 3 from a\n", "line 3: conv: no later layer uses its output");
    mistake("input tokens 8 256\ndense 3\n", "line 2: dense: the input are tokens");
    mistake("input 8 8 1\nembedding 3\n", "line 2: embedding: its input must be the tokens");
    mistake("input 8 1 10\nattention 2\n", "line 2: attention: the input has 10 channels");
    mistake("input 8 8 1\nconv 65536 255\nflatten\ndense 16777216\n", "numbers");
    char line[600];
    snprintf(line, sizeof line, "input 8 8 1\n%0500d\n", 1);
    mistake(line, "line 2: longer than");
    mistake("input 8 8 1\na a a a a a a a a a a a a a a a a\n", "line 2: more than 16 words");
}

static void names(void) {
    for (const gw_zoo_model *m = gw_zoo; m->name; m++) {
        gw_spec *spec = NULL;
        gw_error error = {0};
        CHECK_EQ(m->trains ? GW_OK : GW_INVALID, gw_model_spec(m->name, NULL, &spec, &error));
        if (spec) CHECK_EQ(m->parameters, gw_spec_parameters(spec));
        if (spec) CHECK_EQ(m->tensors, spec->parameter_count);
        gw_spec_destroy(spec);
    }
    gw_spec *spec = NULL;
    gw_error error = {0};
    CHECK_EQ(GW_INVALID, gw_model_spec("resnet2", NULL, &spec, &error));
    CHECK(strstr(error.text, "did you mean \"resnet20\"?") != NULL);
    error = (gw_error){0};
    CHECK_EQ(GW_SYSTEM, gw_model_spec("./no-such.model", NULL, &spec, &error));
    CHECK(strstr(error.text, "./no-such.model cannot be read") != NULL);
    gw_model_size size = {.layers = 2, .heads = 3, .embedding = 48, .context = 16};
    CHECK_EQ(GW_OK, gw_model_spec("gpt", &size, &spec, &error));
    if (spec) CHECK_EQ(16, spec->input.height);
    gw_spec_destroy(spec);
}

/* No two gradients that live at the same time share memory: played through again, apart from the planner. */
static void lifetimes(void) {
    gw_spec *spec = NULL;
    gw_error error = {0};
    gw_lifetimes l;
    CHECK_EQ(GW_OK, gw_model_spec("resnet20", NULL, &spec, &error));
    CHECK_EQ(GW_OK, gw_lifetimes_plan(spec, 0, spec->node_count, false, &l, &error));
    CHECK(l.slots <= 5);
    for (int t = 1; t < spec->tensor_count; t++) {
        CHECK(l.slot[t] >= 0);
        CHECK(l.slot_count[l.slot[t]] >= spec->tensors[t].count);
    }
    for (int a = 1; a < spec->tensor_count; a++)
        for (int b = a + 1; b < spec->tensor_count; b++) {
            if (l.slot[a] != l.slot[b]) continue;
            int last_reader_of_a = 0; /* a's gradient lives from there down to its producer, b's ends at b's producer */
            for (int n = 0; n < spec->node_count; n++)
                for (int k = 0; k < spec->nodes[n].input_count; k++)
                    if (spec->nodes[n].inputs[k] == a) last_reader_of_a = n;
            const gw_graph_node *maker = &spec->nodes[spec->tensors[b].producer];
            int handed_on = maker->kind == &gw_add && maker->inputs[0] == a;
            CHECK(last_reader_of_a < spec->tensors[b].producer || handed_on);
        }
    gw_lifetimes_free(&l);
    gw_spec_destroy(spec);
}

TEST_MAIN(CASE(shapes), CASE(cuts), CASE(mistakes), CASE(names), CASE(lifetimes))
