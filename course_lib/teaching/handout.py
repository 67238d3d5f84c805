"""`python -m course_lib handout CHAPTER... --out DIR`: what a class gets.

The rule: in the handed-out chapters nothing that solves an exercise is in DIR.
- Exercises: cards, stubs, hints and the stored results of the cases; no solution, no misconception's code, no
  `reveal`.
- Notebooks: as shipped, without outputs; a cell that shows a solution gives way to a note. So does an
  exercise, or a cell, that shows another exercise's solution all but a token or two, until that one is named
  with `--after`.
- The package: what the notebooks import, and no more. A function that gives the right answers of an exercise is
  declared in `cutting.py`, and hands its call on to the student's own, once that has passed.
- Before anything is written to DIR, the made folder is searched: every file for the text of every solution,
  then every function, class and kernel for one that passes an exercise's check. If one is found, there is no
  handout.
- A function that gives the right answers and takes more arguments is part of what the chapter teaches, and so
  is a kernel that the notebook uses. They stay; the command lists them, and `--cut NAME` takes one out.
Chapters before the first that is named come as they are: their solutions have been handed in. Of later ones that
are not named, what `cutting.py` declares is cut too; between two that are named it stays where these call it.
"""
# over the guide: one handout from the first file to the last search

import argparse
import json
import re
import shutil
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from course_lib.exercises.declare import CHAPTERS, NoChapter, chapter_word, load_chapter
from course_lib.exercises.parts import Exercise
from course_lib.files import umask, write_whole
from .confined.reach import COURSE, PACKAGE
from .copies.similarity import holds
from .handouts.cutting import CALLED_BEFORE, CUT, SHOWN, Leak, cut_cuda, cut_python
from .handouts.declarations import write_declarations
from .handouts.leaks import remaining
from .handouts.modules import closure, file_of, imports_of_notebook, notebook_of
from .handouts.pieces import HandoutError
from .handouts.shown import hand_out_notebook, in_words, withheld

# What every handout has besides what its notebooks import.
ROOTS = ["course_lib", "course_lib.__main__", "course_lib.cuda", "course_lib.figures", "course_lib.exercises",
         *(f"course_lib.exercises.{name}" for name in ("running.kernel_runner", "sealed", "chapters")),
         *(f"course_lib.tools.{name}"
           for name in ("install", "lab", "notebooks", "fresh", "clean", "doctor", "nbval_plugin"))]
FILES = ["pyproject.toml", "requirements.txt", "environment.yml", "LICENSE", ".gitignore", "NOTATION.md"]
TEXTS = {".py", ".cu", ".cuh", ".h", ".cpp", ".md", ".toml", ".txt", ".yml", ".json", ".csv"}
NOT_IN_MAKEFILE = re.compile(r"(?:slow|test-all|book|book-ready|gpu-\w+)\b")      # what they run is not handed out
README = """# Attention, from the math to the metal: {titles}

`make lab` sets everything up and opens JupyterLab on your own copies of the notebooks, in `work/`. Work from
top to bottom: an exercise is a card, a cell to fill in, and a check that says what is wrong with an answer.
Hand in the copy: only its exercise cells are marked.

This edition holds no solutions. Where the course's own code needs what you are asked to write, it uses yours,
once it has passed its check. A cell that needs an exercise further down names it.
"""


def main(argv: list[str]) -> int:
    args = _arguments(argv)
    try:
        words = [chapter_word(name) for name in args.chapters]
        made = handout(words, Path(args.out), args.cut, args.after)
    except (HandoutError, NoChapter) as error:
        print(f"handout: {error}", file=sys.stderr)
        return 2
    print(f"{args.out}: {', '.join(words)}; {made.files} files, no solution found in any of them")
    for leak in made.stay:
        print(f"  {leak.where}: {leak.name} stays, and gives the right answers of exercise {leak.exercise}; "
              f"--cut {leak.name} takes it out")
    for what, id in made.withheld:
        print(f"  {what} is withheld, since it shows most of exercise {id}: once that is handed in, make "
              f"the handout again with --after {id}")
    return 0


