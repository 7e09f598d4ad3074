#!/bin/sh
# Repeats training steps of gradwire's models in PyTorch, where that is installed: train_torch.sh [BUILD]
# Exits with 77 where it is not.
build=${1:-build}
here=$(dirname "$0")
for python in python3 /usr/bin/python3; do
    "$python" -c 'import numpy, torch' 2>/dev/null && exec "$python" "$here/train/train_torch.py" "$build/tests/helper_train_step"
done
echo "train_torch: skipped, PyTorch is not installed (Debian: python3-torch)"
exit 77
