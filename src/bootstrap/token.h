/* token.h - the job's secret: every rank has it, no stranger does, and it is never logged.
 *
 * It comes from the caller or GRADWIRE_TOKEN, else from the file GRADWIRE_TOKEN_FILE, else from a file of this user,
 * $XDG_CONFIG_HOME/gradwire/token (~/.config/gradwire/token), which is made on first use so that ranks that one user
 * starts with mpirun, srun or torchrun find each other. Files must belong to the user, and other users must have no
 * access. */
#ifndef GW_BOOTSTRAP_TOKEN_H
#define GW_BOOTSTRAP_TOKEN_H

#include "base/status.h"

#define GW_TOKEN_LENGTH_MIN 16
#define GW_TOKEN_LENGTH_MAX 255
#define GW_TOKEN_BITS_GOOD 128
#define GW_TOKEN_RANDOM_LENGTH 64 /* 32 random bytes in hexadecimal */

typedef struct gw_token {
    char text[GW_TOKEN_LENGTH_MAX + 1];
} gw_token;

/* given: the caller's own token, NULL: from the environment or the files. Wipe it after use. */
gw_status gw_token_find(const char *given, gw_token *token, gw_error *error);
/* Reads one file, with the same checks. */
gw_status gw_token_read_file(const char *path, gw_token *token, gw_error *error);
/* A new random token, for a launcher. */
gw_status gw_token_random(gw_token *token, gw_error *error);
/* An upper bound of the token's random bits, by its length and the kinds of characters in it. Below
 * GW_TOKEN_BITS_GOOD somebody who is dialled by a rank in place of another can find it by trying. */
int gw_token_bits(const gw_token *token);
void gw_token_wipe(gw_token *token);

#endif
