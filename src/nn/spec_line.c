/* spec_line.c - see spec_line.h. */
#include "nn/spec_line.h"

#include <stdio.h>
#include <string.h>

#include "base/suggest.h"
#include "base/units.h"

gw_status gw_spec_line_read(gw_spec_line *line, const char **text, gw_error *error) {
    size_t whole = strcspn(*text, "\n"), length = strcspn(*text, "#\n");
    const char *begin = *text;
    *text += whole + (begin[whole] == '\n');
    line->number++;
    line->count = 0;
    if (length >= sizeof line->text)
        return gw_fail(error, GW_INVALID, "line %d: longer than %zu bytes", line->number, sizeof line->text - 1);
    memcpy(line->text, begin, length);
    line->text[length] = 0;
    char *rest = NULL;
    for (char *word = strtok_r(line->text, " \t\r", &rest); word; word = strtok_r(NULL, " \t\r", &rest)) {
        if (line->count == GW_LINE_WORDS)
            return gw_fail(error, GW_INVALID, "line %d: more than %d words", line->number, GW_LINE_WORDS);
        line->words[line->count++] = word;
    }
    return GW_OK;
}

gw_status gw_spec_line_take(gw_spec_line *line, const char *name, const char **word, gw_error *error) {
    *word = NULL;
    for (int i = 1; i < line->count; i++) {
        if (strcmp(line->words[i], name) != 0) continue;
        if (i + 1 == line->count)
            return gw_fail(error, GW_INVALID, "line %d: expected a label after \"%s\"", line->number, name);
        *word = line->words[i + 1];
        memmove(line->words + i, line->words + i + 2, (size_t)(line->count - i - 2) * sizeof line->words[0]);
        line->count -= 2;
        return GW_OK;
    }
    return GW_OK;
}

static gw_status store(const gw_spec_line *line, const gw_layer_kind *kind, const gw_word *word, const char *text,
                       gw_settings *settings, gw_error *error) {
    char quoted[GW_QUOTE_BYTES];
    int64_t value;
    if (!text)
        return gw_fail(error, GW_INVALID, "line %d: %s: expected %s%s, but the line ends; usage: %s", line->number,
                       kind->name, word->kind == GW_WORD_VALUE ? "a number after " : "", word->name, kind->usage);
    if (!gw_integer_parse(text, word->lowest, word->highest, &value))
        return gw_fail(error, GW_INVALID,
                       "line %d: %s: expected %s, a whole number from %d to %d, but found %s; usage: %s", line->number,
                       kind->name, word->name, word->lowest, word->highest, gw_suggest_quote(text, quoted),
                       kind->usage);
    *(int *)((char *)settings + word->field) = (int)value;
    return GW_OK;
}

static const gw_word *find(const gw_layer_kind *kind, const char *name) {
    for (const gw_word *word = kind->words; word->name; word++)
        if (word->kind != GW_WORD_OPERAND && strcmp(word->name, name) == 0) return word;
    return NULL;
}

gw_status gw_spec_line_settings(const gw_spec_line *line, int first, const gw_layer_kind *kind, gw_settings *settings,
                                gw_error *error) {
    char quoted[GW_QUOTE_BYTES];
    gw_status status = GW_OK;
    int at = first;
    for (const gw_word *word = kind->words; word->name && status == GW_OK; word++)
        if (word->kind == GW_WORD_OPERAND)
            status = store(line, kind, word, at < line->count ? line->words[at++] : NULL, settings, error);
    while (at < line->count && status == GW_OK) {
        const char *text = line->words[at++];
        const gw_word *word = find(kind, text);
        if (!word)
            return gw_fail(error, GW_INVALID, "line %d: %s: did not expect %s; usage: %s", line->number, kind->name,
                           gw_suggest_quote(text, quoted), kind->usage);
        if (word->kind == GW_WORD_FLAG) *(int *)((char *)settings + word->field) = 1;
        else status = store(line, kind, word, at < line->count ? line->words[at++] : NULL, settings, error);
    }
    return status;
}
