"""Seeing which of torch's operations a student's code calls, for exercises that forbid some. Best effort, by design.

`core.screen` looks for a forbidden name in the source; this looks while the code runs, so that `getattr(F, "scaled_" +
"dot_product_attention")` and `nn.MultiheadAttention` are seen too. Code that takes the watch down first is not seen.
"""
from __future__ import annotations

import contextlib

from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

# Under the name by which a person calls it, what torch calls it inside.
INSIDE = {"scaled_dot_product_attention": ("multi_head_attention", "native_multi_head", "transformer_encoder_layer",
                                           "safe_softmax")}


def matching(called: str, forbidden: tuple[str, ...]) -> str | None:
    """The forbidden name that an operation stands for, or None."""
    called = called.strip("_")
    for name in forbidden:
        if called == name or len(name) > 12 and name in called or any(part in called for part in INSIDE.get(name, ())):
            return name
    return None


@contextlib.contextmanager
def calls(forbidden):
    """`with calls(names) as used:` afterwards the set `used` holds those of the names that were called."""
    used: set[str] = set()
    forbidden = tuple(forbidden)
    if not forbidden:
        yield used
        return

    class Functions(TorchFunctionMode):
        def __torch_function__(self, func, types, args=(), kwargs=None):
            used.add(matching(getattr(func, "__name__", ""), forbidden))
            return func(*args, **(kwargs or {}))

    class Operations(TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            used.add(matching(func.overloadpacket.__name__, forbidden))
            return func(*args, **(kwargs or {}))

    with Functions(), Operations():
        yield used
    used.discard(None)