def _arguments(argv: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m course_lib handout",
                                     description="What a class gets: notebooks and the package without "
                                     "solutions, with checks that work.")
    parser.add_argument("chapters", nargs="+", metavar="CHAPTER", help="words or numbers: gqa, 3")
    parser.add_argument("--out", required=True, metavar="DIR")
    parser.add_argument("--cut", action="append", default=[], metavar="NAME",
                        help="a function or a kernel from the list that this command prints, such as "
                        "scaled_dot_product_attention: its calls go to the student's own")
    parser.add_argument("--after", action="append", default=[], metavar="ID",
                        help="an exercise whose solution has been handed in: what shows it may be handed out")
    return parser.parse_args(argv)


@dataclass
class Handout:
    """What was made: the number of files, the leaks that stay, and (what, exercise) that is withheld."""
    files: int
    stay: list[Leak]
    withheld: list[tuple[str, str]]


def handout(words: list[str], out: Path, cut: list[str] = (), after: list[str] = ()) -> Handout:
    """Build it beside `out`, search it, then copy it to `out`."""
    declared = [e for word in words for e in load_chapter(word)]
    if set(after) - {e.id for e in declared}:
        raise HandoutError(f"--after {', '.join(sorted(set(after) - {e.id for e in declared}))}: not in "
                           "these chapters")
    exercises = [e for e in declared if e.id not in after]
    _check_place(out)
    out.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=out.parent, prefix=".handout-") as building:
        folder = Path(building)
        kept_back = withheld(exercises)
        notebooks = [hand_out_notebook(word, folder, exercises, kept_back) for word in words]
        modules = closure(ROOTS + [m for path in notebooks for m in imports_of_notebook(path)], words)
        later = still_to_come(words, [*notebooks, *map(file_of, modules)])
        asked = {e.id: e for e in exercises + later}
        shown = [leak for leak in SHOWN if leak.exercise in asked
                 and (leak.where in modules or file_of(leak.where) is None)]
        if unknown := set(cut) - {leak.name for leak in shown}:
            raise HandoutError(f"--cut {', '.join(sorted(unknown))}: no such function; there are "
                               f"{', '.join(sorted({leak.name for leak in shown})) or 'none'}")
        taken: dict[str, dict[str, Exercise]] = {}
        for leak in CUT + [leak for leak in shown if leak.name in cut]:
            if leak.exercise in asked:
                taken.setdefault(leak.where, {})[leak.name] = asked[leak.exercise]
        for name in modules:
            _module(name, folder, words, taken.get(name, {}))
        for word, notebook in zip(words, notebooks):
            write_declarations(word, folder, notebook, kept_back)
        _rest(folder, words, modules, taken)
        stay = _search(folder, exercises, later, modules, [leak for leak in shown if leak.name not in cut])
        # copytree copies the mode too
        folder.chmod(out.stat().st_mode & 0o7777 if out.is_dir() else 0o777 & ~umask())
        shutil.copytree(folder, out, dirs_exist_ok=True)
        return Handout(sum(path.is_file() for path in folder.rglob("*")), stay,
                       [(in_words(what), id) for what, id in kept_back.items()])


def still_to_come(words: list[str], sources: list[Path]) -> list[Exercise]:
    """Exercises that are not handed out yet: of the chapters after the last named one, and of those between two
    named ones what nothing in the sources calls."""
    named = {CHAPTERS.index(word) for word in words}
    code = "\n".join(path.read_text(encoding="utf-8") for path in sources)
    uncalled = {leak.exercise for leak in CUT if not re.search(rf"(?<!def )\b{leak.name}\(", code)}
    return [e for number in range(min(named), len(CHAPTERS)) if number not in named
            for e in load_chapter(CHAPTERS[number])
            if e.id in uncalled or number > max(named) and e.id not in CALLED_BEFORE]


def _check_place(out: Path) -> None:
    if out.resolve() == COURSE:
        raise HandoutError(f"{out} is the course itself: choose another --out")
    if out.is_dir() and any(out.iterdir()) and not (out / PACKAGE.name).is_dir():
        raise HandoutError(f"{out} holds other files: choose a folder that is empty, or that an earlier "
                           "handout made")


def commands_kept(text: str, modules: list[str]) -> str:
    """The table of commands without those whose modules are not handed out."""
    return json.dumps({name: entry for name, entry in json.loads(text).items()
                       if entry[0].partition(":")[0] in modules}, indent=1)


