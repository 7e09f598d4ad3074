/* transformers.c - BERT (Devlin et al. 2018) for pre-training, with a vocabulary padded to 30,528 and sentences of 64
 * words as MG-WFBP's and DeAR's measurements have them, and GPT-2 (Radford et al. 2019) of 124 million parameters with
 * 1,024 words. The matrix of words is shared by input and output, so its gradient is complete last. */
#include "model/architectures.h"

typedef struct transformer {
    int tokens, width, layers, words, positions;
} transformer;

static double attention(const transformer *t) { return 4.0 * t->tokens * t->tokens * t->width; }

static void bert_layer(gw_network *net, const transformer *t, int i) {
    static const char *const parts[] = {"query", "key", "value"};
    int n = t->tokens, w = t->width;
    for (int k = 0; k < 3; k++) gw_network_dense(net, n, w, w, "layer.%d.%s", i, parts[k]);
    gw_network_work(net, "Attention", attention(t), "layer.%d.attention", i);
    gw_network_dense(net, n, w, w, "layer.%d.attention.output", i);
    gw_network_layernorm(net, n, w, "layer.%d.attention.norm", i);
    gw_network_dense(net, n, w, 4 * w, "layer.%d.intermediate", i);
    gw_network_dense(net, n, 4 * w, w, "layer.%d.output", i);
    gw_network_layernorm(net, n, w, "layer.%d.norm", i);
}

static void bert(gw_network *net, const transformer *t) {
    gw_network_embedding(net, t->words, t->width, "embeddings.word");
    gw_network_embedding(net, t->positions, t->width, "embeddings.position");
    gw_network_embedding(net, 2, t->width, "embeddings.type");
    gw_network_layernorm(net, t->tokens, t->width, "embeddings.norm");
    for (int i = 0; i < t->layers; i++) bert_layer(net, t, i);
    gw_network_dense(net, 1, t->width, t->width, "pooler");
    gw_network_dense(net, t->tokens, t->width, t->width, "cls.transform");
    gw_network_layernorm(net, t->tokens, t->width, "cls.norm");
    gw_network_work(net, "Linear", 2.0 * t->tokens * t->width * t->words, "cls.decoder");
    gw_network_bias(net, t->tokens, t->words, "cls.bias");
    gw_network_dense(net, 1, t->width, 2, "cls.relationship");
}

void gw_network_bert_base(gw_network *net) {
    bert(net, &(transformer){.tokens = 64, .width = 768, .layers = 12, .words = 30528, .positions = 512});
}

void gw_network_bert_large(gw_network *net) {
    bert(net, &(transformer){.tokens = 64, .width = 1024, .layers = 24, .words = 30528, .positions = 512});
}

void gw_network_gpt2(gw_network *net) {
    const transformer t = {.tokens = 1024, .width = 768, .layers = 12, .words = 50257, .positions = 1024};
    int n = t.tokens, w = t.width;
    gw_network_embedding(net, t.words, w, "wte");
    gw_network_embedding(net, t.positions, w, "wpe");
    for (int i = 0; i < t.layers; i++) {
        gw_network_layernorm(net, n, w, "h.%d.ln_1", i);
        gw_network_dense(net, n, w, 3 * w, "h.%d.attn.c_attn", i);
        gw_network_work(net, "Attention", attention(&t), "h.%d.attn", i);
        gw_network_dense(net, n, w, w, "h.%d.attn.c_proj", i);
        gw_network_layernorm(net, n, w, "h.%d.ln_2", i);
        gw_network_dense(net, n, w, 4 * w, "h.%d.mlp.c_fc", i);
        gw_network_dense(net, n, 4 * w, w, "h.%d.mlp.c_proj", i);
    }
    gw_network_layernorm(net, n, w, "ln_f");
    gw_network_work(net, "Linear", 2.0 * n * w * t.words, "lm_head");
}
