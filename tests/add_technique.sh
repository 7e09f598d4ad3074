#!/usr/bin/env bash
# add_technique.sh BUILD: a new technique is one file and one line of a table. In a copy of the tree a codec, a schedule,
# a synchronization, a plan and a transport are added that way; the program and some tests are built there, and
# everything that lists, compares, draws or combines techniques must then know them. BUILD names the compiler, and is the
# program without them.
#
# One function for each technique: add_X writes the file and the line, check_X looks for it everywhere.
set -uo pipefail
build=$(cd "$1" && pwd) || exit 2
cd "$(dirname "$0")/.." || exit 2
passed=0 failed=0
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
tree=$tmp/tree new=$tmp/build
techniques=(codec schedule sync plan transport)
targets=(gradwire gradwire_shared test_combinations test_reducer_sim test_ps_sim test_plan_print helper_product fuzz_codec fuzz_strategy)
unset GRADWIRE_STRATEGY GRADWIRE_STRATEGY_FILE GRADWIRE_LINKS RANK WORLD_SIZE MASTER_ADDR MASTER_PORT

ok() { # NAME COMMAND...: passes by its exit code
    if "${@:2}" >"$tmp/log" 2>&1; then passed=$((passed + 1)); echo "ok   $1"
    else failed=$((failed + 1)); echo "FAIL $1"; tail -n 30 "$tmp/log"; fi
}
has() { grep -qE -- "$2" "$tmp/$1" || { echo "no $2 in $1:"; tail -n 20 "$tmp/$1"; return 1; }; } # FILE PATTERN
keeps() { "${@:2}" >"$tmp/$1" 2>&1 || { tail -n 20 "$tmp/$1"; return 1; }; } # FILE COMMAND...: its output, for has
line() { # FILE AFTER NEW: a line of a table in a macro, behind that of another technique
    sed -i "s/^    $2 .*\\\\\$/&\\n    $3 \\\\/" "$tree/$1"
    [ "$(grep -cF "    $3 \\" "$tree/$1")" = 1 ] || { echo "$1: no line $2 in a table" >&2; exit 1; }
}

# ---- what is added ----

add_codec() { # the upper half of an f32, cut off
    line src/compress/codec_table.h 'CODEC(none)' 'TWO_PASS(halfrange)'
    cat >"$tree/src/compress/halfrange.c" <<'C'
#include "compress/codec.h"

static size_t bound(const gw_codec_setup *setup, const gw_codec_call *call, gw_codec_range range) {
    (void)setup, (void)call;
    return range.count * sizeof(uint16_t);
}

static gw_status encode(const gw_codec_setup *setup, const gw_codec_call *call, gw_codec_range range,
                        gw_codec_state *state, const float *v, void *payload, size_t capacity, size_t *bytes,
                        gw_error *error) {
    (void)state, (void)capacity, (void)error;
    *bytes = bound(setup, call, range);
    for (uint64_t i = 0; i < range.count; i++) memcpy((char *)payload + 2 * i, (const char *)(v + i) + 2, 2);
    return GW_OK;
}

static gw_status decode_add(const gw_codec_setup *setup, const gw_codec_call *call, gw_codec_range range,
                            const void *payload, size_t bytes, float scale, float *sum, gw_error *error) {
    size_t expected = bound(setup, call, range);
    if (bytes != expected) return gw_codec_length_error(setup->codec, range, bytes, expected, error);
    for (uint64_t i = 0; i < range.count; i++) {
        float x = 0;
        memcpy((char *)&x + 2, (const char *)payload + 2 * i, 2);
        sum[i] += scale * x;
    }
    return GW_OK;
}

const gw_codec gw_codec_halfrange = {
    .technique = {.name = "halfrange", .about = "the upper half of an f32, cut off",
                  .params = GW_PARAMS(GW_CODEC_FEEDBACK(GW_FEEDBACK_NONE), GW_CODEC_LIMIT)},
    .block = 1,
    .bound = bound,
    .encode = encode,
    .decode_add = decode_add,
};
C
}

