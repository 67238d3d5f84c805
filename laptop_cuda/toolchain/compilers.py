"""The compilers of this machine and the flags that the engine gives them."""
import contextlib
import functools
import importlib.util
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

PLAIN = ["-O3", "-fno-finite-loops"]
# clash protection: a frame larger than the guard page under a stack must still hit it
TRACED = ["-O0", "-fstack-clash-protection", "-fsanitize=thread", "-fsanitize=integer-divide-by-zero"]
# binutils addr2line is off by one in DWARF 5 file tables; DWARF 4 is unambiguous
COMMON = ["-std=c++17", "-x", "c++", "-fPIC", "-g1", "-gdwarf-4", "-fno-strict-aliasing", "-ffp-contract=off",
          "-fvisibility=hidden", "-fno-threadsafe-statics", "-DLAPTOP=1", "-Werror=vla",
          "-fno-diagnostics-color"]
# of the C library, in checked programs: runtime_host.cpp looks at their arguments first
WRAPPED = ("memcpy", "memmove", "memset", "fread", "fwrite", "malloc", "calloc", "realloc", "free", "strlen")


class NoCompiler(RuntimeError):
    """There is no C++ compiler on this machine."""

    def _render_traceback_(self) -> list[str]:
        return [f"NoCompiler: {self}"]


@dataclass(frozen=True)
class Compiler:
    command: tuple[str, ...]
    clang: bool
    version: str
    linker: tuple[str, ...] = ()        # gold, where there is one: it links a kernel in half the time

    @property
    def zig(self) -> bool:
        return "ziglang" in self.command

    @property
    def release(self) -> int:
        found = re.search(r"(?:version |\) )(\d+)", self.version)       # "g++ (Debian 12.2.0-14) 12.2.0"
        return int(found[1]) if found else 0

    def traced(self) -> list[str]:
        """clang's `bounds` also traps on what it cannot report, and it leaves out blocks, and reads before a
        write to the same address, unless told not to. Volatile accesses get hooks of their own from both."""
        if self.clang:
            # zig checks more of C++ than this at -O0, and ends the process where it fails
            own = ["-fno-sanitize=undefined", "-fno-stack-protector"] if self.zig else []
            own += ["-fstrict-flex-arrays=3"] * (self.release >= 16)      # the last array of a struct has its bounds too
            return own + TRACED + self._filled() + ["-fsanitize=array-bounds", "-fsanitize-coverage=trace-pc,no-prune",
                             "-mllvm", "-tsan-instrument-read-before-write",
                             "-mllvm", "-tsan-distinguish-volatile=1", "-ferror-limit=20"]
        # a struct passed or returned by value is copied by a function, whose accesses have hooks;
        # a hook is called through its address, without a stub in between
        return TRACED + self._filled() + ["-fno-plt", "-fno-elide-constructors", "-fsanitize=bounds-strict",
                         "-fsanitize-coverage=trace-pc", "--param=tsan-distinguish-volatile=1",
                         "-fmax-errors=20"]

    def own_arrays(self, text: str) -> list[str]:
        """clang announces no elements of a thread's own arrays; where a product owes some it tells every access beside."""
        return ["-fsanitize-coverage=trace-loads,trace-stores"] if self.clang and not self.zig and "laptop_form" in text else []

    def _filled(self) -> list[str]:
        """A local variable without a value holds a pattern, not by chance a 0, where a compiler can."""
        return ["-ftrivial-auto-var-init=pattern"] if self.release >= 12 else []

    def plain(self) -> list[str]:
        """Falling off the end of a non-void function traps; the runtime reports it."""
        return [*PLAIN, *["-UNDEBUG"] * self.zig, "-fsanitize=return",         # zig defines it where it optimises
                *(["-fsanitize-trap=return", "-ferror-limit=20"] if self.clang
                  else ["-fsanitize-undefined-trap-on-error", "-fmax-errors=20"])]


def compiler() -> Compiler:
    """CXX if it is set, else g++, clang++ or c++ from the PATH, else the one of the package ziglang."""
    return _compiler(os.environ.get("CXX"), os.environ.get("PATH"))


