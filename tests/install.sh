#!/usr/bin/env bash
# install.sh BUILD: what `make install` puts in place works from there: the documented example compiles against the
# installed header and library (pkg-config and CMake) and runs.
set -uo pipefail
build=$(cd "$1" && pwd)
cd "$(dirname "$0")/.." || exit 2
passed=0 failed=0
ok() { if "${@:2}" >"$tmp/log" 2>&1; then passed=$((passed + 1)); echo "ok   $1"; else failed=$((failed + 1)); echo "FAIL $1"; cat "$tmp/log"; fi; }
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT

cmake --install "$build" --prefix "$tmp/prefix" >/dev/null || exit 1
lib=$(dirname "$(find "$tmp/prefix" -name libgradwire.so | head -n 1)")
# The .pc file names the prefix of the configuration; a staged tree overrides it.
export PKG_CONFIG_PATH=$lib/pkgconfig
flags() { pkg-config --define-variable=prefix="$tmp/prefix" --cflags --libs gradwire; }

# shellcheck disable=SC2046  # flags are words
with_pkg_config() { cc docs/examples/allreduce.c -o "$tmp/example" $(flags) -Wl,-rpath,"$lib"; }
runs() { [ "$("$tmp/prefix/bin/gradwire" run -n 3 --no-prefix -- "$1" | sort | tail -n 1)" = "rank 2 of 3: the sum is 3" ]; }
alone() { [ "$("$tmp/example")" = "rank 0 of 1: the sum is 0" ]; }
with_cmake() {
    mkdir -p "$tmp/project"
    printf 'cmake_minimum_required(VERSION 3.25)\nproject(p C)\nfind_package(gradwire REQUIRED)\nadd_executable(p %s)\ntarget_link_libraries(p gradwire::gradwire)\n' \
        "$PWD/docs/examples/allreduce.c" >"$tmp/project/CMakeLists.txt"
    cmake -S "$tmp/project" -B "$tmp/project/build" -DCMAKE_PREFIX_PATH="$tmp/prefix" && cmake --build "$tmp/project/build"
}
only_public() { ! nm -D --defined-only "$lib/libgradwire.so" | awk '{print $3}' | grep -vE '^gw_'; }
every_call() { # the header's functions are all in the library
    local name
    for name in $(grep -hE '^GW_API' include/gradwire.h include/gradwire/*.h | grep -oE '\bgw_[a-z_]+\(' | tr -d '(' | sort -u); do
        nm -D --defined-only "$lib/libgradwire.so" | grep -qw "$name" || { echo "$name is missing"; return 1; }
    done
}

ok "the example compiles with pkg-config" with_pkg_config
ok "it runs with three ranks" runs "$tmp/example"
ok "it runs alone" alone
ok "the example compiles with CMake" with_cmake
ok "that one runs too" runs "$tmp/project/build/p"
ok "the library shows only gw_ names" only_public
ok "the library has every function of the header" every_call
for header in gradwire.h gradwire/reducer.h gradwire/trace.h; do
    ok "$header stands alone in C++" sh -c "echo '#include <$header>' | clang -x c++ -fsyntax-only -Iinclude -"
done
echo "$passed passed, $failed failed"
[ "$failed" = 0 ]
