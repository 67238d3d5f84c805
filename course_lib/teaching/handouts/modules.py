"""Which modules of the course a set of notebooks needs, found from the code."""
import ast
import re
from functools import lru_cache
from pathlib import Path

from course_lib.exercises.declare import CHAPTERS
from ..confined.reach import COURSE


def notebook_of(word: str) -> Path:
    return COURSE / "notebooks" / f"{CHAPTERS.index(word):02d}_{word}.ipynb"


def file_of(module: str) -> Path | None:
    path = COURSE.joinpath(*module.split("."))
    return next((p for p in (path.with_suffix(".py"), path / "__init__.py") if p.is_file()), None)


def closure(roots: list[str], words: list[str]) -> list[str]:
    """The roots and what they import of the course, without the instructor's side and the exercises."""
    declared = {f"course_lib.exercises.chapters.{word}" for word in CHAPTERS}
    found, waiting = [], list(dict.fromkeys(roots))
    while waiting:
        name = waiting.pop()
        path = file_of(name)
        if name in found or name.startswith("course_lib.teaching") or name in declared or path is None:
            continue
        found.append(name)
        package = name if path.name == "__init__.py" else name.rpartition(".")[0]
        waiting += _imports_of_file(path, package)
    return sorted(found)


@lru_cache(maxsize=None)
def _imports_of_file(path: Path, package: str) -> list[str]:
    return imports_of(ast.parse(path.read_text(encoding="utf-8")), package)


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
    return [name for tree in trees_of_notebook(path) for name in imports_of(tree) + explorables_of(tree)]


def explorables_of(tree: ast.AST) -> list[str]:
    """The modules behind `explore.show("sectors")`, which are imported by name."""
    return [f"course_lib.explore.{node.args[0].value}" for node in ast.walk(tree)
            if isinstance(node, ast.Call) and ast.unparse(node.func) == "explore.show" and node.args
            and isinstance(node.args[0], ast.Constant)]


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
