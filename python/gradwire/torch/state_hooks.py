"""Parameters whose updates are still to come are read and written by state_dict() and load_state_dict(): hooks of the
modules complete the updates first."""
import weakref


class Completes:
    """Completes the updates of an optimiser. Copies of its module do not belong to the optimiser, and a pickled one has
    none."""

    def __init__(self, optimizer=None):
        self.optimizer = (lambda: None) if optimizer is None else weakref.ref(optimizer)

    def __call__(self, *_):
        optimizer = self.optimizer()
        if optimizer is not None:
            optimizer._apply_pending()

    def __reduce__(self):
        return Completes, ()


def hook(modules, parameters, optimizer):
    """Hooks those of the modules, and of the ones inside, that own any of the parameters. Returns what has remove()."""
    owners = {inner: None for module in modules for inner in module.modules()
              if any(p in parameters for p in inner.parameters(recurse=False))}
    completes, removals = Completes(optimizer), []
    for module in owners:
        removals.append(module._register_load_state_dict_pre_hook(completes))
        if hasattr(module, "register_state_dict_pre_hook"):  # torch 2
            removals.append(module.register_state_dict_pre_hook(completes))
    return removals
