"""Run a student's source text on inputs, in a namespace of exactly the given names.

This half of a check may run in another process: it takes plain data (a `Request`), has neither solutions nor
expected values, and returns plain data (a `Run`)."""

import ast
import dis
import inspect
import io
import linecache
import re
import time
from typing import Any, Callable

import torch

from .first_nan import NanTracer
from .limits import TimeIsUp, guarded
from .namespace import DRIVER, build_namespace, definition_of, driver
from .results import LATE, PRINTED, Failure, Foreign, Outcome, Request, Run, line_of, with_article
from .values import copied, freeze, has_nan, same, storages
from .watch import HIDDEN, THREADS, calls


def run(request: Request, source: str) -> Run:
    """Run the source on every input of the request."""
    if request.language == "cuda":
        from .kernel_runner import run_kernel
        return run_kernel(request, source)
    return run_python(request, source)


def run_python(request: Request, source: str) -> Run:
    cell = _Cell(request, source)
    printed = io.StringIO()
    try:
        made, failure = cell.define(printed)
    except BaseException as error:
        made, failure = None, cell.failure(error)
    said = printed.getvalue()[:PRINTED]
    if failure:
        return Run(failure=failure, printed=said)
    if request.value:
        return Run([Outcome(freeze(made))], printed=said)
    call = driver(request)
    made_run, slow = Run(printed=said), None
    for args, kwargs in request.inputs:
        # one endless loop is enough
        outcome = Outcome(failure=slow) if slow else cell.call(call, made, args, kwargs)
        made_run.outcomes.append(outcome)
        if outcome.failure and outcome.failure.kind == "timeout":
            slow = outcome.failure
    # afterwards: the limit is for the student's code
    for (args, kwargs), outcome in zip(request.inputs, made_run.outcomes):
        if has_nan(outcome.value) and not has_nan((args, kwargs)):
            outcome.nan = cell.first_nan(call, made, args, kwargs)
    return made_run


