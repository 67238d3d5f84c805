"""`python -m course_lib handout CHAPTER... --out DIR`: what a class gets.

The rule: in the handed-out chapters nothing that solves an exercise is in DIR.
- Exercises: cards, stubs, hints and the stored results of the cases; no solution, no misconception's code, no `reveal`.
- Notebooks: as shipped, without outputs; a cell that shows a solution gives way to a note.
- The package: what the notebooks import, and no more. A function or class that is an exercise hands its call on to the
  student's own, once that has passed; a kernel that is an exercise is cut out of its file.
- At the end every file is searched for the text of every solution. If one is found, there is no handout.
- A function that gives the right answers under another name is part of what the chapter teaches, so it stays; the command
  lists them, and `--cut NAME` hands such a function's calls on to the student's own too.
Chapters that are not named come as they are: their solutions have been handed in before.
"""
from __future__ import annotations

import argparse
import ast
import importlib
import inspect
import re
import shutil
import sys
import tempfile
import textwrap
import warnings
from pathlib import Path

from course_lib.exercises.judge import draw, expected
from course_lib.exercises.declare import CHAPTERS, NoChapter, chapter_of, chapter_word, load_chapter
from course_lib.exercises.parts import Exercise
from course_lib.exercises.values import copied
from .reach import COURSE, PACKAGE
from course_lib.exercises.sealed import write_sealed
from .pieces import HandoutError, Pieces
from .similarity import holds, lines_of, solves

# What every handout has besides what its notebooks import.
ROOTS = ["course_lib", "course_lib.__main__", "course_lib.tools.install", "course_lib.tools.lab", "course_lib.tools.notebooks",
         "course_lib.tools.doctor", "course_lib.tools.nbval_plugin",
         "course_lib.figures", "course_lib.exercises", "course_lib.exercises.kernel_runner", "course_lib.exercises.sealed",
         "course_lib.exercises.chapters", "course_lib.cuda"]
FILES = ["pyproject.toml", "requirements.txt", "environment.yml", "LICENSE", "Makefile", ".gitignore", "NOTATION.md"]
README = """# Attention, from the math to the metal: {titles}

`make lab` sets everything up and opens JupyterLab on your own copies of the notebooks, in `work/`. Work from top to bottom: an
exercise is a card, a cell to fill in, and a check that says what is wrong with an answer. Hand in the copy: only its exercise
cells are marked.

This edition holds no solutions. Where the course's own code needs what you are asked to write, it uses yours, once it
has passed its check.
"""


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m course_lib handout", description="What a class gets: notebooks and the "
                                     "package without solutions, with checks that work.")
    parser.add_argument("chapters", nargs="+", metavar="CHAPTER", help="words or numbers: gqa, 3")
    parser.add_argument("--out", required=True, metavar="DIR")
    parser.add_argument("--cut", action="append", default=[], metavar="NAME", help="a function of the package, as in the "
                        "list that this command prints, that is to call the student's own, such as "
                        "attention.scaled_dot_product_attention")
    args = parser.parse_args(argv)
    try:
        words = [chapter_word(name) for name in args.chapters]
        made, others = handout(words, Path(args.out), args.cut)
    except (HandoutError, NoChapter) as error:
        print(f"handout: {error}", file=sys.stderr)
        return 2
    print(f"{args.out}: {', '.join(words)}; {made} files, the text of no solution in any of them")
    for name, id in others:
        print(f"  {name} stays, and gives the right answers of exercise {id}; --cut {name} takes it out")
    return 0


def handout(words: list[str], out: Path, cut: list[str] = ()) -> tuple[int, list[tuple[str, str]]]:
    """Build it beside `out`, search it, then copy it there.

    Returns the number of files, and (function, exercise id) for what stays and solves an exercise under another name.
    """
    exercises = [e for word in words for e in load_chapter(word)]
    if out.resolve() == COURSE:
        raise HandoutError(f"{out} is the course itself: choose another --out")
    if out.is_dir() and any(out.iterdir()) and not (out / PACKAGE.name).is_dir():
        raise HandoutError(f"{out} holds other files: choose a folder that is empty, or that an earlier handout made")
    out.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=out.parent, prefix=".handout-") as building:
        folder = Path(building)
        notebooks = [_notebook(word, folder, exercises) for word in words]
        modules = closure(ROOTS + [m for path in notebooks for m in imports_of_notebook(path)], words)
        others = same_answers(modules, exercises)
        wanted = {name: id for name, id in others if name in cut}
        if set(cut) - set(wanted):
            raise HandoutError(f"--cut {', '.join(set(cut) - set(wanted))}: no such function; there are "
                               f"{', '.join(name for name, _ in others) or 'none'}")
        for name in modules:
            _module(name, folder, words, exercises, wanted)
        for word, notebook in zip(words, notebooks):
            _declarations(word, folder, notebook)
        _rest(folder, words, modules, exercises)
        _search(folder, exercises)
        count = sum(path.is_file() for path in folder.rglob("*"))
        shutil.copytree(folder, out, dirs_exist_ok=True)
    return count, [(name, id) for name, id in others if name not in cut]


