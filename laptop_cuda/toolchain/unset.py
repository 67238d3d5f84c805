"""Variables that may be read before they are set, by the compiler's own analysis, made beside a checked build.

It says "may be" where the program knows better. So nobody is told: the source is built again with a call behind the
declaration of each (`laptop::declared`), and a run that reads one while it still has no value is an error."""
import os
import re
import subprocess
from pathlib import Path

from ..text.diagnostics import unset_variables
from .compilers import Compiler

# g++ finds most where it has not yet replaced by constants what may be unset
OF_GCC = ["-O1", "-fno-tree-ccp", "-fno-tree-fre", "-Wuninitialized", "-Wmaybe-uninitialized", "-S", "-o", os.devnull]
OF_CLANG = ["-Wuninitialized", "-Wsometimes-uninitialized", "-Wconditional-uninitialized", "-fsyntax-only"]


def look(tool: Compiler, flags: list[str], folder: Path, names: list[str]) -> list[subprocess.Popen]:
    """Begins the analysis of files in `folder`; `wait()` ends it."""
    def one(name: str) -> subprocess.Popen:
        with open(folder / f"{name}.unset", "w") as told:
            return subprocess.Popen([*tool.command, *flags, *(OF_CLANG if tool.clang else OF_GCC), name], cwd=folder,
                                    stdout=subprocess.DEVNULL, stderr=told, env=os.environ | {"LC_ALL": "C"})
    return [one(name) for name in names]


def watched(text: str, name: str, told: Path) -> str:
    """The text of a build, of the source `name`, with calls at what the compiler has `told`."""
    try:
        found = unset_variables(told.read_text(errors="replace"), name)
    except OSError:
        return text
    head, marker, rest = text.partition(f'#line 1 "{name}"\n')
    lines = rest.split("\n")
    for line, variable in found:
        shown = re.sub(r"\w+::", "", variable)
        declaration = re.search(rf"\b{re.escape(shown.split('.')[0])}\b[^;{{}}]*;", lines[line - 1])
        if declaration and _closed(lines[line - 1][:declaration.end()]):
            lines[line - 1] = (lines[line - 1][:declaration.end()] + f" laptop::declared((void*)&{variable}, "
                               f'sizeof({variable}), "{shown}", {line});' + lines[line - 1][declaration.end():])
    return head + marker + "\n".join(lines)


def _closed(text: str) -> bool:
    """No bracket is open: not in the head of a `for`."""
    return text.count("(") == text.count(")")
