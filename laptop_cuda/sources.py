"""A source with the files beside it that it includes, and its text as the compiler gets it."""
import codecs
import re
from pathlib import Path

from . import packs
from .rewrite import Loops, rewrite, table
from .rewrite.launches import launches_in_device_code
from .text.outline import Outline, outline
from .text.tokens import split_text
from .toolchain.cache import rewritten_header
from .toolchain.precompiled import HEAD
INCLUDE = re.compile(r'^([ \t]*#[ \t]*include[ \t]*)(?:"([^"\n]+)"|<([^>\n]+)>)', re.MULTILINE)


def read(path: Path) -> str:
    """UTF-8, UTF-16 with its mark, or else an encoding of eight bits, of which Latin-1 is most likely."""
    data = path.read_bytes()
    wide = data[:2] in (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)
    try:
        text = data.decode("utf-16" if wide else "utf-8-sig")
    except UnicodeDecodeError:
        text = data.decode("latin-1")
    return text.replace("\r\n", "\n").replace("\r", "\n")


def files_of(text: str, folder: Path | None, search: tuple[Path, ...] = (),
             missing: set[str] = frozenset(), blamed: set[str] = frozenset()) -> list[Outline]:
    """The source and the files that it includes from its own folder or from `search`, each once.

    They hold kernels and shared arrays too. Host code of libraries is left out, and what uses `missing` in the
    source and in files of the names `blamed`, or anywhere if it has none."""
    texts, paths, homes = [text], [None], [folder]
    for number in range(10_000):
        if number == len(texts):
            break
        for match in INCLUDE.finditer(texts[number]) if homes[number] else ():
            path = _included(match, homes[number], search)
            if path is not None and path not in paths:
                texts.append(read(path))
                paths.append(path)
                homes.append(path.parent)
    made = _spelled(texts)
    for libraries in packs.named("libraries"):
        made = libraries.without_libraries(
            made, missing, [not blamed or path is None or path.name in blamed for path in paths])
    found = [outline(text) for text in made]
    for file, path, text in zip(found, paths, texts):
        file.path, file.as_read, file.together = path, text, found
    return found


def _spelled(texts: list[str]) -> list[str]:
    """The texts with `__shared__` for macros that are no more."""
    for macro in {m[1] for text in texts for m in re.finditer(r"(?m)^\s*#\s*define\s+(\w+)\s+__shared__\s*$", text)}:
        texts = [re.sub(rf"(#\s*define\s+{macro}\b.*)|\b{macro}\b", lambda m: "" if m[1] else "__shared__", text)
                 for text in texts]
    return texts


def beside(name: str, folder: Path | None, search: tuple[Path, ...] = ()) -> Path | None:
    """The file of this name in the including file's folder, if that counts, or in `search`."""
    candidates = ((place / name).resolve() for place in (folder, *search) if place)
    return next((path for path in candidates if path.is_file()), None)


def _included(match: re.Match, folder: Path, search: tuple[Path, ...]) -> Path | None:
    """The file that a match of INCLUDE means; None for the engine's and the system's own."""
    quoted, angled = match.group(2), match.group(3)
    if quoted:
        return beside(quoted, folder, search)
    if packs.has_header(angled) and not packs.may_be_own(angled):
        return None
    return beside(angled, None, search)


def rewritten(files: list[Outline], folder: Path | None, search: tuple[Path, ...] = (),
              loops: Loops | None = None) -> str:
    """The first of `files`, rewritten, its includes pointing to rewritten copies of the others."""
    copies: dict[Path, Path | None] = {}

    def one(file: Outline, folder: Path | None) -> str:
        def include(match: re.Match) -> str:
            path = _included(match, folder, search)
            included = next((f for f in files if path is not None and f.path == path), None)
            if included is None:
                other = packs.instead_of(match.group(3) or "")
                return f"{match.group(1)}<{other}>" if other else match.group()
            if path not in copies:
                copies[path] = None                     # an include of itself, behind a guard, adds nothing
                copy = f'#define {table.read_mark(path)}\n#line 1 "{path.name}"\n{one(included, path.parent)}'
                copies[path] = rewritten_header(path.name, copy)
            return f'{match.group(1)}"{copies[path]}"' if copies[path] else ""
        text = rewrite(file, loops)
        return INCLUDE.sub(include, text)

    return one(files[0], folder)


def written(files: list[Outline], name: str, wanted: list[tuple], start: Path | None,
            include: tuple[Path, ...] = (), loops: Loops | None = None, entry=None) -> str:
    """All that the compiler gets: the engine's headers, the rewritten text, entries of the `wanted` kernels."""
    text = started(files, name) + rewritten(files, start, include, loops)
    return text + table.table(files, wanted, entry or cpu_entry)


def cpu_entry(number: int, address: str) -> str:
    return (f"LAPTOP_EXPORT void laptop_entry_{number}(void** laptop_args) {{ laptop::call({address}, "
            f"laptop_args); }}\n")


def started(files: list[Outline], name: str) -> str:
    """What precedes the rewritten text: the engine's headers. Line n of `name` is still line n."""
    headers, macros = packs.asked_for([" ".join(t.text for t in file.tokens) for file in files])
    macros += ["LAPTOP_NESTED"] * launches_in_device_code(files)
    head = "".join(f"#define {macro}\n" for macro in macros)
    head += HEAD + "".join(f"#include <{h}>\n" for h in (*headers, *_first(files)))
    head += "".join(f"#define {d.replace('=', ' ', 1)}\n" for d in files[0].defines)
    return head + f'#line 1 "{name}"\n'


def _first(files: list[Outline]) -> list[str]:
    """Headers of templates that the files include, as `#define WIDTH 32` may precede them there."""
    found = [INCLUDE.match(t.text) for file in files for t in file.tokens if t.kind == "directive"]
    return [name for name in dict.fromkeys(match.group(3) for match in found if match and match.group(3))
            if packs.is_first(name)]


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
    return list(filter(None, split_text(text, "(<[{", ")>]}")))
