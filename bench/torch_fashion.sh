#!/usr/bin/env bash
# torch_fashion.sh BUILD [STRATEGY]... - time to a test accuracy on Fashion-MNIST over four hosts at 100 Mbit/s (root), and
# its picture in BUILD/fashion.svg.
set -uo pipefail
build=$(cd "${1:?usage: torch_fashion.sh BUILD [STRATEGY]...}" && pwd) || exit 2
here=$(cd "$(dirname "$0")" && pwd)
shift
[ $# -gt 0 ] || set -- compress=powersgd:rank=4 compress=topk:ratio=0.01
export GRADWIRE_LIBRARY=$build/libgradwire.so.1 OMP_NUM_THREADS=1
files=()
for way in alone ddp "$@"; do
    steps=940
    [ "$way" != alone ] || steps=20
    files+=("$build/fashion-${#files[@]}.txt")
    "$build/gradwire" run --lab hosts=4,rate=100mbit --no-prefix -- \
        /usr/bin/python3 "$here/torch_fashion.py" --steps "$steps" "$way" | tee "${files[-1]}" || exit 1
done
/usr/bin/python3 "$here/torch_fashion.py" --picture "$build/fashion.svg" "${files[@]:1}"
echo "picture: $build/fashion.svg"
