/* environment.h - the names of all GRADWIRE_* variables, to find mistyped ones. docs/reference/environment.md explains
 * them; tests/tidy_lists.py compares the two lists, and what the code reads. */
#ifndef GW_BASE_ENVIRONMENT_H
#define GW_BASE_ENVIRONMENT_H

/* A GRADWIRE_* variable of this process that nothing reads, for a warning; NULL: there is none. near: the name that was
 * probably meant, or NULL. The name is cut at `=` and written to text. */
#define GW_VARIABLE_BYTES 64
const char *gw_environment_unknown(char text[GW_VARIABLE_BYTES], const char **near);

#endif
