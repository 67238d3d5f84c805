"""A compiler for a page: clang, Python and Binaryen as WebAssembly, fetched once by npm, and beside them what
they need of the engine: its text passes, its headers precompiled, its runtime as objects of that same compiler."""
import base64
import gzip
import hashlib
import io
import json
import shutil
import subprocess
import tarfile
import zipfile
from pathlib import Path

from ..packs import include_flags
from ..toolchain.cache import cache, digest, locked
from ..toolchain.compilers import Compiler
from ..toolchain.precompiled import HEAD
from .build import ASYNCIFY, HERE, MEMORY, PACKS, TARGET, NoWasm, of_packs, runtime_parts, traced_flags
from .edited import ROOMS
from .hooked import CODE

# Each with its version, the digest of its file as the registry tells it, and what of it a page needs.
PACKAGES = {
    "@yowasp/clang": ("22.0.0-git20542-10", "V31/z9GrJECKeACTDUyvg2llbEUiFi3bxtL5HSg7H/6sydSxdI/AoVAD9F5ozrfLjotWl0B9rghR87m+DUM/zg==",
                      "gen/bundle.js gen/llvm-resources.tar gen/llvm.core.wasm gen/llvm.core2.wasm gen/llvm.core3.wasm "
                      "gen/llvm.core4.wasm"),
    "pyodide": ("314.0.7", "0YvXxEhfEdpLfb/XkM2BFAeMROq0iMUX2bzzH9pOttyMcWkwq+HbE5uyuGD82LN7y2q+SNvi/6V5JEsOlD2R1A==",
                "pyodide.mjs pyodide.asm.mjs pyodide.asm.wasm python_stdlib.zip pyodide-lock.json"),
    "binaryen": ("132.0.0", "4Usg7yEvwO3FMso3Oov6qkOOHSod1IEv+boKkh77kTljM+eNBouqCTbqWswGzbG+vDNO/b/v2C4gfEh1WgB9Lg==", "index.js"),
}
EMPTY = ("laptop_cuda/__init__.py", "laptop_cuda/page/__init__.py", "laptop_cuda/errors/__init__.py")
PLAIN = ("bundle.js", "pyodide.mjs", "pyodide.asm.mjs", "compile.js", "pyodide-lock.json")    # scripts that a page loads by name
CLANG = Compiler(("clang++",), True, "version 22")
MACHINE = ["-target", "wasm32-wasip1", *TARGET[2:-1]]


def missing() -> str:
    """What a book with a compiler needs on this machine; "" if nothing is missing."""
    return "" if shutil.which("node") and shutil.which("npm") else "node and npm make the compiler's files for the pages"


def fetched(name: str) -> Path:
    """The folder of a package's files, in the cache; fetched the first time."""
    version, wanted, files = PACKAGES[name]
    folder = cache() / f"npm-{digest(name, version, wanted)}"
    with locked(folder):
        if not (folder / "done").exists():
            ran = subprocess.run(["npm", "pack", f"{name}@{version}"], cwd=folder, text=True, capture_output=True)
            if ran.returncode:
                raise NoWasm(f"npm did not bring {name} {version}: {ran.stderr[:1000]}")
            packed = (folder / ran.stdout.split()[-1]).read_bytes()
            if base64.b64encode(hashlib.sha512(packed).digest()).decode() != wanted:
                raise NoWasm(f"{name} {version} is not the file whose digest is in page/live.py")
            with tarfile.open(fileobj=io.BytesIO(packed)) as tar:
                for file in files.split():
                    (folder / Path(file).name).write_bytes(tar.extractfile(f"package/{file}").read())
            (folder / "done").touch()
    return folder


def write(to: Path, more: dict[str, bytes]) -> str:
    """All that a page loads for its compiler, into a folder of the book; what that weighs."""
    to.mkdir(parents=True)
    sources = [fetched(name) / Path(p).name for name, (*_, parts) in PACKAGES.items() for p in parts.split()]
    sources += [_kit(), Path(__file__).parent / "compile.js"]
    made = {p.name: p.read_bytes() for p in sources} | {"engine.zip": packed(more)}
    sizes = {}
    for name, data in sorted(made.items()):
        if name not in PLAIN:
            data = gzip.compress(data, 6, mtime=0)
            name += ".packed"            # of ".gz" some servers say that they have packed it
        (to / name).write_bytes(data)
        sizes[name] = len(data)
    key = digest(*made.values())
    (to / "files.json").write_text(json.dumps({"key": key, "sizes": sizes}))
    return f"{sum(sizes.values()) / 1e6:.0f} MB for a compiler in the page"


