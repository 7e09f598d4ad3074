/* convolutional.c - ResNet-50 (He et al. 2015), DenseNet-201 (Huang et al. 2016), VGG-16 (Simonyan and Zisserman 2014)
 * and Inception-v4 (Szegedy et al. 2016), as frameworks train them on ImageNet. */
#include "profile/known_models.h"

static void conv_norm(gw_profile_builder *net, gw_conv conv, const char *name) {
    gw_profile_builder_conv(net, conv, "%s.conv", name);
    gw_profile_builder_norm(net, "%s.bn", name);
}

static void head(gw_profile_builder *net) { gw_profile_builder_dense(net, 1, net->channels, 1000, "fc"); }

static void bottleneck(gw_profile_builder *net, int stage, int block, int width, int stride) {
    int height = net->height, channels = net->channels;
    char name[32];
    snprintf(name, sizeof name, "layer%d.%d", stage, block);
    gw_profile_builder_conv(net, (gw_conv){width, 1, 1, 1, false, false}, "%s.conv1", name);
    gw_profile_builder_norm(net, "%s.bn1", name);
    gw_profile_builder_conv(net, (gw_conv){width, 3, 3, stride, false, false}, "%s.conv2", name);
    gw_profile_builder_norm(net, "%s.bn2", name);
    gw_profile_builder_conv(net, (gw_conv){4 * width, 1, 1, 1, false, false}, "%s.conv3", name);
    gw_profile_builder_norm(net, "%s.bn3", name);
    if (block > 0) return;
    net->height = net->width = height;
    net->channels = channels;
    gw_profile_builder_conv(net, (gw_conv){4 * width, 1, 1, stride, false, false}, "%s.downsample.0", name);
    gw_profile_builder_norm(net, "%s.downsample.1", name);
}

void gw_profile_builder_resnet50(gw_profile_builder *net) {
    static const int blocks[] = {3, 4, 6, 3};
    net->height = net->width = 224;
    net->channels = 3;
    gw_profile_builder_conv(net, (gw_conv){64, 7, 7, 2, false, false}, "conv1");
    gw_profile_builder_norm(net, "bn1");
    gw_profile_builder_pool(net, 3, 2, false);
    for (int stage = 0; stage < 4; stage++)
        for (int block = 0; block < blocks[stage]; block++)
            bottleneck(net, stage + 1, block, 64 << stage, stage > 0 && block == 0 ? 2 : 1);
    head(net);
}

void gw_profile_builder_densenet201(gw_profile_builder *net) {
    static const int blocks[] = {6, 12, 48, 32};
    enum { GROWTH = 32 };
    net->height = net->width = 224;
    net->channels = 3;
    gw_profile_builder_conv(net, (gw_conv){64, 7, 7, 2, false, false}, "conv0");
    gw_profile_builder_norm(net, "norm0");
    gw_profile_builder_pool(net, 3, 2, false);
    for (int b = 0; b < 4; b++) {
        for (int i = 0; i < blocks[b]; i++) {
            int channels = net->channels;
            gw_profile_builder_norm(net, "block%d.%d.norm1", b + 1, i + 1);
            gw_profile_builder_conv(net, (gw_conv){4 * GROWTH, 1, 1, 1, false, false}, "block%d.%d.conv1", b + 1,
                                    i + 1);
            gw_profile_builder_norm(net, "block%d.%d.norm2", b + 1, i + 1);
            gw_profile_builder_conv(net, (gw_conv){GROWTH, 3, 3, 1, false, false}, "block%d.%d.conv2", b + 1, i + 1);
            net->channels = channels + GROWTH;
        }
        if (b == 3) break;
        gw_profile_builder_norm(net, "transition%d.norm", b + 1);
        gw_profile_builder_conv(net, (gw_conv){net->channels / 2, 1, 1, 1, false, false}, "transition%d.conv", b + 1);
        gw_profile_builder_pool(net, 2, 2, true);
    }
    gw_profile_builder_norm(net, "norm5");
    head(net);
}

void gw_profile_builder_vgg16(gw_profile_builder *net) {
    static const int convs[] = {2, 2, 3, 3, 3}, channels[] = {64, 128, 256, 512, 512};
    net->height = net->width = 224;
    net->channels = 3;
    for (int stage = 0; stage < 5; stage++) {
        for (int i = 0; i < convs[stage]; i++)
            gw_profile_builder_conv(net, (gw_conv){channels[stage], 3, 3, 1, false, true}, "conv%d_%d", stage + 1,
                                    i + 1);
        gw_profile_builder_pool(net, 2, 2, true);
    }
    gw_profile_builder_dense(net, 1, 512 * 7 * 7, 4096, "fc6");
    gw_profile_builder_dense(net, 1, 4096, 4096, "fc7");
    gw_profile_builder_dense(net, 1, 4096, 1000, "fc8");
}

/* Inception-v4: parallel branches with the same input, whose outputs are concatenated. A branch is a list of
 * convolutions; an entry with 0 channels ends it. */
#define BRANCH_MAX 7

typedef gw_conv branch[BRANCH_MAX];

