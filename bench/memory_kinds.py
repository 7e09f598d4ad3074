#!/usr/bin/env python3
"""memory_kinds.py BUILD [--ranks N] [--collectives a,b] [--from 4K] [--to 64M] [--factor 8] [--turns 7]: collectives in
shared memory on buffers of gw_alloc, of malloc that gw_register has got, and of malloc. The kinds take turns; a figure is
the median of the turns' medians in us, and the ratio that of each turn to gw_alloc's, again the median.

    bench/memory_kinds.py build --ranks 4 --collectives allreduce,allgather,alltoall"""
import argparse
import json
import pathlib
import statistics
import subprocess

KINDS = "gw_alloc", "register", "malloc"

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("build", type=pathlib.Path)
parser.add_argument("--ranks", default="2")
parser.add_argument("--collectives", default="allreduce")
parser.add_argument("--from", dest="least", default="4K")
parser.add_argument("--to", default="64M")
parser.add_argument("--factor", default="8")
parser.add_argument("--turns", type=int, default=7)
parser.add_argument("--kinds", default=",".join(KINDS))
given = parser.parse_args()

times = {}
for turn in range(given.turns):
    for collective in given.collectives.split(","):
        for kind in given.kinds.split(","):
            said = subprocess.run(
                [given.build / "gradwire", "bench", collective, "-n", given.ranks, "-b", given.least, "-e", given.to,
                 "-f", given.factor, "--transport", "shm", "--memory", kind, "--json"],
                stdout=subprocess.PIPE, text=True, check=True).stdout
            for line in said.splitlines():
                row = json.loads(line)
                if "time_us" in row:
                    times.setdefault((collective, row["bytes"]), {}).setdefault(kind, []).append(row["time_us"])
print(f"{'collective':15} {'bytes':>11} " + " ".join(f"{kind + ' us':>12} {'ratio':>6}" for kind in given.kinds.split(",")))
for (collective, size), by_kind in times.items():
    first = next(iter(by_kind.values()))
    cells = [f"{statistics.median(some):12.2f} {statistics.median(a / b for a, b in zip(some, first)):6.3f}"
             for some in by_kind.values()]
    print(f"{collective:15} {size:11} " + " ".join(cells))
