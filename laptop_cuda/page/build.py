"""Sources with hooks as one WebAssembly module, with the engine's own runtime in it.

The compiler is clang as the package ziglang brings it; threads switch by Asyncify, a pass of Binaryen's."""
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from ..build import engine_digest
from ..packs import PACKAGE, folders, include_flags
from ..toolchain.cache import cache, digest, locked
from ..toolchain.compilers import COMMON, Compiler, identify
from .hooked import CODE, WAITS, hooked

HERE = Path(__file__).parent / "wasm"
NEEDED = {"ziglang": "ziglang", "icpp_binaryen": "icpp-binaryen"}
# Of the runtime, what asks a system for what a page has not: wasm/ has it in its place.
OF_A_SYSTEM = ("fibers", "signals", "cores", "image")
PACKS = ("asynchronous",)             # whose kernels a page runs, too
TARGET = ["-target", "wasm32-wasi", "-std=c++17", "-fno-exceptions", "-fno-sanitize=undefined", "-fno-stack-protector",
          f"-I{HERE / 'include'}"]
MEMORY = 1 << 30
# Of every module: only threads.cpp waits, and unwinds by itself; who waits through a pointer is listed.
ASYNCIFY = {"asyncify-ignore-imports": "1", "asyncify-ignore-indirect": "1",
            "asyncify-addlist": f"enter_running,laptop::fiber_body(),laptop_entry_*,void laptop::call<*>(*)*,{WAITS}*"}
PASSES = (b"strip-dwarf asyncify simplify-locals coalesce-locals vacuum merge-blocks optimize-instructions reorder-locals "
          b"remove-unused-module-elements").split()


@dataclass(frozen=True)
class Source:
    """A rewritten text with its entries and table, and the names of the files whose lines are told."""
    text: str
    files: tuple[str, ...]
    flags: tuple[str, ...] = ()          # where it looks for what it includes


class NoWasm(RuntimeError):
    """A source does not compile for the page."""


def missing() -> str:
    """What is to be installed before a module can be built; "" if nothing is."""
    wanted = [package for module, package in NEEDED.items() if find_spec(module) is None]
    return f'{" and ".join(wanted)} not installed: pip install -e ".[page]"' if wanted else ""


def module(sources: list[Source]) -> bytes:
    """One module of all sources; a launch names a source by its place in the list."""
    key = digest(_runtime_key(), *((HERE.parent / f"{own}.py").read_bytes() for own in ("build", "hooked")), *map(str, sources))
    made = cache() / f"page-{key}"
    with locked(made):
        if not (made / "page.wasm").exists():
            objects = _side_by_side(lambda n: _source(made, n, sources[n]), range(len(sources)))
            _link(made, [*_runtime(), *objects])
        return (made / "page.wasm").read_bytes()


def _runtime_key() -> str:
    own = (p.read_bytes() for p in sorted(HERE.rglob("*")) if p.is_file())
    return digest(engine_digest(), _zig().version, *TARGET, *own)


def _zig():
    return identify((sys.executable, "-m", "ziglang", "c++"), 0)


def _run(*words, cwd: Path) -> None:
    environment = os.environ | {"ZIG_GLOBAL_CACHE_DIR": str(cache() / "zig")}
    command = [*_zig().command, *map(str, words)]
    ran = subprocess.run(command, cwd=cwd, env=environment, capture_output=True, text=True)
    if ran.returncode:
        raise NoWasm(ran.stderr[:3000])


def _source(made: Path, number: int, source: Source) -> Path:
    """An object: the text with hooks first, then optimised."""
    text, between, end = (made / f"{number}.{ending}" for ending in ("cpp", "ll", "o"))
    text.write_text(source.text, encoding="utf-8")
    words = [*traced_flags(_zig()), *TARGET, *include_flags(), *source.flags]
    _run(*words, "-S", "-emit-llvm", text, "-o", between, cwd=made)
    between.write_text(hooked(between.read_text(encoding="utf-8"), source.files), encoding="utf-8")
    _run("-target", "wasm32-wasi", "-O2", "-Wno-override-module", "-c", between, "-o", end, cwd=made)
    return end


def traced_flags(tool: Compiler) -> list[str]:
    """What a clang for WebAssembly is told of a source that is to have hooks."""
    flags = [f for f in tool.traced() if f not in ("-fsanitize=thread", "-fstack-clash-protection")]
    return [*(f for f in COMMON if f not in ("-fPIC", "-fvisibility=hidden")), *flags, "-Xclang", "-fsanitize=thread"]


def runtime_parts() -> list[Path]:
    """The runtime's sources, those for a page in place of what asks a system."""
    parts = [p for folder in of_packs("runtime") for p in sorted(folder.glob("runtime_*.cpp"))]
    return [p for p in parts if p.stem.removeprefix("runtime_") not in OF_A_SYSTEM] + sorted(HERE.glob("*.cpp"))


def of_packs(kind: str) -> list[Path]:
    """The folders of the core and of the packs that a page has: "runtime" or "include"."""
    return [folder for folder in folders(kind) if folder.parent == PACKAGE or folder.parent.name in PACKS]


def _runtime() -> list[Path]:
    """The runtime's objects, made once."""
    made = cache() / f"page-runtime-{_runtime_key()}"
    parts = runtime_parts()
    objects = [made / f"{p.stem}.o" for p in parts]
    includes = [f"-I{folder}" for folder in [HERE, *of_packs("runtime"), *of_packs("include")]]

    def one(part: Path, to: Path) -> None:
        _run(*TARGET, "-O2", f"-DLAPTOP_PAGE_CODE={CODE}u", *includes, "-c", part, "-o", to.with_suffix(".new.o"), cwd=made)
        to.with_suffix(".new.o").replace(to)
    with locked(made):
        _side_by_side(lambda pair: pair[1].exists() or one(*pair), zip(parts, objects))
    return objects


def _side_by_side(do, things) -> list:
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        return list(pool.map(do, things))


def _link(made: Path, objects: list[Path]) -> None:
    _run("-target", "wasm32-wasi", "-mexec-model=reactor", "-O2", f"-Wl,--max-memory={MEMORY}", *objects,
         "-o", made / "linked.wasm", cwd=made)
    (made / "page.new").write_bytes(asyncified((made / "linked.wasm").read_bytes()))
    (made / "page.new").replace(made / "page.wasm")


def asyncified(wasm: bytes) -> bytes:
    """The module with frames that can be put away, and made smaller."""
    from icpp_binaryen import Module, ffi, lib
    ffi.cdef("""uint32_t BinaryenFeatureAll(void); void BinaryenModuleSetFeatures(BinaryenModuleRef, uint32_t);
        void BinaryenSetPassArgument(char*, char*); void BinaryenModuleRunPasses(BinaryenModuleRef, char**, uint32_t);""", override=True)
    with Module.read(wasm) as module:
        lib.BinaryenModuleSetFeatures(module.ref, lib.BinaryenFeatureAll())
        for name, value in ASYNCIFY.items():
            lib.BinaryenSetPassArgument(name.encode(), value.encode())
        lib.BinaryenSetOptimizeLevel(2)
        lib.BinaryenSetShrinkLevel(1)
        passes = [ffi.new("char[]", name) for name in PASSES]
        lib.BinaryenModuleRunPasses(module.ref, passes, len(passes))
        return module.emit()
