"""torch.compile. Dynamo traces the hooks of modules and, with compiled autograd, those of parameters. Hooks must not
become a part of a graph, nor break it in two at each module: each asks is_tracing() first, which dynamo knows the
answer to. torch 1.13 has no compiler."""
import torch

compiler = getattr(torch, "compiler", None)
is_tracing = getattr(compiler, "is_dynamo_compiling", lambda: False)


def outside(function):
    """The function for a traced caller: it runs between two graphs."""
    return compiler.disable(function) if hasattr(compiler, "disable") else function


def when_traced(function):
    """The function for a traced caller: it runs when the caller is traced, and leaves nothing in the graph. Meanwhile
    torch's is_compiling() is false: optimisers compute in another way, with other bits, where it is true."""
    def called():
        before = getattr(compiler, "_is_compiling_flag", False)
        compiler._is_compiling_flag = False
        try:
            function()
        finally:
            compiler._is_compiling_flag = before

    return compiler.assume_constant_result(called) if hasattr(compiler, "assume_constant_result") else function
