#!/bin/bash
# simgrid.sh - the simulator beside SimGrid (Debian: libsimgrid-dev) on the same fat-tree: simgrid.sh BUILD_DIRECTORY.
# 64 ranks, 4 leaves of 16 hosts with 4 links up each; a ring in the order of the hosts and shuffled, and an all-to-all.
# SimGrid runs its own fat-tree with its own routes, as a pure max-min model (CM02, no factors).
build=$(cd "${1:?usage: simgrid.sh BUILD_DIRECTORY}" && pwd) || exit 2
cd "$(dirname "$0")" || exit 2
if [ ! -e /usr/include/simgrid/engine.h ]; then
    echo "skipped: SimGrid is not installed (libsimgrid-dev)"
    exit 77
fi
scratch=$(mktemp -d) || exit 2
trap 'rm -rf "$scratch"' EXIT
passed=0 failed=0
cc -O1 -Wall -Wextra -Werror -o "$scratch/peer" simgrid/peer.c -lsimgrid || exit 1

cat >"$scratch/platform.xml" <<'XML'
<?xml version='1.0'?>
<!DOCTYPE platform SYSTEM "https://simgrid.org/simgrid.dtd">
<platform version="4.1">
  <cluster id="tree" prefix="node-" suffix="" radical="0-63" speed="1Gf" bw="1.25GBps" lat="25us"
           topology="FAT_TREE" topo_parameters="2;16,4;1,4;1,1"/>
</platform>
XML

ordered=$(seq 0 63 | tr '\n' ' ')
shuffled=$(seq 0 63 | awk '{print ($1 * 37 + 11) % 64}' | tr '\n' ' ') # 37 is odd: every host once

compare() { # NAME KIND BYTES HOSTS
    local ours theirs
    # shellcheck disable=SC2086  # hosts are words
    ours=$("$build/tests/helper_fattree" "$2" "$3" 16 4 50e-6 1.25e9 $4) || ours=0
    # shellcheck disable=SC2086
    theirs=$("$scratch/peer" "$scratch/platform.xml" "$2" "$3" $4 --log=root.thres:warning --cfg=network/model:CM02 \
        --cfg=network/crosstraffic:0 --cfg=network/TCP-gamma:0 2>"$scratch/err") || { cat "$scratch/err"; theirs=0; }
    if awk -v a="$ours" -v b="$theirs" 'BEGIN { exit !(a > 0 && b > 0 && a / b < 1.1 && b / a < 1.1) }'; then
        passed=$((passed + 1)); word=ok
    else
        failed=$((failed + 1)); word=FAIL
    fi
    printf '%-4s %-32s %s s here, %s s in SimGrid, %s\n' "$word" "$1" "$ours" "$theirs" \
        "$(awk -v a="$ours" -v b="$theirs" 'BEGIN { if (b > 0) printf "%+.2f %%", 100 * (a / b - 1) }')"
}

for bytes in 16384 1048576; do
    compare "ring in order, $bytes bytes" ring $bytes "$ordered"
    compare "ring shuffled, $bytes bytes" ring $bytes "$shuffled"
    compare "all to all, $bytes bytes" alltoall $bytes "$ordered"
done
echo "$passed passed, $failed failed"
[ "$failed" = 0 ]