# --- which modules -----------------------------------------------------------------------------------------------

def _file_of(module: str) -> Path | None:
    path = COURSE.joinpath(*module.split("."))
    return next((p for p in (path.with_suffix(".py"), path / "__init__.py") if p.is_file()), None)


def closure(roots: list[str], words: list[str]) -> list[str]:
    """The roots and all of the course that they import, without the instructor's side and chapters' exercises."""
    declared = {f"course_lib.exercises.chapters.{word}" for word in CHAPTERS}
    found, waiting = [], list(dict.fromkeys(roots))
    while waiting:
        name = waiting.pop()
        path = _file_of(name)
        if name in found or name.startswith("course_lib.teaching") or name in declared or path is None:
            continue
        found.append(name)
        package = name if path.name == "__init__.py" else name.rpartition(".")[0]
        waiting += imports_of(ast.parse(path.read_text(encoding="utf-8")), package)
    return sorted(found)


def imports_of(tree: ast.AST, package: str = "") -> list[str]:
    """Modules of the course that a piece of code may import, wherever in it; and the packages above them."""
    names = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                above = package.split(".")
                base = ".".join([*above[:len(above) - node.level + 1], *filter(None, [base])])
            names += [base, *(f"{base}.{alias.name}" for alias in node.names)]
        elif isinstance(node, ast.Constant) and re.fullmatch(r"course_lib(\.\w+)+", str(node.value)):
            names.append(node.value)
    ours = [name for name in names if name.split(".")[0] == "course_lib"]
    return [".".join(name.split(".")[:n]) for name in ours for n in range(1, name.count(".") + 2)]


def imports_of_notebook(path: Path) -> list[str]:
    return [name for tree in trees_of_notebook(path) for name in imports_of(tree)]


def trees_of_notebook(path: Path) -> list[ast.AST]:
    """The syntax trees of a notebook's Python cells."""
    import nbformat
    trees = []
    for cell in nbformat.read(path, as_version=4).cells:
        if cell.cell_type == "code" and not cell.source.startswith("%%"):
            kept = [line for line in cell.source.splitlines() if not line.lstrip().startswith(("%", "!"))]
            try:
                trees.append(ast.parse("\n".join(kept)))
            except SyntaxError:
                continue
    return trees


# --- notebooks -------------------------------------------------------------------------------------------------------

def notebook_of(word: str) -> Path:
    return COURSE / "notebooks" / f"{CHAPTERS.index(word):02d}_{word}.ipynb"


def _notebook(word: str, folder: Path, exercises: list[Exercise]) -> Path:
    """The chapter's notebook without outputs, and without cells that show a solution."""
    import nbformat
    source = notebook_of(word)
    notebook = nbformat.read(source, as_version=4)
    for cell in notebook.cells:
        shown = next((e for e in exercises if holds(cell.source, e)), None)
        if shown and "exercise-card" not in cell.metadata.get("tags", []):
            cell.cell_type = "markdown"
            cell.source = f"*A cell stood here that shows the solution of exercise {shown.id}.*"
            for key in ("outputs", "execution_count"):
                cell.pop(key, None)
        if cell.cell_type == "code":
            cell.outputs, cell.execution_count = [], None
    path = folder / "notebooks" / source.name
    path.parent.mkdir(exist_ok=True)
    nbformat.write(notebook, path)
    return path


# --- the package -----------------------------------------------------------------------------------------------------

def _module(name: str, folder: Path, words: list[str], exercises: list[Exercise], wanted: dict[str, str]) -> None:
    source = _file_of(name)
    target = folder / source.relative_to(COURSE)
    target.parent.mkdir(parents=True, exist_ok=True)
    text = source.read_text(encoding="utf-8")
    if name == "course_lib.__main__":
        kept = closure(ROOTS, words)
        text = "".join(line for line in text.splitlines(True)
                       if not (found := re.search(r'\("(course_lib[\w.]*):', line)) or found[1] in kept)
    elif not name.startswith("course_lib.exercises"):
        text = cut_python(text, name.split(".")[1], exercises, wanted)
    target.write_text(text, encoding="utf-8")


