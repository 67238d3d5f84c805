"""The names that an exercise gives, as plain data: enough to rebuild them in another process."""
import ast
import importlib
import inspect
import textwrap
from types import ModuleType
from typing import Any

import torch


def given_spec(given: dict[str, Any]) -> dict[str, tuple[str, ...]]:
    """name -> ("module", m) | ("attribute", m, a) | ("value", literal) | ("source", text), to rebuild it."""
    return {name: _describe(name, value) for name, value in given.items()}


def _describe(name: str, value: Any) -> tuple[str, ...]:
    if hasattr(value, "given_spec"):                  # in a handout it is described already
        return value.given_spec
    if isinstance(value, ModuleType):
        return ("module", value.__name__)
    if isinstance(value, torch.dtype):
        return ("attribute", "torch", str(value).removeprefix("torch."))
    if callable(value):
        module = getattr(value, "__module__", "") or ""
        if module.split(".")[0] in ("course_lib", "__main__") or module.startswith("private_exercises"):
            return ("source", textwrap.dedent(inspect.getsource(value)))
        if module and hasattr(importlib.import_module(module), value.__qualname__.split(".")[0]):
            return ("attribute", module, value.__qualname__)
        raise ValueError(f"given name {name!r}: cannot tell which module it comes from; give the module "
                         "instead")
    text = repr(value)
    try:
        ast.literal_eval(text)
    except (ValueError, SyntaxError):
        raise ValueError(f"given name {name!r}: {type(value).__name__} is not a module, a function, a dtype "
                         "or a constant") from None
    return ("value", text)
