"""Variables that the compiler takes for perhaps unset: built again with a call behind each, and the run decides."""
import os
import re
import subprocess
from pathlib import Path

from ..text.diagnostics import unset_variables
from .compilers import Compiler

OF_GCC = ["-O1", "-fno-tree-ccp", "-fno-tree-fre", "-Wuninitialized", "-Wmaybe-uninitialized", "-S", "-o", os.devnull]
# A declaration without a value, in a text without comments and parentheses; too many cost only time.
BARE = re.compile(r"^(?!.*\b(?:__shared__|extern|return|using|typedef)\b)"
                  r".*(?:[\w>]\s|\w\*\s|,)\s*\*?\w+\s*(?:\[[^;=]*\]\s*)*[,;]", re.M)
OF_CLANG = ["-Wuninitialized", "-Wsometimes-uninitialized", "-Wconditional-uninitialized", "-fsyntax-only"]


def look(tool: Compiler, flags: list[str], folder: Path, files: dict[str, str]) -> list[subprocess.Popen]:
    """Begins the analysis of what is built checked, and has no such calls yet; `wait()` ends it."""
    if "-fsanitize=thread" not in flags or any("laptop::declared(" in text for text in files.values()):
        return []
    kept = [f for f in flags if f not in tool.traced() and not f.startswith("-fdump")]
    command = [*tool.command, *kept, *(OF_CLANG if tool.clang else OF_GCC)]
    made = []
    for name in filter(lambda name: has_bare(files[name]), files):
        with open(folder / f"{name}.unset", "w") as told:
            made.append(subprocess.Popen([*command, name], cwd=folder, stderr=told, env=os.environ | {"LC_ALL": "C"}))
    return made


def has_bare(text: str) -> bool:
    text, n = re.sub(r"//.*|/\*[\s\S]*?\*/", "", text), 1
    while n:
        text, n = re.subn(r"\([^()]*\)", "", text)
    return bool(BARE.search(text))


def watched(text: str, name: str, told: Path) -> str:
    """The text of a build, of the source `name`, with calls at what the compiler has `told`."""
    head, marker, rest = text.partition(f'#line 1 "{name}"\n')
    lines = rest.split("\n")
    for line, variable in unset_variables(told.read_text(errors="replace"), name) if told.exists() else ():
        shown = re.sub(r"\w+::", "", variable)
        declaration = re.match(rf".*?\b{shown.split('.')[0]}\b[^;{{}}]*;", lines[line - 1])
        if declaration and declaration[0].count("(") == declaration[0].count(")"):      # not the head of a `for`
            call = f' laptop::declared((void*)&{variable}, sizeof({variable}), "{shown}", {line});'
            lines[line - 1] = declaration[0] + call + lines[line - 1][declaration.end():]
    return head + marker + "\n".join(lines)
