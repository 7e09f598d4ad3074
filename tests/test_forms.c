/* test_forms.c - which form a codec's exchanges take, which forms are refused and why, and what is lost for good. */
#include "test.h"

#include "compress/compress.h"
#include "strategy/combine.h"

static gw_codec_setup setup_of(const char *text) {
    gw_codec_setup setup = {0};
    gw_error error = {.rank = -1};
    CHECK_EQ(GW_OK, gw_codec_parse(text, &setup, &error));
    if (error.status) printf("    %s: %s\n", text, error.text);
    return setup;
}

static void the_rule(void) {
    static const struct {
        const char *codec;
        int members;
        bool halves;
        gw_coded_form form;
    } cases[] = {
        {"none", 8, false, GW_FORM_IN_FLIGHT},
        {"fp16", 8, true, GW_FORM_IN_FLIGHT},
        {"randomk", 2, false, GW_FORM_IN_FLIGHT},
        {"powersgd", 8, false, GW_FORM_IN_FLIGHT},
        {"terngrad:shared", 8, false, GW_FORM_IN_FLIGHT},
        {"qsgd", 2, false, GW_FORM_ONE_PASS}, /* unbiased */
        {"qsgd", 4, false, GW_FORM_ONE_PASS},
        {"qsgd", 4, true, GW_FORM_ONE_PASS},
        {"qsgd", 5, false, GW_FORM_TWO_PASS},
        {"qsgd:bits=2,elias", 4, false, GW_FORM_ONE_PASS},
        {"terngrad", 4, false, GW_FORM_ONE_PASS},
        {"terngrad", 8, true, GW_FORM_TWO_PASS},
        {"qsgd:feedback=both", 4, false, GW_FORM_TWO_PASS}, /* with feedback it is biased */
        {"doublesqueeze:codec=qsgd", 3, false, GW_FORM_TWO_PASS},
        {"qsgd:feedback=worker", 64, false, GW_FORM_ONE_PASS}, /* owners would keep nothing */
        {"topk:feedback=worker", 8, true, GW_FORM_ONE_PASS},
        {"dgc:feedback=worker", 8, false, GW_FORM_ONE_PASS},
        {"topk", 8, false, GW_FORM_TWO_PASS}, /* biased */
        {"onebit", 3, false, GW_FORM_TWO_PASS},
        {"int8", 3, false, GW_FORM_TWO_PASS},
        {"topk", 2, false, GW_FORM_ONE_PASS}, /* sends no more than two passes */
        {"topk", 2, true, GW_FORM_TWO_PASS},
        {"fp16:form=onepass", 8, false, GW_FORM_ONE_PASS}, /* asked for */
        {"qsgd:form=twopass", 2, false, GW_FORM_TWO_PASS},
        {"topk:form=onepass", 64, true, GW_FORM_ONE_PASS},
        {"powersgd:form=onepass", 8, false, GW_FORM_ONE_PASS},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        gw_codec_setup setup = setup_of(cases[i].codec);
        gw_coded_form form = gw_coded_form_of(&setup, cases[i].members, cases[i].halves);
        CHECK_EQ(cases[i].form, form);
        if (form != cases[i].form) printf("    %s among %d\n", cases[i].codec, cases[i].members);
    }
}

/* Through servers: what their answers are. */
static void the_rule_of_servers(void) {
    static const struct {
        const char *codec;
        gw_coded_form sums, weights;
    } cases[] = {
        {"fp16", GW_FORM_IN_FLIGHT, GW_FORM_ONE_PASS},
        {"randomk", GW_FORM_IN_FLIGHT, GW_FORM_ONE_PASS},
        {"powersgd:feedback=both", GW_FORM_IN_FLIGHT, GW_FORM_TWO_PASS},
        {"int8", GW_FORM_TWO_PASS, GW_FORM_ONE_PASS},
        {"qsgd", GW_FORM_TWO_PASS, GW_FORM_ONE_PASS},
        {"topk", GW_FORM_TWO_PASS, GW_FORM_TWO_PASS},
        {"topk:feedback=worker", GW_FORM_ONE_PASS, GW_FORM_ONE_PASS}, /* servers would keep nothing */
        {"qsgd:feedback=worker", GW_FORM_ONE_PASS, GW_FORM_ONE_PASS},
        {"dgc:feedback=worker", GW_FORM_ONE_PASS, GW_FORM_ONE_PASS},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        gw_codec_setup setup = setup_of(cases[i].codec);
        CHECK_EQ(cases[i].sums, gw_coded_form_served(&setup, false));
        CHECK_EQ(cases[i].weights, gw_coded_form_served(&setup, true));
    }
}

static void impossible_forms_are_refused(void) {
    static const char *const refused[][2] = {
        {"int8:form=inflight", "cannot be added to each other"},
        {"terngrad:form=inflight", "cannot be added to each other"},
        {"powersgd:form=twopass", "cannot be cut between owners"},
        {"topk:form=twopass,feedback=worker", "would be lost for good"},
        {"dgc:form=twopass,feedback=worker", "would be lost for good"},
        {"topk:feedback=none", "would be lost for good"},
        {"threshold:feedback=none", "would be lost for good"},
        {"terngrad:shared,form=inflight,limit=0.1", "no error limit is possible"},
        {"terngrad:shared,limit=0.1", "no error limit is possible"},
    };
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++) {
        gw_codec_setup setup = {0};
        gw_error error = {.rank = -1};
        CHECK_EQ(GW_UNSUPPORTED, gw_codec_parse(refused[i][0], &setup, &error));
        CHECK(strstr(error.text, refused[i][1]) != NULL);
        CHECK(setup.codec == NULL);
    }
    setup_of("terngrad:shared,form=onepass,limit=0.1");
}