class _Cell:
    """One student's source while it runs."""

    def __init__(self, request: Request, source: str):
        self.request, self.source = request, source
        self.filename = f"<exercise {request.id}>"
        linecache.cache[self.filename] = (len(source), None, source.splitlines(True), self.filename)
        self.deadline = time.monotonic() + request.limit

    def define(self, printed: io.StringIO) -> tuple[Any, Failure | None]:
        """Execute the source: (what it binds to the exercise's name, None), or (None, why not)."""
        code, failure = _compile(self.source, self.filename)
        if failure:
            return None, failure
        name = self.request.name
        namespace, before, used = self._execute(code, printed)
        if used and not used & {HIDDEN, THREADS}:       # by a test beside the function, perhaps
            alone = compile(definition_of(ast.parse(self.source), name), self.filename, "exec", dont_inherit=True)
            namespace, before, used = self._execute(alone, printed)
        if used:
            return None, _forbidden(sorted(used)[0])
        if name not in namespace or (name in before and namespace[name] is before[name]):
            return None, Failure("not defined", f"the cell does not define `{name}`", name=name)
        made = namespace[name]
        if not self.request.value and (self.request.is_class != inspect.isclass(made) or not callable(made)):
            wanted = "a class" if self.request.is_class else "a function"
            return None, Failure("not defined", f"`{name}` is {with_article(type(made).__name__)}, not "
                                 f"{wanted}", name=name)
        return made, None

    def _execute(self, code, printed: io.StringIO) -> tuple[dict, dict, set[str]]:
        """The names after the code has run, those before, and what it has called that is forbidden."""
        namespace = build_namespace(self.request.given)
        before = dict(namespace)
        with (torch.random.fork_rng(devices=[]), guarded(self.deadline, printed),
              calls(self.request.forbid, self.filename) as used):
            torch.default_generator.manual_seed(self.request.seed)
            exec(code, namespace)
        return namespace, before, used

    def call(self, call: Callable, made: Any, args: tuple, kwargs: dict) -> Outcome:
        """The outcome of one case, on copies of its inputs."""
        names, failure = self._argument_names(made, args, kwargs)
        if failure:
            return Outcome(failure=failure)
        inputs = copied((args, kwargs))
        originals, passed = [*args, *kwargs.values()], [*inputs[0], *inputs[1].values()]
        printed = io.StringIO()
        try:
            with (torch.random.fork_rng(devices=[]), guarded(self.deadline, printed),
                  calls(self.request.forbid, self.filename) as used):
                torch.default_generator.manual_seed(self.request.seed)
                value = call(made, *inputs[0], **inputs[1])
                frozen = Foreign(type(value).__name__) if _is_subclass(value) else freeze(value)
        except BaseException as error:
            return Outcome(failure=self.failure(error), printed=printed.getvalue()[:PRINTED])
        if used:
            return Outcome(failure=_forbidden(sorted(used)[0]), printed=printed.getvalue()[:PRINTED])
        outcome = Outcome(frozen, printed=printed.getvalue()[:PRINTED])
        for name, was, now in zip(names, originals, passed):
            if (str(name) not in self.request.mutates and name not in self.request.mutates
                and not same(was, now)):
                outcome.changed.append(_argument(name))
            if self.request.call is None and storages(value) & storages(now):
                outcome.shares.append(_argument(name))
        return outcome

    def _argument_names(self, made: Any, args: tuple, kwargs: dict) -> tuple[list, Failure | None]:
        """Names of a case's values, by the student's signature where a plain call can be matched with it."""
        names = list(range(len(args))) + list(kwargs)
        if self.request.call is not None or inspect.isclass(made):
            return names, None
        try:
            bound = inspect.signature(made).bind(*args, **kwargs)
        except TypeError as error:
            told = f"`{self.request.name}{inspect.signature(made)}` cannot be called like this: {error}"
            return names, Failure("signature", told)
        except ValueError:
            return names, None
        return list(bound.arguments) if len(bound.arguments) == len(names) else names, None

    def first_nan(self, call: Callable, made: Any, args: tuple, kwargs: dict) -> dict | None:
        """Run a case again to find the operation that made the first NaN."""
        inputs, tracer = copied((args, kwargs)), NanTracer(self.filename)
        try:
            with (torch.random.fork_rng(devices=[]),
                  guarded(time.monotonic() + self.request.limit, io.StringIO()), tracer):
                torch.default_generator.manual_seed(self.request.seed)
                call(made, *inputs[0], **inputs[1])
        except BaseException:
            pass
        if tracer.found and tracer.found["line"]:
            tracer.found["text"] = line_of(self.source, tracer.found["line"])
        return tracer.found

    def failure(self, error: BaseException) -> Failure:
        """An exception in words, with the student's own line."""
        line, frame, last = None, error.__traceback__, None
        while frame:
            last = frame
            if frame.tb_frame.f_code.co_filename == self.filename:
                line = frame.tb_lineno
            frame = frame.tb_next
        text = line_of(self.source, line)
        if isinstance(error, TimeIsUp):
            return Failure("timeout", f"{LATE} {self.request.limit:g} seconds", line, text)
        if isinstance(error, NotImplementedError):
            return Failure("unwritten", "still raises NotImplementedError", line, text)
        if (isinstance(error, NameError) and not isinstance(error, UnboundLocalError)
            and getattr(error, "name", None)):
            return Failure("undefined", f"`{error.name}` is not defined here", line, text, error.name)
        if isinstance(error, (SystemExit, KeyboardInterrupt, GeneratorExit)):
            return Failure("exception", f"{type(error).__name__}: the code tries to stop the notebook", line,
                           text)
        try:
            message = str(error).strip().splitlines()
        except BaseException:
            message = []
        first = (message[0] if message else "")[:300]
        if last and last.tb_frame.f_code.co_filename == DRIVER and type(error) is ValueError:
            if last.tb_frame.f_code.co_code[last.tb_lasti] == dis.opmap["RAISE_VARARGS"]:
                return Failure("refused", first, line, text)      # the check says it, not Python
        return Failure("exception", f"{type(error).__name__}: {first}" if first else type(error).__name__,
                       line, text)


def _compile(source: str, filename: str):
    """(code, None) or (None, Failure)."""
    for number, line in enumerate(source.splitlines(), 1):
        if re.match(r"\s*(%{1,2}[A-Za-z]|![A-Za-z./])", line):
            told = f"`{line.strip()}` is a notebook command, not Python: move it to another cell"
            return None, Failure("command", told, number, line)
    try:
        return compile(ast.parse(source, filename), filename, "exec", dont_inherit=True), None
    except SyntaxError as error:
        return None, Failure("syntax", error.msg or "invalid syntax", error.lineno,
                             (error.text or "").rstrip("\n"))
    except ValueError as error:                       # null bytes, numbers with thousands of digits
        return None, Failure("syntax", str(error))


def _forbidden(name: str) -> Failure:
    if name == THREADS:
        return Failure("forbidden", "The code starts a thread or a process. This exercise is to do without "
                       "some of torch, and what another one calls cannot be seen: stay in one", name=name)
    if name == HIDDEN:
        return Failure("forbidden", "The code switches off what sees its calls, as `torch.compile` does. This "
                       "exercise is to do without some of torch: call the function as it is, and leave "
                       "torch's modes and Python's profiler alone", name=name)
    told = name if name.startswith("indexing") else f"`{name}`"
    return Failure("forbidden", f"The code calls {told}, which may not be used here: the exercise is to do "
                   "without it", name=name)


def _is_subclass(value: Any) -> bool:
    """Whether it is a tensor whose type may answer comparisons as it likes."""
    return isinstance(value, torch.Tensor) and type(value) not in (torch.Tensor, torch.nn.Parameter)


def _argument(name) -> str:
    return f"argument {name + 1}" if isinstance(name, int) else name