def same_answers(modules: list[str], exercises: list[Exercise]) -> list[tuple[str, str]]:
    """(function, exercise id) for the package's functions that pass an exercise's check and are not cut anyway."""
    found = []
    asked = [e for e in exercises if e.language == "python" and e.kind in ("write", "repair") and e.call is None]
    oracles = {e.id: (draw(e), expected(e, draw(e))) for e in asked}
    for name in modules:
        short = name.split(".")[1] if name.count(".") else ""
        if short not in CHAPTERS:
            continue
        module = importlib.import_module(name)
        for function in [f for f in vars(module).values() if inspect.isfunction(f) and f.__module__ == name]:
            found += [(f"{short}.{function.__name__}", e.id) for e in asked if function.__name__ != e.name
                      and _agrees(function, e, *oracles[e.id])]
    return found


def _agrees(function, exercise: Exercise, cases, wanted) -> bool:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")          # functions are tried on what they are not made for
            return all(exercise.compare(function(*copied(c.args), **copied(c.kwargs)), want, c) is None
                       for c, want in zip(cases, wanted))
    except Exception:
        return False


def cut_python(text: str, module: str, exercises: list[Exercise], wanted: dict[str, str] | None = None) -> str:
    """Functions and classes at the top of a module that are exercises hand their calls on to the student's own."""
    wanted = wanted or {}
    lines = text.splitlines(True)
    for node in reversed(ast.parse(text).body):
        if not isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            continue
        own = "".join(lines[node.lineno - 1:node.end_lineno])
        exercise = next((e for e in exercises if e.language == "python" and e.kind in ("write", "repair") and
                         (e.name == node.name and chapter_of(e.id) == module or solves(own, e)
                          or wanted.get(f"{module}.{node.name}") == e.id)), None)
        if exercise:
            lines[node.lineno - 1:node.end_lineno] = [_hands_on(node, lines, exercise)]
    return "".join(lines)


def _hands_on(node: ast.FunctionDef | ast.ClassDef, lines: list[str], exercise: Exercise) -> str:
    doc = ast.get_docstring(node, clean=True)
    quoted = textwrap.indent(f'"""{doc}"""', "    ") + "\n" if doc and '"""' not in doc and "\\" not in doc else ""
    if isinstance(node, ast.ClassDef):
        return (f"class {node.name}:\n{quoted}    def __new__(cls, *args, **kwargs):\n"
                "        from course_lib.exercises.sealed import yours\n"
                f"        return yours({exercise.id!r}, {node.name!r})(*args, **kwargs)\n")
    head = "".join(lines[node.lineno - 1:node.body[0].lineno - 1]) or f"def {node.name}({ast.unparse(node.args)}):\n"
    return (f"{head}{quoted}    arguments = dict(locals())\n    from course_lib.exercises.sealed import yours\n"
            f"    return yours({exercise.id!r}, {exercise.name!r}, arguments)\n")


KERNEL = re.compile(r"^(?:template\s*<[^>]*>\s*)?__global__\b[^;{]*?\b(\w+)\s*\([^;{]*\)\s*\{", re.M)


def cut_cuda(text: str, word: str, exercises: list[Exercise]) -> str:
    """Kernels that are exercises are cut out of a file."""
    for match in reversed(list(KERNEL.finditer(text))):
        end = _closing(text, match.end() - 1)
        exercise = next((e for e in exercises if e.language == "cuda" and
                         (e.name == match[1] and chapter_of(e.id) == word or solves(text[match.start():end], e))), None)
        if exercise:
            text = f"{text[:match.start()]}// `{match[1]}` stood here: it is exercise {exercise.id}.{text[end:]}"
    return text


def _closing(text: str, start: int) -> int:
    """Just past the brace that closes the one at `start`; comments and strings are skipped."""
    depth = 0
    for match in re.finditer(r'//[^\n]*|/\*.*?\*/|"(?:\\.|[^"\\])*"|[{}]', text[start:], re.S):
        depth += {"{": 1, "}": -1}.get(match[0], 0)
        if depth == 0:
            return start + match.end()
    return len(text)


