"""The momentum of a torch optimiser, which a codec with one of its own (compress=dgc) takes over. A gradient that has had
its momentum is a plain step; weight decay stays the optimiser's, with momentum, in the state that SGD keeps."""
import torch

from gradwire._library import GradwireError
from gradwire.torch.reducer import KEPT, OFFERED, UNSAID


def of(kind, groups):
    """Use and value for the reducer. Only the momentum of SGD is a plain sum of gradients; other optimisers may have one
    that their groups do not name."""
    found = {float(group["betas"][0] if "betas" in group else group.get("momentum", 0)) for group in groups}
    if found == {0}:
        return (OFFERED if kind.__module__.startswith("torch.optim") else UNSAID), 0
    plain = kind is torch.optim.SGD and not any(group["nesterov"] or group["dampening"] for group in groups)
    return (OFFERED, found.pop()) if plain and len(found) == 1 else (KEPT, 0)


def left_out(groups, state, taken, momentum):
    """The groups with those parameters (`taken`) apart that need no momentum any more, and (rate, parameters, steps of
    their decay) for apply_decay()."""
    rest, decayed = [], []
    for group in groups:
        apart = [p for p in group["params"] if p in taken]
        if apart and group["momentum"] != momentum:
            raise GradwireError(f"the momentum of a group is {group['momentum']:g} now, and compress=dgc has taken over "
                                f"{momentum:g}: use a schedule that leaves it as it is, such as "
                                "OneCycleLR(cycle_momentum=False), or dgc:momentum=0", "UNSUPPORTED")
        rest.append({**group, "params": [p for p in group["params"] if p not in taken]})
        rest.append({**group, "params": apart, "momentum": 0, "weight_decay": 0})
        used = [p for p in apart if p.grad is not None]
        if group["weight_decay"] and used:
            decayed.append((float(group["lr"]), used, decay_steps(group, state, used)))
    return [group for group in rest if group["params"]], decayed


@torch.no_grad()
def decay_steps(group, state, parameters):
    """Momentum of the weight decay alone: SGD's buffers without the gradients."""
    for p in parameters:
        if state[p].get("momentum_buffer") is None:
            state[p]["momentum_buffer"] = torch.zeros_like(p)
    buffers = [state[p]["momentum_buffer"] for p in parameters]
    torch._foreach_mul_(buffers, group["momentum"])
    torch._foreach_add_(buffers, parameters, alpha=group["weight_decay"])
    return buffers


@torch.no_grad()
def apply_decay(decayed):
    for rate, parameters, steps in decayed:
        torch._foreach_add_(parameters, steps, alpha=-rate)
