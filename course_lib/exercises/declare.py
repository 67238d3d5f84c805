"""Declaring exercises, and finding the declared ones."""
import ast
import importlib
import importlib.util
import inspect
import re
import sys
import textwrap
import tomllib
from functools import cache
from pathlib import Path
from typing import Any

from .judging.compare import close, number
from .parts import MISSING, Exercise, Misconception
from .running.results import PlainError

CHAPTERS = ["start_here", "attention", "rope", "gqa", "linear_attention", "sparse_attention",
            "flash_attention", "kv_cache", "paged_attention", "w2_attention", "language_model", "field_guide",
            "asynchrony"]
KINDS = ("predict", "write", "repair", "choose")


class NoChapter(PlainError, ValueError):
    """There is no chapter of this name."""


declared: dict[str, Exercise] = {}


def exercise(*, id: str, **told) -> Exercise:
    """Declare an exercise; the package's docstring explains every argument."""
    return register(_exercise(**_said(id) | told), sys._getframe(1).f_globals.get("__name__", ""))


def _exercise(*, id: str, kind: str, card: str, stub: str | None = None, solution: str | None = None,
              name: str | None = None, cases=None, compare=None, call=None, answer: Any = MISSING,
              tolerance: float = 0.0, rtol: float = 0.0, options: dict[str, str] | None = None,
              **rest) -> Exercise:
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
        if kind == "write" and solution and stub is None:
            stub = blank(_whole(solution))
        missing = [n for n, v in (("stub", stub), ("solution", solution), ("cases", cases)) if v is None]
        if missing:
            raise ValueError(f"exercise {id}: a {kind} exercise needs {', '.join(m + '=' for m in missing)}")
        name = name or _defined(stub)
        compare = compare or close()
    if callable(call):
        call = textwrap.dedent(inspect.getsource(call))
    return Exercise(id=id, kind=kind, language="python", name=name, card=_card(card), stub=_whole(stub),
                    solution_text=solution and _whole(solution), cases=cases, compare=compare, call=call,
                    answer=answer, options=options, **rest)


def kernel_exercise(*, id: str, **told) -> Exercise:
    """Declare an exercise whose answer is CUDA C++; the package's docstring explains every argument."""
    return register(_kernel(**_said(id) | told), sys._getframe(1).f_globals.get("__name__", ""))


def _kernel(*, id: str, card: str, stub: str, solution: str, start: str = "", frame: str = "@", compare=None,
            kind: str = "write", limit: float = 20.0, **rest) -> Exercise:
    if kind not in ("write", "repair"):
        raise ValueError(f"exercise {id}: a kernel exercise is 'write' or 'repair', not {kind!r}")
    stub, solution = (_whole(start + frame.replace("@", text)) for text in (stub, solution))
    return Exercise(id=id, kind=kind, language="cuda", card=_card(card), stub=stub, solution_text=solution,
                    compare=compare or close(), limit=limit, **rest)


def _card(text: str) -> str:
    return textwrap.dedent(text).strip()


def _whole(text: str) -> str:
    return textwrap.dedent(text).strip("\n") + "\n"


def register(made: Exercise, module: str) -> Exercise:
    """Keep a declaration that is complete; raise ValueError for one that is not."""
    if not re.fullmatch(r"\d+\.\d+", made.id):
        raise ValueError(f"exercise {made.id!r}: an id is chapter.number, such as 3.2")
    if made.id in declared and declared[made.id].title != made.title:
        raise ValueError(
            f"exercise {made.id} is declared twice: {declared[made.id].title!r} and {made.title!r}")
    if len(made.hints) < 2 or len(made.misconceptions) < 2:
        raise ValueError(f"exercise {made.id}: it needs at least two hints and two misconceptions")
    if not 1 <= made.difficulty <= 5:
        raise ValueError(f"exercise {made.id}: difficulty goes from 1 to 5")
    for m in made.misconceptions:
        if sum((x is not None for x in (m.code, m.body, m.change)), m.value is not MISSING) != 1:
            raise ValueError(
                f"exercise {made.id}, misconception '{m.name}': give one of code=, body=, change=, value=")
        if m.value is MISSING:
            made.wrong_code(m)                                   # raises if the edit no longer applies
    made.module = module
    declared[made.id] = made
    return made


