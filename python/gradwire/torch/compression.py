"""Compression of Horovod's scripts: casts for a collective, and a codec of the strategy for DistributedOptimizer."""
import torch


class Compressor:
    """What a collective takes as `compression`; a class of the user's own may have other casts. `strategy` is the
    codec that DistributedOptimizer uses instead; None: it has none."""
    strategy = None

    @staticmethod
    def compress(tensor):
        """The tensor to send, and what decompress needs."""
        raise NotImplementedError

    @staticmethod
    def decompress(tensor, ctx):
        """The result in the type of the original."""
        raise NotImplementedError


class NoneCompressor(Compressor):
    """Leaves the choice of a codec to the job's strategy."""
    strategy = ""

    @staticmethod
    def compress(tensor):
        return tensor, None

    @staticmethod
    def decompress(tensor, ctx):
        return tensor


class Cast(Compressor):
    """Floating-point tensors travel in `dtype`; sums are kept in f32 (gw_redop)."""
    dtype = None

    @classmethod
    def compress(cls, tensor):
        return (tensor.to(cls.dtype) if tensor.is_floating_point() else tensor), tensor.dtype

    @staticmethod
    def decompress(tensor, ctx):
        return tensor.to(ctx)


class FP16Compressor(Cast):
    dtype, strategy = torch.float16, "compress=fp16"


class BF16Compressor(Cast):
    dtype, strategy = torch.bfloat16, "compress=bf16"


class Compression:
    """What `compression=` takes: `none`, `fp16`, or `bf16`, which send floating tensors in that type."""
    none, fp16, bf16 = NoneCompressor, FP16Compressor, BF16Compressor
