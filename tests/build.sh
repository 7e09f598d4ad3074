#!/usr/bin/env bash
# build.sh BUILD [full]: the build does what people expect of one: ctest knows every test program, a missing library leaves out
# only what needs it and the error says so, a new file of an optional transport does not matter where its library is
# missing, and a missing package is one sentence. full: also compiles and runs what has no optional libraries; a minute.
set -uo pipefail
build=$(cd "$1" && pwd) extent=${2:-quick}
cd "$(dirname "$0")/.." || exit 2
passed=0 failed=0
ok() { if "${@:2}" >"$tmp/log" 2>&1; then passed=$((passed + 1)); echo "ok   $1"; else failed=$((failed + 1)); echo "FAIL $1"; cat "$tmp/log"; fi; }
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT

ctest_knows_all() {
    diff <(ctest --test-dir "$build" -N -L program | sed -n 's/^ *Test *#[0-9]*: //p' | sort) \
        <(grep -oE '"file": .*/tests/(train/)?test_[a-z0-9_]+\.c' "$build/compile_commands.json" |
            sed "s|.*/||; s|\.c$||" | sort)
}
# The tree with a new file in each optional transport, and a build without any library that it can do without.
without_libraries() {
    mkdir "$tmp/tree" && cp -R CMakeLists.txt cmake src include tests bench python LICENSE "$tmp/tree/" || return 1
    for name in rdma zmq; do echo '#error "built without its library"' >"$tmp/tree/src/transport/$name/${name}_new.c"; done
    echo '#error "built without MPI"' >"$tmp/tree/src/transport/mpi/mpi_shim_new.c"
    cmake -G Ninja -S "$tmp/tree" -B "$tmp/without" -DGW_RDMA=OFF -DGW_ZMQ=OFF -DGW_ZLIB=OFF -DGW_PNG=OFF \
        -DGW_MPICC_openmpi=OFF -DGW_MPICC_mpich=OFF -DGW_DNNL_LIBRARY=OFF -DGW_LAPACKE_INCLUDE=OFF -DGW_OPTIMISE=-O0
}
chooses() { # chooses: absent files are compiled, and nothing of what they stand for
    local files=$tmp/without/compile_commands.json name
    for name in transport/rdma/rdma transport/zmq/zmq data/gzip data/png cli/train/train schedule/lapack; do
        grep -q "src/${name}_absent.c" "$files" || { echo "$name: not the absent one"; return 1; }
    done
    ! grep -E 'src/(transport/(rdma|zmq)/|nn/|train/|optim/|schedule/lapack|transport/mpi/mpi_shim)[a-z0-9_]*\.c"|src/data/(gzip|png)\.c"' "$files" | grep '"file"' | grep -v _absent
}
links() { cmake --build "$tmp/without" -j "$(nproc)" --target gradwire gradwire_shared >"$tmp/built" || { tail -n 20 "$tmp/built"; return 1; }; }
needs_little() { ! ldd "$tmp/without/gradwire" | grep -E 'libz|libpng|dnnl|fabric|gomp'; }
says() { # says WORDS COMMAND...
    "${@:2}" 2>&1 | tee "$tmp/said"
    grep -q "$1" "$tmp/said"
}
reads_packed() {
    cat >"$tmp/packed.c" <<'C'
#include <stdio.h>
#include "data/images.h"
int main(void) {
    gw_error error = {0};
    gw_blob blob;
    gw_sheet sheet;
    if (gw_gunzip(NULL, 0, "a.gz", &blob, &error) != GW_UNSUPPORTED) return 1;
    puts(error.text);
    error = (gw_error){0}; /* the first error is kept */
    if (gw_sheet_decode(NULL, 0, "a.png", &sheet, &error) != GW_UNSUPPORTED) return 1;
    puts(error.text);
    return 0;
}
C
    cc -D_GNU_SOURCE -Isrc -Iinclude "$tmp/packed.c" src/data/gzip_absent.c src/data/png_absent.c src/base/status.c -o "$tmp/packed" && "$tmp/packed"
}
missing_package() {
    local code=0
    scripts/packages --need no-such-package >"$tmp/said" 2>&1 || code=$?
    cat "$tmp/said"
    [ "$code" = 2 ] && [ "$(wc -l <"$tmp/said")" = 1 ] && grep -q 'apt-get install .* no-such-package' "$tmp/said"
}

ok "ctest knows every test program" ctest_knows_all
ok "a build without optional libraries is configured, with new files in their transports" without_libraries
ok "it has what says that something is missing" chooses
if [ "$extent" = full ]; then
    ok "it links" links
    ok "it needs none of those libraries" needs_little
    ok "training says what is missing" says 'libdnnl-dev' "$tmp/without/gradwire" train
    ok "transport=rdma says what is missing" says 'libfabric-dev' "$tmp/without/gradwire" bench allreduce -n 2 -b 4 -e 4 \
        --strategy transport=rdma
fi
ok "a gzip file says what is missing" says 'zlib1g-dev' reads_packed
ok "a PNG sheet says what is missing" says 'libpng-dev' reads_packed
ok "a missing package is one sentence and exit code 2" missing_package
echo "$passed passed, $failed failed"
[ "$failed" = 0 ]
