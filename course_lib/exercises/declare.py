"""What an exercise is, and where the declared ones are kept."""
from __future__ import annotations

import ast
import importlib
import importlib.util
import inspect
import re
import textwrap
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any, Callable, Iterable

import torch

CHAPTERS = ["start_here", "attention", "rope", "gqa", "linear_attention", "sparse_attention", "flash_attention",
            "kv_cache", "paged_attention", "w2_attention", "language_model"]
KINDS = ("predict", "write", "repair", "choose")
MISSING = object()


class NoChapter(ValueError):
    """There is no chapter of this name. A notebook shows the sentence alone."""

    def _render_traceback_(self) -> list[str]:
        return [str(self)]


class Case:
    """One call: positional arguments, keyword arguments, and a label that a person reads."""

    def __init__(self, *args, label: str = "", **kwargs):
        self.args, self.kwargs, self.label = args, kwargs, label

    def __repr__(self):
        return f"Case({self.label or ', '.join(map(repr, self.args))})"


@dataclass
class Misconception:
    """A usual wrong answer. `name` follows "what you get if it ..."; `ask` is the question that leads on."""
    name: str
    ask: str
    code: str | None = None
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
    """An uninitialised array that nobody looks at afterwards."""
    return Array("scratch", _shape(shape), dtype)


def inout(tensor: torch.Tensor) -> Array:
    """An array that the kernel reads and changes; it is compared."""
    return Array("inout", tuple(tensor.shape), tensor.dtype, tensor)


@dataclass
class Launch:
    """`kernel[grid, block, shared](*args)`; args are tensors, numbers, and `out`, `scratch` or `inout` arrays."""
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

    def cell(self, body: str) -> str:
        """The text of the exercise's cell with this body."""
        head = "%%cuda\n" if self.language == "cuda" else ""
        return f"{head}{self.marker}\n{body.strip(chr(10))}"

    def wrong_code(self, misconception: Misconception) -> str:
        """The source text of a misconception."""
        if misconception.value is not MISSING:
            value = misconception.value() if callable(misconception.value) else misconception.value
            return f"{self.name} = {value!r}\n"
        if misconception.code is not None:
            return textwrap.dedent(misconception.code).strip("\n") + "\n"
        return _changed(self.solution, misconception.change, f"{self.id}, misconception '{misconception.name}'")

    def __repr__(self):
        return f"<exercise {self.id} {self.title!r}>"


def _changed(text: str, change, where: str) -> str:
    pairs = [change] if isinstance(change[0], str) else change
    for old, new in pairs:
        if old not in text:
            raise ValueError(f"exercise {where}: the solution does not contain {old!r}")
        text = text.replace(old, new)
    return text


_registry: dict[str, Exercise] = {}


def exercise(*, id: str, title: str, kind: str, points: float, minutes: float, difficulty: int, card: str, hints: list[str],
             misconceptions: list[Misconception], stub: str | None = None, solution: str | None = None,
             name: str | None = None, given: dict[str, Any] | None = None, cases=None, compare=None, properties=(), call=None,
             forbid: tuple[str, ...] = (), mutates: tuple[str, ...] = (), limit: float = 5.0, answer: Any = MISSING,
             tolerance: float = 0.0, rtol: float = 0.0, options: dict[str, str] | None = None) -> Exercise:
    """Declare an exercise; the package's docstring explains every argument."""
    from .compare import close, number
    if kind not in KINDS:
        raise ValueError(f"exercise {id}: kind is {kind!r}; choose from {', '.join(KINDS)}")
    if kind in ("predict", "choose"):
        if answer is MISSING or not (name or stub):
            raise ValueError(f"exercise {id}: a {kind} exercise needs name= and answer=")
        if kind == "choose" and (not options or answer not in options):
            raise ValueError(f"exercise {id}: options= must be a dict that contains the answer {answer!r}")
        name = name or _assigned(stub)
        stub = stub or f"{name} = None" + (f"    # {_or(options)}" if options else "")
        solution = solution or (None if callable(answer) else f"{name} = {answer!r}\n")
        compare = compare or number(tolerance, rtol)
    else:
        missing = [n for n, v in (("stub", stub), ("solution", solution), ("cases", cases)) if v is None]
        if missing:
            raise ValueError(f"exercise {id}: a {kind} exercise needs {', '.join(m + '=' for m in missing)}")
        name = name or _defined(stub)
        compare = compare or close()
    if callable(call):
        call = textwrap.dedent(inspect.getsource(call))
    made = Exercise(id=id, title=title, kind=kind, language="python", name=name, points=points, minutes=minutes,
                    difficulty=difficulty, card=textwrap.dedent(card).strip(), stub=textwrap.dedent(stub).strip("\n") + "\n",
                    solution_text=solution and textwrap.dedent(solution).strip("\n") + "\n",
                    hints=list(hints), misconceptions=list(misconceptions), given=dict(given or {}), cases=cases,
                    compare=compare, properties=list(properties), call=call, forbid=tuple(forbid), mutates=tuple(mutates),
                    limit=limit, answer=answer, options=options)
    return _register(made)


