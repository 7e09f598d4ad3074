#!/bin/sh
# build.sh BUILD_DIRECTORY - builds the programs of the peers that are installed, into BUILD_DIRECTORY/peers, where
# gradwire bench finds them. libgradwire.a must have been built there: the measuring is the same code for all.
set -eu
build=$(cd "${1:?usage: build.sh BUILD_DIRECTORY}" && pwd)
here=$(cd "$(dirname "$0")" && pwd)
root=$here/../..
out=$build/peers
mkdir -p "$out"
objects=$(mktemp -d)
trap 'rm -rf "$objects"' EXIT
cd "$objects"
flags="-O2 -g -Wall -D_GNU_SOURCE -I$root/include -I$root/src"
# shellcheck disable=SC2086  # words
cc -std=gnu11 $flags -c "$root"/src/bench/*.c
ar rcs "$out/libmeasure.a" ./*.o
libraries="$out/libmeasure.a $build/libgradwire.a $(sed -n 's/^Libs.private: //p' "$build/gradwire.pc")"

for mpi in openmpi mpich; do
    if command -v "mpicc.$mpi" >/dev/null; then
        # shellcheck disable=SC2086  # words
        "mpicc.$mpi" -std=gnu11 $flags -o "$out/peer_$mpi" "$here/peer_mpi.c" $libraries
        # shellcheck disable=SC2086  # words
        "mpicc.$mpi" -std=gnu11 $flags -o "$out/native_$mpi" "$here/native_mpi.c" $libraries
    else
        echo "no mpicc.$mpi: peers of $mpi are left out"
    fi
done
if [ -f /usr/include/gloo/config.h ]; then
    # shellcheck disable=SC2086  # words
    g++ -std=c++17 $flags -o "$out/peer_gloo" "$here/peer_gloo.cc" -lgloo $libraries
else
    echo "no Gloo: its peer is left out"
fi
cp "$here/lab_shell.sh" "$out/"
