/* words.h - the helpful half of a sentence about a wrong word: what was meant, and what is allowed. */
#ifndef GW_BASE_WORDS_H
#define GW_BASE_WORDS_H

#define GW_QUOTE_BYTES 64
#define GW_HINT_BYTES 400

/* The word in double quotes, fit to stand in one line whatever it holds: cut short where it is long, and `?` for
 * every byte that does not print. Returns text. */
const char *gw_words_quote(const char *word, char text[GW_QUOTE_BYTES]);

/* `did you mean "ring"? allowed: auto, ring, tree`; without the question where no name is near. names ends with NULL.
 * Returns text. */
const char *gw_words_hint(const char *wrong, const char *const *names, char text[GW_HINT_BYTES]);

/* The name nearest to a mistyped word (a few letters wrong, missing, doubled or swapped, or only the beginning of the
 * name typed), NULL where none is near. names ends with NULL. */
const char *gw_words_nearest(const char *wrong, const char *const *names);

#endif
