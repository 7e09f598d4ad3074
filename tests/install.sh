#!/usr/bin/env bash
# install.sh BUILD: what `make install` puts in place works from there, below any prefix and staged: the examples of docs
# compile against the installed headers and library (pkg-config and CMake) and run; there are man pages; modules are found;
# the library exports the public functions and nothing else; library and program are hardened (cmake/hardening.cmake).
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

# The examples are built as a user builds them: by docs/examples/Makefile with pkg-config, and by its CMakeLists.txt.
with_pkg_config() { cp -R docs/examples "$tmp/examples" && make -C "$tmp/examples"; }
# shellcheck disable=SC2046  # flags are words
without_shared() {
    mkdir "$tmp/static" && cp "$lib/libgradwire.a" "$tmp/static/" &&
        cc docs/examples/allreduce.c -o "$tmp/example_static" $(pkg-config --cflags gradwire) -L"$tmp/static" \
            $(pkg-config --libs --static gradwire | sed "s|-L$lib||g") && ! ldd "$tmp/example_static" | grep gradwire
}
job() { "$tmp/prefix/bin/gradwire" run -n 3 --no-prefix "$@"; }
runs() { # runs PROGRAM WORDS [OPTIONS]: all three ranks print the words
    diff <(job "${@:3}" -- "$1" 2>"$tmp/said" | sort) <(for rank in 0 1 2; do echo "rank $rank of 3: $2"; done) || { cat "$tmp/said"; return 1; }
}
alone() { [ "$("$1")" = "rank 0 of 1: the sum is 0" ]; }
goes_on() { # goes_on [STRATEGY...]
    GRADWIRE_FLIGHT_DIR=$tmp job --elastic -- "$tmp/examples/lost_rank" die "$@" >"$tmp/said" 2>&1
    [ "$(grep -c '^member [02] of 2 ranks: the weights go from 0.0 to 7.0$' "$tmp/said")" = 2 ] || { cat "$tmp/said"; return 1; }
}
with_cmake() { cmake -S docs/examples -B "$tmp/by_cmake" -DCMAKE_PREFIX_PATH="$tmp/prefix" && cmake --build "$tmp/by_cmake"; }
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
# A page of section 1 for each command, one of section 3 for each public function, and man finds them.
has_man_pages() {
    local command name missing='' man=$tmp/prefix/share/man
    for command in $("$tmp/prefix/bin/gradwire" --help | sed -n '/^commands:/,/^$/s/^  \([a-z]*\) .*/\1/p'); do
        [ -s "$man/man1/gradwire-$command.1" ] || missing+=" gradwire-$command(1)"
    done
    for name in $(nm -D --defined-only "$lib/libgradwire.so" | awk '{print $3}') gw_init gw_options; do
        [ -s "$man/man3/$name.3" ] || missing+=" $name(3)"
    done
    [ -z "$missing" ] || { echo "no page:$missing"; return 1; }
    for name in gradwire gradwire-run '3 gw_allreduce' '3 gw_allreduce_start' '5 gradwire-files' '7 gradwire-strategy'; do
        # shellcheck disable=SC2086  # a section and a name
        man -M "$man" -w $name || return 1
    done
}
# Each is laid out without a warning, and has a line for apropos.
man_pages_are_clean() {
    (cd "$tmp/prefix/share/man" && find . -name '*.[0-9]' | sort >"$tmp/pages" &&
        ! grep -L '^\.so' $(cat "$tmp/pages") | xargs groff -man -ww -z -Tutf8 2>&1 | grep . &&
        ! grep -L '^\.so' $(cat "$tmp/pages") | xargs lexgrog | grep -v ' - ')
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

ok "the examples compile with pkg-config" with_pkg_config
ok "allreduce runs" runs "$tmp/examples/allreduce" "the sum is 3"
ok "it starts at once, outside of the loader's folders" alone "$tmp/examples/allreduce"
ok "reducer runs" runs "$tmp/examples/reducer" "y = 3.00 x + 1.00"
ok "servers runs, with a server beside rank 0" runs "$tmp/examples/servers" "the weights are about 1"
ok "servers runs, with a server process" runs "$tmp/examples/servers" "the weights are about 1" --servers 1
ok "coded runs" runs "$tmp/examples/coded" "the average is 1.00"
ok "coded_state runs" runs "$tmp/examples/coded_state" "every value arrived: 40.0"
ok "lost_rank goes on without the rank that is killed" goes_on
ok "lost_rank goes on over servers" goes_on arch=ps:servers=2,replicas=1 sync=asp
ok "the example compiles with the static library" without_shared
ok "that one runs too" alone "$tmp/example_static"
ok "the examples compile with CMake" with_cmake
ok "those run too" runs "$tmp/by_cmake/reducer" "y = 3.00 x + 1.00"
ok "the same files are staged below DESTDIR" staged
ok "the library finds its modules" module "$tmp/prefix/bin/gradwire" run -n 2 --no-prefix -- "$tmp/examples/allreduce"
ok "the program finds its modules" module "$tmp/prefix/bin/gradwire" bench allreduce -n 2 -b 4 -e 4
ok "the library exports the public functions, and nothing else" exactly_public
ok "there is a man page for each command and each call" has_man_pages
ok "man pages have no mistakes" man_pages_are_clean
ok "the library is hardened" hardened "$lib/libgradwire.so"
ok "the program is hardened" hardened "$tmp/prefix/bin/gradwire"
for header in gradwire.h gradwire/coded.h gradwire/reducer.h gradwire/trace.h; do
    ok "$header stands alone in C++" sh -c "echo '#include <$header>' | clang -x c++ -fsyntax-only -Iinclude -"
done
echo "$passed passed, $failed failed"
[ "$failed" = 0 ]
