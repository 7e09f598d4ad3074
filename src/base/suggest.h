/* suggest.h - the helpful half of an error about a wrong word: the word that was probably meant, and the allowed
 * words. */
#ifndef GW_BASE_SUGGEST_H
#define GW_BASE_SUGGEST_H

#define GW_QUOTE_BYTES 64
#define GW_HINT_BYTES 400

/* The word in double quotes, safe to print in one line: shortened if it is long, with `?` for every unprintable byte.
 * Returns text. */
const char *gw_suggest_quote(const char *word, char text[GW_QUOTE_BYTES]);

/* `did you mean "ring"? allowed: auto, ring, tree`; without the question if no name is near. names ends with NULL.
 * Returns text. */
const char *gw_suggest_hint(const char *wrong, const char *const *names, char text[GW_HINT_BYTES]);

/* The name nearest to a mistyped word (a few letters wrong, missing, doubled or swapped, or only the beginning of the
 * name typed); NULL if none is near. names ends with NULL. */
const char *gw_suggest_nearest(const char *wrong, const char *const *names);

#endif
