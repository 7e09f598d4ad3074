"""The scripts of docs/examples, one after the other in the processes of one job: importing torch takes longer than all of
them. Each is complete by itself; what rank 0 prints is compared."""
import contextlib
import io
import pathlib
import re
import runpy
import sys
import tempfile

import torch
import gradwire.torch as gw

EXAMPLES = pathlib.Path(__file__).resolve().parents[2] / "docs" / "examples"
SMALL = r"the loss is 0\.[0-4]\d"
LEARNED = r"the loss is 0\.0\d\n"
HAS_GROUPS = hasattr(torch.distributed, "split_group")  # process groups in Python, torch 2.8; a call of that time
CASES = [  # script, what rank 0 prints
    ("smallest.py", LEARNED),
    ("first.py", r"7\d\.\d % right\n"),
    ("from_horovod.py", LEARNED),
    ("scheduler.py", rf"{SMALL}, the last rate was 0\.0000\n"),
    ("clipping.py", rf"{SMALL}, the norms of all ranks are equal\n"),
    ("accumulation.py", rf"{SMALL} after 100 steps\n"),
    ("mixed_precision.py", rf"{SMALL}, computed in torch\.bfloat16\n"),
    ("checkpoint.py", rf"steps 0 to 49: {SMALL}\n"),
    ("checkpoint.py", rf"steps 50 to 99: {SMALL}\n"),
    ("ddp_hook.py", LEARNED),
    *([("ddp_backend.py", LEARNED)] if HAS_GROUPS else []),
    ("lost_rank.py", ""),
]


def run(script, folder):
    """What a script prints on this rank."""
    sys.argv = [script, folder]
    said = io.StringIO()
    with contextlib.redirect_stdout(said):
        runpy.run_path(str(EXAMPLES / script), run_name="__main__")
    return said.getvalue()


def main():
    passed = 0
    gw.init()
    rank = gw.rank()
    with tempfile.TemporaryDirectory() as own:
        folder = gw.broadcast_object(own, 0)  # that of rank 0: no rank needs it any more when the last script ends
        gw.shutdown()
        for script, wanted in CASES:
            said = run(script, folder)
            gw.shutdown()
            if rank == 0 and not re.fullmatch(wanted, said):
                sys.exit(f"{script} printed {said!r}, and should print {wanted}")
            if rank == 0:
                print(f"ok   docs/examples/{script}")
                passed += 1
    if rank == 0:
        print(f"{passed} passed, 0 failed")


main()
