"""Recovery after a loss, with the same bits on all ranks.

An exchange is not atomic when a rank dies: one rank may have updated a parameter with the interrupted step, another
not. Ranks differ by at most one step, because an update needs the gradients of all ranks. Slot.updated is the last step
that updated a parameter. Ranks compare it, and a rank that has the update sends the parameter and the optimiser's state
of it to those that do not. Where the optimiser runs inside the reducer, gw_reducer_resume has done that with the
weights. A received value replaces the old one only when it is complete: its sender may be lost too.

The interrupted step is over. Gradients that no rank applied are dropped."""
import torch

from gradwire._library import GradwireError, lib
from gradwire.torch import objects, order
from gradwire.torch.world import world

ABSENT, UNCOMMITTED, CLOSES, MOVES = range(4)  # state of an optimiser's reducer on a rank


def shrink():
    """After a GradwireError whose `lost` is true: continues with the ranks that are left. Each of them calls it.
    Afterwards rank() and size() are those of the smaller job, and all ranks have the same parameters and optimiser
    state. Returns the rank that is furthest: broadcast from it what else has to be equal (a learning-rate schedule, the
    position in the data)."""
    return continue_with(world(), lib.gw_shrink)


def regroup():
    """The same in a job of `gradwire run --elastic` or `--restarts`. Restarted processes take part by init(), and have
    no state yet: where there may be any, all ranks broadcast it from the rank that regroup() and init() return."""
    return continue_with(world(), lib.gw_regroup)


def continue_with(job, call):
    refuse_kept_weights(job)
    while True:
        job.change(call)
        try:
            newest = synchronize_survivors(job)
            job.release()
            return newest
        except GradwireError as error:
            if not error.lost:  # else another rank was lost meanwhile, and all ranks try again
                raise


def refuse_kept_weights(job):
    for one in job.living():
        if one._reducer is not None and one._reducer.updates and one._reducer.has_servers():
            raise GradwireError("after a loss a DistributedOptimizer cannot go on where servers keep the weights: start "
                                "again from a checkpoint", "UNSUPPORTED")


def synchronize_survivors(job):
    """Brings survivors to the same state; with restarted ranks, which have none (first_join), they commit new
    reducers."""
    progress = max([(one.step_number(), updates(one)) for one in job.living()], default=(0, 0))
    if any(job.gather(0)):
        everyone, survivors = job.comm, job.split(0)
        job.enter(survivors)
        try:
            repair(job, closes=True)
        finally:
            job.enter(everyone)
            lib.gw_finalize(survivors)
    else:
        repair(job, closes=False)
    newest = job.furthest(*progress)
    job.cross()
    return newest


def updates(optimizer):
    return sum(updated(optimizer, slot) for slot in optimizer._slots)


def updated(optimizer, slot):
    return max(optimizer._updated, slot.updated)


def repair(job, closes):
    job.close_orphans()
    for number in range(max(job.gather(len(job.optimizers)))):
        repair_optimizer(job, job.optimizers[number]() if number < len(job.optimizers) else None, closes)
    for number in range(max(job.gather(len(job.hooks)))):
        repair_hook(job, job.hooks[number] if number < len(job.hooks) else None, closes)


def progress_of(step):
    if step is None:
        return UNCOMMITTED
    return CLOSES if step.has_servers() else MOVES


def repair_hook(job, hook, closes):
    """DDP's optimiser is outside of the hook: nothing is compared."""
    kinds = job.gather(ABSENT if hook is None else progress_of(hook.reducer))
    if hook is None:
        return
    hook.drop()
    if min(kinds) == MOVES:
        hook.reducer.move()
    if min(kinds) != MOVES or closes:
        hook.close()


def repair_optimizer(job, one, closes):
    kinds = job.gather(ABSENT if one is None else progress_of(one._reducer))
    if one is None:
        return
    progress = one.step_number(), updates(one)
    moves = min(kinds) == MOVES
    drop(one)
    if moves:
        one._reducer.move()
        one._inside.moved()
        one._choose_factors()
        one._give_up_momentum()
    else:
        one._close()
    number = one._reducer.number() if moves else 0
    if min(kinds) != ABSENT and not (moves and one._reducer.has_own_optimizers()):
        number = max(number, equalize(job, one, kinds, progress))
    if closes or (not moves and max(kinds) > UNCOMMITTED):  # the next step commits another reducer, on all ranks
        one._close()
        one._saved = {"steps": number}


def drop(one):
    one._drop()
    one._inside.readying = None
    if one._learning:  # the next forward pass gives the order instead
        one._order = order.ForwardOrder([slot.parameter for slot in one._slots])


def equalize(job, one, kinds, progress):
    """Ranks that are behind get the newest parameters, and all ranks the settings of the rank that is furthest. Returns
    the number of the last step that any rank applied, plus 1."""
    slots = sorted(one._slots, key=lambda slot: slot.name)
    objects.agree([(slot.name, slot.parameter) for slot in slots], "after a loss, DistributedOptimizer")
    numbers = job.gather(*[updated(one, slot) for slot in slots])
    given = {}
    for place, slot in enumerate(slots):
        reached = numbers[place::len(slots)]
        source = source_of(reached, kinds)
        if source is not None:
            given.setdefault(source, []).append((slot, max(reached)))
    for source in sorted(given):
        pass_on(job, one, given[source], source)
    take_settings(one, job.furthest(*progress))
    return max(numbers, default=0)


def source_of(reached, kinds):
    """The rank that sends a parameter to all; None: all have the same. Where committing the first reducer has failed on
    some ranks only, the others may have begun to change weights."""
    ahead = [rank for rank, number in enumerate(reached) if number == max(reached)]
    begun = len({kind == UNCOMMITTED for kind in kinds}) > 1
    before = [rank for rank in ahead if kinds[rank] == UNCOMMITTED]
    if begun and before:
        return before[0]
    return ahead[0] if begun or len(ahead) < len(reached) else None


def pass_on(job, one, given, source):
    """given: slots, and the step number that they reach."""
    weights = one._reducer is None or not one._reducer.updates  # else the reducer has sent them
    mine = {slot.name: (slot.parameter.detach() if weights else None, one.state.get(slot.parameter))
            for slot, _ in given}
    values = objects.broadcast_structure(mine if job.rank == source else None, source)
    for slot, number in given if job.rank != source else ():
        take(one, slot, *values[slot.name])
        slot.updated = number


def take(one, slot, weights, state):
    parameter = slot.parameter
    if weights is not None:
        parameter.detach().copy_(weights)
    old = one.state.pop(parameter, {})
    if state is not None:
        one.state[parameter] = {key: placed(value, old.get(key), parameter) for key, value in state.items()}


def placed(value, old, parameter):
    """The value in the optimiser's layout: that of the parameter, if the shapes agree."""
    if not isinstance(value, torch.Tensor):
        return value
    if value.shape == parameter.shape:
        return torch.empty_like(parameter.detach(), dtype=value.dtype).copy_(value)
    if isinstance(old, torch.Tensor):
        return value.to(old.device)
    return value.to(parameter.device) if value.dim() else value


def take_settings(one, source):
    mine = [{key: value for key, value in group.items() if key != "params"} for group in one.param_groups]
    for group, settings in zip(one.param_groups, objects.broadcast_structure(mine, source)):
        group.update(settings)
