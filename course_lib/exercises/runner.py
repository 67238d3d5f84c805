"""Run a student's source text on inputs, in a namespace of exactly the given names.

This is the half of a check that may run in another process: it takes plain data (a `Request`), it knows neither
solutions nor expectations, and it gives back plain data (a `Run`).
"""
from __future__ import annotations

import ast
import builtins
import contextlib
import importlib
import inspect
import io
import linecache
import math
import re
import signal
import sys
import threading
import time
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

PRINTED = 2000          # characters of a student's own output that are kept
LATE = "did not finish within"


@dataclass
class Request:
    """What a run needs besides the student's source; tensors, numbers and text only."""
    id: str
    language: str                                   # "python" or "cuda"
    name: str                                       # what the source must define
    value: bool                                     # predict and choose: the name's value is the answer
    is_class: bool
    given: dict[str, tuple[str, ...]]               # see declare.given_spec
    call: str | None                                # source text of `def anything(f, *args, **kwargs)`
    inputs: list[tuple[tuple, dict]]                # one (args, kwargs) a case
    launches: list[list[dict]] = field(default_factory=list)     # kernels: one plan a case, see core.plan
    arrays: list[list[dict]] = field(default_factory=list)
    budgets: list[float] = field(default_factory=list)           # bytes that each case may move; empty: not counted
    mutates: tuple[str, ...] = ()
    limit: float = 5.0
    seed: int = 0


@dataclass
class Failure:
    """Why there is no value. `line` counts from the first line of the student's cell."""
    # syntax, command, undefined, not defined, signature, exception, timeout, unwritten, compile, launch, missing,
    # or the kind of a cuda.KernelError
    kind: str
    message: str
    line: int | None = None
    text: str = ""
    name: str = ""


@dataclass
class Foreign:
    """A value of a type that an answer may not have."""
    type: str
    text: str = ""


@dataclass
class Outcome:
    """What one case gave."""
    value: Any = None
    failure: Failure | None = None
    printed: str = ""
    changed: list[str] = field(default_factory=list)     # arguments changed in place
    shares: list[str] = field(default_factory=list)      # arguments whose memory the result shares
    nan: dict | None = None                              # first operation that made a NaN: op, line, text
    counts: dict | None = None                           # kernels: moved, asked and unique bytes, unwritten, picture


@dataclass
class Run:
    """`failure` when the source itself could not be run; else one outcome a case."""
    outcomes: list[Outcome] = field(default_factory=list)
    failure: Failure | None = None
    printed: str = ""


def run(request: Request, source: str) -> Run:
    """Run the source on every input of the request."""
    if request.language == "cuda":
        from .kernel_runner import run_kernel
        return run_kernel(request, source)
    return run_python(request, source)


# --- Python ------------------------------------------------------------------------------------------------------

def run_python(request: Request, source: str) -> Run:
    filename = f"<exercise {request.id}>"
    linecache.cache[filename] = (len(source), None, source.splitlines(True), filename)
    deadline = time.monotonic() + request.limit
    printed = io.StringIO()
    try:
        code, failure = _compile(source, filename)
        if failure:
            return Run(failure=failure)
        namespace = build_namespace(request.given)
        before = dict(namespace)
        with torch.random.fork_rng(devices=[]), _guarded(deadline, printed):
            torch.manual_seed(request.seed)
            exec(code, namespace)
    except BaseException as error:
        return Run(failure=_failure(error, filename, source, request.limit), printed=printed.getvalue()[:PRINTED])
    text = printed.getvalue()[:PRINTED]
    if request.name not in namespace or (request.name in before and namespace[request.name] is before[request.name]):
        return Run(failure=Failure("not defined", f"the cell does not define `{request.name}`", name=request.name), printed=text)
    made = namespace[request.name]
    if request.value:
        return Run([Outcome(freeze(made))], printed=text)
    if request.is_class != inspect.isclass(made) or not callable(made):
        wanted = "a class" if request.is_class else "a function"
        return Run(failure=Failure("not defined", f"`{request.name}` is {with_article(type(made).__name__)}, not {wanted}",
                                   name=request.name), printed=text)
    driver = _driver(request)
    run, slow = Run(printed=text), None
    for args, kwargs in request.inputs:
        if slow:
            run.outcomes.append(Outcome(failure=slow))           # one endless loop is enough
            continue
        outcome = _one(request, made, driver, args, kwargs, filename, source, deadline)
        run.outcomes.append(outcome)
        if outcome.failure and outcome.failure.kind == "timeout":
            slow = outcome.failure
    for (args, kwargs), outcome in zip(request.inputs, run.outcomes):        # last: the limit is for the student's code alone
        if _has_nan(outcome.value) and not _has_nan((args, kwargs)):
            outcome.nan = _trace_nan(request, made, driver, args, kwargs, filename, source)
    return run


