"""Every kernel file and module as a readable page, with line numbers that other pages link to."""
from pathlib import Path

from course_lib.exercises.declare import CHAPTERS
from course_lib.files import ROOT

LANGUAGES = {".py": "python", ".cu": "cuda", ".cuh": "cuda", ".h": "cpp", ".cpp": "cpp"}
ROOMS = {"kernels": "Kernels", "laptop_cuda": "The engine",
         **{f"course_lib/{word}": f"Library: {word.replace('_', ' ')}" for word in CHAPTERS[1:]}}


# No chapter leads there, and their pages would take the book past its 40 MB.
WITHOUT = {"__pycache__", "tests", "programs", "judge", "bench"}


def files() -> list[Path]:
    """What has a page: kernels, the engine but for what whole programs need, the chapters' folders."""
    found = [p for room in ROOMS for p in sorted((ROOT / room).rglob("*")) if p.suffix in LANGUAGES]
    return [p for p in found if not WITHOUT & set(p.relative_to(ROOT).parts) and p.stat().st_size]


def page_name(path: Path) -> str:
    return "code/" + path.relative_to(ROOT).as_posix().replace(".", "-")


def page(path: Path) -> str:
    name = path.relative_to(ROOT).as_posix()
    fence = "`" * 4
    text = path.read_text(encoding="utf-8").rstrip("\n")
    return f"# {name}\n\n{fence}{{code-block}} {LANGUAGES[path.suffix]}\n:linenos:\n\n{text}\n{fence}\n"


def indexes() -> dict[str, str]:
    """Page name -> Markdown: one list per room."""
    made = {}
    for room, title in ROOMS.items():
        inside = [p for p in files() if p.is_relative_to(ROOT / room)]
        if inside:
            entries = "\n".join(f"/{page_name(p)}" for p in inside)
            made[f"code/{room.replace('/', '-')}"] = (
                f"# {title}\n\n```{{toctree}}\n:maxdepth: 1\n\n{entries}\n```\n")
    return made
