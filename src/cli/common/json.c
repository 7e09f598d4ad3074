/* json.c - see json.h. */
#include "cli/common/json.h"

void gw_json_string(FILE *out, const char *text) {
    fputc('"', out);
    for (; *text; text++) {
        unsigned char letter = (unsigned char)*text;
        if (letter == '"' || letter == '\\') fprintf(out, "\\%c", letter);
        else if (letter < 0x20) fprintf(out, "\\u%04x", letter);
        else fputc(letter, out);
    }
    fputc('"', out);
}