def _compile(source: str, filename: str):
    """(code, None) or (None, Failure)."""
    for number, line in enumerate(source.splitlines(), 1):
        if re.match(r"\s*(%{1,2}[A-Za-z]|![A-Za-z./])", line):
            return None, Failure("command", f"`{line.strip()}` is a notebook command, not Python: move it to another cell",
                                 number, line)
    try:
        tree = ast.parse(source, filename)
        return compile(tree, filename, "exec", dont_inherit=True), None
    except SyntaxError as error:
        line = (error.text or "").rstrip("\n")
        return None, Failure("syntax", error.msg or "invalid syntax", error.lineno, line)
    except ValueError as error:                       # null bytes
        return None, Failure("syntax", str(error))


def build_namespace(given: dict[str, tuple[str, ...]]) -> dict[str, Any]:
    """A fresh namespace that holds the given names and Python's builtins, nothing else."""
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
            defined = [n.name for n in ast.parse(text).body if isinstance(n, (ast.FunctionDef, ast.ClassDef))][-1]
            shared[name] = namespace[name] = shared[defined]
    return namespace


def _toolbox() -> dict[str, Any]:
    import einops
    return {"__builtins__": builtins, "__name__": "given", "torch": torch, "math": math, "F": torch.nn.functional,
            "nn": torch.nn, "einops": einops, "rearrange": einops.rearrange, "repeat": einops.repeat,
            "reduce": einops.reduce, "Tensor": torch.Tensor}


def _driver(request: Request):
    if request.call is None:
        return lambda f, *args, **kwargs: f(*args, **kwargs)
    namespace = {**_toolbox(), **build_namespace(request.given), "__name__": "driver"}
    exec(compile(request.call, "<driver>", "exec", dont_inherit=True), namespace)
    return namespace[[n.name for n in ast.parse(request.call).body if isinstance(n, ast.FunctionDef)][-1]]


def _one(request, made, driver, args, kwargs, filename, source, deadline) -> Outcome:
    names = list(range(len(args))) + list(kwargs)
    if request.call is None and not inspect.isclass(made):
        try:
            parameters = inspect.signature(made)
            bound = parameters.bind(*args, **kwargs)
        except TypeError as error:
            told = f"`{request.name}{inspect.signature(made)}` cannot be called so: {error}"
            return Outcome(failure=Failure("signature", told))
        except ValueError:
            bound = None
        names = list(bound.arguments) if bound and len(bound.arguments) == len(names) else names
    inputs = copied((args, kwargs))
    originals = [*args, *kwargs.values()]
    passed = [*inputs[0], *inputs[1].values()]
    printed = io.StringIO()
    try:
        with torch.random.fork_rng(devices=[]), _guarded(deadline, printed):
            torch.manual_seed(request.seed)
            value = driver(made, *inputs[0], **inputs[1])
            frozen = freeze(value)
            if isinstance(value, torch.Tensor) and type(value) is not torch.Tensor and not isinstance(value, torch.nn.Parameter):
                frozen = Foreign(type(value).__name__)
    except BaseException as error:
        return Outcome(failure=_failure(error, filename, source, request.limit), printed=printed.getvalue()[:PRINTED])
    outcome = Outcome(frozen, printed=printed.getvalue()[:PRINTED])
    for name, was, now in zip(names, originals, passed):
        if str(name) not in request.mutates and name not in request.mutates and not same(was, now):
            outcome.changed.append(_argument(name))
    for name, now in zip(names, passed):
        if request.call is None and _storages(value) & _storages(now):
            outcome.shares.append(_argument(name))
    return outcome


