#!/usr/bin/env python3
"""The tables of docs/model.md that need no network: HKBU's rows and DeAR's claim, predicted.

    bench/model_tables.py build

HKBU's cluster (8 hosts of 4 GPUs) runs collectives one after the other (at_once 1) around one ring; alpha and beta are
fitted for each row to "no overlap" and "WFBP", and MG-WFBP is predicted. DeAR is asked with those links on 64 GPUs.
"""
import json
import os
import subprocess
import sys
import tempfile

GPU = "gradwire-model 1\nmemory 4e10\nmemory_latency 5e-06\nreduce 3e11\nat_once %d\nend\n"
RING = "arch=ring transport=tcp schedule="
ROWS = [("resnet50", "10 GbE", 4921, 5113, 6884), ("bert-base", "10 GbE", 1927, 2013, 1926),
        ("bert-base", "InfiniBand", 4184, 4099, 4940)]
MODELS = ["resnet50", "densenet201", "inception4", "bert-base", "bert-large"]
DEAR = ["dear:fuse=%dM" % m for m in (2, 5, 10, 25, 50)]
OTHERS = {"wfbp": ["wfbp:fuse=1"], "mgwfbp": ["mgwfbp"], "fusion": ["wfbp:fuse=64M"],
          "bytescheduler": ["bytescheduler:slice=%dM,credit=%dM" % s for s in ((1, 4), (4, 16), (16, 64))]}


def run(*words):
    done = subprocess.run([PROGRAM, *words], capture_output=True, text=True)
    if done.returncode:
        sys.exit(done.stderr)
    return done.stdout


def predict(model_file, profile, ranks, schedule, *more):
    out = run("predict", "--profile", profile, "--ranks", str(ranks), "--per-host", "4", "--model", model_file,
              "--strategy", RING + schedule, "--json", *more)
    return json.loads(out)


def write(name, text):
    path = os.path.join(SCRATCH, name)
    with open(path, "w") as file:
        file.write(text)
    return path


def fit(index, profile, no_overlap, wfbp):
    step = lambda throughput: 1e3 * 32 * 64 / throughput
    steps = write("steps.csv", "profile,ranks,per_host,step_ms,strategy\n%s,32,4,%.3f,%sfifo:fuse=1G\n%s,32,4,%.3f,%s"
                  "wfbp:fuse=1\n" % (profile, step(no_overlap), RING, profile, step(wfbp), RING))
    path = os.path.join(SCRATCH, "%d.model" % index)
    run("fit", "--from", write("gpu.model", GPU % 1), "--steps", steps, "-o", path)
    return path


def figure(path, word):
    with open(path) as file:
        return [float(line.split()[1]) for line in file if line.startswith(word + " ")][0]


def hkbu():
    files = []
    print("| model | network | alpha | beta as rate | no overlap | WFBP | MG-WFBP measured | predicted | error |")
    print("|---|---|---|---|---|---|---|---|---|")
    for index, (profile, network, no_overlap, wfbp, merged) in enumerate(ROWS):
        path = fit(index, profile, no_overlap, wfbp)
        got = [predict(path, profile, 32, s)["samples_per_s"] for s in ("fifo:fuse=1G", "wfbp:fuse=1", "mgwfbp")]
        print("| %s | %s | %.0f us | %.1f Gbit/s | %.0f | %.0f | %d | %.0f | %+.1f %% |" % (
            profile, network, figure(path, "latency") * 1e6, figure(path, "rate") * 8e-9, got[0], got[1], merged,
            got[2], 100 * (got[2] / merged - 1)))
        files.append(path)
    return files


def best(path, profile, schedules):
    return max(predict(path, profile, 64, s)["samples_per_s"] for s in schedules)


def dear(links):
    for at_once, title in ((1, "one collective at a time"), (0, "as gradwire starts them")):
        print("\n%s:\n\n| network | model | dear | over wfbp | over mgwfbp | over fusion | over bytescheduler |" % title)
        print("|---|---|---|---|---|---|---|")
        for network, link in links:
            text = open(link).read().replace("at_once 1", "at_once %d" % at_once)
            path = write("dear.model", text)
            for profile in MODELS:
                mine = best(path, profile, DEAR)
                gains = [100 * (mine / best(path, profile, other) - 1) for other in OTHERS.values()]
                print("| %s | %s | %.0f | %s |" % (network, profile, mine, " | ".join("%+.0f %%" % g for g in gains)))
                sys.stdout.flush()


PROGRAM = os.path.join(sys.argv[1] if len(sys.argv) > 1 else "build", "gradwire")
with tempfile.TemporaryDirectory() as SCRATCH:
    fitted = hkbu()
    dear([("10 GbE", fitted[0]), ("InfiniBand", fitted[2])])
