#!/usr/bin/env python3
"""train_peers.py BUILD [OPTIONS] - a training step of PyTorch models with gradwire beside what else people use.

Cells are models x hosts x rates, each a job in a lab of network namespaces (root). In a cell all ways take turns in the
same processes (train_peers_rank.py), so that whatever disturbs the machine hits all alike:

    alone           nothing is sent: the compute of a step
    ddp             DistributedDataParallel over Gloo, f32
    ddp-bf16        the same with a bf16 hook, of the arithmetic of torch's own (which torch refuses on the CPU)
    ddp-powersgd    the same with torch's PowerSGD hook of rank 4
    horovod         over Gloo, where it is installed
    auto            gradwire as it comes: strategy=auto, accuracy=exact
    accuracy=safe   the same with the codecs that have cost at most 0.5 points
    a strategy      any line: strategy=fixed schedule=dear, compress=onebit. What it leaves open is auto's to choose

and those of train_peers_rank.py that are not measured unless asked for. Turns are appended to a file,
BUILD/train_peers.jsonl, and a run goes on where the last one stopped: --for SECONDS ends it after the turn that is under
way then. Prints the table of all that is in the file; --json and --svg write it for programs and for people."""
import argparse
import collections
import datetime
import json
import os
import pathlib
import statistics
import subprocess
import sys
import time

HERE = pathlib.Path(__file__).resolve().parent
EXACT = ["strategy=fixed schedule=wfbp", "strategy=fixed schedule=dear", "strategy=fixed schedule=bytescheduler"]
CODED = ["compress=powersgd:rank=4", "compress=topk:ratio=0.01", "compress=onebit"]
WAYS = ["alone", "ddp", "ddp-bf16", "ddp-powersgd", "horovod", "auto", *EXACT, "accuracy=safe", *CODED]
MARKS = {"auto": "ddp", "accuracy=safe": "ddp-bf16", **{way: "ddp-powersgd" for way in CODED}}  # compared with
RATES = {"unshaped": "100gbit"}  # what no link of this lab reaches
BATCH = {"gpt": 2}
CELL = ("model", "batch", "hosts", "rate")
WIDTH, LEFT, BAR = 760, 270, 16  # of the picture


# ---- running ----

def torch_environment():
    """Python with PyTorch, and the environment that tests/with_torch.sh asks for."""
    script = '''. tests/with_torch.sh && [ -n "$python" ] || { echo "$why" >&2; exit 77; }
              echo "$python"; echo "${ONEDNN_MAX_CPU_ISA:-}"'''
    out = subprocess.run(["bash", "-c", script], cwd=HERE.parent, stdout=subprocess.PIPE, text=True)
    if out.returncode:
        sys.exit(out.returncode)
    python, isa = out.stdout.splitlines()
    return python, {"ONEDNN_MAX_CPU_ISA": isa} if isa else {}


def has_horovod(python):
    return subprocess.run([python, "-c", "import horovod.torch"], capture_output=True).returncode == 0


def read(path):
    if not path.exists():
        return []
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines() if line]


def cell_of(row):
    return tuple(row[name] for name in CELL)


def missing(options, cell, ways):
    """How many turns of a cell are to be made, and the number of the first."""
    mine = [row for row in read(options.results) if cell_of(row) == cell]
    counts = collections.Counter(row["way"] for row in mine if row["asked"] == options.security)
    return max(options.turns - min(counts[way] for way in ways), 0), max((row["turn"] for row in mine), default=-1) + 1


def is_unchecked(options, cell, ways):
    """Whether the averages of an exact way have not been compared with DDP's in an earlier run."""
    checked = {row["way"] for row in read(options.results) if cell_of(row) == cell and row["off"] is not None}
    return any(way not in checked for way in ways if way in EXACT or way in ("ddp", "horovod", "auto"))


def environment_of(options, extra):
    # Otherwise malloc returns memory and maps it again in some processes and not in others: 0.05 s of faults a step.
    environment = {**os.environ, **extra, "GRADWIRE_LIBRARY": str(options.build / "libgradwire.so.1"),
                   "OMP_NUM_THREADS": "1", "MALLOC_TRIM_THRESHOLD_": "1000000000",
                   "MALLOC_MMAP_THRESHOLD_": "1000000000", "TORCH_CPP_LOG_LEVEL": "ERROR",
                   "PYTHONWARNINGS": "ignore::FutureWarning"}
    if options.security != "auto":
        environment["GRADWIRE_STRATEGY"] = f"transport=auto:security={options.security}"
    return environment


