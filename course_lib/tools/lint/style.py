"""The parts of `lint house` that read lines: one style for all Python, and what each room weighs."""
import io
import re
import tokenize
from collections import Counter
from pathlib import Path

from course_lib.files import ROOT

COLUMNS = 110
TREE_LINES = 111_000
CODE = {".py", ".cu", ".cuh", ".cpp", ".h"}
BROWSER = {".js", ".css"}                # counted apart: the limit is for Python, C++ and CUDA
CLOSING_ALONE = re.compile(r"^\s*\)[,:]?$", re.M)
# Cards, stubs and misconceptions are whole texts, whatever their width.
DECLARATIONS = "course_lib/exercises/chapters/"


def files(*folders: str, kinds: set[str] = CODE) -> list[Path]:
    """The tree's own code; a header of the engine has no ending where CUDA's has none."""
    return [path for folder in folders or ("course_lib", "laptop_cuda", "kernels", "tests")
            for path in sorted((ROOT / folder).rglob("*"))
            if path.is_file() and "__pycache__" not in path.parts and "build" not in path.parts
            and (path.suffix in kinds or kinds is CODE and not path.suffix and "include" in path.parts)]


def lines_by_room(kinds: set[str] = CODE) -> Counter:
    """`tests/engine` and its like -> lines of Python, C++ and CUDA."""
    found: Counter = Counter()
    for path in files(kinds=kinds):
        parts = path.relative_to(ROOT).parts
        found["/".join(parts[:2] if len(parts) > 2 and parts[0] != "kernels" else parts[:1])] += len(
            path.read_text(encoding="utf-8").splitlines())
    return found


def strange(name: str, text: str) -> list[str]:
    """Lines in another style: too wide, or a call's closing bracket alone."""
    wide = [n for n, line in enumerate(text.splitlines(), 1) if len(line) > COLUMNS]
    if not wide and not CLOSING_ALONE.search(text):
        return []
    inside, opened, said = set(), [], []
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.STRING:
            inside |= set(range(token.start[0], token.end[0] + 1))
        elif token.string in ("(", "[", "{"):
            opened.append(token.string)
        elif token.string in (")", "]", "}"):
            opened.pop()
            if token.string == ")" and CLOSING_ALONE.match(token.line):
                said.append(f"{name}:{token.start[0]}: a closing bracket on a line of its own")
    return said + [f"{name}:{n}: {len(text.splitlines()[n - 1])} columns, the guide is {COLUMNS}"
                   for n in wide if n not in inside]


def complaints() -> list[str]:
    total = sum(lines_by_room().values())
    heavy = [f"{total:,} lines of Python, C++ and CUDA, the guide is {TREE_LINES:,}"] if total > TREE_LINES else []
    return heavy + [line for path in files(kinds={".py"})
            if not (name := path.relative_to(ROOT).as_posix()).startswith(DECLARATIONS)
            for line in strange(name, path.read_text(encoding="utf-8"))]


def report() -> list[str]:
    rooms = lines_by_room()
    return [f"lines of Python, C++ and CUDA: {sum(rooms.values()):,} (at most {TREE_LINES:,}); of JavaScript "
            f"and CSS, beside them: {sum(lines_by_room(BROWSER).values()):,}",
            *(f"  {room:34} {count:7,}" for room, count in sorted(rooms.items()))]
