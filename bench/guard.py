#!/usr/bin/env python3
"""guard.py BUILD [--record] - has anything become slower? A minute or two.

Measures a short selection: collectives beside Open MPI where BUILD/peers has it (make bench-peers), and large
all-reduces beside `bound` (each rank reads and rewrites its buffer); codecs beside memcpy; and replayed training steps
beside their compute. Each figure is a ratio to something else in the same run, larger is better, and the median of
several rounds. It is compared with the one that bench/results/guard.csv has for this model of CPU. What is lower by more
than 10 % is measured again; if it stays so it is named, and the exit code is 1. --record writes the ratios to the file.

The file: CPU;row;ratio;date, a line for each row. Without any of this CPU the exit code is 2. So it is where other
processes use so much of the machine that a measurement says nothing."""
import argparse
import datetime
import json
import os
import pathlib
import re
import resource
import statistics
import subprocess
import sys
import time

FILE = pathlib.Path(__file__).resolve().parent / "results" / "guard.csv"
PROFILE = pathlib.Path(__file__).resolve().parent / "profiles" / "gnmt.csv"
FALLEN = 0.9      # of the recorded ratio
ROUNDS, AGAIN = 3, 4
DISTURBED, SHORT, ATTEMPTS = 0.15, 0.1, 8  # share of the machine; seconds in which no share can be told; attempts
HEADING = "cpu;row;ratio;date"

LARGE, ALL = ["-b", "1M", "-e", "16M", "-f", "16"], ["-b", "4K", "-e", "16M", "-f", "64"]
ALLREDUCES = [["allreduce", "--transport", "shm", "--memory", "gw_alloc"],
              ["allreduce", "--transport", "shm", "--memory", "malloc"],
              ["allreduce", "--transport", "tcp", "--memory", "malloc"]]
OTHERS = [[name, "--transport", "shm", "--memory", "malloc"] for name in ("allgather", "alltoall", "broadcast")]
CODECS = ["fp16", "int8", "onebit", "qsgd:bits=4", "terngrad", "topk:ratio=0.01", "powersgd:rank=4"]
STEPS = [["--transport", "shm"], ["--transport", "tcp"], ["--transport", "tcp", "--compress", "onebit"]]


def cpu_model():
    text = pathlib.Path("/proc/cpuinfo").read_text(encoding="ascii", errors="replace")
    found = [re.search(rf"^{name}\s*: (.*)", text, re.M) for name in ("model name", "cpu family", "model")]
    words = [f.group(1).strip() for f in found if f] or [os.uname().machine]
    return " ".join([words[0], "/".join(words[1:]), f"{os.cpu_count()} cores"]).replace(";", ",")


# ---- measuring: a function for each kind, which gives {row: ratio} of one round ----

def worked():
    """Processor seconds of the machine, and of processes that this one has waited for."""
    with open("/proc/stat", encoding="ascii") as lines:
        user, nice, system, _, _, irq, softirq, stolen = map(int, lines.readline().split()[1:9])
    own = resource.getrusage(resource.RUSAGE_CHILDREN)
    return (user + nice + system + irq + softirq + stolen) / os.sysconf("SC_CLK_TCK"), own.ru_utime + own.ru_stime


def undisturbed(command):
    """The output of a program during which others used little of the machine; it has some attempts."""
    for _ in range(ATTEMPTS):
        (machine, own), begin = worked(), time.monotonic()
        out = subprocess.run(command, stdout=subprocess.PIPE, text=True)
        took, (machine_now, own_now) = time.monotonic() - begin, worked()
        if out.returncode:
            sys.exit(f"guard: {' '.join(map(str, command[1:]))} failed")
        share = ((machine_now - machine) - (own_now - own)) / took / os.cpu_count()
        if share < DISTURBED or took < SHORT:
            return out.stdout
    print(f"guard: other processes use {share:.0%} of the machine: nothing can be measured")
    sys.exit(2)


def bench(build, *arguments):
    out = undisturbed([build / "gradwire", "bench", *arguments, "--json"])
    return [json.loads(line) for line in out.splitlines()]