static gw_status check(const char *line, gw_error *error) {
    gw_reducer_facts facts = {.world = 4, .updates = true};
    gw_strategy strategy;
    *error = (gw_error){.rank = -1};
    CHECK_EQ(GW_OK, gw_strategy_parse(line, &strategy, error));
    return gw_strategy_check_step(&strategy, &facts, error);
}

static void a_form_needs_a_meaning(void) {
    gw_error error;
    CHECK_EQ(GW_UNSUPPORTED, check("arch=ps compress=qsgd:form=twopass", &error));
    CHECK(strstr(error.text, "compress=qsgd:form= with arch=ps") != NULL);
    CHECK_EQ(GW_OK, check("arch=ps compress=qsgd:form=auto", &error));
    CHECK_EQ(GW_OK, check("schedule=dear compress=qsgd:form=onepass", &error));
    CHECK_EQ(GW_UNSUPPORTED, check("compress=fp16:feedback=both", &error));
    CHECK_EQ(GW_OK, check("compress=fp16:feedback=both,form=twopass", &error));
}

static void what_is_lost(void) {
    static const struct {
        const char *codec, *loses; /* NULL: nothing */
    } cases[] = {{"none", NULL},
                 {"qsgd", NULL},
                 {"topk", NULL},
                 {"randomk:feedback=none", NULL},
                 {"topk:feedback=worker", NULL},
                 {"fp16:feedback=both,form=twopass", NULL},
                 {"fp16:feedback=worker,form=onepass", NULL},
                 {"int8", "workers and owners lose"},
                 {"int8:form=onepass", "workers lose"},
                 {"fp16", "rounding of sums loses at every hop"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        gw_codec_setup setup = setup_of(cases[i].codec);
        const char *loses = gw_coded_form_loses(&setup, gw_coded_form_of(&setup, 8, false));
        CHECK(cases[i].loses ? loses && strstr(loses, cases[i].loses) : !loses);
        if (cases[i].loses ? !loses : loses != NULL) printf("    %s: %s\n", cases[i].codec, loses ? loses : "nothing");
    }
}

/* Every codec with every feedback and form, between ranks and through servers: a refusal names the codec; with feedback
 * nothing is lost but the rounding of sums in flight; without it what is lost is said, unless the codec is unbiased. */
static void is_refused_or_keeps(const char *where, const char *codec, bool feedback, int *counts) {
    char line[GW_TECHNIQUE_TEXT_BYTES + 100];
    gw_strategy strategy;
    gw_codec_setup setup;
    gw_error error;
    snprintf(line, sizeof line, "%s compress=%s", where, codec);
    if (check(line, &error)) {
        CHECK_EQ(GW_UNSUPPORTED, error.status);
        CHECK(strncmp(error.text, "compress=", 9) == 0);
        counts[0]++;
        return;
    }
    CHECK_EQ(GW_OK, gw_strategy_parse(line, &strategy, &error));
    CHECK_EQ(GW_OK, gw_codec_parse(codec, &setup, &error));
    gw_coded_form form = gw_strategy_servers(&strategy) ? gw_coded_form_served(&setup, strstr(line, "asp") != NULL)
                                                        : gw_coded_form_of(&setup, 4, false);
    const char *loses = gw_coded_form_loses(&setup, form);
    bool rounds = form == GW_FORM_IN_FLIGHT && setup.codec->significand;
    bool right = feedback ? (loses != NULL) == rounds : loses || setup.codec->unbiased;
    CHECK(right);
    if (!right) printf("    %s, %s: %s\n", line, gw_coded_form_name(form), loses ? loses : "nothing is lost");
    counts[1 + (loses != NULL)]++;
}

static void every_setting_is_refused_or_keeps(void) {
    static const char *const places[] = {"arch=ring", "arch=sfb:servers=2", "arch=ps", "arch=ps sync=asp"};
    static const char *const forms[] = {"auto", "inflight", "onepass", "twopass"};
    static const char *const feedback[] = {"none", "worker", "both"};
    char example[GW_TECHNIQUE_TEXT_BYTES], codec[GW_TECHNIQUE_TEXT_BYTES + 40];
    int counts[3] = {0};
    for (const gw_technique *const *t = gw_compress_techniques; *t; t++)
        for (int i = 0; gw_technique_param(*t, "feedback") >= 0 && gw_technique_example(*t, i, example); i++)
            for (int n = 0; n < 4 * 4 * 3; n++) {
                snprintf(codec, sizeof codec, "%s%cform=%s,feedback=%s", example, strchr(example, ':') ? ',' : ':',
                         forms[n / 3 % 4], feedback[n % 3]);
                is_refused_or_keeps(places[n / 12], codec, n % 3 > 0, counts);
            }
    printf("    %d settings are refused, %d lose nothing, %d say what they lose\n", counts[0], counts[1], counts[2]);
}

TEST_MAIN(CASE(the_rule), CASE(the_rule_of_servers), CASE(impossible_forms_are_refused), CASE(a_form_needs_a_meaning),
          CASE(what_is_lost), CASE(every_setting_is_refused_or_keeps))
