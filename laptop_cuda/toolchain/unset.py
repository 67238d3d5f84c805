"""Variables that the compiler takes for perhaps unset: built again with a call behind each, and the run decides."""
import os
import re
import subprocess
from pathlib import Path

from ..text.diagnostics import unset_variables
from .compilers import Compiler
from .precompiled import precompiled

OF_GCC = ["-O1", "-fno-tree-ccp", "-fno-tree-fre", "-Wuninitialized", "-Wmaybe-uninitialized"]
BLANK = re.compile(r"//.*|/\*[\s\S]*?\*/|^\s*#.*|\([^()]*\)|\b(?:struct|union|class)\b[^;{}()=]*\{[^{}]*\}", re.M)
# An array's elements of 4 and 8 bytes are seen by the run alone (runtime_own.cpp).
BARE = re.compile(r"(?<=[;{}])\s*(?!(?:return|using|typedef|extern|goto|struct|static|else|delete|case|template)\b)"
                  r"(?:(?:unsigned|signed|long|short|volatile)\s+)*(?P<type>[\w:]+)(?:\s*<[^;{}=]*>)?(?P<names>[\s*]+\w[^;{}\0]*);")
SMALL = re.compile("bool|char|short|.*(half|16|8|uchar)")
# A name (\0) that is set there, or whose address the CUDA library takes.
SET = re.compile(r"(?:^|[;}]|\bfor \()\s*\0 =[^=]|\b(?:cu\w+|sincosf?)\((?:[^;()]*, |\(\w+\*+\))?&\0")
# A struct of plain members that the source defines, and a variable of one: compilers are silent where members
# are set on some paths only, so that the run looks at each whose first use is not that it is set.
PLAIN = re.compile(r"\bstruct\s+(?:__align__\(\d+\)\s*|alignas\(\d+\)\s*)?(\w+)\s*\{([^{}()=]*)\}")
GIVEN = re.compile(r"(?:^|[;{}])\s*\0(?:\.\w+)? =[^=]|&\0|[(,]\s*\0\s*[,)]")
OF_CLANG = ["-Wuninitialized", "-Wsometimes-uninitialized", "-Wconditional-uninitialized"]


def look(tool: Compiler, flags: list[str], folder: Path, files: dict[str, str],
         include: list[str]) -> list[subprocess.Popen]:
    """Begins the analysis of what is built checked, and has no such calls yet; `wait()` ends it. `include`: where
    the headers are, of sources that may have them precompiled."""
    if "-fsanitize=thread" not in flags or any("laptop::declared(" in text for text in files.values()):
        return []
    names, made = [name for name in files if any(bare(files[name]))], []
    kept = [f for f in flags if f not in tool.traced() and not f.startswith("-fdump")]
    kept += OF_CLANG if tool.clang else OF_GCC
    own = precompiled(tool, kept, include) if include and names else []
    command = [*tool.command, *kept, *own, *(["-fsyntax-only"] if tool.clang else ["-S", "-o", os.devnull])]
    for name in names:
        with open(folder / f"{name}.unset", "w") as told:
            made.append(subprocess.Popen([*command, name], cwd=folder, stderr=told, env=os.environ | {"LC_ALL": "C"}))
    return made


def bare(text: str):
    """Variables of a source that are declared without a value and, where they are named next, not given one."""
    source, n = re.split(r'^#line 1 "', text, maxsplit=1, flags=re.M)[-1].partition('\n#line 1 "entries"')[0], 1
    blank = source
    while n:
        blank, n = BLANK.subn(lambda m: "\0" * len(m[0]), blank)
    for found in BARE.finditer(blank):
        for name, is_array in re.findall(r"(?:^|,)[\s*]*(\w+)\s*(\[[^,]*)?(?=,|$)", found["names"]):
            named = re.compile(rf"\b{name}\b").search(source, found.end())
            if named and (not is_array or SMALL.match(found["type"])):
                rest = source[found.end():named.start()] + "\0" + source[named.end():named.end() + 9]
                at = SET.search(rest)
                if not at or rest[:at.start()].count("{") != rest[:at.start()].count("}"):
                    yield name


def structs(text: str):
    """(line, variable) of such structs in functions."""
    for kind, _ in PLAIN.findall(text):
        for found in re.finditer(rf"(?<=[;{{}}])[ \t\n]*{kind}[ \t]+(\w+);", text):
            before, rest = text[:found.start()], text[found.end():]
            named = re.search(rf"\b{found[1]}\b", rest)
            inside = re.search(r"\)[^;{}]*\{(?:[^{}]|\{[^{}]*\})*$", before[-4000:])
            if inside and named:
                up_to = rest[:named.start()] + "\0" + rest[named.end():named.end() + 40]
                set_there = GIVEN.search(up_to)
                before = up_to[:set_there.start() + 1] if set_there else "{"
                if before.count("{") != before.count("}"):
                    yield text.count("\n", 0, found.start(1)) + 1, found[1]


def watched(text: str, name: str, told: Path) -> str:
    """The text of a build, of the source `name`, with calls at what the compiler has `told`."""
    head, marker, rest = text.partition(f'#line 1 "{name}"\n')
    lines = rest.split("\n")
    seen = unset_variables(told.read_text(errors="replace"), name) if told.exists() else []
    whole = list(structs(rest)) if told.exists() else []
    for line, variable in seen + [one for one in whole if one not in [(at, v.split(".")[0]) for at, v in seen]]:
        shown = re.sub(r"\w+::", "", variable)
        declaration = re.match(rf".*?\b{shown.split('.')[0]}\b[^;{{}}]*;", lines[line - 1])
        if declaration and declaration[0].count("(") == declaration[0].count(")"):      # not the head of a `for`
            call = f' laptop::declared((void*)&{variable}, sizeof({variable}), "{shown}", {line}, {str((line, variable) in whole).lower()});'
            lines[line - 1] = declaration[0] + call + lines[line - 1][declaration.end():]
    return head + marker + "\n".join(lines)
