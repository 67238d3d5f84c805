"""Seeing which of torch's operations a student's code calls, for exercises that forbid some. Best effort, by design.

`core.screen` looks for a forbidden name in the source; this looks while the code runs, so that `getattr(F, "scaled_" +
"dot_product_attention")` and `nn.MultiheadAttention` are seen too. Code that takes the watch down first is not seen.
"""
from __future__ import annotations

import contextlib

from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

# What torch has of the course's own subject, and what it calls that inside. Only these are watched: `expand` or
# `backward` are called by torch for reasons of its own, and by the exercise's own driver.
WATCHED = {"softmax": ("softmax",), "log_softmax": ("log_softmax",), "logsumexp": ("logsumexp",),
           "scaled_dot_product_attention": ("scaled_dot_product", "multi_head_attention", "native_multi_head",
                                            "transformer_encoder_layer", "safe_softmax")}


def matching(called: str, forbidden: tuple[str, ...]) -> str | None:
    """The forbidden name that an operation stands for, or None."""
    called = called.strip("_")
    for name in forbidden:
        if called == name or any(part in called for part in WATCHED[name] if len(part) > 10):
            return name
    return None


@contextlib.contextmanager
def calls(forbidden):
    """`with calls(names) as used:` afterwards the set `used` holds those of the names that were called."""
    used: set[str] = set()
    forbidden = tuple(name for name in forbidden if name in WATCHED)
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
