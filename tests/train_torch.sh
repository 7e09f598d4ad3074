#!/usr/bin/env bash
# Repeats training steps of gradwire's models in PyTorch, where there is one: train_torch.sh [BUILD]
# Exits with 77 where there is none.
build=$(cd "${1:-build}" && pwd) || exit 2
cd "$(dirname "$0")/.." || exit 2
. tests/with_torch.sh
[ -n "$python" ] || { echo "train_torch: $why"; exit 77; }
exec "$python" tests/train/train_torch.py "$build/tests/helper_train_step"