@functools.lru_cache
def _compiler(asked: str | None, path: str | None) -> Compiler:
    candidates = [asked] if asked else ["g++", "clang++", "c++"]
    for candidate in candidates:
        command = shlex.split(candidate)
        found = shutil.which(command[0])
        if found:
            return identify((found, *command[1:]), os.stat(found).st_mtime_ns)
    if not asked and importlib.util.find_spec("ziglang"):
        return identify((sys.executable, "-m", "ziglang", "c++"), 0)
    wanted = (f"CXX is set to {asked}, which was not found." if asked else
              "No C++ compiler was found (g++ or clang++).")
    how = ("Run `xcode-select --install`." if sys.platform == "darwin" else "On Debian or Ubuntu: `sudo apt "
           "install g++`; without rights: `pip install ziglang` (about 400 MB); with conda, on any system: "
           "`conda install -c conda-forge cxx-compiler`.")
    raise NoCompiler(f"{wanted} Kernels are compiled on this machine, so one is needed. {how}")


@functools.lru_cache
def identify(command: tuple[str, ...], modified: int) -> Compiler:
    version = subprocess.run([*command, "--version"], capture_output=True, text=True, check=True).stdout
    gold = subprocess.run([*command, "-fuse-ld=gold", "-Wl,--version"], capture_output=True).returncode == 0
    return Compiler(command, "clang" in version, version, ("-fuse-ld=gold",) * gold)


def beside_program(traced: bool) -> list[str]:
    """What the linker is told of a whole program."""
    wrapped = WRAPPED if traced and sys.platform != "darwin" else ()
    return ["-lm", "-lpthread", "-ldl", *(f"-Wl,--wrap={name}" for name in wrapped)]


@functools.lru_cache
def has_openmp(command: tuple[str, ...]) -> bool:
    """clang and zig come without OpenMP's header and library."""
    with tempfile.TemporaryDirectory() as folder:
        tried = [*command, "-fopenmp", "-x", "c++", "-", "-o", str(Path(folder, "tried"))]
        text = "#include <omp.h>\nint main() { return omp_get_thread_num(); }\n"
        return subprocess.run(tried, input=text, capture_output=True, text=True).returncode == 0


def ninja() -> str | None:
    found = shutil.which("ninja")
    if found:
        return found
    with contextlib.suppress(ImportError):
        import ninja as package
        return str(Path(package.BIN_DIR) / "ninja")
    return None


def rules(sources: dict[Path, list[str]], output: Path, flags: list[str], link: list[str],
          command: tuple[str, ...]) -> str:
    def quoted(words):
        return " ".join(shlex.quote(str(w)) for w in words).replace("$", "$$")

    def path(p):
        return str(p).replace("$", "$$").replace(" ", "$ ").replace(":", "$:")

    objects = [f"{p.name}.o" for p in sources]
    rules = ["rule compile\n"
             f"  command = {quoted(command)} {quoted(flags)} $own -MD -MF $out.d -c $in -o $out\n"
             "  depfile = $out.d\n",
             f"rule link\n  command = {quoted(command)} $in -o $out {quoted(link)}\n"]
    rules += [f"build {o}: compile {path(p)}\n  own = {quoted(own)}\n"
              for o, (p, own) in zip(objects, sources.items())]
    rules.append(f"build {path(output)}: link {' '.join(objects)}\n")
    return "\n".join(rules)


def files_in(depfile: Path) -> list[Path]:
    """The files that a compiler has read, by what it wrote with -MD."""
    words = depfile.read_text().replace("\\\n", " ").split(":", 1)[1]
    return [depfile.parent / word.replace("\\ ", " ")
            for word in re.split(r"(?<!\\)\s+", words.strip()) if word]


def nvcc_problem(output: str) -> NoCompiler | None:
    """Advice where not the source but the toolkit is wrong: older than the card, or than the C++ compiler."""
    if "Unsupported gpu architecture" in output or "is not defined for option 'gpu-architecture'" in output:
        return NoCompiler("nvcc is older than this card and cannot build for it. Install a newer CUDA "
                          f"toolkit, or set NVCC to the nvcc of one.\n{output.strip()[:300]}")
    if "unsupported GNU version" in output or "unsupported clang version" in output:
        return NoCompiler("nvcc does not accept this C++ compiler. Set NVCC_CCBIN to an older g++, or try "
                          f"NVCC_APPEND_FLAGS=-allow-unsupported-compiler.\n{output.strip()[:300]}")
    return None