def _rest(folder: Path, words: list[str], modules: list[str], exercises: list[Exercise]) -> None:
    """The engine, kernels, data and the files around them."""
    copied = shutil.ignore_patterns("__pycache__", "*.pyc", ".*")
    shutil.copytree(COURSE / "laptop_cuda", folder / "laptop_cuda", ignore=copied)
    shutil.copytree(PACKAGE / "tools" / "labextensions", folder / "course_lib" / "tools" / "labextensions", ignore=copied)
    chapters = {word for word in CHAPTERS if f"course_lib.{word}" in modules} | set(words)
    for path in sorted((COURSE / "kernels").rglob("*.cu*")):
        place = path.relative_to(COURSE / "kernels")
        word = place.parts[0].removesuffix(".cu")
        if word in chapters or word == "common":
            target = folder / "kernels" / place
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text(cut_cuda(path.read_text(encoding="utf-8"), word, exercises), encoding="utf-8")
    shutil.copytree(COURSE / "data", folder / "data", ignore=copied)
    for name in FILES:
        shutil.copy(COURSE / name, folder / name)
    (folder / "README.md").write_text(README.format(titles=", ".join(w.replace("_", " ") for w in words)))


# --- declarations ----------------------------------------------------------------------------------------------------

def _declarations(word: str, folder: Path, notebook: Path) -> None:
    """exercises/chapters/<word>.py: comparisons and properties as code, everything else as stored data."""
    exercises = load_chapter(word)
    pieces, entries, tables = Pieces(), [], {}
    for exercise in exercises:
        where = f"exercise {exercise.id}"
        properties = ", ".join(f"({name!r}, {pieces.expression(fn, where)})" for name, fn in exercise.properties)
        entries.append(f"    {exercise.id!r}: dict(compare={pieces.expression(exercise.compare, where)},\n"
                       f"                properties=[{properties}]),\n")
    module = importlib.import_module(f"course_lib.exercises.chapters.{word}")
    for name in names_imported(notebook, module.__name__):
        value = getattr(module, name)
        if inspect.isfunction(value) and list(inspect.get_annotations(value).values())[:1] == [int]:
            tables[name] = tabulated(value, exercises)
        else:
            pieces.refer(ast.parse(name), vars(module), f"the notebook of {word}")
    text = (f'"""The exercises of chapter {CHAPTERS.index(word)}, without solutions: see sealed.py."""\n'
            "from pathlib import Path\n\n"
            + "".join(f"{line}\n" for line in sorted(pieces.imports))
            + "from course_lib.exercises.compare import close, number\n"
            + "from course_lib.exercises.sealed import open_sealed, table\n\n"
            + 'STORED = Path(__file__).with_suffix(".sealed")\n'
            + "".join(f"{name} = table(STORED, {name!r})\n" for name in tables)
            + "".join(f"\n{definition}\n" for definition in pieces.definitions.values())
            + "\nopen_sealed(STORED, {\n" + "".join(entries) + "})\n")
    target = folder / "course_lib" / "exercises" / "chapters" / f"{word}.py"
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text(text, encoding="utf-8")
    write_sealed(target.with_suffix(".sealed"), exercises, tables)


def names_imported(notebook: Path, module: str) -> list[str]:
    """What the notebook's cells import from a module."""
    return sorted({alias.name for tree in trees_of_notebook(notebook) for node in ast.walk(tree)
                   if isinstance(node, ast.ImportFrom) and node.module == module for alias in node.names})


def tabulated(function, exercises: list[Exercise]) -> list:
    """What a function of a number gives for 0, 1, 2, ..., as far as it goes; where that is a solution, which exercises ask
    for a thing of that name."""
    answers = []
    try:
        for number in range(100):
            answer = function(number)
            solved = [e for e in exercises if isinstance(answer, str) and lines_of(answer) == lines_of(e.solution)]
            same = [e.id for e in exercises if solved and (e.name, e.language) == (solved[0].name, solved[0].language)]
            answers.append({"exercises": same} if solved else answer)
    except (IndexError, KeyError, ValueError):
        pass
    return answers


# --- the search ------------------------------------------------------------------------------------------------------

def _search(folder: Path, exercises: list[Exercise]) -> None:
    """Raise HandoutError if a solution is anywhere in the folder."""
    import nbformat
    found = []
    for path in sorted(p for p in folder.rglob("*") if p.is_file()):
        if path.suffix == ".ipynb":
            texts = [c.source for c in nbformat.read(path, as_version=4).cells
                     if "exercise-card" not in c.metadata.get("tags", [])]
        elif path.suffix in (".py", ".cu", ".cuh", ".h", ".cpp", ".md", ".toml", ".txt", ".yml", ".json", ".csv"):
            texts = [path.read_text(encoding="utf-8", errors="replace")]
        else:
            texts = []
        found += [f"{path.relative_to(folder)}: exercise {e.id}" for e in exercises if any(holds(t, e) for t in texts)]
    if found:
        raise HandoutError("a solution would be handed out:\n  " + "\n  ".join(found))