static void run_branch(gw_profile_builder *net, const gw_conv *convs, const char *name, int number) {
    for (int i = 0; convs[i].channels; i++) {
        char full[GW_PROFILE_NAME_BYTES];
        snprintf(full, sizeof full, "%s.%d.%d", name, number, i);
        conv_norm(net, convs[i], full);
    }
}

/* passed: channels of the pooled input that bypass the branches. */
static void block(gw_profile_builder *net, const branch *branches, int count, int passed, const char *name) {
    gw_profile_builder seen = *net;
    int channels = passed;
    for (int i = 0; i < count; i++) {
        net->height = seen.height;
        net->width = seen.width;
        net->channels = seen.channels;
        run_branch(net, branches[i], name, i);
        channels += net->channels;
    }
    net->channels = channels;
}

/* A branch of block C; its end splits into a 1x3 and a 3x1 kernel. */
static void split_branch(gw_profile_builder *net, const gw_conv *convs, const char *name, int number) {
    run_branch(net, convs, name, number);
    int channels = net->channels;
    char full[GW_PROFILE_NAME_BYTES];
    snprintf(full, sizeof full, "%s.%d.a", name, number);
    conv_norm(net, (gw_conv){256, 1, 3, 1, false, false}, full);
    net->channels = channels;
    snprintf(full, sizeof full, "%s.%d.b", name, number);
    conv_norm(net, (gw_conv){256, 3, 1, 1, false, false}, full);
}

static void inception_c(gw_profile_builder *net, const char *name) {
    static const branch plain[] = {{{256, 1, 1, 1, false, false}}};
    static const branch split[] = {
        {{384, 1, 1, 1, false, false}},
        {{384, 1, 1, 1, false, false}, {448, 3, 1, 1, false, false}, {512, 1, 3, 1, false, false}}};
    int channels = net->channels;
    run_branch(net, plain[0], name, 0);
    for (int i = 0; i < 2; i++) {
        net->channels = channels;
        split_branch(net, split[i], name, i + 1);
    }
    net->channels = channels;
    run_branch(net, plain[0], name, 3);
    net->channels = 1536;
}

static void stem(gw_profile_builder *net) {
    static const branch mixed4[] = {{{64, 1, 1, 1, false, false}, {96, 3, 3, 1, true, false}},
                                    {{64, 1, 1, 1, false, false},
                                     {64, 1, 7, 1, false, false},
                                     {64, 7, 1, 1, false, false},
                                     {96, 3, 3, 1, true, false}}};
    conv_norm(net, (gw_conv){32, 3, 3, 2, true, false}, "stem.0");
    conv_norm(net, (gw_conv){32, 3, 3, 1, true, false}, "stem.1");
    conv_norm(net, (gw_conv){64, 3, 3, 1, false, false}, "stem.2");
    block(net, (const branch[]){{{96, 3, 3, 2, true, false}}}, 1, 64, "stem.3");
    block(net, mixed4, 2, 0, "stem.4");
    block(net, (const branch[]){{{192, 3, 3, 2, true, false}}}, 1, 192, "stem.5");
}

void gw_profile_builder_inception4(gw_profile_builder *net) {
    static const branch a[] = {{{96, 1, 1, 1, false, false}},
                               {{64, 1, 1, 1, false, false}, {96, 3, 3, 1, false, false}},
                               {{64, 1, 1, 1, false, false}, {96, 3, 3, 1, false, false}, {96, 3, 3, 1, false, false}},
                               {{96, 1, 1, 1, false, false}}};
    static const branch reduce_a[] = {
        {{384, 3, 3, 2, true, false}},
        {{192, 1, 1, 1, false, false}, {224, 3, 3, 1, false, false}, {256, 3, 3, 2, true, false}}};
    static const branch b[] = {
        {{384, 1, 1, 1, false, false}},
        {{192, 1, 1, 1, false, false}, {224, 1, 7, 1, false, false}, {256, 7, 1, 1, false, false}},
        {{192, 1, 1, 1, false, false},
         {192, 7, 1, 1, false, false},
         {224, 1, 7, 1, false, false},
         {224, 7, 1, 1, false, false},
         {256, 1, 7, 1, false, false}},
        {{128, 1, 1, 1, false, false}}};
    static const branch reduce_b[] = {{{192, 1, 1, 1, false, false}, {192, 3, 3, 2, true, false}},
                                      {{256, 1, 1, 1, false, false},
                                       {256, 1, 7, 1, false, false},
                                       {320, 7, 1, 1, false, false},
                                       {320, 3, 3, 2, true, false}}};
    char name[32];
    net->height = net->width = 299;
    net->channels = 3;
    stem(net);
    for (int i = 0; i < 4; i++) {
        snprintf(name, sizeof name, "a%d", i);
        block(net, a, 4, 0, name);
    }
    block(net, reduce_a, 2, 384, "reduce_a");
    for (int i = 0; i < 7; i++) {
        snprintf(name, sizeof name, "b%d", i);
        block(net, b, 4, 0, name);
    }
    block(net, reduce_b, 2, 1024, "reduce_b");
    for (int i = 0; i < 3; i++) {
        snprintf(name, sizeof name, "c%d", i);
        inception_c(net, name);
    }
    head(net);
}
