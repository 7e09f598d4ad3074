"""The order in which a forward pass uses parameters, and the module that must wait for each.

Where updates wait for the next forward pass, a hook before every module's forward learns it in the first one. A
parameter belongs to the module that owns it; if that module is never called (the module around it uses its weights, as
in attention), to the innermost called module around it. A parameter that belongs to no called module is `loose`: no
module would wait for it in time. Their order is that of their gradients in the first backward pass, turned round; other
schedules need nothing else.

No hook runs inside of a graph of torch.compile. A compiled module waits for all its parameters before its forward
begins; where a compiled function or `model.compile()` calls the modules, their parameters are loose."""
import warnings

import torch
from torch.nn.modules.module import register_module_forward_pre_hook

from gradwire.torch import compiling

GROUP_BYTES = 256 << 10, 2 << 20  # smallest and largest group: the first modules form small groups, later ones larger


class ForwardOrder:
    def __init__(self, parameters):
        self.index = {p: i for i, p in enumerate(parameters)}
        self.completed = {}  # parameter: how many gradients were complete before its own, in the first backward pass
        self.learn()

    def learn(self):
        """Begins again. Until the plan is made no module waits."""
        self.called = {}  # module: None, in the order of the first calls
        self.plan = {}    # module: indices of the parameters to wait for before its forward
        self.loose = list(self.index.values())

    def saw(self, module):
        if module not in self.called:
            self.called[module] = None

    def saw_gradient(self, parameter):
        self.completed.setdefault(parameter, len(self.completed))

    def settle(self):
        """Makes the plan; returns all indices, loose ones first, the others in the order of use."""
        owner = {}
        for module in self.called:
            for parameter in module.parameters(recurse=False):
                if parameter in self.index:
                    owner.setdefault(self.index[parameter], module)
        for module in self.called:  # the outer one is called before the inner one, which may take over
            for parameter in module.parameters():
                index = self.index.get(parameter)
                if index is not None and not self.owned(owner, index, parameter):
                    owner[index] = module
        self.plan = {module: [] for module in self.called}
        for index in range(len(self.index)):
            if index in owner:
                self.plan[owner[index]].append(index)
        self.plan = {module: tuple(mine) for module, mine in self.plan.items() if mine}
        last = len(self.index)
        self.loose = [self.index[p] for p in sorted(self.index, key=lambda p: -self.completed.get(p, last))
                      if self.index[p] not in owner]
        self.called = {}
        return self.loose + [i for mine in self.plan.values() for i in mine]

    def renumber(self, to):
        """Index i becomes to[i]."""
        self.index = {parameter: to[i] for parameter, i in self.index.items()}
        self.plan = {module: tuple(to[i] for i in mine) for module, mine in self.plan.items()}
        self.loose = [to[i] for i in self.loose]

    def merge(self, sizes):
        """Groups small neighbours: the first of their modules waits for all of them. They arrive in one bucket, and one
        update of many tensors costs less."""
        modules, gathered, total, before = [], [], 0, 0
        for module, mine in list(self.plan.items()) + [(None, ())]:
            size = sum(sizes[i] for i in mine)
            if module is None or total + size > min(max(GROUP_BYTES[0], before // 2), GROUP_BYTES[1]):
                self.plan.update(dict.fromkeys(modules, tuple(gathered)))
                modules, gathered, total, before = [], [], 0, before + total
            modules, gathered, total = modules + [module], gathered + list(mine), total + size

    @staticmethod
    def owned(owner, index, parameter):
        return index in owner and any(parameter is p for p in owner[index].parameters(recurse=False))


def before_every_forward(function, traced):
    """Calls function(module) before every forward of the process, and traced() when torch.compile traces one instead;
    the result has remove()."""
    traced = compiling.when_traced(traced)

    def before(module, inputs):
        if compiling.is_tracing():
            traced()
        else:
            function(module)

    # Compiled modules warn that they call such hooks twice, for themselves and for the original: harmless here.
    warnings.filterwarnings("ignore", message=r"Using `torch.compile\(module\)` when there are global hooks")
    return register_module_forward_pre_hook(before)


def after_accumulation(parameter, function):
    """Calls function(...) each time a gradient has been added to parameter.grad. The caller keeps the result; its last
    part has remove()."""
    if hasattr(parameter, "register_post_accumulate_grad_hook"):  # torch 2.1
        return (parameter.register_post_accumulate_grad_hook(function),)
    with torch.enable_grad():
        accumulator = parameter.expand_as(parameter).grad_fn.next_functions[0][0]
    return accumulator, accumulator.register_hook(function)
