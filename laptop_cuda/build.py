"""Source text in, shared library out: ninja runs the compiler, the result is cached, errors are made readable.

A build lives in `.build/cuda/<key>/`. The key covers the text, the flags, the compiler and every file of the
engine; what else the source includes is listed by the compiler's depfile and compared by content. A library is
renamed into place only when it is whole, under a lock, so that two processes may build the same thing at once.
"""
import contextlib
import functools
import hashlib
import json
import os
import re
import secrets
import shlex
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

PACKAGE = Path(__file__).resolve().parent
HEADERS, RUNTIME = PACKAGE / "include", PACKAGE / "runtime"
SHOWN_ERRORS = 3
KEPT_BUILDS = 2000           # beyond that the oldest quarter goes

PLAIN = ["-O2", "-fno-finite-loops"]
# clash protection: a frame larger than the guard page under a stack must still hit it
TRACED = ["-O0", "-fstack-clash-protection", "-fsanitize=thread", "-fsanitize=integer-divide-by-zero"]
# addr2line of binutils takes the first file of a DWARF 5 table for the second: version 4 has no such doubt
COMMON = ["-std=c++17", "-x", "c++", "-fPIC", "-g1", "-gdwarf-4", "-fno-strict-aliasing", "-ffp-contract=off",
          "-fvisibility=hidden", "-fno-threadsafe-statics", "-DLAPTOP=1", "-Werror=vla", "-fno-diagnostics-color"]
# A function that never returns the value it promises is refused; one that may fall off its end only if it does.
REFUSED = re.compile(r"warning: (no return statement in function returning non-void"
                     r"|non-void function does not return a value(?! in all))")


class CompileError(Exception):
    """A source that does not compile. `.errors` is a list of (line, message); line 0 is no line of the source."""

    def __init__(self, name: str, text: str, errors: list[tuple[int, str]], output: str):
        self.name, self.text, self.errors, self.output = name, text, errors, output
        self.line = errors[0][0] if errors else 0
        super().__init__(self._message())

    def _message(self) -> str:
        lines = self.text.split("\n")
        shown = [f"{'This cell' if self.name == 'cell' else self.name} does not compile."]
        for line, message in self.errors[:SHOWN_ERRORS]:
            shown.append(f"\nline {line}: {message}" if line else f"\n{message}")
            if 0 < line <= len(lines):
                shown.append(f"{line:6} | {lines[line - 1].rstrip()}")
        if len(self.errors) > SHOWN_ERRORS:
            shown.append(f"\nand {len(self.errors) - SHOWN_ERRORS} more")
        return "\n".join(shown)

    def _render_traceback_(self) -> list[str]:
        return [f"CompileError: {self}"]


class NoCompiler(RuntimeError):
    """There is no C++ compiler on this machine."""

    def _render_traceback_(self) -> list[str]:
        return [f"NoCompiler: {self}"]


@dataclass(frozen=True)
class Compiler:
    command: tuple[str, ...]
    clang: bool
    version: str

    def traced(self) -> list[str]:
        """clang's `bounds` also traps on what it cannot report, and it leaves out blocks, and reads before a
        write to the same address, unless told not to. Volatile accesses get hooks of their own from both."""
        if self.clang:
            return TRACED + ["-fsanitize=array-bounds", "-fsanitize-coverage=trace-pc,no-prune",
                             "-mllvm", "-tsan-instrument-read-before-write",
                             "-mllvm", "-tsan-distinguish-volatile=1", "-ferror-limit=20"]
        return TRACED + ["-fsanitize=bounds-strict", "-fsanitize-coverage=trace-pc",
                         "--param=tsan-distinguish-volatile=1", "-fmax-errors=20"]

    def plain(self) -> list[str]:
        """Running off the end of a function that owes a value traps; the runtime reports it."""
        return PLAIN + ["-fsanitize=return"] + (["-fsanitize-trap=return", "-ferror-limit=20"] if self.clang else
                                                ["-fsanitize-undefined-trap-on-error", "-fmax-errors=20"])


