/* test_suggest.c - base/suggest: quoting of any text, and suggestions for mistyped names. */
#include "test.h"

#include "base/environment.h"
#include "base/suggest.h"

static const char *const names[] = {"auto", "ring", "halving", "tree", "direct", "hierarchical", NULL};

static const char *nearest(const char *wrong) {
    const char *found = gw_suggest_nearest(wrong, names);
    return found ? found : "(none)";
}

static void quotes_anything(void) {
    char text[GW_QUOTE_BYTES], longest[200];
    CHECK_STR("\"ring\"", gw_suggest_quote("ring", text));
    CHECK_STR("\"\"", gw_suggest_quote("", text));
    CHECK_STR("\"a?b??\"", gw_suggest_quote("a\nb\033\xff", text));
    memset(longest, 'x', sizeof longest - 1);
    longest[sizeof longest - 1] = '\0';
    for (size_t length = 0; length < sizeof longest; length++) {
        const char *word = longest + sizeof longest - 1 - length;
        gw_suggest_quote(word, text);
        CHECK(strlen(text) < GW_QUOTE_BYTES);
        CHECK(text[0] == '"' && text[strlen(text) - 1] == '"');
        CHECK_EQ(length > GW_QUOTE_BYTES - sizeof "\"...\"", strstr(text, "...") != NULL);
    }
}

static void finds_the_nearest_name(void) {
    CHECK_STR("ring", nearest("rign"));
    CHECK_STR("ring", nearest("RING"));
    CHECK_STR("ring", nearest("rings"));
    CHECK_STR("hierarchical", nearest("heirarchical"));
    CHECK_STR("hierarchical", nearest("hier"));
    CHECK_STR("tree", nearest("three"));
    CHECK_STR("(none)", nearest("butterfly"));
    CHECK_STR("(none)", nearest("x"));
    CHECK_STR("(none)", nearest(""));
    CHECK_STR("(none)", nearest("a word that is far longer than any name of anything"));
}

static void hints(void) {
    char text[GW_HINT_BYTES];
    CHECK_STR("did you mean \"ring\"? allowed: auto, ring, halving, tree, direct, hierarchical",
              gw_suggest_hint("rign", names, text));
    CHECK_STR("allowed: auto, ring, halving, tree, direct, hierarchical", gw_suggest_hint("xyz", names, text));
    const char *many[101];
    for (int i = 0; i < 100; i++) many[i] = "hierarchical";
    many[100] = NULL;
    CHECK(strlen(gw_suggest_hint("xyz", many, text)) < GW_HINT_BYTES);
    CHECK(strlen(text) > GW_HINT_BYTES - 25);
    CHECK_STR(", hierarchical, ...", text + strlen(text) - strlen(", hierarchical, ..."));
}

static void variables(void) {
    char text[GW_VARIABLE_BYTES];
    const char *near = NULL;
    CHECK(gw_environment_unknown(text, &near) == NULL);
    setenv("GRADWIRE_DEADLIN", "1", 1);
    CHECK_STR("GRADWIRE_DEADLIN", gw_environment_unknown(text, &near));
    CHECK_STR("GRADWIRE_DEADLINE", near);
    unsetenv("GRADWIRE_DEADLIN");
    setenv("GRADWIRE_XYZZY_AND_MUCH_MORE_THAN_ANY_NAME_OF_A_VARIABLE_HAS_REALLY", "1", 1);
    CHECK(gw_environment_unknown(text, &near) != NULL && near == NULL);
    CHECK_EQ(GW_VARIABLE_BYTES - 1, strlen(text));
    unsetenv("GRADWIRE_XYZZY_AND_MUCH_MORE_THAN_ANY_NAME_OF_A_VARIABLE_HAS_REALLY");
}

TEST_MAIN(CASE(variables), CASE(quotes_anything), CASE(finds_the_nearest_name), CASE(hints))
