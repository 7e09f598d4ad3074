#!/usr/bin/env bash
# abi.sh BUILD: a program that was compiled against the headers of the freeze (tests/abi/include) runs with this library,
# and with the next one, whose structs have one field more; a program of the next one is refused by this library.
set -uo pipefail
build=$(cd "$1" && pwd) || exit 2
cd "$(dirname "$0")/.." || exit 2
passed=0 failed=0
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
next=$tmp/next
ok() { # NAME COMMAND...: passes by its exit code
    if "${@:2}" >"$tmp/log" 2>&1; then passed=$((passed + 1)); echo "ok   $1"
    else failed=$((failed + 1)); echo "FAIL $1"; tail -n 30 "$tmp/log"; fi
}

# The next version: one more field at the end of each public struct that can grow, and a higher version number.
add_field() { # HEADER STRUCT
    sed -i "s/^} $2;\$/    double added_later;\\n} $2;/" "$next/include/$1"
    grep -q "added_later" "$next/include/$1"
}
make_next() {
    mkdir -p "$next" && git ls-files -z | tar --null -T - -cf - | tar -xf - -C "$next" || return 1
    add_field gradwire.h gw_options && add_field gradwire.h gw_call && add_field gradwire/reducer.h gw_reducer_options &&
        add_field gradwire/reducer.h gw_reducer_tensor && add_field gradwire/reducer.h gw_reducer_counters &&
        add_field gradwire/reducer.h gw_reducer_worker_stats &&
        sed -i 's/^#define GW_VERSION_MINOR .*/#define GW_VERSION_MINOR 99/' "$next/include/gradwire.h" &&
        cmake -G Ninja -S "$next" -B "$next/build" -DGW_OPTIMISE=-O0 -DGW_TESTS=OFF &&
        cmake --build "$next/build" -j "$(nproc)" --target gradwire_shared
}
compile() { cc -std=c11 -Wall -Wextra tests/abi/program.c -o "$tmp/$1" -I"$2" "$build/libgradwire.so"; } # PROGRAM HEADERS
run() { # PROGRAM LIBRARY-FOLDER
    LD_LIBRARY_PATH=$2 "$build/gradwire" run -n 3 -- "$tmp/$1" </dev/null
}
refused() {
    local said
    said=$(LD_LIBRARY_PATH=$2 "$tmp/$1")
    [ $? = 3 ] && grep -q 'the program was compiled against gradwire .*\.99\..*but this library is' <<<"$said"
}

ok "the program compiles against the frozen headers" compile frozen tests/abi/include
ok "it runs with this library" run frozen "$build"
ok "the next version, with one field more in each struct, builds" make_next
ok "the program of the frozen headers runs with it" run frozen "$next/build"
ok "the program compiles against the next headers" compile newer "$next/include"
ok "it runs with the next library" run newer "$next/build"
ok "this library refuses it in a sentence" refused newer "$build"
echo "$passed passed, $failed failed"
[ "$failed" = 0 ]