def compiler() -> Compiler:
    """CXX if it is set, else g++, clang++ or c++ from the PATH."""
    return _compiler(os.environ.get("CXX"), os.environ.get("PATH"))


@functools.lru_cache
def _compiler(asked: str | None, path: str | None) -> Compiler:
    candidates = [asked] if asked else ["g++", "clang++", "c++"]
    for candidate in candidates:
        command = shlex.split(candidate)
        found = shutil.which(command[0])
        if found:
            return identify((found, *command[1:]), os.stat(found).st_mtime_ns)
    wanted = (f"CXX is set to {asked}, which was not found." if asked else
              "No C++ compiler was found (g++ or clang++).")
    how = ("Run `xcode-select --install`." if sys.platform == "darwin" else
           "On Debian or Ubuntu: `sudo apt install g++`; with conda, on any system: "
           "`conda install -c conda-forge cxx-compiler`.")
    raise NoCompiler(f"{wanted} Kernels are compiled on this machine, so one is needed. {how}")


@functools.lru_cache
def identify(command: tuple[str, ...], modified: int) -> Compiler:
    version = subprocess.run([*command, "--version"], capture_output=True, text=True, check=True).stdout
    return Compiler(command, "clang" in version, version)


def ninja() -> str | None:
    found = shutil.which("ninja")
    if found:
        return found
    with contextlib.suppress(ImportError):
        import ninja as package
        return str(Path(package.BIN_DIR) / "ninja")
    return None


_preferred: list[Path] = []


def prefer_cache(folder: Path) -> None:
    """Builds go to this folder if it can be written, before the user's own cache."""
    if folder not in _preferred:
        _preferred.append(folder)
        cache.cache_clear()


@functools.lru_cache
def cache() -> Path:
    """COURSE_CACHE, else the first of these that can be written: the clone's, the user's, a temporary folder."""
    user = Path.home() / ("Library/Caches" if sys.platform == "darwin" else ".cache")
    user = Path(os.environ.get("XDG_CACHE_HOME", user)) / "attention-course"
    asked = os.environ.get("COURSE_CACHE")
    for folder in (Path(asked),) if asked else (*_preferred, user):
        with contextlib.suppress(OSError):
            (folder / "cuda").mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryFile(dir=folder / "cuda"):
                return folder / "cuda"
    return Path(tempfile.mkdtemp(prefix="attention-course-"))


