"""A source with the files beside it that it includes, and its text as the compiler gets it."""
import re
from pathlib import Path

from . import build
from .libraries import without_libraries
from .rewrite import rewrite
from .outline import Outline, outline
INCLUDE = re.compile(r'^([ \t]*#[ \t]*include[ \t]*)"([^"\n]+)"', re.MULTILINE)


def read(path: Path) -> str:
    return path.read_text(encoding="utf-8-sig", errors="replace")


def files_of(text: str, folder: Path | None, search: tuple[Path, ...] = ()) -> list[Outline]:
    """The source and the files that it includes from its own folder (or `search`), each once.

    They hold kernels and shared arrays too. Host code of libraries is left out.
    """
    texts, paths, homes = [text], [None], [folder]
    for number in range(10_000):
        if number == len(texts):
            break
        for _, name in INCLUDE.findall(texts[number]) if homes[number] else ():
            path = beside(name, homes[number], search)
            if path is not None and path not in paths:
                texts.append(read(path))
                paths.append(path)
                homes.append(path.parent)
    found = [outline(made) for made in without_libraries(texts)]
    for file, path, text in zip(found, paths, texts):
        file.path, file.as_read = path, text
    return found


def beside(name: str, folder: Path, search: tuple[Path, ...] = ()) -> Path | None:
    """The file that `#include "name"` means, if it is in the including file's folder or in `search`."""
    candidates = ((place / name).resolve() for place in (folder, *search))
    return next((path for path in candidates if path.is_file()), None)


def rewritten(files: list[Outline], folder: Path | None, search: tuple[Path, ...] = ()) -> str:
    """The first of `files`, rewritten, its includes pointing to rewritten copies of the others in the
    cache."""
    copies: dict[Path, Path] = {}

    def one(file: Outline, folder: Path | None) -> str:
        def include(match: re.Match) -> str:
            path = beside(match.group(2), folder, search)
            included = next((f for f in files if path is not None and f.path == path), None)
            if included is None:
                return match.group()
            if path not in copies:
                copies[path] = Path(match.group(2))         # an include of itself, behind a guard, ends here
                copy = f'#line 1 "{path.name}"\n{one(included, path.parent)}'
                copies[path] = build.rewritten_header(path.name, copy)
            return f'{match.group(1)}"{copies[path]}"'
        text = rewrite(file)
        return INCLUDE.sub(include, text) if folder else text

    return one(files[0], folder)


def started(files: list[Outline], name: str) -> str:
    """What precedes the rewritten text: the engine's headers. Line n of `name` is still line n."""
    assembly = any(re.search(r"\basm\b|\b__asm", file.text) for file in files)
    graphs = any("cudaGraph" in file.text or "BeginCapture" in file.text for file in files)
    pools = any(re.search("MallocAsync|FreeAsync|FromPool|MemPool|cudaIpc", file.text) for file in files)
    headers = ["host_launch.h", "laptop_entries.h"] + ["ptx.h"] * assembly
    headers += ["graphs.h"] * graphs + ["memory_pools.h"] * pools
    head = "#define LAPTOP_GRAPHS\n" * graphs + "".join(f"#include <{h}>\n" for h in headers)
    return head + f'#line 1 "{name}"\n'


def split_instance(text: str) -> tuple[str, str]:
    """'tile<64,32>' -> ('tile', '<64, 32>')."""
    name, _, arguments = text.partition("<")
    return name.strip(), tidy_arguments(arguments) if arguments else ""


def tidy_arguments(text: str) -> str:
    """'64,32>' or '<64, 32>' or '64, 32' -> '<64, 32>'."""
    text = text.strip()
    text = text.removeprefix("<")
    if text.endswith(">") and text.count(">") > text.count("<"):
        text = text[:-1]
    return f"<{', '.join(template_arguments(text))}>"


def template_arguments(text: str) -> list[str]:
    parts, depth, part = [], 0, ""
    for letter in text:
        depth += (letter in "(<[{") - (letter in ")>]}")
        if letter == "," and depth == 0:
            parts, part = [*parts, part], ""
        else:
            part += letter
    return [p.strip() for p in [*parts, part] if p.strip()]
