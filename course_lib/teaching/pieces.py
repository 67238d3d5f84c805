"""Functions of a chapter's declarations as source text, with what they refer to: what a handout takes over as
code."""
from __future__ import annotations

import ast
import inspect
from pathlib import Path


class HandoutError(Exception):
    """The reason why a handout cannot be made."""


class Pieces:
    """Functions of a chapter's declarations as source, with what they refer to."""

    def __init__(self):
        self.imports: set[str] = set()
        self.definitions: dict[str, str] = {}

    def expression(self, fn, where: str) -> str:
        """An expression that makes the function again."""
        if fn.__qualname__ in ("close.<locals>.compare", "number.<locals>.compare"):
            values = inspect.getclosurevars(fn).nonlocals
            kept = {k: v for k, v in values.items() if k in ("atol", "rtol", "dtype", "tolerance")}
            return (
                f"{fn.__qualname__.split('.')[0]}({', '.join(f'{k}={v!r}' for k, v in sorted(kept.items()))})")
        outer = {k: v for k, v in inspect.getclosurevars(fn).nonlocals.items()}
        node = self.node(fn, where)
        self.refer(node, fn.__globals__, where, skip=set(outer))
        if isinstance(node, ast.Lambda):
            text = ast.unparse(node)
            if outer:
                values = ", ".join(self.value(v, where) for v in outer.values())
                text = f"(lambda {', '.join(outer)}: {text})({values})"
            return text
        if outer:
            raise HandoutError(f"{where}: `{fn.__name__}` is made inside another function and cannot be "
                               "carried over")
        self.definitions.setdefault(fn.__name__, ast.unparse(node) + "\n")
        return fn.__name__

    def node(self, fn, where: str) -> ast.AST:
        """The syntax tree of a function or of a lambda, found by its line and its code."""
        module = inspect.getsourcefile(fn)
        tree = ast.parse(Path(module).read_text(encoding="utf-8"))
        for node in ast.walk(tree):
            if (isinstance(node, ast.Lambda) and fn.__name__ == "<lambda>"
                and node.lineno == fn.__code__.co_firstlineno):
                made = eval(compile(ast.Expression(node), "<piece>", "eval"), dict(fn.__globals__))
                alone = (sum(isinstance(n, ast.Lambda) and n.lineno == node.lineno for n in ast.walk(tree))
                         == 1)
                if alone or (made.__code__.co_code,
                             made.__code__.co_consts) == (fn.__code__.co_code, fn.__code__.co_consts):
                    return node
            if isinstance(node, ast.FunctionDef) and node.name == fn.__name__:
                if node.lineno <= fn.__code__.co_firstlineno <= node.end_lineno:
                    return node
        raise HandoutError(f"{where}: the source of `{fn.__name__}` was not found")

    def refer(self, node: ast.AST, names: dict, where: str, skip=frozenset()) -> None:
        """Bring along what the code refers to."""
        used = {n.id for n in ast.walk(node) if isinstance(n, ast.Name)}
        for name in sorted(used & names.keys() - skip - self.definitions.keys()):
            value = names[name]
            if inspect.ismodule(value):
                self.imports.add(f"import {value.__name__} as {name}" if value.__name__ != name
                                 else f"import {name}")
            elif callable(value) and getattr(value, "__module__", None) != names["__name__"]:
                renamed = f" as {name}" if name != value.__name__ else ""
                self.imports.add(f"from {value.__module__} import {value.__name__}{renamed}")
            elif inspect.isfunction(value):
                self.definitions[name] = ""                      # taken: it may call itself
                inner = self.node(value, where)
                self.refer(inner, names, where)
                text = ast.unparse(inner)
                self.definitions.pop(name)
                self.definitions[name] = (
                    f"{name} = {text}" if isinstance(inner, ast.Lambda) else text
                ) + "\n"
            else:
                self.definitions[name] = f"{name} = {self.value(value, where)}"

    def value(self, value, where: str) -> str:
        text = repr(value)
        try:
            ast.literal_eval(text)
        except (ValueError, SyntaxError):
            raise HandoutError(
                f"{where}: a {type(value).__name__} that it refers to cannot be carried over"
            ) from None
        return text
