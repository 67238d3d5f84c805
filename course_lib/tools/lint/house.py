"""`python -m course_lib lint house`: the tree against the guides of the house.

The import graph is read from the syntax trees, imports inside functions included. What is over a guide says
why in one line that begins with `# over the guide:` (`// over the guide:` in C++)."""
import ast
import re
from dataclasses import dataclass, field
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

from course_lib.exercises.declare import CHAPTERS
from course_lib.files import ROOT
from course_lib.tools.lint import style

ENTRIES, MODULE_LINES, FUNCTION_LINES = 26, 250, 40
KERNEL_LINES, TENSOR_CORE_LINES = 300, 250
CHECKS_SHARE = 0.06
EXCUSE = re.compile(r"(?:#|//) over the guide: (.+)")

# The floors: an import only goes down. Chapters have a floor each, between `SHARED` and `EXERCISES`.
WORDS = CHAPTERS[1:]
SHARED = ("checks", "launching", "files", "datasets", "figures", "growing_table", "cuda")
FLOORS = ({"laptop_cuda": 0} | dict.fromkeys(SHARED, 1) | {word: 2 + n for n, word in enumerate(WORDS)}
          | {"exercises": 30, "explore": 30, "tools": 40, "studies": 50, "gpu": 50, "teaching": 50,
             "__main__": 60})


def sources() -> dict[str, Path]:
    """Dotted name -> file, for every module of the course and the engine."""
    found = {}
    for package in ("course_lib", "laptop_cuda"):
        for path in sorted((ROOT / package).rglob("*.py")):
            if "tests" in path.parts:            # of a pack
                continue
            parts = path.relative_to(ROOT).with_suffix("").parts
            found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


def imports(name: str, path: Path, known: dict[str, Path]) -> set[str]:
    """The modules of ours that a module imports, wherever in it."""
    package = name.split(".") if path.name == "__init__.py" else name.split(".")[:-1]
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            above = package[:len(package) - node.level + 1] if node.level else []
            base = ".".join([*above, *filter(None, [node.module])])
            found |= {f"{base}.{a.name}" if f"{base}.{a.name}" in known else base for a in node.names}
    return {module for module in found if module in known} - {name}


def import_graph() -> dict[str, set[str]]:
    known = sources()
    return {name: imports(name, path, known) for name, path in known.items()}


def room(module: str) -> str:
    """`course_lib.rope.kernels` is in the room `rope`; the whole engine is one room."""
    parts = module.split(".")
    return parts[0] if parts[0] == "laptop_cuda" else parts[1] if len(parts) > 1 else "course_lib"


def upward(graph: dict[str, set[str]]) -> list[str]:
    """Arrows to a higher floor, to a chapter of a higher number, or from exercises and tools to a chapter."""
    said = []
    for module, targets in graph.items():
        here = room(module)
        if here == "course_lib":
            continue
        for target in sorted(targets):
            there = room(target)
            if here == there or there == "course_lib":
                continue
            if here not in FLOORS or there not in FLOORS:
                said.append(f"{module} -> {target}: {here if here not in FLOORS else there} has no floor")
            elif FLOORS[there] > FLOORS[here]:
                said.append(f"{module} -> {target}: goes up")
            elif here in ("exercises", "tools") and there in WORDS:
                said.append(f"{module} -> {target}: {here} imports no chapter")
            elif FLOORS[there] == FLOORS[here] and here not in SHARED:
                said.append(f"{module} -> {target}: two rooms of one floor")
    return said


def engine_rooms(graph: dict[str, set[str]]) -> dict[str, set[str]]:
    """The graph of the engine's folders and of the modules beside them."""
    found = {}
    for module, targets in graph.items():
        here, *there = (".".join(name.split(".")[:2]) for name in (module, *targets))
        if here.startswith("laptop_cuda"):
            found.setdefault(here, set()).update({t for t in there if t.startswith("laptop_cuda")} - {here})
    return found


def circles(graph: dict[str, set[str]]) -> list[list[str]]:
    """The first group of modules that reach one another. A package's face counts if its own modules import it."""
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        return [sorted(set(error.args[1]))]
    return []


@dataclass
class Count:
    """Lines of code of a folder, and how many of them check arguments."""
    code: int = 0
    checks: int = 0
    where: list[str] = field(default_factory=list)

    @property
    def share(self) -> float:
        return self.checks / self.code if self.code else 0.0


def code_lines(tree: ast.Module, text: str) -> set[int]:
    """Numbers of the lines that hold code: no blank lines, comments or docstrings."""
    found = {n for n, line in enumerate(text.splitlines(), 1)
             if line.strip() and not line.strip().startswith("#")}
    for node in ast.walk(tree):
        body = getattr(node, "body", None)
        if (isinstance(body, list) and body and isinstance(body[0], ast.Expr)
                and isinstance(body[0].value, ast.Constant)):
            if isinstance(body[0].value.value, str):
                found -= set(range(body[0].lineno, body[0].end_lineno + 1))
    return found