def _argument(name) -> str:
    return f"argument {name + 1}" if isinstance(name, int) else name


# --- values ------------------------------------------------------------------------------------------------------

def freeze(value: Any, depth: int = 0) -> Any:
    """A copy made of plain tensors, numbers, strings, None and tuples, lists, dicts; anything else becomes Foreign."""
    if value is None or type(value) in (bool, int, float, str):
        return value
    if isinstance(value, torch.Tensor):
        kind = ("nested" if value.is_nested else "quantized" if value.is_quantized else "meta" if value.is_meta else
                str(value.layout).removeprefix("torch."))
        try:
            return value.detach().cpu().clone() if kind == "strided" else Foreign(f"{kind} tensor")
        except Exception as error:
            return Foreign(type(value).__name__, str(error))
    if depth < 6:
        if isinstance(value, tuple):
            return tuple(freeze(v, depth + 1) for v in value)
        if type(value) is list:
            return [freeze(v, depth + 1) for v in value]
        if type(value) is dict and all(type(k) in (str, int, bool, float) for k in value):
            return {k: freeze(v, depth + 1) for k, v in value.items()}
    if inspect.iscoroutine(value) or inspect.isgenerator(value):
        value.close()                                # or Python warns that it was never awaited
    kind = type(value)
    name = kind.__name__ if kind.__module__ in ("builtins", "exercise", "__main__") else f"{kind.__module__}.{kind.__name__}"
    return Foreign(name)


def copied(value: Any) -> Any:
    """A deep copy of a case's inputs."""
    if isinstance(value, torch.Tensor):
        return value.detach().clone().requires_grad_(value.requires_grad)
    if isinstance(value, (tuple, list)):
        return type(value)(copied(v) for v in value)
    if isinstance(value, dict):
        return {k: copied(v) for k, v in value.items()}
    return value


def same(a: Any, b: Any) -> bool:
    """Bit for bit the same, NaN included."""
    if isinstance(a, torch.Tensor) or isinstance(b, torch.Tensor):
        if not (isinstance(a, torch.Tensor) and isinstance(b, torch.Tensor)) or a.shape != b.shape or a.dtype != b.dtype:
            return False
        a, b = a.detach(), b.detach()
        return bool(((a == b) | ((a != a) & (b != b))).all())
    if isinstance(a, (tuple, list)):
        return type(a) is type(b) and len(a) == len(b) and all(map(same, a, b))
    if isinstance(a, dict):
        return isinstance(b, dict) and a.keys() == b.keys() and all(same(a[k], b[k]) for k in a)
    return type(a) is type(b) and (a == b or (a != a and b != b))


def _storages(value: Any) -> set[int]:
    return {t.untyped_storage().data_ptr() for t in tree_leaves(value)
            if isinstance(t, torch.Tensor) and t.layout == torch.strided and t.numel()}


def _has_nan(value: Any) -> bool:
    return any(isinstance(t, torch.Tensor) and (t.is_floating_point() or t.is_complex()) and bool(torch.isnan(t).any())
               for t in tree_leaves(value))


class _NanTracer(TorchDispatchMode):
    """Remember the first operation that makes a NaN out of inputs that hold none."""

    def __init__(self, filename: str):
        super().__init__()
        self.filename, self.found = filename, None

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        result = func(*args, **(kwargs or {}))
        if self.found is None and "empty" not in str(func) and _has_nan(result) and not _has_nan((args, kwargs)):
            frame, line = sys._getframe(1), None
            while frame and line is None:
                line = frame.f_lineno if frame.f_code.co_filename == self.filename else None
                frame = frame.f_back
            self.found = {"op": func.overloadpacket.__name__.rstrip("_"), "line": line}
        return result


