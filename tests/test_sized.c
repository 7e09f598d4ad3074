/* test_sized.c - structs of older and newer headers, read and written. */
#include "base/sized.h"

#include <string.h>

#include "test.h"

typedef struct old_struct {
    size_t size;
    int a;
} old_struct;

typedef struct new_struct {
    size_t size;
    int a, b;
    double c;
} new_struct;

static void an_older_struct_keeps_the_defaults_of_new_fields(void) {
    old_struct given = {.size = sizeof given, .a = 5};
    new_struct read = {.size = sizeof read, .a = 1, .b = 2, .c = 3};
    gw_error error = {.rank = -1};
    CHECK_EQ(GW_OK, gw_sized_read(&read, sizeof read, &given, offsetof(old_struct, a) + sizeof given.a,
                                  sizeof(size_t) + sizeof(int), "test", &error));
    CHECK_EQ(5, read.a);
    CHECK_EQ(2, read.b);
    CHECK(read.c == 3);
}

static void a_newer_struct_is_read_as_long_as_its_new_fields_are_unset(void) {
    new_struct given = {.size = sizeof given, .a = 5};
    struct {
        size_t size;
        int a, b;
    } read = {.a = 1};
    gw_error error = {.rank = -1};
    CHECK_EQ(GW_OK, gw_sized_read(&read, sizeof read, &given, sizeof given, sizeof(size_t), "test", &error));
    CHECK_EQ(5, read.a);
    given.c = 1;
    CHECK_EQ(GW_UNSUPPORTED, gw_sized_read(&read, sizeof read, &given, sizeof given, sizeof(size_t), "test", &error));
    CHECK(strstr(error.text, gw_version()) != NULL);
}

static void a_struct_without_a_size_is_refused(void) {
    new_struct given = {.a = 5}, read = {.a = 1};
    gw_error error = {.rank = -1};
    CHECK_EQ(GW_INVALID, gw_sized_read(&read, sizeof read, &given, given.size, sizeof given, "gw_x: gw_y", &error));
    CHECK(strstr(error.text, "gw_x: gw_y") && strstr(error.text, "_DEFAULT"));
    CHECK_EQ(1, read.a);
}

static void what_one_side_does_not_know_is_left_out(void) {
    new_struct known = {.size = 1, .a = 2, .b = 3, .c = 4};
    char memory[64];
    memset(memory, 0xff, sizeof memory);
    gw_sized_write(memory, sizeof(size_t) + sizeof(int), &known, sizeof known);
    CHECK_EQ(2, ((old_struct *)(void *)memory)->a);
    CHECK_EQ(0xff, (unsigned char)memory[sizeof(size_t) + sizeof(int)]);
    gw_sized_write(memory, 48, &known, sizeof known);
    for (size_t i = sizeof known; i < 48; i++) CHECK_EQ(0, memory[i]);
}

TEST_MAIN(CASE(an_older_struct_keeps_the_defaults_of_new_fields),
          CASE(a_newer_struct_is_read_as_long_as_its_new_fields_are_unset), CASE(a_struct_without_a_size_is_refused),
          CASE(what_one_side_does_not_know_is_left_out))