def is_check(node: ast.AST) -> bool:
    """`if ...: raise SomeError(...)`, a call of `check_...(...)` by itself, or the definition of a check."""
    if isinstance(node, ast.If):
        return len(node.body) == 1 and isinstance(node.body[0], ast.Raise) and not node.orelse
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
        called = node.value.func
        name = called.attr if isinstance(called, ast.Attribute) else getattr(called, "id", "")
        return name.lstrip("_").startswith("check_")
    return isinstance(node, ast.FunctionDef) and node.name.lstrip("_").startswith("check_")


def checks_share(word: str) -> Count:
    """The share of argument checks in a chapter's folder."""
    count = Count()
    for path in sorted((ROOT / "course_lib" / word).glob("*.py")):
        if path.name == "__init__.py":
            continue
        text = path.read_text(encoding="utf-8")
        tree = ast.parse(text)
        lines = code_lines(tree, text)
        checking = {n for node in ast.walk(tree) if is_check(node)
                    for n in range(node.lineno, node.end_lineno + 1)}
        count.code += len(lines)
        count.checks += len(lines & checking)
        count.where += [f"{path.name}:{n}" for n in sorted(lines & checking)]
    return count


def over(what: str, size: int, guide: int, text: str, unit: str = "lines") -> list[tuple[str, str | None]]:
    excuse = EXCUSE.search(text)
    return [(f"{what}: {size} {unit}, the guide is {guide}", excuse and excuse[1].strip())] * (size > guide)


def too_long() -> list[tuple[str, str | None]]:
    """(what is over a guide, why it says it is)."""
    found = []
    for path in sources().values():
        text = path.read_text(encoding="utf-8")
        lines, name = text.splitlines(), path.relative_to(ROOT).as_posix()
        declares = "exercises/chapters/" in name        # data: a card, stub or misconception is a whole text
        if not declares:
            found += over(name, len(lines), MODULE_LINES, "\n".join(lines[:30]))
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
                body = "\n".join(lines[node.lineno - 1:node.end_lineno])
                found += over(f"{name}: {node.name}", node.end_lineno - node.lineno + 1, FUNCTION_LINES, body)
    for path in sorted((ROOT / "kernels").rglob("*.cu*")):
        text, name = path.read_text(encoding="utf-8"), path.relative_to(ROOT).as_posix()
        guide = TENSOR_CORE_LINES if "tensor" in path.stem else KERNEL_LINES
        found += over(name, len(text.splitlines()), guide, text)
    return found


def entries() -> list[str]:
    """What a reader sees in course_lib/, its own `__init__.py` aside."""
    return sorted(p.name for p in (ROOT / "course_lib").iterdir()
                  if not p.name.startswith((".", "__pycache__", "__init__")))


def complaints() -> list[str]:
    """What does not hold and does not say why."""
    graph = import_graph()
    said = [f"up: {arrow}" for arrow in upward(graph)]
    said += [f"circle: {', '.join(group)}" for group in circles(graph)]
    said += [f"circle of folders: {', '.join(group)}" for group in circles(engine_rooms(graph))]
    if len(entries()) > ENTRIES:
        said.append(f"course_lib/ has {len(entries())} entries, the guide is {ENTRIES}")
    for word in WORDS:
        share = checks_share(word).share
        if share > CHECKS_SHARE:
            said.append(f"{word}: {share:.1%} of the code checks arguments, the guide is {CHECKS_SHARE:.0%}")
    return said + style.complaints() + [what for what, why in too_long() if not why]


def report() -> str:
    graph = import_graph()
    rows = [f"{len(graph)} modules, {sum(map(len, graph.values()))} arrows, {len(upward(graph))} of them up, "
            f"{len(circles(graph))} circles",
            f"course_lib/: {len(entries())} entries (at most {ENTRIES})", "", *style.report(), "",
            "argument checks, share of code lines"]
    for word in WORDS:
        count = checks_share(word)
        if count.code:
            rows.append(f"  {word:18} {count.checks:4} of {count.code:5}  {count.share:5.1%}")
    excused = [(what, why) for what, why in too_long() if why]
    rows += ["", "over a guide, and why", *(f"  {what}: {why}" for what, why in excused or [("none", "")])]
    open_ = complaints()
    return "\n".join(rows + ["", "does not hold", *(f"  {line}" for line in open_ or ["nothing"])])


def main() -> int:
    print(report())
    return 1 if complaints() else 0
