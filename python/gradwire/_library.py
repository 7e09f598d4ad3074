"""Finds libgradwire, checks that its version matches this package, and declares its calls.

The first of these that exists is taken: $GRADWIRE_LIBRARY; that of a wheel, inside this package; the build tree of the
repository that the package lies in; the prefix that the package was installed under; what the loader finds."""
import ctypes
import glob
import os
import pathlib
from ctypes import POINTER, byref, c_bool, c_char_p, c_double, c_int, c_size_t, c_uint64, c_void_p

__version__ = "0.2.0"  # of this package, and of the library that it takes
SONAME = "libgradwire.so.1"


class GradwireError(RuntimeError):
    """An error of libgradwire, with its sentence. `status` is the name of the gw_status, such as "PEER_LOST"; `lost`
    is true if a rank was lost and the others can continue without it (gradwire.torch.shrink)."""

    def __init__(self, sentence, status="INVALID"):
        super().__init__(sentence)
        self.status, self.lost = status, status in ("PEER_LOST", "TIMEOUT", "ABORTED")


STATUSES = ("OK", "INVALID", "MEMORY", "SYSTEM", "UNSUPPORTED", "PEER_LOST", "TIMEOUT", "MISMATCH", "PROTOCOL",
            "DENIED", "ABORTED", "NOT_FINITE")


# gw_collective
COLLECTIVE = {name: value for value, name in enumerate((
    "allreduce", "reduce_scatter", "allgather", "reduce", "broadcast", "gather", "scatter", "alltoall", "barrier",
    "send", "recv", "alltoallv"))}


class Options(ctypes.Structure):
    """gw_options; the defaults leave everything to the environment."""
    _fields_ = [("size", c_size_t), ("strategy", c_char_p), ("rank", c_int), ("world", c_int), ("master_addr", c_char_p),
                ("master_port", c_int), ("token", c_char_p), ("interfaces", c_char_p), ("ports", c_char_p),
                ("deadline_s", c_double), ("quorum", c_char_p)]

    def __init__(self, **given):
        super().__init__(**{"size": ctypes.sizeof(Options), "rank": -1, "world": -1, "master_port": -1, **given})


class CallTensor(ctypes.Structure):
    """gw_call_tensor."""
    _fields_ = [("input", c_void_p), ("output", c_void_p), ("count", c_size_t)]


class Call(ctypes.Structure):
    """gw_call: one collective, described."""
    _fields_ = [("size", c_size_t), ("collective", c_int), ("dtype", c_int), ("op", c_int), ("root", c_int),
                ("input", c_void_p), ("output", c_void_p), ("count", c_size_t), ("counts", POINTER(c_size_t)),
                ("in_counts", POINTER(c_size_t)), ("in_offsets", POINTER(c_size_t)),
                ("out_counts", POINTER(c_size_t)), ("out_offsets", POINTER(c_size_t)),
                ("tensors", POINTER(CallTensor)), ("tensor_count", c_size_t), ("deadline_s", c_double),
                ("prescale", c_double), ("postscale", c_double), ("tag", c_int), ("source", POINTER(c_int))]

    def __init__(self, collective, **given):
        super().__init__(**{"size": ctypes.sizeof(Call), "collective": COLLECTIVE[collective], "root": -1,
                            "prescale": 1, "postscale": 1, **given})


class CodedOptions(ctypes.Structure):
    """gw_coded_options."""
    _fields_ = [("size", c_size_t), ("collective", c_int), ("strategy", c_char_p), ("name", c_char_p),
                ("count", c_size_t), ("counts", POINTER(c_size_t)), ("columns", c_size_t), ("dtype", c_int),
                ("op", c_int), ("seed", c_uint64)]

    def __init__(self, **given):
        super().__init__(**{"size": ctypes.sizeof(CodedOptions), **given})


class ReducerTensor(ctypes.Structure):
    """gw_reducer_tensor."""
    _fields_ = [("name", c_char_p), ("count", c_size_t), ("dtype", c_int), ("gradient", c_void_p),
                ("weights", c_void_p), ("rows", c_size_t), ("exact", c_bool), ("batch", c_size_t),
                ("after", POINTER(c_int)), ("after_count", c_int)]


class ReducerUpdate(ctypes.Structure):
    """gw_reducer_update."""
    _fields_ = [("tensor", c_int), ("first", c_size_t), ("count", c_size_t), ("weights", c_void_p),
                ("gradient", c_void_p), ("step", c_uint64), ("scale", c_double), ("temporary", c_bool),
                ("rate_scale", c_double), ("updates", c_uint64), ("momentum", c_double)]


