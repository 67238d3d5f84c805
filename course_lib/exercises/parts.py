"""The parts of a declaration: cases, misconceptions, arrays and launches of kernels, the exercise."""
import re
import textwrap
from dataclasses import dataclass, field
from typing import Any, Callable, Iterable

import torch

MISSING = object()


class Case:
    """One call: positional arguments, keyword arguments, and a label that a person reads."""

    def __init__(self, *args, label: str = "", **kwargs):
        self.args, self.kwargs, self.label = args, kwargs, label

    def __repr__(self):
        return f"Case({self.label or ', '.join(map(repr, self.args))})"


@dataclass
class Misconception:
    """A usual wrong answer. `name` continues "code that ..."; `ask` is a question that helps."""
    name: str
    ask: str
    code: str | None = None
    body: str | None = None
    change: tuple[str, str] | list[tuple[str, str]] | None = None
    value: Any = MISSING


@dataclass(eq=False)
class Array:
    """An array of a kernel launch. `role` is in, inout, out (compared) or scratch (not compared)."""
    role: str
    shape: tuple[int, ...]
    dtype: torch.dtype
    tensor: torch.Tensor | None = None


def _shape(shape) -> tuple[int, ...]:
    return (shape,) if isinstance(shape, int) else tuple(shape)


def out(shape, dtype=torch.float32) -> Array:
    """An uninitialised array that the kernel fills and the check compares."""
    return Array("out", _shape(shape), dtype)


def scratch(shape, dtype=torch.float32) -> Array:
    """An uninitialised array that is not compared."""
    return Array("scratch", _shape(shape), dtype)


def inout(tensor: torch.Tensor) -> Array:
    """An array that the kernel reads and changes; it is compared."""
    return Array("inout", tuple(tensor.shape), tensor.dtype, tensor)


@dataclass(eq=False)
class TensorMap:
    """An argument of a launch: `cuda.tensor_map(array, box, swizzle=swizzle)`."""
    array: Any                   # a tensor, or an `out`, `scratch` or `inout` array
    box: tuple[int, ...]
    swizzle: int | None = None


@dataclass
class Launch:
    """`kernel[grid, block, shared](*args)`; args: tensors, numbers, `out` and other arrays, maps of these."""
    grid: int | tuple[int, ...]
    block: int | tuple[int, ...]
    args: list
    shared: int = 0
    kernel: str | None = None


@dataclass(eq=False)
class Exercise:
    id: str
    title: str
    kind: str
    language: str                                  # "python" or "cuda"
    name: str                                      # what the student's cell defines
    points: float
    minutes: float
    difficulty: int
    card: str
    stub: str
    solution_text: str | None                      # None: an answer that a function computes
    hints: list[str]
    misconceptions: list[Misconception]
    given: dict[str, Any] = field(default_factory=dict)
    cases: Callable[[torch.Generator], Iterable[Case]] | None = None
    compare: Callable[[Any, Any, Case], str | None] | None = None
    # of a result, before it is compared: here, not where it ran
    measure: Callable[[Any, Case], Any] | None = None
    properties: list[tuple[str, Callable]] = field(default_factory=list)
    call: str | None = None
    forbid: tuple[str, ...] = ()
    mutates: tuple[str, ...] = ()
    limit: float = 5.0
    answer: Any = MISSING
    options: dict[str, str] | None = None
    launch: Callable | None = None
    expect: Callable | None = None
    traffic: Callable | None = None
    wavefronts: float | None = None                # per request of shared memory; only with traffic
    stored: Callable | None = None                 # bytes that lanes may ask to write; only with traffic
    # what a kernel may use on a case, such as {"sectors": 400, "shared_bytes": 4224}, and on which machine
    budget: Callable[[Case], dict[str, int]] | None = None
    least: Callable[[Case], int] | None = None     # bytes of shared memory that what is asked for takes
    machine: dict[str, int] | None = None
    every: dict | None = None                      # sizes, grid and arrays for `laptop_cuda.prove`
    orders: tuple[str, ...] = ("forward",)         # in which a kernel is sanitized; see cuda.sanitize
    module: str = ""
    oracle: Any = None                             # in a handout: what is expected, stored; see sealed.py

    @property
    def solution(self) -> str:
        """The reference as source text."""
        return self.solution_text if self.solution_text is not None else f"{self.name} = {self.answer()!r}\n"

    @property
    def marker(self) -> str:
        """The first line of the exercise's cell (the second one, under %%cuda)."""
        return f"{'//' if self.language == 'cuda' else '#'} EXERCISE {self.id}"

    @property
    def on_trust(self) -> bool:
        """Whether the mark rests on how Python code gets its result, which its own process looks at."""
        return self.language == "python" and bool(self.forbid or "__torch_" in (self.call or ""))

    def cell(self, body: str) -> str:
        """The text of the exercise's cell with this body."""
        head = "%%cuda\n" if self.language == "cuda" else ""
        return f"{head}{self.marker}\n{body.strip(chr(10))}"

    def measured(self, value: Any, case: Case) -> Any:
        """What is compared and shown of a result."""
        if self.measure is None:
            return value
        try:
            return self.measure(value, case)
        except Exception:       # a value of another form than expected: the comparison says how it differs
            return value

    def differs(self, got: Any, want: Any, case: Case) -> str | None:
        """A sentence about how a result differs from the expected one; None if it does not."""
        return self.compare(self.measured(got, case), self.measured(want, case), case)

    def wrong_code(self, misconception: Misconception) -> str:
        """The source text of a misconception."""
        if misconception.value is not MISSING:
            value = misconception.value() if callable(misconception.value) else misconception.value
            return f"{self.name} = {value!r}\n"
        if misconception.code is not None:
            return textwrap.dedent(misconception.code).strip("\n") + "\n"
        if misconception.body is not None:
            head = re.search(rf"^def {self.name}\(.*?\):$", self.solution, re.M | re.S)[0]
            return f"{head}\n{textwrap.indent(textwrap.dedent(misconception.body).strip(chr(10)), '    ')}\n"
        return _changed(self.solution, misconception.change,
                        f"{self.id}, misconception '{misconception.name}'")

    def __repr__(self):
        return f"<exercise {self.id} {self.title!r}>"


def _changed(text: str, change, where: str) -> str:
    pairs = [change] if isinstance(change[0], str) else change
    for old, new in pairs:
        if old not in text:
            raise ValueError(f"exercise {where}: the solution does not contain {old!r}")
        text = text.replace(old, new)
    return text
