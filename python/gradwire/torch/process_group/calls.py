"""The calls of c10d, by its names and with its arguments, each as one gw_call or a few."""
import ctypes

import torch

from gradwire._library import COLLECTIVE, CallTensor, GradwireError
from gradwire.torch.process_group import sparse
from gradwire.torch.process_group.communicator import describe
from gradwire.torch.process_group.elements import MOVES, Buffers, Reduction, same_type
from gradwire.torch.process_group.issuing import Issuing
from gradwire.torch.process_group.untraced import untraced

ANY_SOURCE = -1  # GW_ANY_SOURCE


def listed(tensors):
    """torch's methods take one tensor in place of a list, too."""
    return [tensors] if isinstance(tensors, torch.Tensor) else tensors


def nested(lists):
    return [lists] if lists and isinstance(lists[0], torch.Tensor) else lists


def root_of(opts):
    return opts if isinstance(opts, int) else opts.rootRank


def sizes(numbers):
    return (ctypes.c_size_t * len(numbers))(*numbers)


@untraced
class Calls(Issuing):
    # Collectives whose tensors have the same size on every rank.

    def allreduce(self, tensors, opts=None, *_):
        tensors = listed(tensors)
        if any(tensor.is_sparse for tensor in tensors):
            return self.allreduce_sparse(tensors, opts)
        return self.in_place("all_reduce", "allreduce", tensors, opts, Reduction(opts))

    def allreduce_coalesced(self, tensors, opts=None):
        return self.in_place("allreduce_coalesced", "allreduce", tensors, opts, Reduction(opts))

    def allreduce_sparse(self, tensors, opts=None):
        return self.at_once("all_reduce", tensors, lambda: [
            sparse.allreduce(self.communicator, tensor, Reduction(opts)) for tensor in tensors])

    def broadcast(self, tensors, opts=0, *_):
        return self.in_place("broadcast", "broadcast", listed(tensors), opts, MOVES, root_of(opts))

    def reduce(self, tensors, opts=0, op=None, *_):
        reduction = Reduction(opts if hasattr(opts, "reduceOp") else op)
        return self.in_place("reduce", "reduce", listed(tensors), opts, reduction, root_of(opts))

    def in_place(self, doing, collective, tensors, opts, reduction, root=-1):
        """Several tensors of one type are one call, in which small ones travel together."""
        buffers, parts = Buffers(doing), {}
        for tensor in tensors:
            line = buffers.whole(tensor)
            self.communicator.registered.see(line)
            count, dtype = reduction.elements(line, doing)
            parts.setdefault(dtype, []).append((line.data_ptr(), line.data_ptr(), count))
        calls = [self.coalesced(collective, dtype, reduction, some, root) for dtype, some in parts.items()]
        return self.issue(doing, calls, tensors, opts, buffers)

    def coalesced(self, collective, dtype, reduction, parts, root=-1):
        code = COLLECTIVE[collective]
        if len(parts) == 1:
            call = describe(code, dtype, reduction.code, root, *parts[0])
        else:
            call = describe(code, dtype, reduction.code, root)
            call.tensors, call.tensor_count = (CallTensor * len(parts))(*parts), len(parts)
        call.prescale = reduction.scale
        return call

    # One part of a large tensor for each rank.

    def _allgather_base(self, output, input, opts=None):
        return self.gathered("_all_gather_base", [output], [input], opts)

    def allgather_into_tensor_coalesced(self, outputs, inputs, opts=None):
        return self.gathered("all_gather_into_tensor_coalesced", outputs, inputs, opts)

    def gathered(self, doing, outputs, inputs, opts):
        return self.parts(doing, "allgather", outputs, inputs, inputs, opts, MOVES)

    def _reduce_scatter_base(self, output, input, opts=None):
        return self.parts("_reduce_scatter_base", "reduce_scatter", [output], [input], [output], opts, Reduction(opts))

    def reduce_scatter_tensor_coalesced(self, outputs, inputs, opts=None):
        return self.parts("reduce_scatter_tensor_coalesced", "reduce_scatter", outputs, inputs, outputs, opts,
                          Reduction(opts))

    def parts(self, doing, collective, outputs, inputs, small, opts, reduction):
        buffers, parts = Buffers(doing), {}
        for output, input, part in zip(outputs, inputs, small):
            same_type([output, input], doing)
            self.check_parts(doing, output if part is input else input, part)
            source, target = buffers.whole(input, writes=False), buffers.whole(output, reads=False)
            count, dtype = reduction.elements(source if part is input else target, doing)
            parts.setdefault(dtype, []).append((source.data_ptr(), target.data_ptr(), count))
        calls = [self.coalesced(collective, dtype, reduction, some) for dtype, some in parts.items()]
        return self.issue(doing, calls, outputs, opts, buffers)

    def check_parts(self, doing, large, part):
        if large.numel() != part.numel() * self.communicator.size:
            raise GradwireError(f"gradwire: {doing}: the large tensor ({large.numel()} elements) has to hold one part "
                                f"({part.numel()}) for each of {self.communicator.size} ranks", "INVALID")

    # One tensor for each rank, in a list.

    def allgather(self, outputs, inputs, opts=None, *_):
        doing, outputs, mine = "all_gather", nested(outputs)[0], listed(inputs)[0]
        self.check_list(doing, outputs, mine)
        buffers = Buffers(doing)
        source, line = buffers.whole(mine, writes=False), buffers.split(outputs)
        call = self.uneven("allgather", MOVES, [MOVES.elements(tensor, doing) for tensor in outputs])
        call.input, call.output = source.data_ptr(), line.data_ptr()
        return self.issue(doing, [call], outputs, opts, buffers)

    def allgather_coalesced(self, outputs, inputs, opts=None):
        """outputs[r][i] is what rank r has in inputs[i]."""
        works = [self.allgather([[of_rank[i] for of_rank in outputs]], [tensor], None)
                 for i, tensor in enumerate(inputs)]
        return self.together("all_gather_coalesced", works, opts)

    def reduce_scatter(self, outputs, inputs, opts=None, *_):
        doing, mine, inputs, reduction = "reduce_scatter", listed(outputs)[0], nested(inputs)[0], Reduction(opts)
        self.check_list(doing, inputs, mine)
        buffers = Buffers(doing)
        line, target = buffers.joined(inputs), buffers.whole(mine, reads=False)
        call = self.uneven("reduce_scatter", reduction, [reduction.elements(tensor, doing) for tensor in inputs])
        call.input, call.output = line.data_ptr(), target.data_ptr()
        return self.issue(doing, [call], [mine], opts, buffers)

    def uneven(self, collective, reduction, elements):
        """A call whose parts have these counts; all ranks pass the same."""
        counts, dtype = [count for count, _ in elements], elements[0][1]
        call = describe(COLLECTIVE[collective], dtype, reduction.code, count=counts[0])
        call.prescale = reduction.scale
        if len(set(counts)) > 1:
            call.counts = sizes(counts)
        return call

    def gather(self, outputs, inputs, opts=0, *_):
        doing, mine, root = "gather", listed(inputs)[0], root_of(opts)
        buffers, outputs = Buffers(doing), nested(outputs)[0] if self.communicator.rank == root else []
        source = buffers.whole(mine, writes=False)
        count, dtype = MOVES.elements(source, doing)
        call = describe(COLLECTIVE["gather"], dtype, root=root, input=source.data_ptr(), count=count)
        if outputs:
            self.check_list(doing, outputs, mine, even=True)
            call.output = buffers.split(outputs).data_ptr()
        return self.issue(doing, [call], outputs, opts, buffers)

    def scatter(self, outputs, inputs, opts=0, *_):
        doing, mine, root = "scatter", listed(outputs)[0], root_of(opts)
        buffers, inputs = Buffers(doing), nested(inputs)[0] if self.communicator.rank == root else []
        target = buffers.whole(mine, reads=False)
        count, dtype = MOVES.elements(target, doing)
        call = describe(COLLECTIVE["scatter"], dtype, root=root, output=target.data_ptr(), count=count)
        if inputs:
            self.check_list(doing, inputs, mine, even=True)
            call.input = buffers.joined(inputs).data_ptr()
        return self.issue(doing, [call], [mine], opts, buffers)

    def check_list(self, doing, tensors, mine, even=False):
        communicator = self.communicator
        if len(tensors) != communicator.size:
            raise GradwireError(f"gradwire: {doing}: {len(tensors)} tensors are given for {communicator.size} ranks; "
                                "one for each is wanted", "INVALID")
        same_type([*tensors, mine], doing)
        uneven = {t.numel() for t in tensors} != {mine.numel()} if even else False
        if uneven or tensors[communicator.rank].numel() != mine.numel():
            raise GradwireError(f"gradwire: {doing}: the tensors for the ranks have "
                                f"{[t.numel() for t in tensors]} elements, and rank {communicator.rank} has "
                                f"{mine.numel()}", "INVALID")

    # All to all.

    def alltoall_base(self, output, input, output_rows, input_rows, opts=None, *_):
        doing = "all_to_all"
        same_type([output, input], doing)
        buffers = Buffers(doing)
        source, target = buffers.whole(input, writes=False), buffers.whole(output, reads=False)
        call = self.exchange(source, target, self.split_sizes(doing, source, input_rows),
                             self.split_sizes(doing, target, output_rows))
        return self.issue(doing, [call], [output], opts, buffers)

    def split_sizes(self, doing, tensor, rows):
        """Elements of the part of each rank."""
        length, size = tensor.shape[0] if tensor.dim() else 1, self.communicator.size
        if not rows:
            if length % size:
                raise GradwireError(f"gradwire: {doing}: Tensor's dim 0 does not divide equally across group size: "
                                    f"{length} rows, {size} ranks", "INVALID")
            rows = [length // size] * size
        if sum(rows) != length or len(rows) != size:
            raise GradwireError(f"gradwire: {doing}: Split sizes doesn't match total dim 0 size: {list(rows)} for "
                                f"{length} rows and {size} ranks", "INVALID")
        row = tensor.numel() // length if length else 0
        return [count * row for count in rows]

    def alltoall(self, outputs, inputs, opts=None, *_):
        doing = "all_to_all"
        self.check_list(doing, inputs, outputs[self.communicator.rank])
        self.check_list(doing, outputs, inputs[self.communicator.rank])
        buffers = Buffers(doing)
        call = self.exchange(buffers.joined(inputs), buffers.split(outputs), [t.numel() for t in inputs],
                             [t.numel() for t in outputs])
        return self.issue(doing, [call], outputs, opts, buffers)

    def exchange(self, source, target, going, coming):
        count, dtype = MOVES.elements(source, "all_to_all")
        scale = count // source.numel() if source.numel() else MOVES.elements(target, "")[0] // max(target.numel(), 1)
        call = describe(COLLECTIVE["alltoallv"], dtype, input=source.data_ptr(), output=target.data_ptr())
        call.in_counts, call.out_counts = sizes([n * scale for n in going]), sizes([n * scale for n in coming])
        return call

    # Point to point.

    def send(self, tensors, peer, tag=0):
        return self.message("send", "send", tensors, peer, tag)

    def recv(self, tensors, peer, tag=0):
        return self.message("recv", "recv", tensors, peer, tag)

    def recv_anysource(self, tensors, tag=0):
        return self.message("recvAnySource", "recv", tensors, ANY_SOURCE, tag)

    def message(self, doing, collective, tensors, peer, tag):
        buffers, source, sends = Buffers(doing), ctypes.c_int(peer), collective == "send"
        calls, tensors = [], listed(tensors)
        for tensor in tensors:
            line = buffers.whole(tensor, reads=sends, writes=not sends)
            count, dtype = MOVES.elements(line, doing)
            call = describe(COLLECTIVE[collective], dtype, root=peer, input=line.data_ptr() if sends else None,
                            output=None if sends else line.data_ptr(), count=count)
            call.tag = tag
            if not sends:
                call.source = ctypes.pointer(source)
            calls.append(call)
        buffers.keep.append(source)
        return self.issue(doing, calls, tensors, None, buffers, source)

    def barrier(self, opts=None, *_):
        return self.issue("barrier", [describe(COLLECTIVE["barrier"])], [], opts, Buffers("barrier"))

    # Names of other versions of torch.

    all_gather_single = _allgather_base
    all_gather_single_coalesced = allgather_into_tensor_coalesced
    reduce_scatter_single = _reduce_scatter_base
    reduce_scatter_single_coalesced = reduce_scatter_tensor_coalesced
    all_to_all_single = alltoall_base
