"""gw_coded: one collective by itself through a codec, which keeps its residuals from call to call."""
import ctypes

import torch

from gradwire._library import COLLECTIVE, CodedOptions, check, lib
from gradwire.torch.collectives import exchange_shapes, in_host_memory, set_counts, with_rows
from gradwire.torch.errors import ArgumentError
from gradwire.torch.operations import Average, operation
from gradwire.torch.process_sets import global_process_set, taking_part
from gradwire.torch.tensors import number_type
from gradwire.torch.world import encoded

KINDS = {"allreduce": "allreduce", "reducescatter": "reduce_scatter", "allgather": "allgather"}


class CodedCollective:
    """An all-reduce, reduce-scatter or all-gather (`collective`: the name of the call) of tensors like `like`, which
    has the shape and type of what this rank gives in every call. `strategy` is a line with arch and compress, such as
    "compress=int8"; an axis that it does not name is that of the job's strategy. Random codecs draw from `name` and
    `seed`. All ranks open it, call it equally often, and close it.

    A call returns a new tensor: the same as that of allreduce, reducescatter or allgather, but for what the codec
    loses. start() returns a handle for synchronize() and poll() instead. It ends by close(), at the end of a `with`
    block, by shutdown(), and when a rank is lost."""

    def __init__(self, collective, name, like, strategy=None, op=Average, seed=0, process_set=global_process_set):
        if collective not in KINDS:
            raise ArgumentError(f"CodedCollective: the collective is {collective!r}, but has to be one of "
                                f"{', '.join(KINDS)}")
        self.doing, self.collective = f'{collective} of "{name}"', collective
        self.handle, self.running = ctypes.c_void_p(), None
        op = operation(self.doing, op)
        self.job = taking_part(process_set, self.doing)
        self.shape, self.dtype = like.shape, like.dtype
        options = CodedOptions(collective=COLLECTIVE[KINDS[collective]], strategy=encoded(strategy), op=op, seed=seed,
                               name=name.encode(), dtype=number_type(like, self.doing))
        self._set_sizes(options, like)
        check(lib.gw_coded_open(ctypes.byref(self.handle), self.job.comm, ctypes.byref(options)), None, self.doing)
        self.job.coded.append(self)

    def _set_sizes(self, options, like):
        """Rows are divided as reducescatter() divides them, and follow each other as in allgather()."""
        width, rows, size = like.shape[1:].numel(), like.shape[0] if like.dim() else 1, self.job.size
        options.columns, self.result_shape = (width if like.dim() > 1 else 0), like.shape
        if self.collective == "allreduce":
            options.count = like.numel()
            return
        if self.collective == "allgather":
            self.rows = exchange_shapes(self.job, self.doing, [with_rows(like, self.doing)])[0]
            self.result_shape = torch.Size([sum(self.rows)]) + like.shape[1:]
        else:
            if like.dim() == 0:
                raise ArgumentError(f"{self.doing}: a single number cannot be divided between ranks")
            self.rows = [rows // size + (r < rows % size) for r in range(size)]
            self.result_shape = torch.Size([self.rows[self.job.rank]]) + like.shape[1:]
        set_counts(options, self.rows, width)

    def __call__(self, tensor):
        here, into = self._buffers(tensor)
        check(lib.gw_coded_run(self.handle, here.data_ptr(), into.data_ptr()), self.job.comm, self.doing)
        return into.to(tensor.device)

    def start(self, tensor):
        """Returns a handle; the tensor is the library's until synchronize(handle). One call at a time is in
        progress."""
        here, into = self._buffers(tensor)
        check(lib.gw_coded_start(self.handle, here.data_ptr(), into.data_ptr()), self.job.comm, self.doing)
        self.running = CodedHandle(self, here, into, tensor.device)
        return self.running

    def _buffers(self, tensor):
        self._open()
        if tensor.shape != self.shape or tensor.dtype != self.dtype:
            raise ArgumentError(f"{self.doing}: the tensor is {tensor.dtype} of shape {list(tensor.shape)}, and it was "
                                f"opened for {self.dtype} of shape {list(self.shape)}")
        here = in_host_memory(tensor, self.doing)
        return here, here.new_empty(self.result_shape)

    def _open(self):
        if not self.handle:
            raise ArgumentError(f"{self.doing}: it has been closed")

    def state_dict(self):
        """What this rank keeps: residuals, and the number of the next call."""
        self._open()
        state = torch.empty(lib.gw_coded_state_bytes(self.handle), dtype=torch.uint8)
        check(lib.gw_coded_state_save(self.handle, state.data_ptr()), self.job.comm, self.doing)
        return {"state": state}

    def load_state_dict(self, state_dict):
        """Continues as if calls had never stopped. All ranks load what they saved, from the same call on."""
        self._open()
        state = state_dict["state"].cpu().contiguous()
        check(lib.gw_coded_state_restore(self.handle, state.data_ptr(), state.numel()), self.job.comm, self.doing)

    def sent_bytes(self):
        """Bytes that this rank sends in a call, at most."""
        self._open()
        return lib.gw_coded_sent_bytes(self.handle)

    def __str__(self):
        if not self.handle:
            return f"{self.doing}, closed"
        text = ctypes.create_string_buffer(1000)
        lib.gw_coded_describe(self.handle, text, len(text))
        return text.value.decode()

    def close(self):
        """Waits for a call in progress. Closing twice is fine."""
        if self.handle and not self.job.forked():
            self.job.coded.remove(self)
            lib.gw_coded_close(self.handle)
            self.handle = None

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()


class CodedHandle:
    """A call in progress, for synchronize() and poll()."""

    def __init__(self, coded, here, into, device):
        self.coded, self.keep, self.into, self.device, self.over = coded, here, into, device, False

    def poll(self):
        done = ctypes.c_bool(False)
        if not self.over:
            self.coded._open()
            status = lib.gw_coded_test(self.coded.handle, ctypes.byref(done))
            self._completed(status, done.value or bool(status))
        return self.over

    def wait(self):
        if not self.over:
            self.coded._open()
            self._completed(lib.gw_coded_wait(self.coded.handle), True)
        return self.into.to(self.device)

    def _completed(self, status, over):
        if over:
            self.over, self.keep, self.coded.running = True, None, None
        check(status, self.coded.job.comm, self.coded.doing)