def _kit() -> Path:
    """The file with what the compiler needs of the engine, made once: headers, objects, the words of its programs."""
    core, *packs = of_packs("include")
    headers = {"own": _tree(HERE / "include"), "include": _tree(core), "packs": {p.parent.name: _tree(p) for p in packs},
               "same": _tree(Path(include_flags()[-1][2:])), "start.h": HEAD}
    runtime = {name: text for folder in of_packs("runtime") for name, text in _tree(folder).items()}
    more = {"runtime": runtime, "page": _tree(HERE), "k.cpp": "", "k.ll": "", "k.o": "",
            **{p.name: p.read_text(encoding="utf-8") for p in runtime_parts()}}
    work = json.dumps({"headers": headers, "more": more, "asyncify": ASYNCIFY} | _work(runtime_parts()))
    program = Path(__file__).parent / "make.mjs"
    made = cache() / f"live-{digest(work, program.read_bytes(), *PACKAGES['@yowasp/clang'])}"
    with locked(made):
        if not (made / "kit.json").exists():
            ran = subprocess.run(["node", program, fetched("@yowasp/clang")], text=True, input=work, capture_output=True)
            if ran.returncode:
                raise NoWasm(f"the engine's runtime does not compile for the page:\n{ran.stderr[:3000]}")
            (made / "kit.json").write_text(ran.stdout)
    return made / "kit.json"


def _work(parts: list[Path]) -> dict:
    """The programs that a page asks of clang, and what the making of a book does: the runtime's objects, the headers precompiled."""
    places = ["-Iown", "-Iinclude", *(f"-Ipacks/{name}" for name in PACKS)]
    plain = ["clang++", *MACHINE, "-O2", f"-DLAPTOP_PAGE_CODE={CODE}u", *places, "-Ipage", "-Iruntime", "-c"]
    traced = [word for word in traced_flags(CLANG) if word != "-gdwarf-4"]      # which asks for more than lines, slowly
    flags = ["clang++", *MACHINE, *traced, "-fdiscard-value-names", *places, "-Isame"]
    objects = [f"{p.name}.o" for p in parts]
    link = [*flags[:3], "-mexec-model=reactor", "-O1", "-Wl,--strip-debug", f"-Wl,--max-memory={MEMORY}", *objects]
    programs = {"traced": [*flags, "-include-pch", "start.pch", "-S", "-emit-llvm", "k.cpp", "-o", "-"],
                "object": [*flags[:3], "-O1", "-Wno-override-module", "-c", "k.ll", "-o", "k.o"],
                "link": [*link, "k.o", "-o", "k.wasm"]}
    header = [word if word != "c++" else "c++-header" for word in flags]
    jobs = [*(([*plain, name.removesuffix(".o"), "-o", name], name) for name in objects),
            ([*header, "-c", "start.h", "-o", "start.pch"], "start.pch")]
    return {"programs": programs, "jobs": jobs}


def _tree(folder: Path) -> dict:
    return {p.name: _tree(p) if p.is_dir() else p.read_text(encoding="utf-8") for p in sorted(folder.iterdir())}


def packed(more: dict[str, bytes] = {}) -> bytes:
    """The engine's text passes and headers, as Python in a page finds them, and `more` files of the book's."""
    engine, packed = Path(__file__).parents[1], io.BytesIO()
    rooms = [*ROOMS, "include/**/*", *(f"{name}/include/**/*" for name in PACKS)]
    files = {path.relative_to(engine.parent).as_posix(): path.read_bytes()
             for pattern in rooms for path in sorted(engine.glob(pattern)) if path.is_file()}
    with zipfile.ZipFile(packed, "w") as made:
        for path, content in (dict.fromkeys(EMPTY, b"") | more | files).items():
            made.writestr(zipfile.ZipInfo(path), content)
    return packed.getvalue()
