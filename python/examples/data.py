"""Data sets as `gradwire data get NAME` leaves them, and each rank's part of every batch."""
import gzip
import os
import pathlib
import subprocess
import sys

import numpy
import torch

SYSTEM = pathlib.Path("/usr/share/datasets")  # of Debian's packages


def cache():
    home = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    return pathlib.Path(os.environ.get("GRADWIRE_CACHE") or os.path.join(home, "gradwire"))


def find(name):
    """The directory of a data set, which is fetched where it is missing."""
    for place in (cache() / name, SYSTEM / name):
        if place.is_dir():
            return place
    if os.environ.get("LOCAL_RANK", "0") == "0":
        print(f"fetching {name} with gradwire data get", file=sys.stderr, flush=True)
    subprocess.run(["gradwire", "data", "get", name], check=True, stdout=subprocess.DEVNULL)
    return cache() / name


def idx(directory, stem):
    """An array from an IDX file, packed or not."""
    path = next(p for p in sorted(directory.iterdir()) if p.name.startswith(stem))
    raw = (gzip.open if path.suffix == ".gz" else open)(path, "rb").read()
    dimensions = raw[3]
    shape = [int.from_bytes(raw[4 + 4 * i:8 + 4 * i], "big") for i in range(dimensions)]
    return torch.from_numpy(numpy.frombuffer(raw, numpy.uint8, offset=4 + 4 * dimensions).reshape(shape).copy())


def images(name, mean, deviation):
    """(images, labels) to train on and to test with; images are n x channels x height x width."""
    directory, sets = find(name), []
    for part in ("train", "t10k"):
        pixels, labels = idx(directory, f"{part}-images"), idx(directory, f"{part}-labels")
        pixels = pixels.unsqueeze(1) if pixels.dim() == 3 else pixels.permute(0, 3, 1, 2)
        sets.append((pixels.contiguous(), labels.long()))
    shape = (1, -1, 1, 1)
    mean, deviation = torch.tensor(mean).view(shape), torch.tensor(deviation).view(shape)
    return sets[0], sets[1], lambda pixels: (pixels.float() / 255 - mean) / deviation


def text(name):
    """The bytes of a text: nine tenths to train on, the rest to test with."""
    raw = torch.from_numpy(numpy.fromfile(find(name) / "text", numpy.uint8)).long()
    return raw[:len(raw) * 9 // 10], raw[len(raw) * 9 // 10:]


def batches(count, batch, rank, size, epoch, seed=1):
    """Indices of this rank's part of every global batch, in an order that all ranks share."""
    order = torch.randperm(count, generator=torch.Generator().manual_seed(seed + epoch))
    for first in range(0, count - batch * size + 1, batch * size):
        yield order[first + rank * batch:first + (rank + 1) * batch]
