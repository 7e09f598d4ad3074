#!/usr/bin/env bash
# arm64.sh BUILD: builds for 64-bit ARM by cmake/arm64.cmake in the folder BUILD, and runs by qemu the unit tests of
# arithmetic, formats and plans, which need no other processes. docs/how-to/build.md names the packages.
set -uo pipefail
build=${1:?usage: arm64.sh BUILD}
cd "$(dirname "$0")/.." || exit 2
for tool in aarch64-linux-gnu-gcc qemu-aarch64-static; do
    command -v "$tool" >/dev/null || { echo "arm64: skipped, $tool is missing (docs/how-to/build.md, Cross-compiling)"; exit 77; }
done
tests=(test_args test_auth test_clock_table test_codec test_codec_state test_dtype test_elias test_feedback test_fit
    test_frame test_gradient_dropping test_half test_plan test_plan_print test_predict test_profile test_profiles
    test_qsgd test_quorum test_randomk test_reduce test_ring_order test_rng test_sampler test_schedule test_sim
    test_sized test_status test_strategy test_suggest test_terngrad test_token test_topk test_topology test_units)
cmake -G Ninja -S . -B "$build" --toolchain cmake/arm64.cmake -DGW_WERROR=ON >/dev/null || exit 1
cmake --build "$build" -j "$(nproc)" --target gradwire gradwire_shared gradwire_static "${tests[@]}" >"$build/log" ||
    { tail -n 40 "$build/log"; exit 1; }
passed=0 failed=0
for name in "${tests[@]}"; do
    if timeout 1800 qemu-aarch64-static -L /usr/aarch64-linux-gnu "$build/tests/$name" >"$build/log" 2>&1; then
        passed=$((passed + 1))
        echo "ok   $name: $(tail -n 1 "$build/log")"
    else
        failed=$((failed + 1))
        echo "FAIL $name"
        tail -n 20 "$build/log"
    fi
done
echo "$passed passed, $failed failed"
[ "$failed" = 0 ]
