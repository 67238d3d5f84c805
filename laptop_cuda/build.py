"""Source text in, shared library out: ninja runs the compiler, results are cached, errors readable.

A build has a folder of its own, `<cache>/cuda/<key>/`. The key covers the text, the flags, the compiler
and every file of the engine; other files that the source includes are listed by the compiler's depfile and
compared by content. A library gets its final name only when it is complete, under a lock, so two processes
may build the same thing at once."""
import contextlib
import functools
import json
import os
import re
import secrets
import shlex
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from .packs import core_alone, folders, include_flags, same_headers
from .text.diagnostics import REFUSED, WARNINGS, CompileError, program_errors, read_errors, read_nvcc_errors
from .toolchain import by_value, shipped, unset
from .toolchain.cache import cache, digest, locked, prefer_cache, prune, used, user_cache
from .toolchain.compilers import (COMMON, Compiler, NoCompiler, beside_program, compiler, files_in,
                                  has_openmp, identify, ninja, nvcc_problem, rules)
from .toolchain.precompiled import HEAD, precompiled
from .toolchain.runtime_parts import runtime_parts
from .toolchain.watching import saying

__all__ = ["CompileError", "NoCompiler", "cache", "compiler", "gpu_library", "library", "prefer_cache",
           "runtime_library", "user_cache"]
PACKAGE = Path(__file__).resolve().parent
HEADERS, RUNTIME = PACKAGE / "include", PACKAGE / "runtime"
Sources = dict[Path, list[str]]      # each with flags of its own
PRINTED = "compiler.txt"             # of a build that succeeded: its warnings
LINKED = re.compile("-fopenmp$|-[lL]")


def engine_digest() -> str:
    """All files of the engine: a change in any of them makes every library a new one."""
    return digest(*same_headers().values(), _digest_of(folders("include") + folders("runtime")))


def _digest_of(places: list[Path]) -> str:
    files = sorted(os.path.join(place, name) for folder in places for place, _, names in os.walk(folder)
                   for name in names if not name.startswith("."))
    return _read(tuple((f, s.st_mtime_ns, s.st_size) for f, s in zip(files, map(os.stat, files))))


@functools.lru_cache(maxsize=4)
def _read(files: tuple) -> str:
    return digest(*(part for path, *_ in files for part in (os.path.basename(path), Path(path).read_bytes())))


def library(text: str, name: str, original: str, folder: Path | None, traced: bool,
            beside: tuple[str, ...] = (), search: tuple[Path, ...] = (), warn: list[str] = []) -> Path:
    """Builds rewritten source. `folder` is where its includes are; `warn` asks for more warnings.

    `name`, `original` and the names of the files `beside` it are for error messages."""
    tool = compiler()
    include = [*(f"-I{p}" for p in search), *include_flags()] + ([f"-iquote{folder}"] if folder else [])
    flags = COMMON + (tool.traced() if traced else tool.plain()) + include + warn
    if traced:
        flags += tool.own_arrays(text) if tool.clang else [by_value.FLAG]
    own, runtime = _beforehand(tool, flags, text.startswith(HEAD), not core_alone(text))
    link = _link(tool, [str(runtime)])
    made = cache() / digest(text, *flags, *link, *tool.command, tool.version)
    prune(cache(), made)
    built = _build(made, {"kernel.cu.cpp": text}, {made / "kernel.cu.cpp": own}, flags, link, tool,
                   lambda output: CompileError(name, original, read_errors(output, name, beside), output))
    seen = unset.watched(text, name, made / "kernel.cu.cpp.unset")
    with contextlib.suppress(CompileError):
        return library(seen, name, original, folder, traced, beside, search, warn) if seen != text else built
    return built


