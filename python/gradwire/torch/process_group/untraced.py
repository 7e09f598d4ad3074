"""torch.compile looks at every Python frame below a compiled model, also at those that C++ calls, as DDP's reducer calls
a group. Methods of the classes marked here run as they are, with everything that they call."""
import types

try:
    from torch._C._dynamo.eval_frame import _FrameAction, _FrameExecStrategy, set_code_exec_strategy
except ImportError:  # another torch, which marks functions in another way, or has no compiler
    set_code_exec_strategy = None


def untraced(marked):
    if set_code_exec_strategy is not None:
        skip = _FrameExecStrategy(_FrameAction.SKIP, _FrameAction.SKIP)
        for method in vars(marked).values():
            if isinstance(method, types.FunctionType):
                set_code_exec_strategy(method.__code__, skip)
    return marked
