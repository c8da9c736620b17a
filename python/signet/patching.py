"""Stock models of transformers, and fla's own functions, on Signet's operators: patch_transformers, patch_fla, unpatch.

transformers looks the optimised functions up by name (causal_conv1d_fn, selective_scan_fn, chunk_gated_delta_rule, ...)
when a modelling file is loaded, and falls back to loops in PyTorch. Patching replaces what it found in the files that
are loaded, and the look-up for those that come later.
"""

import functools
import inspect
import sys

_undo = []


def _ours():
    from .torch import ops

    return {name: getattr(ops, name) for name in ops.__all__}


def _in_parts(*args, **kwargs):
    """In place of a whole block in one call, which transformers asks for in training. None is its sign for no such
    function: it calls the parts one by one then, with the mask, the documents and the norms that a block has."""


def _for_transformers():
    return {**_ours(), "mamba_inner_fn": _in_parts, "mamba_split_conv1d_scan_combined": _in_parts}


def _set(holder, name, value):
    _undo.append((holder, name, getattr(holder, name)))
    setattr(holder, name, value)


def unpatch():
    """Takes back everything that patch_transformers and patch_fla replaced."""
    while _undo:
        holder, name, value = _undo.pop()
        setattr(holder, name, value)


def _adapted(function, original):
    """Called as transformers calls an implementation: keywords that it does not name are dropped."""
    names = frozenset(inspect.signature(function).parameters)

    @functools.wraps(original)
    def call(*args, **kwargs):
        return function(*args, **{k: v for k, v in kwargs.items() if k in names})

    call.signet_operator = function
    return call


def _while_patched(function, original, decorator):
    """For files that are loaded while transformers is patched: Signet's function until unpatch, then the stock one."""
    ours, stock = _adapted(function, original), decorator(original)

    @functools.wraps(original)
    def call(*args, **kwargs):
        return (ours if _undo else stock)(*args, **kwargs)

    call.signet_operator = function
    return call


def _hub_name(function):
    """The name under which transformers looked this function up, or None."""
    seen = 0
    while callable(function) and seen < 5:
        code = getattr(function, "__code__", None)
        if code is not None and "applicable_params" in code.co_freevars:
            cells = dict(zip(code.co_freevars, function.__closure__))
            return cells["func_name"].cell_contents
        function, seen = getattr(function, "__wrapped__", None), seen + 1
    return None


def patch_transformers():
    """Mamba, Mamba-2, Qwen3-Next, Kimi-Linear, OLMo-Hybrid and the others that transformers looks kernels up for use
    Signet's operators, those already loaded and those to come. Returns the names of what was replaced."""
    import transformers.integrations as integrations
    from transformers.integrations import hub_kernels

    ours, replaced = _for_transformers(), []
    for module in list(sys.modules.values()):
        if not getattr(module, "__name__", "").startswith("transformers.models."):
            continue
        for name, value in list(vars(module).items()):
            if not callable(value) or isinstance(value, type):
                continue
            if hasattr(value, "signet_operator"):
                replaced.append(f"{module.__name__}.{name}")
                continue
            function = ours.get(_hub_name(value))
            if function is not None:
                _set(module, name, _adapted(function, value))
                replaced.append(f"{module.__name__}.{name}")

    stock = hub_kernels.use_kernel_func_from_hub_with_fallback
    if not hasattr(stock, "signet_operator"):

        @functools.wraps(stock)
        def look_up(func_name, *args, **kwargs):
            decorator = stock(func_name, *args, **kwargs)
            function = ours.get(func_name)
            return decorator if function is None else lambda original: _while_patched(function, original, decorator)

        look_up.signet_operator = None
        for holder in (integrations, hub_kernels):  # the first looks its value up in the second
            _set(holder, "use_kernel_func_from_hub_with_fallback", look_up)
    return replaced


def _on_cpu(function, original):
    """The function where the tensors lie on a CPU, the original elsewhere."""

    @functools.wraps(original)
    def call(*args, **kwargs):
        first = args[0] if args else next(iter(kwargs.values()))
        return (function if first.is_cpu else original)(*args, **kwargs)

    return call


def patch_fla():
    """fla's operators are Signet's, wherever a loaded module of fla holds them, and what its layers and models need beside
    them (convolutions, norms, activations, losses) runs without Triton. Returns the names of what was replaced."""
    import fla.layers  # noqa: F401: the modules that hold the functions
    import fla.models  # noqa: F401
    import fla.ops  # noqa: F401

    from .torch.fla_modules import FUNCTIONS, ON_CPU, cross_entropy_of

    loaded = [m for m in list(sys.modules.values()) if getattr(m, "__name__", "").startswith("fla.")]
    replaced = []

    def replace(module, name, function):
        _set(module, name, function)
        replaced.append(f"{module.__name__}.{name}")

    def everywhere(home, name, replacement):
        found = (vars(m).get(name) for m in loaded if m.__name__.startswith(home))
        replacements = {id(original): replacement(original) for original in found if callable(original)}
        for module in loaded:
            if id(vars(module).get(name)) in replacements:
                replace(module, name, replacements[id(vars(module)[name])])

    for home, functions in (("fla.ops", _ours()), ("fla.modules", FUNCTIONS)):
        for name, function in functions.items():
            everywhere(home, name, lambda original, function=function: function)
    for name, function in ON_CPU.items():
        everywhere("fla.modules", name, lambda original, function=function: _on_cpu(function, original))
    loss = fla.modules.FusedCrossEntropyLoss
    stock = loss.forward
    _set(loss, "forward", lambda module, input, target: (cross_entropy_of if input.is_cpu else stock)(module, input, target))
    replaced.append(f"{loss.__module__}.{loss.__name__}.forward")
    for module in loaded:
        if "ACT2FN" in vars(module):
            table = {"silu": FUNCTIONS["swish"], **FUNCTIONS}
            replace(module, "ACT2FN", {name: table.get(name, value) for name, value in module.ACT2FN.items()})
    return replaced