UPDATE_FUNCTION = ctypes.CFUNCTYPE(None, c_void_p, POINTER(ReducerUpdate))
RATE_FUNCTION = ctypes.CFUNCTYPE(c_double, c_void_p, c_uint64)


class ReducerOptions(ctypes.Structure):
    """gw_reducer_options."""
    _fields_ = [("size", c_size_t), ("strategy", c_char_p), ("op", c_int), ("clip", c_double), ("seed", c_uint64),
                ("first_step", c_uint64), ("update", UPDATE_FUNCTION), ("ctx", c_void_p), ("tune", c_char_p),
                ("state", c_void_p), ("rate", RATE_FUNCTION), ("nonfinite", c_int), ("momentum", c_double),
                ("momentum_use", c_int), ("steps", c_uint64), ("whole_tensors", c_bool), ("decisions", c_char_p),
                ("optimizer", c_char_p)]

    def __init__(self, **given):
        super().__init__(**{"size": ctypes.sizeof(ReducerOptions), **given})


class ReducerCounters(ctypes.Structure):
    """gw_reducer_counters."""
    _fields_ = [("steps", c_uint64), ("bytes_sent", c_uint64), ("messages_sent", c_uint64), ("dense_bytes", c_uint64),
                ("wait_ns", c_uint64), ("buckets", c_int), ("memory_bytes", c_size_t), ("codec_bytes", c_size_t),
                ("local_optimisers", c_bool), ("weights_agree", c_bool), ("tuning", c_bool), ("trials", c_int),
                ("first_step", c_uint64), ("step", c_uint64), ("nonfinite", c_uint64), ("nonfinite_step", c_uint64),
                ("nonfinite_tensor", c_int)]


def candidates():
    """Files that may be the library, in the order of preference."""
    package = pathlib.Path(__file__).resolve().parent
    given = os.environ.get("GRADWIRE_LIBRARY")
    if given:
        return [given]
    prefix = package.parents[2] if len(package.parents) > 2 else package
    places = [package / "lib" / SONAME, package.parents[1] / "build" / SONAME, prefix / SONAME]
    return [str(p) for p in places if p.exists()] + sorted(glob.glob(str(prefix / "*-linux-*" / SONAME))) + [SONAME]


def load():
    path = candidates()[0]
    try:
        library = ctypes.CDLL(path)  # which releases the interpreter's lock during every call
    except OSError as error:
        raise GradwireError(f"libgradwire cannot be loaded: {error}; install gradwire's wheel (`make wheel` builds "
                            "one), run `make install`, or name the file in GRADWIRE_LIBRARY", "SYSTEM") from None
    library.gw_version.restype = c_char_p
    found = library.gw_version().decode()
    if found.split(".")[:2] != __version__.split(".")[:2]:
        raise GradwireError(f"the Python package gradwire is version {__version__}, but {path} is libgradwire {found}: "
                            "install both from one release, or name the right library in GRADWIRE_LIBRARY", "SYSTEM")
    declare(library)
    return path, library


# Arguments of the collectives between the communicator and, for the _start form, the request. `in` and `out` are
# addresses.
BUFFERS, ELEMENTS = [c_void_p, c_void_p], [c_size_t, c_int]
COUNTS = [POINTER(c_size_t), c_int]
COLLECTIVES = {
    "allreduce": BUFFERS + ELEMENTS + [c_int],
    "reduce": BUFFERS + ELEMENTS + [c_int, c_int],
    "broadcast": BUFFERS + ELEMENTS + [c_int],
    "reduce_scatterv": BUFFERS + COUNTS + [c_int],
    "allgather": BUFFERS + ELEMENTS,
    "allgatherv": BUFFERS + COUNTS,
    "alltoall": BUFFERS + ELEMENTS,
    "barrier": [],
    "send": [c_void_p] + ELEMENTS + [c_int],
    "recv": [c_void_p] + ELEMENTS + [c_int],
}