def collective(build, words, sizes, peer):
    rows = bench(build, *words, "-n", "2", *sizes, "--iters", "60", "--against", peer)
    ours = {row["bytes"]: row["time_us"] for row in rows if row["library"] == "gradwire"}
    where = " ".join(word for word in words if not word.startswith("-"))
    return {f"{where} {row['bytes']} beside {peer}": row["time_us"] / ours[row["bytes"]]
            for row in rows if row["library"] == peer}


def codec(build, name):
    row = bench(build, "codec", name, "--bytes", "16M", "--repeats", "5")[0]
    return {f"{name} {way} beside memcpy": row[f"{way}_gbs"] / row["memcpy_gbs"] for way in ("encode", "decode")}


def step(build, words):
    rows = bench(build, "step", "--model", str(PROFILE), "-n", "2", "--shrink", "16", "--scale", "0.05", "--steps", "10",
                 "--schedule", "wfbp,dear", *words)
    where = " ".join(word for word in words if not word.startswith("-"))
    return {f"step {row['schedule']} {where} beside its compute": row["compute_ms"] / row["step_ms"] for row in rows}


def selection(build):
    """Measurements, each a function without arguments."""
    all_of_them = [(collective, words, LARGE, "bound") for words in ALLREDUCES]
    if (build / "peers" / "peer_openmpi").exists():
        all_of_them += [(collective, words, ALL, "openmpi") for words in ALLREDUCES + OTHERS]
    all_of_them += [(codec, name) for name in CODECS] + [(step, words) for words in STEPS]
    return [lambda kind=kind, rest=rest: kind(build, *rest) for kind, *rest in all_of_them]


def measure(one, found):
    """Adds the ratios of a round; returns their rows."""
    ratios = one()
    for row, ratio in ratios.items():
        found.setdefault(row, []).append(ratio)
    return ratios


# ---- comparing ----

def recorded(path, cpu):
    """Row: (ratio, date), of this CPU."""
    found = {}
    for line in path.read_text(encoding="utf-8").splitlines() if path.exists() else []:
        words = line.split(";")
        if len(words) == 4 and words[0] == cpu:
            found[words[1]] = float(words[2]), words[3]
    return found


def fallen(found, before):
    return [row for row, ratios in found.items()
            if row in before and statistics.median(ratios) < FALLEN * before[row][0]]


def record(path, cpu, found):
    lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else [HEADING]
    lines = [line for line in lines if not any(line.startswith(f"{cpu};{row};") for row in found)]
    lines += [f"{cpu};{row};{statistics.median(ratios):.4g};{datetime.date.today()}" for row, ratios in found.items()]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")


def table(found, before):
    width = max(map(len, found))
    for row, ratios in found.items():
        now = statistics.median(ratios)
        then = f"{before[row][0]:8.3f} {now / before[row][0]:7.2f}  {before[row][1]}" if row in before else ""
        print(f"{row:{width}} {now:8.3f} {then}".rstrip())


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build", type=pathlib.Path)
    parser.add_argument("--record", action="store_true")
    parser.add_argument("--file", type=pathlib.Path, default=FILE)
    options = parser.parse_args()
    cpu, found = cpu_model(), {}
    before = recorded(options.file, cpu)
    if not before and not options.record:
        print(f"guard: {options.file} has no ratios of {cpu}: --record (make bench-guard ARGUMENTS=--record) takes them")
        return 2
    parts = selection(options.build.resolve())
    rows = [measure(one, found) for one in parts]
    for _ in range(ROUNDS - 1):
        for one in parts:
            measure(one, found)
    if options.record:
        record(options.file, cpu, found)
        table(found, before)
        return 0
    for one, mine in zip(parts, rows):
        if set(mine) & set(fallen(found, before)):
            for _ in range(AGAIN):
                measure(one, found)
    low = fallen(found, before)
    table(found, before)
    for row in low:
        now, (then, date) = statistics.median(found[row]), before[row]
        print(f"guard: {row} fell to {now:.3f} from {then:.3f} of {date}: {now / then:.2f} of it")
    return 1 if low else 0


sys.exit(main())
