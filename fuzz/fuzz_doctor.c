/* fuzz_doctor.c - any bytes as a file of the doctor: refused with one printable sentence, or a table within its bounds.
 * The first byte chooses whether a valid head is put in front, so that the code behind it is reached too. */
#include <stdlib.h>
#include <string.h>

#include "arch/link_file.h"

static const char head[] = "gradwire-doctor 1\nhosts 2\nhost 0 a 10.0.0.1 1500 1e9\nhost 1 b 10.0.0.2 1500 0\n";

static void demand(bool condition) {
    if (!condition) abort();
}

static void look(const gw_doctor_table *table) {
    demand(table->count >= 1 && table->count <= GW_DOCTOR_HOSTS_MAX);
    for (int i = 0; i < table->count * table->count; i++)
        demand(table->alpha[i] >= 0 && table->beta[i] >= 0 && (table->beta[i] > 0 || table->alpha[i] == 0));
    for (int i = 0; i < table->count; i++) demand(table->nodes[i].name[0] && table->nodes[i].memory >= 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    gw_doctor_table table = {0};
    gw_error error = {.status = GW_OK};
    size_t before = size && data[0] & 1 ? strlen(head) : 0;
    char *bytes = malloc(before + size + 1);
    demand(bytes != NULL);
    memcpy(bytes, head, before);
    if (size) memcpy(bytes + before, data + 1, size - 1);
    size_t length = before + (size ? size - 1 : 0);
    if (gw_doctor_parse(bytes, length, "fuzz", &table, &error) == GW_OK) {
        look(&table);
        gw_doctor_table_free(&table);
    } else {
        demand(error.text[0] != '\0' && table.nodes == NULL);
    }
    free(bytes);
    return 0;
}