def program(units: dict[Path, str], files: dict[str, str], more: list[str], traced: bool) -> Path:
    """Builds the rewritten sources of a whole program into one library; errors quote `files`."""
    tool = compiler()
    more = [f for f in more if f != "-fopenmp" or has_openmp(tool.command)]       # see omp.h
    flags = [f for f in COMMON if f not in ("-std=c++17", "-Werror=vla")] + [*WARNINGS, *include_flags()]
    flags += tool.traced() + tool.own_arrays("".join(units.values())) if traced else tool.plain()
    flags += [f for f in more if f[:2] not in ("-l", "-L")]
    plain = all(text.startswith(HEAD) for text in units.values()) and all(f[:2] in ("-s", "-I") for f in more)
    own, runtime = _beforehand(tool, flags, plain)
    link = _link(tool, [str(runtime), *beside_program(traced), *filter(LINKED.match, more)])
    made = cache() / digest(*units.values(), *map(str, units), *flags, *link, *tool.command, tool.version)
    prune(cache(), made)
    # spaces in a name would part it in a command of ninja's
    names = (re.sub(r"[^\w.]", "_", path.name) for path in units)
    texts = {f"{n}-{name}.cpp": text for n, (name, text) in enumerate(zip(names, units.values()))}
    flags += [f"-iquote{folder}" for folder in sorted({str(path.resolve().parent) for path in units})]
    name = next(iter(units)).name

    def failed(output: str) -> CompileError:
        blamed = next((p.name for p in units if f"\n{p.name}:" in f"\n{output}"), name)
        return CompileError(blamed, files[blamed], program_errors(output, blamed, tuple(files)), output)
    built = _build(made, texts, {made / file: own for file in texts}, flags, link, tool, failed, strict=False)
    again = {path: unset.watched(units[path], path.name, made / f"{file}.unset") for file, path in zip(texts, units)}
    with contextlib.suppress(CompileError):
        return program(again, files, more, traced) if again != units else built
    return built


def gpu_library(files: dict[str, str], name: str, flags: list[str], link: list[str], nvcc: str) -> Path:
    """Builds kernel.cu of `files` with nvcc; source.cu is the student's text, untouched."""
    tool = identify((nvcc,), os.stat(nvcc).st_mtime_ns)
    made = cache() / digest(*files.values(), engine_digest(), *flags, *tool.command, tool.version)

    def failed(output: str) -> Exception:
        errors = read_nvcc_errors(output, "source.cu")
        return nvcc_problem(output) or CompileError(name, files["source.cu"], errors, output)

    return _build(made, files, {made / "kernel.cu": []}, flags, link, tool, failed)


@functools.lru_cache
def build_runtime(tool: Compiler, engine: str, root: Path, extra: tuple[str, ...], whole=True) -> Path:
    """The core's runtime; the whole one is its objects with those of the packs."""
    core, *packs = folders("runtime")
    if whole and not packs:
        return build_runtime(tool, engine, root, extra, False)
    below = sorted(build_runtime(tool, engine, root, extra, False).parent.glob("*.o")) if whole else []
    # the core's is the same for every copy of the engine, whatever packs are beside it
    headers, engine = (folders("include"), engine) if whole else ([HEADERS], _digest_of([HEADERS, core]))
    flags = ["-std=c++17", "-fPIC", "-pthread", "-Wall", f"-I{RUNTIME}", *(f"-I{folder}" for folder in headers)]
    # its own copies of what the standard library's headers define, not a program's with hooks
    own = [] if sys.platform == "darwin" else ["-Wl,-Bsymbolic-functions"]
    parts = runtime_parts(packs if whole else [core], tool.clang)
    how = str([flags, parts]).replace(str(PACKAGE), "")
    made = root / ("runtime-" + digest(engine, how, *own, *extra, *tool.command, tool.version))
    files = {f"part{i}.cpp": text for i, (text, _) in enumerate(parts)}
    sources = {made / name: [level, *extra] for name, (_, level) in zip(files, parts)}
    failed = lambda output: RuntimeError(f"the runtime in {RUNTIME} does not compile:\n{output}")
    link = _link(tool, [*map(str, below), "-pthread", "-ldl", *own, *extra])
    with saying(f"the engine's runtime{' for packs' * whole}, once on this machine", made / "library.json"):
        return _build(made, files, sources, flags, link, tool, failed)


def runtime_library(whole: bool = True) -> Path:
    """Fibers, hooks, counters, checks behind every kernel: a wheel brings them, or a compiler builds once.
    Without `whole` it may lack what packs bring: a first kernel waits for less."""
    # a test builds it under ASan
    extra = tuple(shlex.split(os.environ.get("LAPTOP_CUDA_RUNTIME_FLAGS", "")))
    tool, engine = compiler(), engine_digest()
    # zig links another C++ library than a wheel's runtime
    found = None if extra or tool.zig else shipped.brought(engine)
    return found or build_runtime(tool, engine, cache(), extra, whole)


