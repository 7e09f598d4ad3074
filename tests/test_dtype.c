/* test_dtype.c - names, sizes and accumulators of types and operations. */
#include "base/dtype.h"

#include "test.h"

static void names_parse_back(void) {
    static const char *const types[] = {"f32",  "f64", "f16", "bf16", "i8",  "u8",     "i32",   "i64",
                                        "bool", "i16", "u16", "u32",  "u64", "f8e4m3", "f8e5m2"};
    static const char *const ops[] = {"sum", "avg", "min", "max", "prod", "band", "bor", "bxor"};
    gw_dtype dtype;
    gw_redop op;
    CHECK_EQ(15, GW_DTYPES);
    CHECK_EQ(8, GW_REDOPS);
    for (int i = 0; i < GW_DTYPES; i++) {
        CHECK_STR(types[i], gw_dtype_name((gw_dtype)i));
        CHECK(gw_dtype_parse(types[i], &dtype) && (int)dtype == i);
    }
    for (int i = 0; i < GW_REDOPS; i++) {
        CHECK_STR(ops[i], gw_redop_name((gw_redop)i));
        CHECK(gw_redop_parse(ops[i], &op) && (int)op == i);
    }
}

static void unknown_names_are_refused(void) {
    gw_dtype dtype = GW_I8;
    gw_redop op = GW_MAX;
    CHECK(!gw_dtype_parse("", &dtype) && !gw_dtype_parse("F32", &dtype) && !gw_dtype_parse("f322", &dtype));
    CHECK(!gw_redop_parse("", &op) && !gw_redop_parse("mean", &op) && !gw_redop_parse("su", &op));
    CHECK_EQ(GW_I8, dtype);
    CHECK_EQ(GW_MAX, op);
    CHECK_STR("?", gw_dtype_name(GW_DTYPES));
    CHECK_STR("?", gw_redop_name((gw_redop)-1));
    CHECK_EQ(0, gw_dtype_bytes(GW_DTYPES));
}

static void sizes(void) {
    static const size_t bytes[] = {4, 8, 2, 2, 1, 1, 4, 8, 1, 2, 2, 4, 8, 1, 1};
    for (int i = 0; i < GW_DTYPES; i++) CHECK_EQ(bytes[i], gw_dtype_bytes((gw_dtype)i));
}

static void accumulators(void) {
    for (int type = 0; type < GW_DTYPES; type++) {
        CHECK_EQ(type, gw_accumulator((gw_dtype)type, GW_MIN));
        CHECK_EQ(type, gw_accumulator((gw_dtype)type, GW_MAX));
        bool short_float = type == GW_F16 || type == GW_BF16 || type == GW_F8E4M3 || type == GW_F8E5M2;
        gw_dtype sum = short_float ? GW_F32 : (gw_dtype)type;
        CHECK_EQ(sum, gw_accumulator((gw_dtype)type, GW_SUM));
        CHECK_EQ(sum, gw_accumulator((gw_dtype)type, GW_PROD));
    }
    static const gw_dtype average[] = {GW_F32,  GW_F64, GW_F32, GW_F32, GW_I32, GW_I32, GW_I64, GW_I64,
                                       GW_BOOL, GW_I32, GW_I32, GW_I64, GW_U64, GW_F32, GW_F32};
    for (int type = 0; type < GW_DTYPES; type++) CHECK_EQ(average[type], gw_accumulator((gw_dtype)type, GW_AVG));
}

static void pairs(void) {
    for (int type = 0; type < GW_DTYPES; type++) {
        bool real = type <= GW_BF16 || type >= GW_F8E4M3;
        CHECK_EQ(real, gw_dtype_is_float((gw_dtype)type));
        for (int op = GW_BAND; op <= GW_BXOR; op++) CHECK(!gw_redop_refuses((gw_dtype)type, (gw_redop)op) == !real);
        for (int op = GW_SUM; op <= GW_PROD; op++)
            CHECK(!gw_redop_refuses((gw_dtype)type, (gw_redop)op) == !(type == GW_BOOL && op == GW_AVG));
    }
}

TEST_MAIN(CASE(names_parse_back), CASE(unknown_names_are_refused), CASE(sizes), CASE(accumulators), CASE(pairs))