def _trace_nan(request, made, driver, args, kwargs, filename, source) -> dict | None:
    inputs, tracer = copied((args, kwargs)), _NanTracer(filename)
    with _NanTracer(filename):
        torch.zeros(1) * 1                                    # the first use of a dispatch mode loads much of torch
    deadline = time.monotonic() + request.limit
    try:
        with torch.random.fork_rng(devices=[]), _guarded(deadline, io.StringIO()), tracer:
            torch.manual_seed(request.seed)
            driver(made, *inputs[0], **inputs[1])
    except BaseException:
        pass
    if tracer.found and tracer.found["line"]:
        tracer.found["text"] = line_of(source, tracer.found["line"])
    return tracer.found


# --- limits and errors -----------------------------------------------------------------------------------------------

class TimeIsUp(BaseException):
    """Raised in the student's code; not an Exception, so that a broad except does not swallow it."""


@contextlib.contextmanager
def _guarded(deadline: float, printed: io.StringIO):
    """The student's code runs with a time limit and with its output kept aside."""
    with contextlib.redirect_stdout(printed), contextlib.redirect_stderr(printed), time_limit(deadline - time.monotonic()):
        import warnings
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield


@contextlib.contextmanager
def time_limit(seconds: float):
    """Raise TimeIsUp in this thread after so many seconds of Python."""
    seconds = max(seconds, 0.01)
    if threading.current_thread() is threading.main_thread() and hasattr(signal, "setitimer"):
        def ring(signum, frame):
            raise TimeIsUp
        before = signal.signal(signal.SIGALRM, ring)
        signal.setitimer(signal.ITIMER_REAL, seconds, 0.2)       # again and again, for code that catches everything
        try:
            yield
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, before)
        return
    import ctypes                                                # another thread, or no such signal (Windows)
    target, done = ctypes.c_ulong(threading.get_ident()), threading.Event()

    def watch():
        if not done.wait(seconds):
            while not done.is_set():
                ctypes.pythonapi.PyThreadState_SetAsyncExc(target, ctypes.py_object(TimeIsUp))
                done.wait(0.2)
    threading.Thread(target=watch, daemon=True).start()
    try:
        yield
    finally:
        done.set()


def _failure(error: BaseException, filename: str, source: str, limit: float) -> Failure:
    """An exception in words, with the student's own line."""
    line, frame = None, error.__traceback__
    while frame:
        if frame.tb_frame.f_code.co_filename == filename:
            line = frame.tb_lineno
        frame = frame.tb_next
    text = line_of(source, line)
    if isinstance(error, TimeIsUp):
        return Failure("timeout", f"{LATE} {limit:g} seconds", line, text)
    if isinstance(error, NotImplementedError):
        return Failure("unwritten", "still raises NotImplementedError", line, text)
    if isinstance(error, NameError) and not isinstance(error, UnboundLocalError) and getattr(error, "name", None):
        return Failure("undefined", f"`{error.name}` is not defined here", line, text, error.name)
    if isinstance(error, (SystemExit, KeyboardInterrupt, GeneratorExit)):
        return Failure("exception", f"{type(error).__name__}: the code tries to stop the notebook", line, text)
    try:
        message = str(error).strip().splitlines()
    except BaseException:
        message = []
    first = (message[0] if message else "")[:300]
    return Failure("exception", f"{type(error).__name__}: {first}" if first else type(error).__name__, line, text)


def line_of(source: str, line: int | None) -> str:
    lines = source.splitlines()
    return lines[line - 1].strip() if line and 0 < line <= len(lines) else ""


def with_article(noun: str) -> str:
    return f"{'an' if noun[:1].lower() in 'aeiou' else 'a'} {noun}"
