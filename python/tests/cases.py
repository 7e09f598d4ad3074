"""The tests of one file: every rank runs all functions whose names begin with test_; rank 0 reports. A failure is an
exception, which ends all ranks. TESTS selects some of them by name."""
import os
import sys

import torch

import gradwire.torch as gw


def run(names, **options):
    torch.set_num_threads(1)
    gw.init(**options)
    passed, wanted = 0, os.environ.get("TESTS", "").split()
    for name, function in list(names.items()):
        if name.startswith("test_") and callable(function) and (not wanted or name[5:] in wanted):
            function()
            gw.allgather_object(name)  # all ranks have come through
            passed += 1
            if gw.rank() == 0:
                print(f"ok   {name[5:].replace('_', ' ')}", flush=True)
    if gw.rank() == 0:
        print(f"{passed} passed, 0 failed", flush=True)
    sys.stdout.flush()


def refused(text, function, *arguments, **options):
    """The call raises a GradwireError, or torch's error made from one, whose sentence contains the text."""
    try:
        function(*arguments, **options)
    except RuntimeError as error:
        assert text in str(error), f"{text!r} is not in {error}"
        return error
    raise AssertionError(f"{function.__name__} was not refused: {text}")
