"""What the core and each pack bring, as their pack.toml says.

A pack is a folder beside the core with such a file: headers in include/, parts of the runtime in runtime/,
its own Python, a page, its tests. The core finds what a source includes or names, and imports no pack: what a
pack's Python does is asked for by `part` when it is wanted. Without the folder all else works."""
import fnmatch
import functools
import importlib
import re
import secrets
import tomllib
from dataclasses import dataclass, field
from pathlib import Path

from .toolchain.cache import cache, digest, used

PACKAGE = Path(__file__).resolve().parent
WORD = re.compile(r"[A-Za-z_][\w.]*|<<\s?<")


class NoPack(ImportError):
    """What was asked for is in a pack whose folder is not there."""


@dataclass
class Pack:
    """A pack.toml with the folder that it is in; the core has one too."""
    home: Path
    first: tuple[str, ...] = ()
    beside_program: tuple[str, ...] = ()
    libraries: str = ""
    errors: str = ""
    instructions: str = ""
    words: dict[str, re.Pattern] = field(default_factory=dict)
    defines: dict[str, re.Pattern] = field(default_factory=dict)
    commands: dict[str, str] = field(default_factory=dict)   # each with what it is for
    instead: dict[str, str] = field(default_factory=dict)
    same: dict[str, str] = field(default_factory=dict)       # {header: what it includes}


def _read(file: Path) -> Pack:
    found = tomllib.loads(file.read_text(encoding="utf-8"))
    for name in ("first", "beside_program"):
        found[name] = tuple(found.get(name, "").split())
    for name in ("words", "defines"):
        found[name] = {header: re.compile("|".join(map(fnmatch.translate, globs.split())))
                       for header, globs in found.get(name, {}).items()}
    found["same"] = {name: target for target, names in found.get("same", {}).items()
                     for name in names.split()}
    return Pack(file.parent, **found)


@functools.cache
def packs() -> list[Pack]:
    """The core, then the packs that are there."""
    return [_read(file) for file in (PACKAGE / "pack.toml", *sorted(PACKAGE.glob("*/pack.toml")))]


def part(name: str):
    """The module of a pack: "programs", "programs.host_call"."""
    home = PACKAGE / name.partition(".")[0]
    if not home.is_dir():
        raise NoPack(f"this is in the pack `{home.name}`, and there is no folder {home}")
    return importlib.import_module(f"{__package__}.{name}")


def named(kind: str) -> list:
    """The modules that packs name: kind is "libraries", "errors" or "instructions"."""
    return [part(f"{pack.home.name}.{module}") for pack in packs() if (module := getattr(pack, kind))]


def commands() -> dict[str, str]:
    return {name: said for pack in packs() for name, said in pack.commands.items()}


def command(name: str):
    """The module of a pack with a command of this name; None if there is none."""
    home = next((pack.home for pack in packs() if name in pack.commands), None)
    return home and part(f"{home.name}.command" if (home / "command.py").exists() else home.name)


def folders(kind: str) -> list[Path]:
    """Those called "include" or "runtime" of the core and of each pack that has one."""
    return [folder for pack in packs() if (folder := pack.home / kind).is_dir()]


@functools.cache
def same_headers() -> dict[str, str]:
    """The texts of the headers that only include others."""
    return {name: "#pragma once\n" + "".join(f"#include <{target}>\n" for target in targets.split())
            for pack in packs() for name, targets in pack.same.items()}


def _written(root: Path) -> Path:
    """A folder in the cache with the headers that only include others."""
    texts = same_headers()
    folder = root / f"headers-{digest(*texts, *texts.values())}"
    if not folder.is_dir():
        made = root / f"headers-{secrets.token_hex(8)}.new"
        for name, text in texts.items():
            (made / name).parent.mkdir(parents=True, exist_ok=True)
            (made / name).write_text(text)
        try:
            made.rename(folder)
        except OSError:                  # another process was sooner
            if not folder.is_dir():
                raise
    return folder


def include_flags() -> list[str]:
    """Where compilers look for CUDA's headers."""
    last = _written(cache())
    used(last)
    return [f"-I{folder}" for folder in (*folders("include"), last)]


def header(name: str) -> Path | None:
    """The file of an engine's header."""
    return next((path for folder in folders("include") if (path := folder / name).is_file()), None)


def has_header(name: str) -> bool:
    return name in same_headers() or header(name) is not None


def core_alone(text: str) -> bool:
    """Whether a source includes headers of the core and of the system alone, so that it calls no pack's runtime."""
    theirs = {name for pack in packs()[1:] for name in pack.same}

    def of_core(mark: str, name: str) -> bool:
        found = header(name)
        return name not in theirs and (mark == "<" if found is None else found.is_relative_to(PACKAGE / "include"))
    return all(of_core(*match) for match in re.findall(r'#\s*include\s*(\S)([^>"\s]*)', text))


def is_first(name: str) -> bool:
    """Whether this header goes before what a source defines itself."""
    return any(name.startswith(pack.first) for pack in packs() if pack.first) and has_header(name)


def may_be_own(name: str) -> bool:
    """Whether a program may bring a header of this name itself."""
    return any(name.startswith(pack.beside_program) for pack in packs() if pack.beside_program)


def instead_of(name: str) -> str | None:
    """The header to include in place of one that is not there."""
    return next((other for pack in packs() for start, other in pack.instead.items()
                 if name.startswith(start) and not has_header(name)), None)


def asked_for(texts: list[str]) -> tuple[list[str], list[str]]:
    """The headers and the macros that the words of these texts ask for, the core's first."""
    words = {re.sub(r"\s", "", word) for text in texts for word in WORD.findall(text)}
    words |= {piece for word in words if "." in word for piece in word.split(".")}

    def of(tables: list[dict[str, re.Pattern]]) -> list[str]:
        return [name for table in tables for name, asks in table.items() if any(map(asks.match, words))]
    return of([pack.words for pack in packs()]), of([pack.defines for pack in packs()])