add_schedule() { # what backward has produced last goes first
    line src/schedule/schedule_table.h 'X(wfbp)' 'X(lifo)'
    cat >"$tree/src/schedule/lifo.c" <<'C'
#include "schedule/schedule_internal.h"

static gw_schedule_settings settings(const double *values) {
    return (gw_schedule_settings){.fuse_bytes = values[0] > 0 ? (size_t)values[0] : GW_FUSE_BYTES};
}

static void cut(gw_schedule *s) { gw_cut_by_bytes(s, s->settings.fuse_bytes, 0); }

static int next(const gw_schedule *s) { return gw_next_by_priority(s, 0); } /* backward ends with the first tensor */

const gw_policy gw_policy_lifo = {
    .technique = {.name = "lifo", .about = "the gradient that was produced last",
                  .params = GW_PARAMS(GW_PARAM_FUSE("25 MB"))},
    .reorders = true,
    .settings = settings,
    .cut = cut,
    .next = next,
};
C
}

add_sync() { # bsp once more
    line src/sync/sync_table.h 'X(bsp)' 'X(bsp2)'
    cat >"$tree/src/sync/bsp2.c" <<'C'
#include "sync/sync.h"

static void arrive(const double *values, uint64_t step, gw_sync_tensor *t) {
    (void)values, (void)step;
    if (t->weights) t->apply(t->ctx, t->weights, t->travels, false);
}

const gw_sync gw_sync_bsp2 = {
    .technique = {.name = "bsp2", .about = "every rank waits for all in every step"},
    .synchronous = true,
    .arrive = arrive,
};
C
}

add_plan() { # the ring under another name
    line src/plan/plan_table.h 'ARCH(ring, 1)' 'ARCH(chain, 63)'
    cat >"$tree/src/plan/chain.c" <<'C'
#include "plan/build.h"

static const char *refuses(const gw_plan_request *request) { return gw_plan_ring.refuses(request); }
static void lay_out(gw_plan *plan) { gw_plan_ring.lay_out(plan); }
static void stream(const gw_plan *plan, uint32_t index, gw_stream *out) { gw_plan_ring.stream(plan, index, out); }
static void action(const gw_plan *plan, uint32_t at, uint64_t index, gw_action *out) {
    gw_plan_ring.action(plan, at, index, out);
}
static gw_cost cost(const gw_plan_request *request) { return gw_plan_ring.cost(request); }

const gw_plan_builder gw_plan_chain = {
    .technique = {.name = "chain", .about = "a ring by another name", .params = GW_PARAMS(GW_PARAM_CHUNK)},
    .refuses = refuses,
    .lay_out = lay_out,
    .stream = stream,
    .action = action,
    .cost = cost,
    .symmetric = true,
};
C
}

add_transport() { # one that works, and one whose library is missing
    line src/transport/transport_table.h 'X(tcp)' 'X(loop)'
    line src/transport/transport_table.h 'X(loop)' 'X(pigeon)'
    cat >"$tree/src/transport/loop_transport.c" <<'C'
/* loop_transport.c - tcp under another name. */
#include "transport/tcp/tcp.h"
#include "transport/transport_registry.h"

static gw_status open_loop(gw_transport **out, const gw_transport_options *o, gw_error *error) {
    gw_tcp_options options = {.rank = o->rank, .world = o->world, .streams = (int)o->values[0]};
    return gw_tcp_open(out, &options, o->sink, o->dial, o->ctx, error);
}

const gw_transport_type gw_transport_loop = {
    .technique = {.name = "loop", .about = "tcp under another name", .params = gw_tcp_params},
    .tcp_sockets = true,
    .open = open_loop,
};
C

    mkdir "$tree/src/transport/pigeon"
    echo 'gw_transport_needs(pigeon libpigeon-dev pigeon/coop.h)' >"$tree/src/transport/pigeon/pigeon.cmake"
    echo '#include <pigeon/coop.h>' >"$tree/src/transport/pigeon/pigeon.c"
    cat >"$tree/src/transport/pigeon/pigeon_absent.c" <<'C'
/* pigeon_absent.c - transport=pigeon in a build without its library. */
#include "transport/transport_registry.h"

static gw_status absent(gw_error *error) {
    return gw_fail(error, GW_UNSUPPORTED, "transport=pigeon: install libpigeon-dev and build again");
}

static gw_status open_absent(gw_transport **out, const gw_transport_options *options, gw_error *error) {
    (void)out, (void)options;
    return absent(error);
}

const gw_transport_type gw_transport_pigeon = {
    .technique = {.name = "pigeon", .about = "by air"},
    .available = absent,
    .open = open_absent,
};
C
}