def run_cell(options, python, extra, cell, ways, until):
    model, batch, hosts, rate = cell
    turns, first = missing(options, cell, ways)
    if not turns:
        return
    print(f"# {model}, batch {batch}, {hosts} hosts, {rate}: {turns} turns of {len(ways)} ways", file=sys.stderr,
          flush=True)
    decisions = options.results.with_suffix(".decisions") / f"{model}-{batch}-{hosts}-{rate}-{options.security}"
    decisions.mkdir(parents=True, exist_ok=True)
    lab = ["--lab", f"hosts={hosts},rate={RATES.get(rate, rate)}"] if rate != "none" else ["-n", str(hosts)]
    flags = (["--pin"] if rate != "none" else []) + (["--check"] if is_unchecked(options, cell, ways) else [])
    about = {**dict(zip(CELL, cell)), "asked": options.security, "date": datetime.date.today().isoformat()}
    job = subprocess.run([options.build / "gradwire", "run", *lab, "--no-prefix", "--deadline", "120", "--", python,
                          HERE / "train_peers_rank.py", "--model", model, "--batch", str(batch), "--first", str(first),
                          "--turns", str(turns), "--seconds", str(options.seconds), "--until", str(until),
                          "--cell", json.dumps(about), "--decisions", decisions, "--out", options.results,
                          *flags, *ways], env=environment_of(options, extra))
    if job.returncode:
        sys.exit(f"train_peers: the job of {model}, {hosts} hosts, {rate} ended with exit code {job.returncode}")


def measure(options):
    python, extra = torch_environment()
    ways = options.way or WAYS
    if not options.way and not has_horovod(python):
        print("# no Horovod: its row is left out", file=sys.stderr)
        ways = [way for way in WAYS if way != "horovod"]
    until = time.time() + options.limit if options.limit else 0
    for cell in cells(options):
        if until and time.time() > until:
            return
        run_cell(options, python, extra, cell, ways, until)


def cells(options):
    return [(model, options.batch or BATCH.get(model, 16), hosts, rate) for model in options.models
            for hosts in options.hosts for rate in options.rates]


# ---- telling ----

def ratios(mine, others):
    """Times of the others over mine, of the turns that both have; without such, of the medians."""
    mine, others = ({row["turn"]: row["step_s"] for row in rows} for rows in (mine, others))
    both = [others[turn] / mine[turn] for turn in sorted(mine) if turn in others]
    return both or [statistics.median(others.values()) / statistics.median(mine.values()) for _ in others][:1]


def place(way):
    return WAYS.index(way) if way in WAYS else len(WAYS)


def summary(rows):
    """A row of the table for each cell, way and security: medians, and ratios to ddp and its mark in the same turns."""
    found = []
    for cell in dict.fromkeys(map(cell_of, rows)):
        by_way = {}
        for row in rows:
            if cell_of(row) == cell:
                by_way.setdefault((row["way"], row["security"]), []).append(row)
        for (way, security), turns in sorted(by_way.items(), key=lambda item: place(item[0][0])):
            times, mark = [row["step_s"] for row in turns], MARKS.get(way)
            to_ddp, to_mark = (ratios(turns, by_way.get((other, "clear"), [])) for other in ("ddp", mark))
            found.append({
                **dict(zip(CELL, cell)), "way": way, "security": security, "turns": len(turns),
                "step_s": statistics.median(times), "lowest_s": min(times), "highest_s": max(times),
                "cpu_s": statistics.median(row["cpu_s"] for row in turns), "off": known(turns, "off"),
                "of_ddp": statistics.median(to_ddp) if to_ddp else None, "mark": mark if to_mark else None,
                "of_mark": statistics.median(to_mark) if to_mark else None,
                "of_mark_range": [min(to_mark), max(to_mark)] if to_mark else None,
                "strategy": turns[-1]["strategy"], "torch": turns[-1]["torch"], "date": turns[-1]["date"]})
    return found


def known(turns, name):
    return next((row[name] for row in turns if row[name] is not None), None)


def brief(line):
    """A chosen strategy without what every one has."""
    return " ".join(word for word in line.split() if word.split("=")[0] in ("arch", "compress", "schedule")
                    and word not in ("compress=none", "arch=auto"))


def heading(row):
    network = "one host" if row["rate"] == "none" else f"{row['hosts']} hosts, {row['rate']}"
    print(f"\n# {row['model']}, batch {row['batch']} a rank, {row['hosts']} ranks, {network}; torch {row['torch']}, "
          f"one thread a rank, {row['date']}")
    print(f"{'way':38} {'security':8} {'turns':>5} {'ms a step':>10} {'lowest':>8} {'highest':>8} {'cpu ms':>8} "
          f"{'of ddp':>7} {'off':>6}  beside its mark; what was chosen")


