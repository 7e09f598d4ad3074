#!/usr/bin/env bash
# abi.sh grow TREE, abi.sh check BUILD TREE NEXT: a program that was compiled against the headers of the freeze
# (tests/abi/include) runs with this library, and with the next one, whose structs have one field more; a program of the
# next one is refused by this library. `grow` makes TREE, a copy of this one, that next version; NEXT is its build.
# tests/add_technique.sh calls both, since it builds a changed copy anyway.
set -uo pipefail
cd "$(dirname "$0")/.." || exit 2

add_field() { # HEADER STRUCT: at its end
    sed -i "s/^} $2;\$/    double added_later;\\n} $2;/" "$tree/include/$1"
    grep -B1 "^} $2;" "$tree/include/$1" | grep -q added_later || { echo "$2: no field was added" >&2; exit 1; }
}
if [ "${1:-}" = grow ]; then
    tree=$2
    for name in gw_options gw_call; do add_field gradwire.h "$name"; done
    add_field gradwire/coded.h gw_coded_options
    for name in options tensor counters worker_stats; do add_field gradwire/reducer.h "gw_reducer_$name"; done
    sed -i 's/^#define GW_VERSION_MINOR .*/#define GW_VERSION_MINOR 99/' "$tree/include/gradwire.h"
    exit
fi
[ "${1:-}" = check ] || { echo "usage: tests/abi.sh grow TREE | check BUILD TREE NEXT" >&2; exit 2; }

build=$2 tree=$3 next=$4 passed=0 failed=0
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
ok() { # NAME COMMAND...: passes by its exit code
    if "${@:2}" >"$tmp/log" 2>&1; then passed=$((passed + 1)); echo "ok   $1"
    else failed=$((failed + 1)); echo "FAIL $1"; tail -n 30 "$tmp/log"; fi
}
compile() { cc -std=c11 -Wall -Wextra tests/abi/program.c -o "$tmp/$1" -I"$2" "$build/libgradwire.so"; } # PROGRAM HEADERS
run() { LD_LIBRARY_PATH=$2 "$build/gradwire" run -n 3 -- "$tmp/$1" </dev/null; } # PROGRAM LIBRARY-FOLDER
refused() {
    local said
    said=$(LD_LIBRARY_PATH=$2 "$tmp/$1")
    [ $? = 3 ] && grep -q 'the program was compiled against gradwire .*\.99\..*but this library is' <<<"$said"
}

ok "the program compiles against the frozen headers" compile frozen tests/abi/include
ok "it runs with this library" run frozen "$build"
ok "it runs with the next library, which has one field more in each struct" run frozen "$next"
ok "the program compiles against the next headers" compile newer "$tree/include"
ok "it runs with the next library" run newer "$next"
ok "this library refuses it in a sentence" refused newer "$build"
echo "$passed passed, $failed failed"
[ "$failed" = 0 ]
