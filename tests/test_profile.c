/* test_profile.c - profile files: reading, refusals and their error sentences. */
#include "test.h"

#include "profile/profile.h"

#define HEAD "layer,kind,parameter_bytes,forward_us,backward_us\n"
#define WITH_ROWS "layer,kind,parameter_bytes,forward_us,backward_us,rows\n"

static const char good[] = "# net, batch 128, one GPU\r\nlayer,kind,parameter_bytes,forward_us,backward_us\r\n"
                           "0,Conv2d,37632,9706,4551\n\n# a remark\n1,ReLU,0,0.5,1e2";

static gw_status parse(const char *text, gw_profile *profile, gw_error *error) {
    *error = (gw_error){.rank = -1};
    return gw_profile_parse(text, strlen(text), "dir/x.csv", profile, error);
}

static void reads_a_file(void) {
    gw_profile p;
    gw_error error;
    CHECK_EQ(GW_OK, parse(good, &p, &error));
    CHECK_STR("net", p.name);
    CHECK_EQ(128, p.batch);
    CHECK_EQ(2, p.count);
    CHECK_STR("Conv2d", p.layers[0].kind);
    CHECK_EQ(37632, p.layers[0].parameter_bytes);
    CHECK(p.layers[1].forward_us == 0.5 && p.layers[1].backward_us == 100);
    CHECK_EQ(1, gw_profile_tensors(&p));
    CHECK_EQ(37632, gw_profile_parameter_bytes(&p));
    CHECK(gw_profile_seconds(&p) > 0.0143574 && gw_profile_seconds(&p) < 0.0143576);
    gw_profile_free(&p);
}

static void batch_and_name_may_lack(void) {
    gw_profile p;
    gw_error error;
    CHECK_EQ(GW_OK, parse("# gnmt, batch ?\n" HEAD "a,b,4,1,1\n", &p, &error));
    CHECK_EQ(0, p.batch);
    CHECK_STR("gnmt", p.name);
    gw_profile_free(&p);
    CHECK_EQ(GW_OK, parse(HEAD "a,b,4,1,1\n", &p, &error));
    CHECK_STR("x", p.name);
    gw_profile_free(&p);
}

static void rows_may_be_given(void) {
    gw_profile p;
    gw_error error;
    CHECK_EQ(GW_OK, parse(WITH_ROWS "a,ReLU,0,1,1,0\nb,Linear,48,1,1,3\n", &p, &error));
    CHECK_EQ(0, p.layers[0].rows);
    CHECK_EQ(3, p.layers[1].rows);
    gw_profile_free(&p);
}

static void refuse(const char *text, const char *sentence) {
    gw_profile p = {.count = 0};
    gw_error error;
    CHECK_EQ(GW_INVALID, parse(text, &p, &error));
    CHECK_STR(sentence, error.text);
    CHECK(p.layers == NULL);
}

static void says_what_is_wrong_and_where(void) {
    refuse("", "dir/x.csv has no layers; a profile is: layer,kind,parameter_bytes,forward_us,backward_us");
    refuse("# only\n" HEAD, "dir/x.csv has no layers; a profile is: layer,kind,parameter_bytes,forward_us,backward_us");
    refuse("0,Conv2d,4,1,1\n",
           "dir/x.csv line 1: a profile begins with the header layer,kind,parameter_bytes,forward_us,backward_us");
    refuse(HEAD "0,Conv2d,4,1\n", "dir/x.csv line 2: it has 4 fields, not 5 (layer,kind,parameter_bytes,forward_us,"
                                  "backward_us)");
    refuse(HEAD "0,Conv2d,,1,1\n", "dir/x.csv line 2: field 3 is empty");
    refuse(HEAD "\n0,Conv2d,7,1,1\n",
           "dir/x.csv line 3: parameter_bytes is \"7\", not a multiple of 4 (parameters are f32)");
    refuse(HEAD "0,Conv2d,-4,1,1\n",
           "dir/x.csv line 2: parameter_bytes is \"-4\", not a multiple of 4 (parameters are f32)");
    refuse(HEAD "0,Conv2d,4,nan,1\n", "dir/x.csv line 2: forward_us is \"nan\", not a number of microseconds");
    refuse(HEAD "0,Conv2d,4,1,-1\n", "dir/x.csv line 2: backward_us is \"-1\", not a number of microseconds");
    refuse(HEAD "0,Conv2d,4,1,1e99\n", "dir/x.csv line 2: backward_us is \"1e99\", not a number of microseconds");
    refuse(WITH_ROWS "0,Linear,48,1,1,5\n", "dir/x.csv line 2: rows is \"5\", not a divisor of 12 parameters, or 0");
    refuse(WITH_ROWS "0,Linear,48,1,1\n", "dir/x.csv line 2: it has 5 fields, not 6 (layer,kind,parameter_bytes,"
                                          "forward_us,backward_us)");
    refuse(HEAD "0,Co\x01nv,4,1,1\n", "dir/x.csv line 2: there are bytes in it that are no text");
}

static void what_is_printed_is_read(void) {
    gw_profile p, again;
    gw_error error;
    CHECK_EQ(GW_OK, parse(good, &p, &error));
    char *text = NULL;
    size_t size = 0;
    FILE *out = open_memstream(&text, &size);
    gw_profile_print(&p, out);
    fclose(out);
    CHECK_EQ(GW_OK, parse(text, &again, &error));
    CHECK_STR(p.name, again.name);
    CHECK_EQ(p.batch, again.batch);
    CHECK_EQ(p.count, again.count);
    CHECK(again.layers[0].backward_us == p.layers[0].backward_us);
    gw_profile_free(&p);
    gw_profile_free(&again);
    free(text);
}

static void a_missing_file_is_named(void) {
    gw_profile p;
    gw_error error = {.rank = -1};
    CHECK_EQ(GW_SYSTEM, gw_profile_read("/nowhere/x.csv", &p, &error));
    CHECK_STR("cannot read /nowhere/x.csv: No such file or directory", error.text);
}

TEST_MAIN(CASE(reads_a_file), CASE(batch_and_name_may_lack), CASE(rows_may_be_given),
          CASE(says_what_is_wrong_and_where), CASE(what_is_printed_is_read), CASE(a_missing_file_is_named))