# Two fuzzers without libFuzzer: a driver gives them random bytes, and prints the codecs and lines that they draw.
add_fuzz_driver() {
    cat >"$tree/fuzz_driver.c" <<'C'
#include "base/rng.h"
#include "compress/compress.h"
#include "strategy/strategy.h"

#include <stdio.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
gw_status __real_gw_codec_decode_add(const gw_codec_setup *setup, const gw_codec_call *call, gw_codec_range range,
                                     const void *payload, size_t bytes, float scale, float *sum, gw_error *error);
gw_status __wrap_gw_codec_decode_add(const gw_codec_setup *setup, const gw_codec_call *call, gw_codec_range range,
                                     const void *payload, size_t bytes, float scale, float *sum, gw_error *error);
int __real_gw_strategy_print(const gw_strategy *strategy, char *text, size_t size);
int __wrap_gw_strategy_print(const gw_strategy *strategy, char *text, size_t size);

gw_status __wrap_gw_codec_decode_add(const gw_codec_setup *setup, const gw_codec_call *call, gw_codec_range range,
                                     const void *payload, size_t bytes, float scale, float *sum, gw_error *error) {
    printf("codec %s\n", setup->codec->technique.name);
    return __real_gw_codec_decode_add(setup, call, range, payload, bytes, scale, sum, error);
}

int __wrap_gw_strategy_print(const gw_strategy *strategy, char *text, size_t size) {
    int length = __real_gw_strategy_print(strategy, text, size);
    printf("strategy %s\n", text);
    return length;
}

int main(void) {
    gw_rng rng = gw_rng_make(1, 0);
    for (int i = 0; i < 2000; i++) {
        uint8_t bytes[64];
        for (size_t k = 0; k < sizeof bytes; k++) bytes[k] = (uint8_t)gw_rng_u32(&rng);
        LLVMFuzzerTestOneInput(bytes, sizeof bytes);
    }
    return 0;
}
C
    cat >>"$tree/CMakeLists.txt" <<'CMAKE'
foreach(name fuzz_codec fuzz_strategy)
  add_executable(${name} fuzz/${name}.c fuzz_driver.c)
  target_compile_options(${name} PRIVATE -Wno-missing-prototypes)
  target_link_options(${name} PRIVATE LINKER:--wrap=gw_codec_decode_add LINKER:--wrap=gw_strategy_print)
  target_link_libraries(${name} PRIVATE ${GW_PROGRAM_LIBRARIES})
endforeach()
CMAKE
}

# ---- where it must be known ----

everywhere() { # AXIS NAME: what is the same for every axis
    ok "$1=$2: gradwire list" has list "^$1=$2 "
    ok "$1=$2: gradwire explain" "$new/gradwire" explain "$1=$2"
    ok "$1=$2: gradwire explain --all" has explain "(^|\|) $2 \|"
    ok "$1=$2: gradwire predict --compare all" has predict "$1=$2|$1=\S*$2"
    ok "$1=$2: seeds of simulated steps draw it" has steps "$1=$2"
    ok "$1=$2: combinations train with it" has combinations "$1=$2"
    ok "$1=$2: fuzz_strategy draws it" has fuzz_strategy "^strategy .*$1=$2"
}

check_codec() {
    everywhere compress halfrange
    ok "compress=halfrange: doublesqueeze can wrap it" "$new/gradwire" explain compress=doublesqueeze:codec=halfrange
    ok "compress=halfrange: gradwire bench codec" has codecs '^halfrange '
    ok "compress=halfrange: fuzz_codec draws it" has fuzz_codec '^codec halfrange$'
}

check_schedule() {
    everywhere schedule lifo
    ok "schedule=lifo: gradwire bench step" has bench '"schedule": "lifo"'
    ok "schedule=lifo: seeds of simulated servers draw it" has serving 'schedule=lifo'
}

check_sync() {
    everywhere sync bsp2
    ok "sync=bsp2: gradwire bench step" has bench '"schedule": "bsp2"'
    ok "sync=bsp2: simulated servers" has serving 'bsp2: [0-9]+ seeds'
}

check_plan() {
    everywhere arch chain
    ok "arch=chain: gradwire plan" "$new/gradwire" plan --arch chain -n 4
    ok "arch=chain: seeds of simulated collectives draw it" has collectives 'by chain'
    ok "arch=chain: ids on the wire" "$new/tests/test_plan_print"
}

