"""torch's own tests of torch.distributed (torch/testing/_internal/distributed/distributed_test.py, which every wheel of
torch has), with this backend and with Gloo: what Gloo passes has to pass here, too.

    python3 tests/torch_suite.py 2             every test, at 2 ranks, with both backends
    python3 tests/torch_suite.py 2 test_ddp    those whose names begin so

torch's tests skip backends that they do not know. So the file is imported as if for Gloo, and the name of this backend
says yes where a test asks for "gloo"; torch itself only ever sees "gradwire"."""
import json
import os
import subprocess
import sys
import tempfile
import unittest

# Tests in which torch itself names Gloo: dist.monitored_barrier refuses every other backend by its name. The group's
# own monitored_barrier is tested by test_monitored_barrier_gloo_rank_0_timeout, and in test_group.py.
NAMES_GLOO = {"test_monitored_barrier_gloo", "test_monitored_barrier_gloo_subgroup",
              "test_monitored_barrier_failure_order", "test_monitored_barrier_wait_all_ranks"}


class Name(str):
    """The name of the backend under test, which tests take for Gloo's."""

    def __eq__(self, other):
        return str.__eq__(self, other) or other == "gloo"

    def __ne__(self, other):
        return not self == other

    __hash__ = str.__hash__


def suite(backend):
    """The test case with all of torch's tests for this backend."""
    os.environ["BACKEND"] = "gloo"
    import torch
    from torch.testing._internal.common_distributed import DistTestCases
    from torch.testing._internal.distributed import distributed_test as tests
    torch.set_num_threads(1)
    if backend != "gloo":
        import gradwire.torch  # noqa: F401
        for feature in DistTestCases.backend_feature.values():
            if "gloo" in feature:
                feature.add(backend)
        tests.BACKEND = Name(backend)

    class Suite(tests.TestDistBackend, tests.DistributedTest._DistTestBase):
        def setUp(self):
            super().setUp()
            self._start_processes(torch.multiprocessing.get_context("fork").Process)  # torch is imported already

    return Suite


class Verdicts(unittest.TextTestResult):
    """Writes one line for each test as soon as it is known."""
    path = None

    def say(self, test, verdict, why=""):
        with open(self.path, "a") as file:
            file.write(json.dumps([test._testMethodName, verdict, why]) + "\n")

    def addSuccess(self, test):
        self.say(test, "passed")
        super().addSuccess(test)

    def addSkip(self, test, reason):
        self.say(test, "skipped", reason)
        super().addSkip(test, reason)

    def addFailure(self, test, error):
        self.say(test, "failed", str(error[1]))
        super().addFailure(test, error)

    addError = addFailure


def run_inside(backend, path, prefixes):
    """This process runs the tests with one backend."""
    case, loader = suite(backend), unittest.TestLoader()
    names = [name for name in loader.getTestCaseNames(case) if name.startswith(tuple(prefixes) or "test_")]
    Verdicts.path = path
    unittest.TextTestRunner(resultclass=Verdicts, verbosity=0).run(unittest.TestSuite(case(name) for name in names))


def log_path(backend, ranks):
    return os.path.join(tempfile.gettempdir(), f"torch_suite-{backend}-{ranks}.log")


def run(backend, ranks, prefixes):
    """Verdicts by name."""
    with tempfile.TemporaryDirectory() as scratch:
        os.mkdir(os.path.join(scratch, "barrier"))
        path = os.path.join(scratch, "verdicts")
        environment = {**os.environ, "WORLD_SIZE": str(ranks), "TEMP_DIR": scratch, "OMP_NUM_THREADS": "1",
                       "DISTRIBUTED_TESTS_DEFAULT_TIMEOUT": os.environ.get("DISTRIBUTED_TESTS_DEFAULT_TIMEOUT", "100")}
        with open(log_path(backend, ranks), "w") as log:
            subprocess.run([sys.executable, __file__, "inside", backend, path, *prefixes], env=environment, stdout=log,
                           stderr=log, check=False)
        with open(path) as file:
            return {name: (verdict, why) for name, verdict, why in map(json.loads, file)}


def main(ranks, *prefixes):
    gloo, ours = run("gloo", ranks, prefixes), run("gradwire", ranks, prefixes)
    worse = [name for name, (verdict, _) in gloo.items()
             if verdict == "passed" and ours.get(name, ("missing",))[0] != "passed" and name not in NAMES_GLOO]
    for name in worse:
        print(f"FAIL {name}: {' '.join(ours.get(name, ('', 'no verdict'))[1].split())[:300]}")
    passed = [sum(verdict == "passed" for verdict, _ in verdicts.values()) for verdicts in (gloo, ours)]
    print(f"{ranks} ranks: gloo passes {passed[0]}, gradwire {passed[1]}; {len(worse)} failed"
          + (f", see {log_path('gradwire', ranks)}" if worse else ""))
    return bool(worse)


if __name__ == "__main__":
    if sys.argv[1] == "inside":
        run_inside(sys.argv[2], sys.argv[3], sys.argv[4:])
    else:
        sys.exit(main(*sys.argv[1:]))