def _beforehand(tool: Compiler, flags: list[str], headers: bool, whole=True) -> tuple[list[str], Path]:
    """Flags for the precompiled headers that begin a source, and the runtime: made once, side by side."""
    with ThreadPoolExecutor(1) as beside:
        own = beside.submit(precompiled, tool, flags, include_flags()) if headers else None
        runtime = runtime_library(whole)
        return own.result() if own else [], runtime


def _link(tool: Compiler, libraries: list[str]) -> list[str]:
    """Linked with the runtime even where a kernel calls nothing of it: it is found through the kernel's
    library. The compiler's own libraries are read only where they are needed, which is half of the time."""
    linux = sys.platform != "darwin"
    system = ["-shared", "-Wl,-z,defs", "-Wl,--no-as-needed"] if linux else ["-dynamiclib"]
    # zig would bring handlers of its own for bad indices and divisions, which end the process
    own = ["-fno-sanitize=undefined"] if tool.zig else tool.linker
    return [*system, *own, *libraries, *["-Wl,--as-needed"] * linux]


def _build(folder: Path, files: dict[str, str], sources: Sources, flags: list[str], link: list[str],
           tool: Compiler, failed, strict: bool = True) -> Path:
    """One library from `sources` in `folder`, from the cache if that has it."""
    record = folder / "library.json"
    with locked(folder):
        if (found := _recorded(record)) is not None:
            used(folder)
            return found
        for name, text in files.items():
            (folder / name).write_text(text, encoding="utf-8")
        output, final = folder / "library.new", folder / f"kernel-{secrets.token_hex(8)}.so"
        if sys.platform == "darwin":
            link = [*link, f"-Wl,-install_name,{final}"]
        for old in [output, *folder.glob("*.o"), *folder.glob(".ninja_*")]:
            old.unlink(missing_ok=True)
        looks = unset.look(tool, flags, folder, files, include_flags() if any(sources.values()) else [])
        status, printed = _run(folder, sources, output, flags, link, tool)
        [one.wait() for one in looks]
        if status or strict and REFUSED.search(printed):
            raise failed(REFUSED.sub(r"error: \1", printed))
        output.replace(final)
        (folder / PRINTED).write_text(printed)
        found = {"library": final.name,
                 "included": {str(p): digest(p.read_bytes()) for p in _depended_on(folder)}}
        record.with_suffix(".new").write_text(json.dumps(found))
        record.with_suffix(".new").replace(record)
        return final


def _run(folder: Path, sources: Sources, output: Path, flags: list[str], link: list[str],
         tool: Compiler) -> tuple[int, str]:
    """By ninja, all sources at once; where there is none, as on a rented machine, one by one."""
    how = dict(capture_output=True, text=True, errors="replace", env=os.environ | {"LC_ALL": "C"})
    if driver := ninja():
        (folder / "build.ninja").write_text(rules(sources, output, flags, link, tool.command))
        run = subprocess.run([driver, "-C", str(folder), "--quiet"], **how)
        return run.returncode, run.stdout + run.stderr
    objects = [folder / f"{p.name}.o" for p in sources]
    commands = [[*flags, *own, "-MD", "-MF", f"{o}.d", "-c", p, "-o", o]
                for (p, own), o in zip(sources.items(), objects)]
    printed = ""
    for words in [*commands, [*objects, "-o", output, *link]]:
        run = subprocess.run([*tool.command, *map(str, words)], cwd=folder, **how)
        printed += run.stdout + run.stderr
        if run.returncode:
            break
    return run.returncode, printed


def _recorded(record: Path) -> Path | None:
    try:
        found = json.loads(record.read_text())
        for name, content in found["included"].items():
            if digest(Path(name).read_bytes()) != content:
                return None
        made = record.parent / found["library"]
        return made if made.exists() else None
    except (OSError, ValueError, KeyError):
        return None


def _depended_on(folder: Path) -> list[Path]:
    """Files that the source includes, besides the engine's and the system's, from the compiler's depfiles."""
    found, own = set(), [folder, *folders("include"), *folders("runtime"), cache()]
    for depfile in folder.glob("*.d"):
        for path in files_in(depfile):
            if not any(map(path.is_relative_to, own)) and not str(path).startswith("/usr/"):
                found.add(path)
    return sorted(p for p in found if p.is_file())
