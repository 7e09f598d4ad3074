"""Batch normalisation over the batches of all ranks, in host memory and on devices.

Forward: ranks gather count, mean and squared deviations of each channel, and combine them (Chan, Golub and LeVeque
1979), which keeps the precision that a sum of squares would lose. Backward: one all-reduce of two sums a channel.
Gradients of weight and bias are this rank's own, for the optimiser to average."""
import torch
from torch.nn.modules.batchnorm import _BatchNorm

from gradwire.torch import collectives
from gradwire.torch.errors import ArgumentError
from gradwire.torch.operations import Sum
from gradwire.torch.world import world


def across(x):
    """The dimensions that one channel extends over."""
    return [0] + list(range(2, x.dim()))


def per_channel(values, x):
    """Of the shape that broadcasts over x."""
    return values.reshape([1, -1] + [1] * (x.dim() - 2))


def wide(dtype):
    """The type of statistics: f32 for shorter ones."""
    return torch.promote_types(dtype, torch.float32)


def statistics(x):
    """Count, mean and biased variance of each channel, over all ranks."""
    count, channels = x.numel() // x.shape[1] if x.numel() else 0, x.shape[1]
    mean = x.mean(across(x)) if count else x.new_zeros(channels)
    deviation = (x - per_channel(mean, x)).square().sum(across(x))
    mine = torch.cat([x.new_tensor([count]), mean, deviation])[None]
    rows = collectives.allgather_async(mine, "sync_batch_norm").wait()
    counts, means, deviations = rows[:, :1], rows[:, 1:1 + channels], rows[:, 1 + channels:]
    total = counts.sum()
    mean = (counts * means).sum(0) / total
    return total, mean, (deviations + counts * (means - mean).square()).sum(0) / total


class Normalise(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, weight, bias, running_mean, running_var, eps, momentum):
        count, mean, variance = statistics(x.to(wide(x.dtype)))
        if running_mean is not None:
            running_mean.lerp_(mean.to(running_mean.dtype), momentum)
            running_var.lerp_((variance * (count / (count - 1))).to(running_var.dtype), momentum)
        inverse = (variance + eps).rsqrt()
        ctx.save_for_backward(x, weight, mean, inverse, count)
        ctx.has_bias = bias is not None
        scale = inverse if weight is None else inverse * weight
        shift = -mean * scale if bias is None else bias - mean * scale
        return (x * per_channel(scale, x) + per_channel(shift, x)).to(x.dtype)

    @staticmethod
    def backward(ctx, gradient):
        x, weight, mean, inverse, count = ctx.saved_tensors
        gradient = gradient.to(mean.dtype)
        normal = (x - per_channel(mean, x)) * per_channel(inverse, x)
        sum_gradient, sum_product = gradient.sum(across(x)), (gradient * normal).sum(across(x))
        given = weight_gradient = None
        if ctx.needs_input_grad[0]:
            sums = collectives.allreduce_(torch.stack([sum_gradient, sum_product]), op=Sum, name="sync_batch_norm")
            a, b = [per_channel(one / count, x) for one in sums]
            scale = inverse if weight is None else inverse * weight
            given = ((gradient - a - normal * b) * per_channel(scale, x)).to(x.dtype)
        if weight is not None:
            weight_gradient = sum_product.to(weight.dtype)
        return given, weight_gradient, sum_gradient if ctx.has_bias else None, None, None, None, None


class SyncBatchNorm(_BatchNorm):
    """torch.nn.BatchNorm over the joined batch of all ranks, whose sizes may differ. All ranks call it alike."""

    def _check_input_dim(self, input):
        if input.dim() < 2:
            raise ArgumentError(f"SyncBatchNorm: expected at least 2 dimensions, but the input has {input.dim()}")

    def forward(self, input):
        self._check_input_dim(input)
        if not self.training and self.running_mean is not None or world().size == 1:
            return super().forward(input)
        tracked = self.training and self.track_running_stats
        return Normalise.apply(input, self.weight, self.bias, self.running_mean if tracked else None,
                               self.running_var if tracked else None, self.eps, self._factor() if tracked else 0.0)

    def _factor(self):
        """The weight of this batch in the running statistics."""
        self.num_batches_tracked.add_(1)
        return 1 / self.num_batches_tracked.item() if self.momentum is None else self.momentum
