/* suggest.c - see suggest.h. The measure is the optimal string alignment distance (an edit inserts, deletes or replaces
 * a letter, or swaps two neighbours), ignoring case. */
#include "base/suggest.h"

#include <ctype.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#define WORD_MAX 32 /* letters; longer words match nothing */

const char *gw_suggest_quote(const char *word, char text[GW_QUOTE_BYTES]) {
    const size_t room = GW_QUOTE_BYTES - sizeof "\"...\"";
    size_t length = strnlen(word, room + 1), shown = length > room ? room : length, used = 0;
    text[used++] = '"';
    for (size_t i = 0; i < shown; i++) text[used++] = isprint((unsigned char)word[i]) ? word[i] : '?';
    snprintf(text + used, GW_QUOTE_BYTES - used, length > room ? "...\"" : "\"");
    return text;
}

static int least(int a, int b) { return a < b ? a : b; }

static int distance(const char *a, const char *b) {
    int rows[WORD_MAX + 1][WORD_MAX + 1];
    int a_length = (int)strlen(a), b_length = (int)strlen(b);
    for (int i = 0; i <= a_length; i++) rows[i][0] = i;
    for (int j = 0; j <= b_length; j++) rows[0][j] = j;
    for (int i = 1; i <= a_length; i++) {
        for (int j = 1; j <= b_length; j++) {
            int replaced = rows[i - 1][j - 1] + (tolower((unsigned char)a[i - 1]) != tolower((unsigned char)b[j - 1]));
            rows[i][j] = least(replaced, least(rows[i - 1][j], rows[i][j - 1]) + 1);
            if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
                rows[i][j] = least(rows[i][j], rows[i - 2][j - 2] + 1);
        }
    }
    return rows[a_length][b_length];
}

const char *gw_suggest_nearest(const char *wrong, const char *const *names) {
    size_t length = strnlen(wrong, WORD_MAX + 1);
    if (length < 2 || length > WORD_MAX) return NULL;
    const char *best = NULL;
    int best_distance = WORD_MAX;
    for (; *names; names++) {
        size_t name_length = strlen(*names);
        if (name_length > WORD_MAX) continue;
        int edits = strncasecmp(wrong, *names, length) == 0 ? 1 : distance(wrong, *names);
        if (edits > 1 + (int)name_length / 4 || edits >= best_distance) continue;
        best = *names;
        best_distance = edits;
    }
    return best;
}

const char *gw_suggest_hint(const char *wrong, const char *const *names, char text[GW_HINT_BYTES]) {
    const char *near = gw_suggest_nearest(wrong, names);
    size_t used = 0;
    text[0] = '\0';
    if (near) used = (size_t)snprintf(text, GW_HINT_BYTES, "did you mean \"%s\"? ", near);
    const char *before = "allowed: ";
    for (; *names; names++, before = ", ") {
        bool fits = used + strlen(before) + strlen(*names) + strlen(", ...") < GW_HINT_BYTES;
        used += (size_t)snprintf(text + used, GW_HINT_BYTES - used, "%s%s", before, fits ? *names : "...");
        if (!fits) break;
    }
    return text;
}