@contextlib.contextmanager
def locked(folder: Path):
    import fcntl
    folder.mkdir(parents=True, exist_ok=True)
    with open(folder / "lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def digest(*parts: str | bytes) -> str:
    made = hashlib.sha256()
    for part in parts:
        made.update(part.encode() if isinstance(part, str) else part)
        made.update(b"\0")
    return made.hexdigest()[:20]


def engine_digest() -> str:
    """All files of the engine: a change in any of them makes every library a new one."""
    files = sorted((p, p.stat()) for folder in (HEADERS, RUNTIME) for p in folder.iterdir() if p.is_file() and not p.name.startswith("."))
    return _digest_of(tuple((p, s.st_mtime_ns, s.st_size) for p, s in files))


@functools.lru_cache(maxsize=4)
def _digest_of(files: tuple) -> str:
    return digest(*(part for path, _, _ in files for part in (path.name, path.read_bytes())))


def rewritten_header(name: str, text: str) -> Path:
    """A rewritten copy of a file that the source includes; the same text is the same file."""
    folder = cache() / f"header-{digest(text)}"
    folder.mkdir(parents=True, exist_ok=True)
    if not (folder / name).exists():
        made = folder / f"{name}.{secrets.token_hex(8)}.new"
        made.write_text(text, encoding="utf-8")
        made.replace(folder / name)
    return folder / name


def library(text: str, name: str, original: str, folder: Path | None, traced: bool,
            beside: tuple[str, ...] = ()) -> Path:
    """Builds rewritten source. `folder` is where its includes are.

    `name`, `original` and the names of the files `beside` it are for error messages.
    """
    tool = compiler()
    runtime = runtime_library()
    include = [f"-I{HEADERS}"] + ([f"-iquote{folder}"] if folder else [])
    flags = COMMON + (tool.traced() if traced else tool.plain()) + include
    link = _link(tool, [str(runtime)])
    made = cache() / digest(text, *flags, *link, *tool.command, tool.version)
    _prune(made)
    return _build(made, {"kernel.cu.cpp": text}, [made / "kernel.cu.cpp"], flags, link, tool,
                  lambda output: CompileError(name, original, read_errors(output, name, beside), output))


def gpu_library(files: dict[str, str], name: str, flags: list[str], link: list[str], nvcc: str) -> Path:
    """Builds kernel.cu of `files` with nvcc; source.cu is the student's text, untouched."""
    tool = identify((nvcc,), os.stat(nvcc).st_mtime_ns)
    made = cache() / digest(*files.values(), *flags, *tool.command, tool.version)
    return _build(made, files, [made / "kernel.cu"], flags, link, tool,
                  lambda output: CompileError(name, files["source.cu"], read_nvcc_errors(output, "source.cu"), output))


@functools.lru_cache
def _runtime(tool: Compiler, engine: str, root: Path, extra: tuple[str, ...]) -> Path:
    flags = ["-std=c++17", "-O2", "-g1", "-fPIC", "-pthread", "-Wall", f"-I{HEADERS}", *extra]
    made = root / ("runtime-" + digest(engine, *flags, *tool.command, tool.version))
    # In two halves: each parses the standard library once, and two cores share the work.
    halves: dict[str, list[Path]] = {"first.cpp": [], "second.cpp": []}
    for source in sorted(RUNTIME.glob("runtime*.cpp"), key=lambda p: -p.stat().st_size):
        min(halves.values(), key=lambda half: sum(p.stat().st_size for p in half)).append(source)
    files = {name: "".join(f'#include "{p}"\n' for p in sorted(half)) for name, half in halves.items()}
    failed = lambda output: RuntimeError(f"the runtime in {RUNTIME} does not compile:\n{output}")
    link = _link(tool, ["-pthread", "-ldl", *extra])
    return _build(made, files, [made / name for name in files], flags, link, tool, failed)


def runtime_library() -> Path:
    """The library behind every kernel: fibers, hooks, counters, checks. Built once for a compiler."""
    extra = tuple(shlex.split(os.environ.get("COURSE_RUNTIME_FLAGS", "")))     # a test builds it under ASan
    return _runtime(compiler(), engine_digest(), cache(), extra)


def _link(tool: Compiler, libraries: list[str]) -> list[str]:
    """Linked with the runtime even where a kernel calls nothing of it: it is found through the kernel's library."""
    system = ["-dynamiclib"] if sys.platform == "darwin" else ["-shared", "-Wl,-z,defs", "-Wl,--no-as-needed"]
    return system + libraries


def _prune(new: Path) -> None:
    """Keeps the cache from growing for ever. A library that is loaded somewhere survives its file."""
    if new.exists():
        return
    folders = [f for f in cache().iterdir() if not f.name.startswith("runtime-")]
    if len(folders) > KEPT_BUILDS:
        for old in sorted(folders, key=lambda f: f.stat().st_mtime)[:KEPT_BUILDS // 4]:
            shutil.rmtree(old, ignore_errors=True)


def _build(folder: Path, files: dict[str, str], sources: list[Path], flags: list[str], link: list[str],
           tool: Compiler, failed) -> Path:
    """One library from `sources` in `folder`, from the cache where it is there and still true."""
    record = folder / "library.json"
    with locked(folder):
        if (found := _recorded(record)) is not None:
            return found
        for name, text in files.items():
            (folder / name).write_text(text, encoding="utf-8")
        output, final = folder / "library.new", folder / f"kernel-{secrets.token_hex(8)}.so"
        if sys.platform == "darwin":
            link = [*link, f"-Wl,-install_name,{final}"]
        _clear(folder, output)
        status, printed = _run(folder, sources, output, flags, link, tool)
        if status or REFUSED.search(printed):
            raise failed(REFUSED.sub(r"error: \1", printed))
        output.replace(final)
        found = {"library": final.name, "included": {str(p): digest(p.read_bytes()) for p in _depended_on(folder)}}
        record.with_suffix(".new").write_text(json.dumps(found))
        record.with_suffix(".new").replace(record)
        return final


def _run(folder: Path, sources: list[Path], output: Path, flags: list[str], link: list[str],
         tool: Compiler) -> tuple[int, str]:
    """By ninja, all sources at once; where there is none, as on a rented machine, the same commands one by one."""
    how = dict(capture_output=True, text=True, errors="replace", env=os.environ | {"LC_ALL": "C"})
    if driver := ninja():
        (folder / "build.ninja").write_text(_rules(sources, output, flags, link, tool))
        run = subprocess.run([driver, "-C", str(folder), "--quiet"], **how)
        return run.returncode, run.stdout + run.stderr
    objects = [folder / f"{p.name}.o" for p in sources]
    commands = [[*flags, "-MD", "-MF", f"{o}.d", "-c", p, "-o", o] for p, o in zip(sources, objects)]
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


def _clear(folder: Path, output: Path):
    for old in [output, *folder.glob("*.o"), *folder.glob(".ninja_*")]:
        old.unlink(missing_ok=True)


def _depended_on(folder: Path) -> list[Path]:
    """Files that the source includes, besides the engine's and the system's, from the compiler's depfiles."""
    found = set()
    for depfile in folder.glob("*.d"):
        words = depfile.read_text().replace("\\\n", " ").split(":", 1)[1]
        for word in re.split(r"(?<!\\)\s+", words.strip()):
            path = Path(word.replace("\\ ", " "))
            path = path if path.is_absolute() else folder / path
            if path.parent not in (HEADERS, RUNTIME, folder) and not str(path).startswith("/usr/"):
                found.add(path)
    return sorted(p for p in found if p.is_file())


def _rules(sources: list[Path], output: Path, flags: list[str], link: list[str], tool: Compiler) -> str:
    def quoted(words):
        return " ".join(shlex.quote(str(w)) for w in words).replace("$", "$$")

    def path(p):
        return str(p).replace("$", "$$").replace(" ", "$ ").replace(":", "$:")

    objects = [f"{p.name}.o" for p in sources]
    rules = [f"rule compile\n  command = {quoted(tool.command)} {quoted(flags)} -MD -MF $out.d -c $in -o $out\n"
             "  depfile = $out.d\n",
             f"rule link\n  command = {quoted(tool.command)} $in -o $out {quoted(link)}\n"]
    rules += [f"build {o}: compile {path(p)}\n" for o, p in zip(objects, sources)]
    rules.append(f"build {path(output)}: link {' '.join(objects)}\n")
    return "\n".join(rules)


# ---- errors

DIAGNOSTIC = re.compile(r"^(?P<file>[^\s:][^:\n]*):(?P<line>\d+)(?::\d+)?:\s+(?P<kind>fatal error|error|note|warning"
                        r"|required|recursively required|in '?constexpr|instantiated)\b:?\s*(?P<message>.*)$")
# What the compiler says, and what to say instead. Where one of the first list is found, the others are its echo.
HALF, BFLOAT = r"(half2?|__half2?)", r"((?:__)?nv_bfloat162?)"
UNKNOWN = (r"(?:unknown type name '{0}'.*|use of undeclared identifier '{0}'.*"
           r"|'{0}' (?:was not declared|does not name a type).*)")
DECISIVE = [
    (r".*static assertion failed:? (?:due to requirement '[^']*' )?:?\s*\"?laptop: (.*?)\"?$", r"\1"),
    (r"#error \"?(.*?)\"?$", r"\1"),
    (r"static_assert failed:? (?:due to requirement '[^']*' )?\"?laptop: (.*?)\"?$", r"\1"),
    (UNKNOWN.format(HALF), r"half precision needs `#include <cuda_fp16.h>`"),
    (UNKNOWN.format(BFLOAT), r"bfloat16 needs `#include <cuda_bf16.h>`"),
]
CLEARER = [
    (r"'?([\w./+-]+)'?( file not found|: No such file or directory)$",
     r"there is no \1, neither beside the source nor in the engine"),
    (r"(?:ISO C\+\+ forbids )?variable length array.*|.*variable length array.*",
     "an array's size must be known when the kernel is compiled: a constant, a #define or a template parameter"),
    (r"'(__\w+|atomic\w+)' was not declared in this scope.*",
     r"\1 is not declared: a misspelling, or not supported here"),
    (r"use of undeclared identifier '(__\w+|atomic\w+)'.*",
     r"\1 is not declared: a misspelling, or not supported here"),
    (r"no matching function for call to '(call|types)\(<unresolved overloaded function type>.*",
     "these template arguments fit no kernel of that name"),
    (r"there are no arguments to '(\w+)' that depend on a template parameter.*",
     r"\1 is not declared: a misspelling, or not supported here"),
    (r"no return statement in function returning non-void.*|non-void function does not return a value.*",
     "this function returns nothing, but its type says it does"),
]


def read_errors(output: str, name: str, beside: tuple[str, ...] = ()) -> list[tuple[int, str]]:
    """(line of the source, message) for each error in a compiler's output; line 0 where none is in the source.

    An error in a file `beside` the source names that file and its line in the message.
    """
    found: list[tuple[int, str]] = []
    outside: list[tuple[int, str]] = []      # errors for which no line of the source is named
    pending = 0              # a line of the source that the compiler names before an error in a header
    elsewhere = None         # an error in a header, waiting for such a line
    for text in output.splitlines():
        match = DIAGNOSTIC.match(text)
        if not match:
            undefined = re.search(r"undefined reference to [`'](.*?)'|undefined symbol: (.*)$", text)
            if undefined:
                line = re.search(re.escape(Path(name).name) + r":(\d+)", text)
                symbol = undefined.group(1) or undefined.group(2)
                found.append((int(line.group(1)) if line else 0, f"{symbol} is declared but nowhere defined"))
            elif text.startswith(("In file included", "                 from")):
                included = re.search(re.escape(name) + r":(\d+)", text)
                pending = int(included.group(1)) if included else pending
            continue
        ours = match["file"] == name
        line = int(match["line"])
        if match["kind"] in ("error", "fatal error"):
            if elsewhere:
                outside.append((0, elsewhere))
            elsewhere = None
            message = _clearer(match["message"])
            if ours:
                found.append((line, message))
            elif match["file"] in beside:
                found.append((0, f"{match['file']}, line {line}: {message}"))
            elif pending:
                found.append((pending, message))
            else:
                elsewhere = message
            pending = 0
        elif ours and match["kind"] not in ("note", "warning"):
            pending = pending or line
        elif ours and elsewhere and match["kind"] == "note":
            found.append((line, elsewhere))
            elsewhere = None
    if elsewhere:
        outside.append((0, elsewhere))
    found = found or outside                 # the others follow from those of the source
    decisive = [e for e in found if e[1].startswith("\0")]
    found = [(line, message.removeprefix("\0")) for line, message in (decisive or found)]
    return sorted(dict.fromkeys(found), key=lambda e: e[0] or 10**9) or [(0, output.strip()[-2000:])]


def read_nvcc_errors(output: str, name: str) -> list[tuple[int, str]]:
    """As `read_errors`, for nvcc's own way of writing them: `path/name(12): error: ...`."""
    found = []
    pattern = rf"(?m)^\S*\b{re.escape(name)}\((\d+)\): (?:fatal )?error(?: #\S+)?: (.*)$"
    for line, message in re.findall(pattern, output):
        found.append((int(line), message))
    return list(dict.fromkeys(found)) or read_errors(output, name)


def _clearer(message: str) -> str:
    message = re.sub(r"\s*\[-W[\w=-]+\]$", "", message)
    for mark, known in (("\0", DECISIVE), ("", CLEARER)):
        for pattern, better in known:
            if re.fullmatch(pattern, message):
                return mark + re.sub(pattern, better, message)
    message = re.sub(r"\blaptop_type_(\w+)", r"\1", message)
    return re.sub(r"; did you mean '_\w+'\?", "", message)
