/* transformers.c - BERT (Devlin et al. 2018) for pre-training, with a vocabulary padded to 30,528 and sequences of 64
 * tokens as in the measurements of MG-WFBP and DeAR; and GPT-2 (Radford et al. 2019) with 124 million parameters and
 * 1,024 tokens. Input and output share the embedding matrix, so its gradient is complete last. */
#include "profile/known_models.h"

typedef struct transformer {
    int tokens, width, layers, words, positions;
} transformer;

static double attention(const transformer *t) { return 4.0 * t->tokens * t->tokens * t->width; }

static void bert_layer(gw_profile_builder *net, const transformer *t, int i) {
    static const char *const parts[] = {"query", "key", "value"};
    int n = t->tokens, w = t->width;
    for (int k = 0; k < 3; k++) gw_profile_builder_dense(net, n, w, w, "layer.%d.%s", i, parts[k]);
    gw_profile_builder_compute(net, "Attention", attention(t), "layer.%d.attention", i);
    gw_profile_builder_dense(net, n, w, w, "layer.%d.attention.output", i);
    gw_profile_builder_layernorm(net, n, w, "layer.%d.attention.norm", i);
    gw_profile_builder_dense(net, n, w, 4 * w, "layer.%d.intermediate", i);
    gw_profile_builder_dense(net, n, 4 * w, w, "layer.%d.output", i);
    gw_profile_builder_layernorm(net, n, w, "layer.%d.norm", i);
}

static void bert(gw_profile_builder *net, const transformer *t) {
    gw_profile_builder_embedding(net, t->words, t->width, "embeddings.word");
    gw_profile_builder_embedding(net, t->positions, t->width, "embeddings.position");
    gw_profile_builder_embedding(net, 2, t->width, "embeddings.type");
    gw_profile_builder_layernorm(net, t->tokens, t->width, "embeddings.norm");
    for (int i = 0; i < t->layers; i++) bert_layer(net, t, i);
    gw_profile_builder_dense(net, 1, t->width, t->width, "pooler");
    gw_profile_builder_dense(net, t->tokens, t->width, t->width, "cls.transform");
    gw_profile_builder_layernorm(net, t->tokens, t->width, "cls.norm");
    gw_profile_builder_compute(net, "Linear", 2.0 * t->tokens * t->width * t->words, "cls.decoder");
    gw_profile_builder_bias(net, t->tokens, t->words, "cls.bias");
    gw_profile_builder_dense(net, 1, t->width, 2, "cls.relationship");
}

void gw_profile_builder_bert_base(gw_profile_builder *net) {
    bert(net, &(transformer){.tokens = 64, .width = 768, .layers = 12, .words = 30528, .positions = 512});
}

void gw_profile_builder_bert_large(gw_profile_builder *net) {
    bert(net, &(transformer){.tokens = 64, .width = 1024, .layers = 24, .words = 30528, .positions = 512});
}

void gw_profile_builder_gpt2(gw_profile_builder *net) {
    const transformer t = {.tokens = 1024, .width = 768, .layers = 12, .words = 50257, .positions = 1024};
    int n = t.tokens, w = t.width;
    gw_profile_builder_embedding(net, t.words, w, "wte");
    gw_profile_builder_embedding(net, t.positions, w, "wpe");
    for (int i = 0; i < t.layers; i++) {
        gw_profile_builder_layernorm(net, n, w, "h.%d.ln_1", i);
        gw_profile_builder_dense(net, n, w, 3 * w, "h.%d.attn.c_attn", i);
        gw_profile_builder_compute(net, "Attention", attention(&t), "h.%d.attn", i);
        gw_profile_builder_dense(net, n, w, w, "h.%d.attn.c_proj", i);
        gw_profile_builder_layernorm(net, n, w, "h.%d.ln_2", i);
        gw_profile_builder_dense(net, n, w, 4 * w, "h.%d.mlp.c_fc", i);
        gw_profile_builder_dense(net, n, 4 * w, w, "h.%d.mlp.c_proj", i);
    }
    gw_profile_builder_layernorm(net, n, w, "ln_f");
    gw_profile_builder_compute(net, "Linear", 2.0 * n * w * t.words, "lm_head");
}