def table(found):
    cell = None
    for row in found:
        if cell_of(row) != cell:
            cell = cell_of(row)
            heading(row)
        ddp = f"{row['of_ddp']:7.2f}" if row["of_ddp"] else f"{'':7}"
        off = f"{row['off']:6.0e}" if row["off"] is not None else f"{'':6}"
        words = [brief(row["strategy"])] if row["strategy"] else []
        if row["of_mark"]:
            low, high = row["of_mark_range"]
            words.insert(0, f"{row['of_mark']:.2f} of {row['mark']} ({low:.2f} to {high:.2f})")
        print(f"{row['way']:38} {row['security']:8} {row['turns']:5} {row['step_s'] * 1e3:10.1f} "
              f"{row['lowest_s'] * 1e3:8.1f} {row['highest_s'] * 1e3:8.1f} {row['cpu_s'] * 1e3:8.1f} {ddp} {off}  "
              f"{'; '.join(words)}".rstrip())


def bar(row, y, alone, longest):
    """Elements of the picture."""
    scale = (WIDTH - LEFT - 130) / longest
    colour = "#1f77b4" if row["strategy"] else "#c0392b"
    way = row["way"].replace("strategy=fixed ", "") + (f" ({row['security']})" if row["strategy"] else "")
    ratio = f", {row['of_ddp']:.2f} x DDP" if row["of_ddp"] else ""
    end, compute = row["step_s"] * scale, min(alone, row["step_s"]) * scale
    return [f'<text x="{LEFT - 8}" y="{y + 12}" text-anchor="end">{way}</text>',
            f'<rect x="{LEFT}" y="{y + 2}" width="{end:.1f}" height="{BAR - 4}" fill="{colour}" fill-opacity="0.5"/>',
            f'<rect x="{LEFT}" y="{y + 2}" width="{compute:.1f}" height="{BAR - 4}" fill="{colour}"/>',
            f'<text x="{LEFT + end + 6:.1f}" y="{y + 12}">{row["step_s"] * 1e3:.0f} ms{ratio}</text>']


def picture(found, path):
    """A panel for each cell: a bar for each way, as long as its step."""
    panels, out, y = {}, [], 40
    for row in found:
        panels.setdefault(cell_of(row), []).append(row)
    for (model, batch, hosts, rate), rows in panels.items():
        alone = next((row["step_s"] for row in rows if row["way"] == "alone"), 0)
        rows = [row for row in rows if row["way"] != "alone"]
        out.append(f'<text x="10" y="{y}" font-weight="bold">{model}, batch {batch}, {hosts} hosts, {rate}</text>')
        y += 8
        for row in rows:
            out += bar(row, y, alone, max(row["step_s"] for row in rows))
            y += BAR
        y += 28
    head = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {y}" font-family="sans-serif" font-size="12" '
            'fill="#333">', f'<rect width="{WIDTH}" height="{y}" fill="#fff"/>',
            '<text x="10" y="16">milliseconds of a training step; dark: the compute alone; blue: gradwire</text>']
    path.write_text("\n".join(head + out + ["</svg>"]) + "\n", encoding="utf-8")


def tell(options):
    wanted = set(cells(options)) if options.only else None
    found = summary([row for row in read(options.results) if wanted is None or cell_of(row) in wanted])
    table(found)
    if options.json:
        options.json.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    if options.svg:
        picture(found, options.svg)


def words(text):
    return text.split(",")


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build", type=pathlib.Path)
    parser.add_argument("--models", type=words, default=["resnet18", "gpt"], help="gpt, or one of torchvision's")
    parser.add_argument("--batch", type=int, help="of a rank; default: 16, of gpt 2")
    parser.add_argument("--hosts", type=lambda text: [int(n) for n in words(text)], default=[2, 4])
    parser.add_argument("--rates", type=words, default=["100mbit", "1gbit", "unshaped"], help="none: one host, no lab")
    parser.add_argument("--way", action="append", help="only these; may be repeated")
    parser.add_argument("--turns", type=int, default=7, help="of every way; 0: only tell")
    parser.add_argument("--seconds", type=float, default=2, help="of a turn of a way")
    parser.add_argument("--for", type=float, dest="limit", metavar="SECONDS", help="begin no turn after that time")
    parser.add_argument("--security", default="auto", choices=["auto", "clear", "mac", "tls"],
                        help="of gradwire's ways; auto is mac between hosts. Others make rows of their own")
    parser.add_argument("--results", type=pathlib.Path, help="default: BUILD/train_peers.jsonl")
    parser.add_argument("--only", action="store_true", help="tell of these cells only")
    parser.add_argument("--json", type=pathlib.Path, metavar="FILE")
    parser.add_argument("--svg", type=pathlib.Path, metavar="FILE")
    options = parser.parse_args()
    options.build = options.build.resolve()
    options.results = options.results or options.build / "train_peers.jsonl"
    return options


def main():
    options = arguments()
    if options.turns:
        measure(options)
    tell(options)


main()