says() { # PATTERN COMMAND...: its output, whatever its exit code, has a line like this
    local output
    output=$("${@:2}" 2>&1 </dev/null)
    echo "$output"
    grep -qE "$1" <<<"$output"
}
bench_over() { "$new/gradwire" bench allreduce -n 2 -b 4K -e 4K --transport "$@"; }
transports() { "$1/gradwire" list transport --json | sed -n 's/^ *{"name": "\([a-z]*\)".*/\1/p'; }
new_transports() { diff <(transports "$build") <(transports "$new") | sed -n 's/^> //p' | tr '\n' ' '; }

check_transport() {
    ok "transport=loop: gradwire list, with its parameters" says '^loop streams congestion security checksum pigeon $' new_transports
    ok "transport=loop: gradwire explain" says '^  transport +loop +tcp under another name$' \
        "$new/gradwire" explain transport=loop:streams=2
    ok "transport=loop: another parameter is refused" says 'transport=loop has no parameter "speed"' \
        "$new/gradwire" explain transport=loop:speed=2
    "$new/gradwire" doctor -n 1 --json >"$tmp/doctor" 2>&1 </dev/null
    ok "transport=loop: gradwire doctor" has doctor '"transport": "loop", .*"usable": true'
    ok "transport=loop: fuzz_strategy draws it" has fuzz_strategy '^strategy .*transport=loop'
    ok "transport=loop: gradwire bench" says '\bloop\b' bench_over loop --json
    ok "transport=loop: the product test" says '^[0-9]+ cases; 9 passed, 0 failed' \
        timeout 300 "$new/tests/helper_product" small -j "ring over loop"
    ok "transport=pigeon: gradwire doctor says why it is missing" has doctor \
        '"transport": "pigeon", .*"usable": false, "detail": "transport=pigeon: install libpigeon-dev'
    ok "transport=pigeon: a job says what is missing" says 'transport=pigeon: install libpigeon-dev and build again' \
        bench_over pigeon
    ok "transport=sim: refused with all that are allowed" says 'allowed here: auto, tcp, loop, pigeon, rdma, shm, zmq, mpi' \
        bench_over sim
}

# ---- the run ----

mkdir -p "$tree"
git ls-files -z | tar --null -T - -cf - | tar -xf - -C "$tree" || exit 1
for technique in "${techniques[@]}"; do "add_$technique"; done
add_fuzz_driver
tests/abi.sh grow "$tree" || exit 1

compiler=$(sed -n 's/^CMAKE_C_COMPILER:[A-Z]*=//p' "$build/CMakeCache.txt")
make_all() {
    cmake -G Ninja -S "$tree" -B "$new" -DGW_OPTIMISE=-O0 ${compiler:+-DCMAKE_C_COMPILER="$compiler"} &&
        cmake --build "$new" -j "$(nproc)" --target "${targets[@]}"
}
ok "one file and one line each: it builds" make_all
[ "$failed" = 0 ] || { echo "$passed passed, $failed failed"; exit 1; }
ok "the rules of the source tree hold" "$tree/tests/tidy"

printf 'layer,kind,parameter_bytes,forward_us,backward_us\n0,conv,4096,500,500\n1,dense,400000,500,500\n' >"$tmp/small.csv"
export SHOW_STRATEGIES=1
"$new/gradwire" list >"$tmp/list"
"$new/gradwire" explain --all >"$tmp/explain"
"$new/gradwire" predict --model resnet50 --ranks 4 --compare all >"$tmp/predict"
"$new/gradwire" bench codec --bytes 64K --repeats 1 >"$tmp/codecs"
"$new/gradwire" bench step --model "$tmp/small.csv" -n 2 --steps 4 --json >"$tmp/bench"
for seed in {1..20}; do "$new/gradwire" sim --seed "$seed"; done >"$tmp/collectives"
ok "simulated steps" keeps steps env STEP_SEEDS=20 STEP_FAULT_SEEDS=5 "$new/tests/test_reducer_sim"
ok "simulated servers" keeps serving env SERVING_SEEDS=20 "$new/tests/test_ps_sim"
ok "fuzz_codec on random bytes" keeps fuzz_codec "$new/fuzz_codec"
ok "fuzz_strategy on random bytes" keeps fuzz_strategy "$new/fuzz_strategy"
ok "every pair of techniques" keeps combinations "$new/tests/test_combinations"
for technique in "${techniques[@]}"; do "check_$technique"; done
ok "programs compiled against older and newer headers" tests/abi.sh check "$build" "$tree" "$new"
echo "$passed passed, $failed failed"
[ "$failed" = 0 ]