def blank(solution: str) -> str:
    """A solution's function with its signature and docstring alone: what is handed out to be filled in."""
    lines = solution.splitlines(True)
    for node in reversed(ast.parse(solution).body):
        if isinstance(node, ast.FunctionDef):
            kept = node.body[0].end_lineno if ast.get_docstring(node) else node.body[0].lineno - 1
            lines[kept:node.end_lineno] = ["    raise NotImplementedError\n"]
    return "".join(lines)


def _or(options) -> str:
    quoted = [repr(k).replace("'", '"') for k in options]
    return f"{', '.join(quoted[:-1])} or {quoted[-1]}"


def _assigned(text: str) -> str:
    for node in ast.parse(textwrap.dedent(text)).body:
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            return node.targets[0].id
    raise ValueError(f"no assignment in {text!r}")


def _defined(text: str) -> str:
    names = [n.name for n in ast.parse(textwrap.dedent(text)).body
             if isinstance(n, (ast.FunctionDef, ast.ClassDef))]
    if not names:
        raise ValueError(f"no function or class in {text!r}")
    return names[-1]


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
    """Import the chapter's declarations and read its questions, if it has any, and return them in order."""
    name = f"{__package__}.chapters.{word}"
    if importlib.util.find_spec(name) is not None:
        importlib.import_module(name)
    _ask(word, name)
    prefix = f"{CHAPTERS.index(word)}."
    found = [e for e in declared.values() if e.id.startswith(prefix)]
    return sorted(found, key=lambda e: int(e.id.split(".")[1]))


@cache
def words(word: str) -> dict[str, dict[str, Any]]:
    """{id: what chapters/<word>.toml says of it}: all that is not computed. Of a question, that is all."""
    path = Path(__file__).parent / "chapters" / f"{word}.toml"
    return tomllib.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}


def _said(id: str) -> dict[str, Any]:
    """The arguments of a declaration that are data."""
    try:
        said = words(chapter_of(id)).get(id, {}) | {"id": id}
    except KeyError:                                        # no id of this course
        return {"id": id}
    made: dict[str, Any] = {name: tuple(said[name]) for name in ("forbid", "mutates") if name in said}
    if "misconceptions" in said:
        made["misconceptions"] = [Misconception(**one) for one in said["misconceptions"]]
    if "given" in said:
        made["given"] = {name: importlib.import_module(name) for name in said["given"]}
    return said | made


@cache
def _ask(word: str, module: str) -> None:
    """Declare what is data alone, once: a question and its answer. Everything else is declared by now."""
    for id, said in words(word).items():
        if "answer" in said:
            register(_exercise(**_said(id)), module)
        elif id not in declared:
            raise ValueError(f"exercise {id}: {word}.toml describes it, and {word}.py does not declare it")


def load_file(path: Path) -> list[Exercise]:
    """Declarations from a file outside the package: an instructor's own exercises."""
    before = set(declared)
    spec = importlib.util.spec_from_file_location(f"private_exercises_{Path(path).stem}", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return [e for key, e in declared.items() if key not in before]


def find(id: str) -> Exercise:
    """The exercise with this id. Raises KeyError with a sentence."""
    word = chapter_of(id)
    if id not in declared:
        known = [e.id for e in load_chapter(word)]
        if id not in known:
            chapter = CHAPTERS.index(word)
            listed = f"chapter {chapter} has {', '.join(known) if known else 'no exercises yet'}"
            raise KeyError(f"there is no exercise {id}: {listed}")
    return declared[id]


def all_exercises() -> list[Exercise]:
    """Every exercise of the course, in order."""
    return [e for word in CHAPTERS for e in load_chapter(word)]
