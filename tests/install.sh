#!/usr/bin/env bash
# install.sh BUILD: what `make install` puts in place works from there, below any prefix and staged: the documented example
# compiles against the installed header and library (pkg-config and CMake) and runs; modules are found; the library
# exports the public functions and nothing else; library and program are hardened (cmake/hardening.cmake).
set -uo pipefail
build=$(cd "$1" && pwd)
cd "$(dirname "$0")/.." || exit 2
passed=0 failed=0
ok() { if "${@:2}" >"$tmp/log" 2>&1; then passed=$((passed + 1)); echo "ok   $1"; else failed=$((failed + 1)); echo "FAIL $1"; cat "$tmp/log"; fi; }
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT

cmake --install "$build" --prefix "$tmp/prefix" >/dev/null || exit 1
lib=$(dirname "$(find "$tmp/prefix" -name libgradwire.so | head -n 1)")
# The .pc file names the prefix of the configuration. A second configuration, which builds nothing, has this one.
cmake -G Ninja -S . -B "$tmp/configured" -DCMAKE_INSTALL_PREFIX="$tmp/prefix" >/dev/null || exit 1
cp "$tmp/configured/gradwire.pc" "$lib/pkgconfig/"
export PKG_CONFIG_PATH=$lib/pkgconfig
unset LD_LIBRARY_PATH

# shellcheck disable=SC2046  # flags are words
with_pkg_config() { cc docs/examples/allreduce.c -o "$tmp/example" $(pkg-config --cflags --libs gradwire); }
# shellcheck disable=SC2046
without_shared() {
    mkdir "$tmp/static" && cp "$lib/libgradwire.a" "$tmp/static/" &&
        cc docs/examples/allreduce.c -o "$tmp/example_static" $(pkg-config --cflags gradwire) -L"$tmp/static" \
            $(pkg-config --libs --static gradwire | sed "s|-L$lib||g") && ! ldd "$tmp/example_static" | grep gradwire
}
runs() { [ "$("$tmp/prefix/bin/gradwire" run -n 3 --no-prefix -- "$1" | sort | tail -n 1)" = "rank 2 of 3: the sum is 3" ]; }
alone() { [ "$("$1")" = "rank 0 of 1: the sum is 0" ]; }
# shellcheck disable=SC2046
through_a_codec() {
    cc docs/examples/coded.c -o "$tmp/coded" $(pkg-config --cflags --libs gradwire) &&
        [ "$("$tmp/prefix/bin/gradwire" run -n 3 --no-prefix -- "$tmp/coded" | sort | tail -n 1)" = "rank 2 of 3: the average is 1.00" ]
}
with_cmake() {
    mkdir -p "$tmp/project"
    printf 'cmake_minimum_required(VERSION 3.25)\nproject(p C)\nfind_package(gradwire REQUIRED)\nadd_executable(p %s)\ntarget_link_libraries(p gradwire::gradwire)\n' \
        "$PWD/docs/examples/allreduce.c" >"$tmp/project/CMakeLists.txt"
    cmake -S "$tmp/project" -B "$tmp/project/build" -DCMAKE_PREFIX_PATH="$tmp/prefix" && cmake --build "$tmp/project/build"
}
# Staged for a package: everything below DESTDIR, for the prefix of the configuration.
staged() {
    local prefix
    prefix=$(sed -n 's/^CMAKE_INSTALL_PREFIX:PATH=//p' "$build/CMakeCache.txt")
    DESTDIR=$tmp/stage cmake --install "$build" && "$tmp/stage$prefix/bin/gradwire" --version &&
        ! grep -rl "$tmp" "$tmp/stage" && diff <(cd "$tmp/stage$prefix" && find . | sort) <(cd "$tmp/prefix" && find . | sort)
}
# A module that is no module shows whether it was found: the error is another one then.
module() { # module COMMAND...
    mkdir -p "$lib/gradwire"
    echo 'int nothing;' | cc -shared -fPIC -x c - -o "$lib/gradwire/libgradwire-mpi-openmpi.so"
    GRADWIRE_STRATEGY=transport=mpi:library=openmpi "$@" 2>&1 | tee "$tmp/said"
    rm "$lib/gradwire/libgradwire-mpi-openmpi.so"
    grep 'libgradwire-mpi-openmpi.so is of another version' "$tmp/said"
}
exactly_public() { # both ways: no name more, no name less
    diff <(nm -D --defined-only "$lib/libgradwire.so" | awk '{print $3}' | sort) \
        <(cat include/gradwire.h include/gradwire/*.h | tr '\n' ' ' | grep -oE 'GW_API [^;(]*\(' | grep -oE 'gw_[a-z0-9_]+ *\($' |
            tr -d ' (' | sort -u)
}
hardened() { # hardened FILE
    local dynamic headers symbols missing=''
    dynamic=$(readelf -dW "$1") headers=$(readelf -lW "$1") symbols=$(readelf --dyn-syms -W "$1")
    grep -q GNU_RELRO <<<"$headers" || missing+=' relro'
    grep -qE 'FLAGS_1.*NOW' <<<"$dynamic" || missing+=' now'
    grep -qE 'GNU_STACK .* RW ' <<<"$headers" || missing+=' noexecstack'
    grep -q __stack_chk_fail <<<"$symbols" || missing+=' stack-protector'
    grep -qE ' __[a-z]+_chk@' <<<"$(grep -v __stack_chk <<<"$symbols")" || missing+=' fortify'
    [[ $1 == *.so* ]] || grep -qE 'FLAGS_1.*PIE' <<<"$dynamic" || missing+=' pie'
    [ -z "$missing" ] || { echo "missing:$missing"; return 1; }
}

ok "the example compiles with pkg-config" with_pkg_config
ok "it runs with three ranks" runs "$tmp/example"
ok "it starts at once, outside of the loader's folders" alone "$tmp/example"
ok "the example of a coded collective compiles and runs" through_a_codec
ok "the example compiles with the static library" without_shared
ok "that one runs too" alone "$tmp/example_static"
ok "the example compiles with CMake" with_cmake
ok "that one runs too" runs "$tmp/project/build/p"
ok "the same files are staged below DESTDIR" staged
ok "the library finds its modules" module "$tmp/prefix/bin/gradwire" run -n 2 --no-prefix -- "$tmp/example"
ok "the program finds its modules" module "$tmp/prefix/bin/gradwire" bench allreduce -n 2 -b 4 -e 4
ok "the library exports the public functions, and nothing else" exactly_public
ok "the library is hardened" hardened "$lib/libgradwire.so"
ok "the program is hardened" hardened "$tmp/prefix/bin/gradwire"
for header in gradwire.h gradwire/coded.h gradwire/reducer.h gradwire/trace.h; do
    ok "$header stands alone in C++" sh -c "echo '#include <$header>' | clang -x c++ -fsyntax-only -Iinclude -"
done
echo "$passed passed, $failed failed"
[ "$failed" = 0 ]
