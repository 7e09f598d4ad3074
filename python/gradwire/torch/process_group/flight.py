"""The last calls of this process in the format of torch's flight recorder, for torchfrtrace. Python cannot write into
torch's own recorder, so this one has files of its own; torch's variables rule both:

    TORCH_FR_BUFFER_SIZE      calls to remember; 0 or unset: none
    TORCH_FR_DUMP_TEMP_FILE   beginning of the file's name, which the rank follows; written when a group fails

dump(prefix) writes the file at any time."""
import collections
import os
import pickle
import sys
import time

import torch.distributed as dist

FORMAT = "2.10"
LIBRARY = "gloo"  # torchfrtrace takes only the names of libraries that it knows
FRAMES = 12
TYPES = {"float32": "Float", "float64": "Double", "float16": "Half", "bfloat16": "BFloat16", "int8": "Char",
         "uint8": "Byte", "int16": "Short", "int32": "Int", "int64": "Long", "bool": "Bool"}


def variable(name):
    return os.environ.get(f"TORCH_FR_{name}")


class Recorder:
    """`entries` as torch writes them; a call that never completes stays "scheduled"."""

    def __init__(self, size):
        self.entries, self.number, self.groups, self.dumped = collections.deque(maxlen=size), 0, {}, False

    def begin(self, group, work):
        """Writes down a call; the entry learns of its end from the work."""
        messages, communicator = work.source is not None, group.communicator
        name, self.number = group.group_name, self.number + 1
        self.groups[name] = group
        sizes, types = [list(t.shape) for t in work.results], [type_name(t) for t in work.results]
        entry = {"record_id": self.number - 1, "pg_id": 0, "process_group": (name, group.group_desc),
                 "collective_seq_id": communicator.number, "p2p_seq_id": communicator.messages, "op_id": self.number,
                 "profiling_name": f"{LIBRARY}:{work.doing}{peers(work, communicator) if messages else ''}",
                 "time_created_ns": time.time_ns(), "input_sizes": sizes, "input_dtypes": types,
                 "output_sizes": sizes, "output_dtypes": types, "state": "scheduled",
                 "time_discovered_started_ns": None, "time_discovered_completed_ns": None, "retired": False,
                 "timeout_ms": int(1000 * communicator.deadline), "is_p2p": messages, "frames": frames()}
        self.entries.append(entry)
        work.ended = lambda error: self.end(entry, error)

    def end(self, entry, error):
        entry["retired"] = True
        if error is None:
            entry["state"], entry["time_discovered_completed_ns"] = "completed", time.time_ns()

    def failed(self):
        """Of the process's groups one has failed."""
        prefix = variable("DUMP_TEMP_FILE")
        if prefix and not self.dumped:
            self.dumped = True
            self.write(prefix)

    def write(self, prefix):
        whole = {"version": FORMAT, "comm_lib_version": "gradwire", "entries": list(self.entries), "pg_status": {},
                 "pg_config": {name: {"name": name, "desc": group.group_desc, "ranks": str(ranks_of(group))}
                               for name, group in self.groups.items()}}
        path = f"{prefix}{dist.get_rank() if dist.is_initialized() else 0}"
        with open(path, "wb") as file:
            pickle.dump(whole, file)
        return path


def type_name(tensor):
    name = str(tensor.dtype)[6:]
    return TYPES.get(name, name)


def peers(work, communicator):
    arrow = "->" if work.doing == "send" else "<-"
    return f" {communicator.rank}{arrow}{work.source.value}"


def ranks_of(group):
    try:
        return dist.get_process_group_ranks(group)
    except (KeyError, ValueError):  # a group that was split off or destroyed
        return list(range(group.size()))


def frames():
    """Where the program called, innermost first, without the files of this folder."""
    frame, found, here = sys._getframe(1), [], os.path.dirname(__file__)
    while frame is not None and len(found) < FRAMES:
        code = frame.f_code
        if os.path.dirname(code.co_filename) != here:
            found.append({"name": code.co_name, "filename": code.co_filename, "line": frame.f_lineno})
        frame = frame.f_back
    return found


def dump(prefix):
    """Writes what was recorded to `prefix` and the rank; returns the file's name."""
    if recorder is None:
        raise RuntimeError("gradwire: nothing is recorded: set TORCH_FR_BUFFER_SIZE, to 2000 for example")
    return recorder.write(prefix)


recorder = Recorder(int(variable("BUFFER_SIZE"))) if int(variable("BUFFER_SIZE") or 0) > 0 else None
