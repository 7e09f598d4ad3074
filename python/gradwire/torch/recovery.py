"""Going on after a loss, with the same bits on all ranks.

An exchange is not atomic under a death: one rank may have updated a parameter with the interrupted step, another not.
Nobody can be further apart, because an update needs the gradients of all ranks. Each parameter knows the step that it
was updated with last (Slot.updated); ranks compare these, and the rank that is ahead gives the parameter and what the
optimiser keeps of it to those that are behind. Where the optimiser runs inside the step, gw_step_move has done that with
the weights. A value that is received takes its place only when it is complete: the rank that gives it may be lost too.

The interrupted step is over. Gradients that were not applied anywhere are dropped."""
import torch

from gradwire._library import GradwireError, lib
from gradwire.torch import objects, order
from gradwire.torch.world import world

ABSENT, UNCOMMITTED, CLOSES, MOVES = range(4)  # what a rank has of an optimiser's step


def shrink():
    """After a GradwireError whose `lost` is true: goes on with the ranks that are left. Every one of them calls it.
    Afterwards rank() and size() are those of the smaller job, and all ranks have the same parameters and optimiser
    state; what else has to be equal (a schedule of the rate, the place in the data) can be taken from the rank that is
    returned, which has come furthest."""
    return go_on(world(), lib.gw_shrink)


def regroup():
    """The same in a job of `gradwire run --elastic` or `--restarts`. Processes that were started again take part by
    init(), and have no state yet: where there may be any, broadcast it from the rank that is returned, here as well as
    there by init()."""
    return go_on(world(), lib.gw_regroup)


def go_on(home, call):
    refuse_kept_weights(home)
    while True:
        home.change(call)
        try:
            newest = meet(home)
            home.release()
            return newest
        except GradwireError as error:
            if not error.lost:  # else another was lost meanwhile, and the others are here again too
                raise


def refuse_kept_weights(home):
    for one in home.living():
        if one._step is not None and one._step.updates and one._step.has_servers():
            raise GradwireError("after a loss a DistributedOptimizer cannot go on where servers keep the weights: start "
                                "again from a checkpoint", "UNSUPPORTED")


def meet(home):
    """Survivors bring each other to the same state; with those that have none (first_meeting) they begin new steps."""
    progress = max([(one.step_number(), updates(one)) for one in home.living()], default=(0, 0))
    if any(home.gather(0)):
        everyone, survivors = home.comm, home.split(0)
        home.enter(survivors)
        try:
            repair(home, closes=True)
        finally:
            home.enter(everyone)
            lib.gw_finalize(survivors)
    else:
        repair(home, closes=False)
    newest = home.furthest(*progress)
    home.cross()
    return newest


def updates(optimizer):
    return sum(updated(optimizer, slot) for slot in optimizer._slots)


def updated(optimizer, slot):
    return max(optimizer._updated, slot.updated)


def repair(home, closes):
    home.close_orphans()
    for number in range(max(home.gather(len(home.optimizers)))):
        repair_optimizer(home, home.optimizers[number]() if number < len(home.optimizers) else None, closes)
    for number in range(max(home.gather(len(home.hooks)))):
        repair_hook(home, home.hooks[number] if number < len(home.hooks) else None, closes)


def standing(step):
    if step is None:
        return UNCOMMITTED
    return CLOSES if step.has_servers() else MOVES


def repair_hook(home, hook, closes):
    """DDP's optimiser is elsewhere: nothing is compared."""
    kinds = home.gather(ABSENT if hook is None else standing(hook.step))
    if hook is None:
        return
    hook.drop()
    if min(kinds) == MOVES:
        hook.step.move()
    if min(kinds) != MOVES or closes:
        hook.close()


def repair_optimizer(home, one, closes):
    kinds = home.gather(ABSENT if one is None else standing(one._step))
    if one is None:
        return
    progress = one.step_number(), updates(one)
    moves = min(kinds) == MOVES
    drop(one)
    if moves:
        one._step.move()
        one._inside.moved()
    else:
        one._close()
    number = one._step.number() if moves else 0
    if min(kinds) != ABSENT and not (moves and one._step.has_own_optimizers()):
        number = max(number, equalize(home, one, kinds, progress))
    if closes or (not moves and max(kinds) > UNCOMMITTED):  # the next step commits another, on all ranks
        one._close()
        one._saved = {"steps": number}


def drop(one):
    one._drop()
    one._inside.readying = None
    if one._learning:  # the next forward pass is learnt from instead
        one._order = order.ForwardOrder([slot.parameter for slot in one._slots])


def equalize(home, one, kinds, progress):
    """Ranks that are behind get what the others have, and all the settings of the rank that has come furthest. Returns
    the number of the step after the last that anybody has applied."""
    slots = sorted(one._slots, key=lambda slot: slot.name)
    objects.agree([(slot.name, slot.parameter) for slot in slots], "after a loss, DistributedOptimizer")
    numbers = home.gather(*[updated(one, slot) for slot in slots])
    given = {}
    for place, slot in enumerate(slots):
        reached = numbers[place::len(slots)]
        source = source_of(reached, kinds)
        if source is not None:
            given.setdefault(source, []).append((slot, max(reached)))
    for source in sorted(given):
        pass_on(home, one, given[source], source)
    take_settings(one, home.furthest(*progress))
    return max(numbers, default=0)


def source_of(reached, kinds):
    """The rank that gives a parameter to all; None: all have the same. Where committing the first step has failed on
    some ranks only, the others may have begun to change weights."""
    ahead = [rank for rank, number in enumerate(reached) if number == max(reached)]
    begun = len({kind == UNCOMMITTED for kind in kinds}) > 1
    before = [rank for rank in ahead if kinds[rank] == UNCOMMITTED]
    if begun and before:
        return before[0]
    return ahead[0] if begun or len(ahead) < len(reached) else None


def pass_on(home, one, given, source):
    """given: slots, and the number of the step that they come to."""
    weights = one._step is None or not one._step.updates  # else the step has done that
    mine = {slot.name: (slot.parameter.detach() if weights else None, one.state.get(slot.parameter))
            for slot, _ in given}
    values = objects.broadcast_structure(mine if home.rank == source else None, source)
    for slot, number in given if home.rank != source else ():
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
    """Where the optimiser would have it: as the parameter lies, if it has its shape."""
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
