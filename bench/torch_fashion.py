#!/usr/bin/env python3
"""Time to a test accuracy on Fashion-MNIST, beside PyTorch's DistributedDataParallel with Gloo.

    gradwire run --lab hosts=4,rate=100mbit -- python3 bench/torch_fashion.py --steps 240 ddp
    gradwire run --lab hosts=4,rate=100mbit -- python3 bench/torch_fashion.py --steps 940 compress=topk:ratio=0.01
    python3 bench/torch_fashion.py --picture docs/pictures/fashion.svg FILES

A way is `alone` (nothing travels: what a step's compute takes), `ddp` or a strategy. Rank 0 prints a line for every
test: the way, the step, seconds of training until then (testing does not count) and the accuracy in percent. Such lines
of several runs make the picture."""
import argparse
import os
import pathlib
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parents[1]
WIDTH, HEIGHT, LEFT, TOP, LOWEST = 720, 360, 60, 40, 60  # of the picture; the lowest accuracy it shows
COLOURS = ("#c0392b", "#1f77b4", "#2ca02c", "#9467bd")


# ---- one rank ----

def network(torch):
    """1.6 million parameters: at 100 Mbit/s an all-reduce between four hosts takes 0.8 s."""
    return torch.nn.Sequential(
        torch.nn.Conv2d(1, 16, 3, padding=1), torch.nn.ReLU(), torch.nn.MaxPool2d(2),
        torch.nn.Conv2d(16, 64, 3, padding=1), torch.nn.ReLU(), torch.nn.MaxPool2d(2),
        torch.nn.Flatten(), torch.nn.Linear(64 * 49, 512), torch.nn.ReLU(), torch.nn.Linear(512, 10))


def wrapped(torch, gw, way, model, optimizer):
    """Model and optimiser of a way."""
    if way == "ddp":
        import torch.distributed as dist
        os.environ.setdefault("GLOO_SOCKET_IFNAME", "eth0" if gw.local_size() < gw.size() else "lo")
        dist.init_process_group("gloo", rank=gw.rank(), world_size=gw.size())
        return torch.nn.parallel.DistributedDataParallel(model), optimizer
    if way == "alone":
        return model, optimizer
    return model, gw.DistributedOptimizer(optimizer, model.named_parameters(), strategy=way)


def accuracy(torch, gw, model, images, labels, scaled):
    """Each rank tests its share; everybody has come when it begins."""
    gw.barrier()
    right = torch.zeros(1)
    with torch.no_grad():
        for first in range(gw.rank() * 500, len(labels), gw.size() * 500):
            part = slice(first, first + 500)
            right += (model(scaled(images[part])).argmax(1) == labels[part]).sum()
    return 100 * gw.allreduce(right, name="accuracy", op=gw.Sum).item() / len(labels)


def train(options):
    sys.path[:0] = [str(ROOT / "python"), str(ROOT / "python" / "examples")]
    import data
    import gradwire.torch as gw
    import torch
    torch.set_num_threads(1)
    gw.init()
    torch.manual_seed(1)
    bare, way = network(torch), options.words[0]
    optimizer = torch.optim.SGD(bare.parameters(), lr=options.lr, momentum=0.9)
    model, optimizer = wrapped(torch, gw, way, bare, optimizer)
    gw.broadcast_parameters(bare.state_dict())
    (images, labels), test, scaled = data.images("fashion-mnist", [0.2860], [0.3530])
    step, spent, epoch, begun = 0, 0.0, 0, time.perf_counter()
    while step < options.steps:
        for indices in data.batches(len(labels), options.batch, gw.rank(), gw.size(), epoch):
            optimizer.zero_grad()
            torch.nn.functional.cross_entropy(model(scaled(images[indices])), labels[indices]).backward()
            optimizer.step()
            step += 1
            if step % options.every == 0:
                if hasattr(optimizer, "flush"):
                    optimizer.flush()
                spent += time.perf_counter() - begun
                found = accuracy(torch, gw, bare, *test, scaled)
                if gw.rank() == 0:
                    print(f"{way} {step} {spent:.2f} {found:.2f}", flush=True)
                begun = time.perf_counter()
            if step == options.steps:
                break
        epoch += 1
    gw.shutdown()


# ---- the picture ----

def curves(files):
    """(way, [(seconds, accuracy)]), in the order of the files."""
    found = {}
    for name in files:
        for line in pathlib.Path(name).read_text(encoding="utf-8").splitlines():
            words = line.rsplit(" ", 3)
            if len(words) == 4 and words[1].isdigit():
                found.setdefault(words[0], []).append((float(words[2]), float(words[3])))
    return list(found.items())


def text(x, y, anchor, words, fill="#333"):
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" fill="{fill}">{words}</text>'


def picture(options):
    found = curves(options.words)
    longest = max(points[-1][0] for _, points in found)
    wide, high = WIDTH - LEFT - 20, HEIGHT - TOP - 60

    def place(seconds, percent):
        return LEFT + wide * seconds / longest, TOP + high * (100 - max(percent, LOWEST)) / (100 - LOWEST)

    out = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" font-family="sans-serif" '
           'font-size="12">', f'<rect width="{WIDTH}" height="{HEIGHT}" fill="#fff"/>',
           text(LEFT - 40, 18, "start", "test accuracy in percent, over seconds of training")]
    for percent in range(LOWEST, 101, 10):
        x, y = place(0, percent)
        out += [f'<path d="M{x:.1f} {y:.1f}h{wide}" stroke="#ddd"/>', text(x - 8, y + 4, "end", percent)]
    for tick in range(5):
        x, y = place(longest * tick / 4, LOWEST)
        out.append(text(x, y + 18, "middle", f"{longest * tick / 4:.0f} s"))
    for number, (way, points) in enumerate(found):
        colour = COLOURS[number % len(COLOURS)]
        line = " ".join("{:.1f},{:.1f}".format(*place(*point)) for point in points)
        out += [f'<polyline points="{line}" fill="none" stroke="{colour}" stroke-width="2"/>',
                text(LEFT + 10 + 240 * number, HEIGHT - 12, "start", way, colour)]
    pathlib.Path(options.picture).write_text("\n".join(out + ["</svg>"]) + "\n", encoding="utf-8")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=470)
    parser.add_argument("--batch", type=int, default=32, help="of one rank")
    parser.add_argument("--lr", type=float, default=0.05)
    parser.add_argument("--every", type=int, default=20, help="steps between tests")
    parser.add_argument("--picture", metavar="FILE", help="draw the curves of the files named")
    parser.add_argument("words", nargs="+", metavar="WAY or FILES")
    options = parser.parse_args()
    (picture if options.picture else train)(options)


main()