def kernel_exercise(*, id: str, title: str, points: float, minutes: float, difficulty: int, card: str, name: str, stub: str,
                    solution: str, hints: list[str], misconceptions: list[Misconception], cases, launch, expect,
                    compare=None, properties=(), traffic=None, kind: str = "write", limit: float = 20.0,
                    forbid: tuple[str, ...] = ()) -> Exercise:
    """Declare an exercise whose answer is CUDA C++; the package's docstring explains every argument."""
    from .compare import close
    if kind not in ("write", "repair"):
        raise ValueError(f"exercise {id}: a kernel exercise is 'write' or 'repair', not {kind!r}")
    made = Exercise(id=id, title=title, kind=kind, language="cuda", name=name, points=points, minutes=minutes,
                    difficulty=difficulty, card=textwrap.dedent(card).strip(), stub=textwrap.dedent(stub).strip("\n") + "\n",
                    solution_text=textwrap.dedent(solution).strip("\n") + "\n", hints=list(hints),
                    misconceptions=list(misconceptions), cases=cases, compare=compare or close(),
                    properties=list(properties), limit=limit, launch=launch, expect=expect, traffic=traffic, forbid=tuple(forbid))
    return _register(made)


def _register(made: Exercise) -> Exercise:
    if not re.fullmatch(r"\d+\.\d+", made.id):
        raise ValueError(f"exercise {made.id!r}: an id is chapter.number, such as 3.2")
    if made.id in _registry and _registry[made.id].title != made.title:
        raise ValueError(f"exercise {made.id} is declared twice: {_registry[made.id].title!r} and {made.title!r}")
    if len(made.hints) < 2 or len(made.misconceptions) < 2:
        raise ValueError(f"exercise {made.id}: at least two hints and two misconceptions, please")
    if not 1 <= made.difficulty <= 5:
        raise ValueError(f"exercise {made.id}: difficulty goes from 1 to 5")
    for m in made.misconceptions:
        if sum((m.code is not None, m.change is not None, m.value is not MISSING)) != 1:
            raise ValueError(f"exercise {made.id}, misconception '{m.name}': give one of code=, change=, value=")
        if m.change is not None:
            made.wrong_code(m)                                   # an edit that no longer applies is found at once
    made.module = inspect.stack()[2].frame.f_globals.get("__name__", "")
    _registry[made.id] = made
    return made


def _or(options) -> str:
    quoted = [repr(k).replace("'", '"') for k in options]
    return f"{', '.join(quoted[:-1])} or {quoted[-1]}"


def _assigned(text: str) -> str:
    for node in ast.parse(textwrap.dedent(text)).body:
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            return node.targets[0].id
    raise ValueError(f"no assignment in {text!r}")


def _defined(text: str) -> str:
    names = [n.name for n in ast.parse(textwrap.dedent(text)).body if isinstance(n, (ast.FunctionDef, ast.ClassDef))]
    if not names:
        raise ValueError(f"no function or class in {text!r}")
    return names[-1]


# --- finding -----------------------------------------------------------------------------------------------------

def chapter_of(id: str) -> str:
    """'3.2' -> 'gqa'. Raises KeyError with a sentence for anything else."""
    match = re.fullmatch(r"(\d+)\.\d+", id) if isinstance(id, str) else None
    if not match or int(match[1]) >= len(CHAPTERS):
        raise KeyError(f"{id!r} is not an exercise: an id is chapter.number in quotes, such as \"1.2\"")
    return CHAPTERS[int(match[1])]


def chapter_word(name: str) -> str:
    """'3', 'gqa', '03_gqa' or '03_gqa.ipynb' -> 'gqa'. Raises NoChapter for anything else."""
    word = re.sub(r"^\d+_|\.ipynb$", "", Path(name).name)
    if word.isdigit() and int(word) < len(CHAPTERS):
        word = CHAPTERS[int(word)]
    if word not in CHAPTERS:
        raise NoChapter(f"no chapter {name!r}; there are {', '.join(CHAPTERS)}")
    return word


def load_chapter(word: str) -> list[Exercise]:
    """Import the chapter's declarations, if it has any, and return them in order."""
    name = f"{__package__}.chapters.{word}"
    if importlib.util.find_spec(name) is not None:
        importlib.import_module(name)
    prefix = f"{CHAPTERS.index(word)}."
    found = [e for e in _registry.values() if e.id.startswith(prefix)]
    return sorted(found, key=lambda e: int(e.id.split(".")[1]))


def load_file(path: Path) -> list[Exercise]:
    """Declarations from a file outside the package: an instructor's own exercises."""
    before = set(_registry)
    spec = importlib.util.spec_from_file_location(f"private_exercises_{Path(path).stem}", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return [e for key, e in _registry.items() if key not in before]


def find(id: str) -> Exercise:
    """The exercise with this id. Raises KeyError with a sentence."""
    word = chapter_of(id)
    if id not in _registry:
        known = [e.id for e in load_chapter(word)]
        if id not in known:
            chapter = CHAPTERS.index(word)
            listed = f"chapter {chapter} has {', '.join(known)}" if known else f"chapter {chapter} has no exercises yet"
            raise KeyError(f"there is no exercise {id}: {listed}")
    return _registry[id]


def all_exercises() -> list[Exercise]:
    """Every exercise of the course, in order."""
    return [e for word in CHAPTERS for e in load_chapter(word)]


# --- what the student's code may use, as plain data -------------------------------------------------------------------

def given_spec(given: dict[str, Any]) -> dict[str, tuple[str, ...]]:
    """name -> ("module", m) | ("attribute", m, a) | ("value", literal) | ("source", text): enough to rebuild it elsewhere."""
    return {name: _describe(name, value) for name, value in given.items()}


def _describe(name: str, value: Any) -> tuple[str, ...]:
    if hasattr(value, "given_spec"):                  # in a handout: described already
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
        raise ValueError(f"given name {name!r}: cannot tell which module it comes from; give the module instead")
    text = repr(value)
    try:
        ast.literal_eval(text)
    except (ValueError, SyntaxError):
        raise ValueError(f"given name {name!r}: {type(value).__name__} is not a module, a function, a dtype "
                         "or a constant") from None
    return ("value", text)