def declare(library):
    comm, request, coded, reducer = c_void_p, c_void_p, c_void_p, c_void_p
    calls = {
        "gw_init_version": (c_int, [c_int, POINTER(comm), POINTER(Options)]),
        "gw_version_number": (c_int, []),
        "gw_finalize": (c_int, [comm]),
        "gw_abort": (c_int, [comm, c_char_p]),
        "gw_comm_split": (c_int, [comm, c_int, c_int, POINTER(comm)]),
        "gw_shrink": (c_int, [comm, POINTER(comm)]),
        "gw_regroup": (c_int, [comm, POINTER(comm)]),
        "gw_alloc": (c_void_p, [comm, c_size_t]),
        "gw_free": (None, [comm, c_void_p]),
        "gw_register": (c_int, [comm, c_void_p, c_size_t]),
        "gw_unregister": (c_int, [comm, c_void_p]),
        "gw_last_error": (c_char_p, [comm]),
        "gw_run": (c_int, [comm, POINTER(Call)]),
        "gw_start": (c_int, [comm, POINTER(Call), POINTER(request)]),
        "gw_async_error": (c_int, [comm]),
        "gw_wait": (c_int, [request]),
        "gw_test": (c_int, [request, POINTER(c_bool)]),
        "gw_group_start": (c_int, [comm]),
        "gw_group_end": (c_int, [comm]),
        "gw_trace_start": (c_int, [comm, c_char_p, c_char_p]),
        "gw_trace_stop": (c_int, [comm]),
        "gw_trace_runs": (c_bool, [comm]),
        "gw_trace_layer": (None, [comm, c_char_p, c_bool, c_uint64, c_uint64, c_uint64]),
        "gw_trace_step_begin": (None, [comm]),
        "gw_trace_step_end": (None, [comm, c_uint64, c_char_p]),
        "gw_coded_open": (c_int, [POINTER(coded), comm, POINTER(CodedOptions)]),
        "gw_coded_close": (None, [coded]),
        "gw_coded_run": (c_int, [coded, c_void_p, c_void_p]),
        "gw_coded_start": (c_int, [coded, c_void_p, c_void_p]),
        "gw_coded_wait": (c_int, [coded]),
        "gw_coded_test": (c_int, [coded, POINTER(c_bool)]),
        "gw_coded_sent_bytes": (c_size_t, [coded]),
        "gw_coded_describe": (c_int, [coded, c_char_p, c_size_t]),
        "gw_coded_state_bytes": (c_size_t, [coded]),
        "gw_coded_state_save": (c_int, [coded, c_void_p]),
        "gw_coded_state_restore": (c_int, [coded, c_void_p, c_size_t]),
        "gw_reducer_commit_sized": (c_int, [POINTER(reducer), comm, POINTER(ReducerTensor), c_size_t, c_int,
                                            POINTER(ReducerOptions)]),
        "gw_reducer_ready": (c_int, [reducer, c_int]),
        "gw_reducer_ready_many": (c_int, [reducer, POINTER(c_int), c_int]),
        "gw_reducer_absent": (c_int, [reducer, c_int]),
        "gw_reducer_wants_factors": (c_bool, [reducer, c_int]),
        "gw_reducer_takes_momentum": (c_double, [reducer, c_int]),
        "gw_reducer_ready_factors": (c_int, [reducer, c_int, c_void_p, c_void_p, c_size_t]),
        "gw_reducer_accumulate": (c_int, [reducer, c_bool]),
        "gw_reducer_wait": (c_int, [reducer, c_int]),
        "gw_reducer_end": (c_int, [reducer]),
        "gw_reducer_flush": (c_int, [reducer]),
        "gw_reducer_resume": (c_int, [reducer, comm]),
        "gw_reducer_close": (None, [reducer]),
        "gw_reducer_read_counters_sized": (None, [reducer, POINTER(ReducerCounters), c_size_t]),
        "gw_reducer_strategy": (c_int, [reducer, c_char_p, c_size_t]),
        "gw_reducer_routes": (c_int, [reducer, c_char_p, c_size_t]),
        "gw_reducer_state_bytes": (c_size_t, [reducer]),
        "gw_reducer_state_save": (c_int, [reducer, c_void_p]),
        "gw_reducer_state_restore": (c_int, [reducer, c_void_p, c_size_t]),
    }
    for name in ("gw_rank", "gw_size", "gw_local_rank", "gw_local_size", "gw_generation"):
        calls[name] = (c_int, [comm])
    for name, arguments in COLLECTIVES.items():
        calls[f"gw_{name}"] = (c_int, [comm] + arguments)
        calls[f"gw_{name}_start"] = (c_int, [comm] + arguments + [POINTER(request)])
    for name, (result, arguments) in calls.items():
        function = getattr(library, name)
        function.restype, function.argtypes = result, arguments


library_path, lib = load()


def gw_init(comm, options):
    """The package and the library are of one version, which load() has checked."""
    return lib.gw_init_version(lib.gw_version_number(), byref(comm), byref(options))


def read_counters(reducer):
    counters = ReducerCounters()
    lib.gw_reducer_read_counters_sized(reducer, byref(counters), ctypes.sizeof(counters))
    return counters


def check(status, comm=None, doing=""):
    """Raises the error of the calling thread's last call, if there is one."""
    if status:
        sentence = lib.gw_last_error(comm).decode(errors="replace")
        raise GradwireError(f"{doing}: {sentence}" if doing else sentence, STATUSES[status])


def test(request):
    """Whether a request is complete; if so, it is freed."""
    done = c_bool(False)
    status = lib.gw_test(request, byref(done))
    return done.value, status