def makefile_kept(text: str) -> str:
    """The Makefile without the targets whose commands or tests are not handed out."""
    blocks = [block for block in re.split(r"\n\n(?!\t)", text)
              if not any(NOT_IN_MAKEFILE.match(line) for line in block.splitlines())]
    lines = [line for line in "\n\n".join(blocks).splitlines()
             if not NOT_IN_MAKEFILE.match(line.removeprefix('\t@echo "make '))]
    return "\n".join(" ".join(w for w in line.split() if not NOT_IN_MAKEFILE.fullmatch(w))
                     if line.startswith(".PHONY") else line for line in lines) + "\n"


def _module(name: str, folder: Path, words: list[str], cut: dict[str, Exercise]) -> None:
    source = file_of(name)
    target = folder / source.relative_to(COURSE)
    target.parent.mkdir(parents=True, exist_ok=True)
    text = source.read_text(encoding="utf-8")
    write_whole(target, cut_python(text, cut) if cut else text)


def _rest(folder: Path, words: list[str], modules: list[str], taken: dict[str, dict[str, Exercise]]) -> None:
    """The engine, kernels, data and the files around them."""
    ignored = shutil.ignore_patterns("__pycache__", "*.pyc", ".*", "tests")
    shutil.copytree(COURSE / "laptop_cuda", folder / "laptop_cuda", ignore=ignored)
    shutil.copytree(PACKAGE / "tools" / "labextensions", folder / "course_lib" / "tools" / "labextensions",
                    ignore=ignored)
    commands = (PACKAGE / "tools" / "commands.json").read_text(encoding="utf-8")
    write_whole(folder / "course_lib" / "tools" / "commands.json", commands_kept(commands, modules))
    if "course_lib.explore.frame" in modules:
        for path in (PACKAGE / "explore" / "frame").glob("*.js"):
            shutil.copy(path, folder / "course_lib" / "explore" / "frame")
    chapters = {word for word in CHAPTERS if f"course_lib.{word}" in modules} | set(words)
    for path in sorted((COURSE / "kernels").rglob("*.cu*")):
        place = path.relative_to(COURSE / "kernels")
        word = place.parts[0].removesuffix(".cu")
        if word in chapters or word == "common":
            target = folder / "kernels" / place
            target.parent.mkdir(parents=True, exist_ok=True)
            write_whole(target, cut_cuda(path.read_text(encoding="utf-8"),
                                         taken.get(f"kernels/{place.as_posix()}", {})))
    shutil.copytree(COURSE / "data", folder / "data", ignore=ignored)
    for name in FILES:
        shutil.copy(COURSE / name, folder / name)
    write_whole(folder / "Makefile", makefile_kept((COURSE / "Makefile").read_text()))
    write_whole(folder / "README.md", README.format(titles=", ".join(w.replace("_", " ") for w in words)))


def _search(folder: Path, exercises: list[Exercise], later: list[Exercise], modules: list[str],
            stay: list[Leak]) -> list[Leak]:
    """Those of `stay` that still give right answers, untried for later chapters: what calls a function that was cut
    does not. Raise
    HandoutError if another solution is anywhere in the folder, by its text or by what it does."""
    found = [f"{path.relative_to(folder)}: exercise {e.id}"
             for path in sorted(p for p in folder.rglob("*") if p.is_file())
             for text in _texts(path) for e in [*exercises, *later] if holds(text, e)]
    left = [] if found else remaining(folder, modules, exercises)
    meant = {(s.name, s.exercise) for s in stay}
    found += [f"{leak.where}: {leak.name} solves exercise {leak.exercise}"
              for leak in left if (leak.name, leak.exercise) not in meant]
    if found:
        raise HandoutError("a solution would be handed out:\n  " + "\n  ".join(found))
    still = {(leak.name, leak.exercise) for leak in left}
    return [s for s in stay if (s.name, s.exercise) in still or s.exercise in {e.id for e in later}]


def _texts(path: Path) -> list[str]:
    """The texts of a file that are looked through for solutions."""
    import nbformat
    if path.suffix == ".ipynb":
        return [c.source for c in nbformat.read(path, as_version=4).cells
                if "exercise-card" not in c.metadata.get("tags", [])]
    return [path.read_text(encoding="utf-8", errors="replace")] if path.suffix in TEXTS else []
