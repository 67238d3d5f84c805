"""The names that a student's source sees: the given ones and Python's builtins, nothing else."""
import ast
import builtins
import importlib
import math
import symtable
from typing import Any, Callable

import torch

from .results import Request

DRIVER = "<driver>"        # the file name of an exercise's `call=`


def build_namespace(given: dict[str, tuple[str, ...]]) -> dict[str, Any]:
    """A fresh namespace with exactly the given names; `given` is what `declare.given_spec` returns."""
    namespace: dict[str, Any] = {"__builtins__": builtins, "__name__": "exercise"}
    sources = {}
    for name, (kind, *what) in given.items():
        if kind == "module":
            namespace[name] = importlib.import_module(what[0])
        elif kind == "attribute":
            value = importlib.import_module(what[0])
            for part in what[1].split("."):
                value = getattr(value, part)
            namespace[name] = value
        elif kind == "value":
            namespace[name] = ast.literal_eval(what[0])
        else:
            sources[name] = what[0]
    if sources:
        shared = {**_toolbox(), **namespace}
        for name, text in sources.items():
            exec(compile(text, f"<given {name}>", "exec", dont_inherit=True), shared)
            shared[name] = namespace[name] = shared[_last_definition(text)]
    return namespace


def definition_of(tree: ast.Module, name: str) -> ast.Module:
    """The statements of a cell that `name` rests on: without what somebody has written beside it to try it."""
    kept: list[ast.stmt] = []
    wanted, before = {name}, -1
    while len(kept) > before:
        before = len(kept)
        for statement in tree.body:
            own_test = isinstance(statement, (ast.Assert, ast.Expr))
            if statement not in kept and not own_test and wanted & _names(statement, binds=True):
                kept.append(statement)
                wanted |= _names(statement, binds=False)
    return ast.Module([statement for statement in tree.body if statement in kept], []) if kept else tree


def _names(statement: ast.stmt, binds: bool) -> set[str]:
    """The cell's names that a statement reads, or those that it binds or changes; a function's own aside."""
    whole = symtable.symtable(ast.unparse(statement), "cell", "exec")
    tables = [whole]
    for table in tables:
        tables += table.get_children()
    found = {symbol.get_name() for table in tables for symbol in table.get_symbols()
             if (table is whole or symbol.is_global())
             and (symbol.is_assigned() if binds else symbol.is_referenced())}
    for node in ast.walk(statement):
        if binds and isinstance(node, (ast.Attribute, ast.Subscript)) and isinstance(node.ctx, ast.Store):
            while isinstance(node, (ast.Attribute, ast.Subscript)):
                node = node.value
            found |= {node.id} if isinstance(node, ast.Name) else set()
    return found


def driver(request: Request) -> Callable:
    """The exercise's `call=`, ready to run; a plain call where it has none."""
    if request.call is None:
        return lambda f, *args, **kwargs: f(*args, **kwargs)
    namespace = {**_toolbox(), **build_namespace(request.given), "__name__": "driver"}
    exec(compile(request.call, DRIVER, "exec", dont_inherit=True), namespace)
    return namespace[_last_definition(request.call)]


def _last_definition(text: str) -> str:
    return [n.name for n in ast.parse(text).body if isinstance(n, (ast.FunctionDef, ast.ClassDef))][-1]


def _toolbox() -> dict[str, Any]:
    import einops
    return {"__builtins__": builtins, "__name__": "given", "torch": torch, "math": math,
            "F": torch.nn.functional, "nn": torch.nn, "einops": einops, "rearrange": einops.rearrange,
            "repeat": einops.repeat, "reduce": einops.reduce, "Tensor": torch.Tensor}
