"""NVIDIA's compiler and disassembler: where they are, and what they make of a kernel for an architecture.

No card is needed. Both come with the CUDA toolkit, or as wheels for Linux and Windows:
`pip install ".[inside]"` in the folder of the course or of laptop_cuda."""
import json
import os
import re
import shutil
import subprocess
from dataclasses import asdict, dataclass
from pathlib import Path

from .. import build, gpu
from ..kernel import Kernel
from ..packs import header
from ..rewrite import table
from ..rewrite.launches import launches_in_device_code
from ..text.diagnostics import read_nvcc_errors
from ..toolchain.cache import digest, locked
from ..toolchain.compilers import identify

NO_COMPILER = 'nvcc was not found, and registers are its choice: `pip install ".[inside]"` brings it'
GET = 'pip install ".[inside]"'
MARKER = "laptop_marker"
ENTRY = re.compile(r"Compiling entry function '(\w+)' for '(\w+)'(.*?)(?=Compiling entry function|\Z)", re.S)
COUNTS = {"stack": r"(\d+) bytes stack frame", "spill_stores": r"(\d+) bytes spill stores",
          "spill_loads": r"(\d+) bytes spill loads", "registers": r"Used (\d+) registers",
          "static_shared": r"(\d+) bytes smem"}


class InspectError(ValueError):
    """What cannot be looked into, and why: one line."""

    def _render_traceback_(self) -> list[str]:
        return [f"InspectError: {self}"]


@dataclass(frozen=True)
class Compiled:
    """One kernel for one architecture, as ptxas reports it."""
    symbol: str                  # its name in the machine code
    registers: int               # per thread
    spill_stores: int            # bytes per thread written to local memory for want of registers
    spill_loads: int
    stack: int                   # bytes of local memory per thread: arrays indexed at run time, and spills
    static_shared: int           # bytes per block
    compiler: str                # "nvcc 13.0.88"
    cubin: Path


def nvdisasm() -> str | None:
    """NVDISASM, the PATH, the folder of nvcc, else the wheel."""
    compiler = gpu.nvcc()
    beside = str(Path(compiler).resolve().parent / "nvdisasm") if compiler else None
    candidates = (os.environ.get("NVDISASM"), "nvdisasm", beside, *gpu.in_wheels("nvdisasm"))
    return next((found for c in candidates if c and (found := shutil.which(c))), None)


def compiled(kernel: Kernel, arch: str) -> Compiled:
    """`kernel` compiled for `arch`; kept in the build cache."""
    tool = gpu.nvcc()
    if tool is None:
        raise InspectError(NO_COMPILER)
    if not re.fullmatch(r"sm_\d{2,3}[af]?", arch):
        raise InspectError(f"arch: an architecture is named like sm_90, got {arch!r}")
    for text in kernel._texts():
        instance = (kernel.instance or "<>") if text.template else ""
        found = _compiled(kernel, text, instance, arch, tool)
        if found is not None:
            return found
    raise InspectError(f"{kernel.__name__} is behind an #if that is not taken for {arch}")


def _compiled(kernel: Kernel, text, instance: str, arch: str, tool: str) -> Compiled | None:
    module = kernel.module
    address = table.expression(text, instance, len(module._named(kernel.name)) > 1)
    # The marker's name in the machine code holds the name of its argument, so that no demangler is needed.
    marker = (f"template <auto kernel> __global__ void {MARKER}() {{}}\n"
              f"const void* laptop_kernel() {{ return (const void*)({address}); }}\n"
              f"const void* laptop_found() {{ return (const void*)&{MARKER}<{address}>; }}\n")
    files = {"source.cu": module._files[0].text,
             **{name: path.read_text() for name in ("laptop_library_types.h", "laptop_torch.h",
                                                    "laptop_torch_warps.h") if (path := header(name))},
             "kernel.cu": '#include "source.cu"\n' + table.guarded(text.conditions, marker)}
    files |= _without_libraries(module)
    search = ([module._folder] if module._folder else []) + list(module._include)
    flags = [f"-std={module._files[0].std}", "-O3", "-lineinfo", "-Xptxas=-v", "-cubin",
             f"-gencode=arch=compute_{arch[3:]},code={arch}", "--expt-relaxed-constexpr", "-I.",
             *(f"-I{p}" for p in search), *(f"-D{d}" for d in module._files[0].defines)]
    flags += gpu.RELOCATABLE * launches_in_device_code(module._files)
    included = [file.text for file in module._files[1:]]
    version = identify((tool,), os.stat(tool).st_mtime_ns).version
    folder = build.cache() / f"inside-{digest(*files.values(), *included, *flags, tool, version)}"
    with locked(folder):
        record = folder / "report.json"
        if not record.exists():
            report = _run_nvcc([tool, *flags], folder, files, kernel, arch)
            record.with_suffix(".new").write_text(json.dumps(report))
            record.with_suffix(".new").replace(record)
        report = json.loads(record.read_text())
    number = re.search(r"V([\d.]+)", version)
    return _read_report(report, f"nvcc {number[1] if number else '?'}", folder / "kernel.cubin")


def _without_libraries(module) -> dict[str, str]:
    """The included files of the source's own folder, where host code of cuBLAS or its like was left out of
    one: they are then found before the files as they are."""
    included = module._files[1:]
    if all(file.text == file.as_read for file in included):
        return {}
    home = module._folder.resolve()
    inside = (file for file in included if file.path.is_relative_to(home))
    return {str(file.path.relative_to(home)): file.text for file in inside}


def _run_nvcc(command: list[str], folder: Path, files: dict[str, str], kernel: Kernel, arch: str) -> str:
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text, encoding="utf-8")
    run = subprocess.run([*command, "-o", "kernel.cubin", "kernel.cu"], cwd=folder, capture_output=True,
                         text=True, errors="replace", env=os.environ | {"LC_ALL": "C"})
    printed = run.stdout + run.stderr
    if run.returncode == 0:
        return printed
    if "nsupported gpu architecture" in printed or "is not defined for option" in printed:
        raise InspectError(f"arch: this nvcc does not know {arch}; `nvcc --list-gpu-code` says what it knows")
    if problem := build.nvcc_problem(printed):
        raise InspectError(str(problem).splitlines()[0])
    assembler = re.search(r"ptxas \S*?,? ?.*?(?:error|fatal)\s*: (.*)", printed)
    line, message = (0, assembler[1]) if assembler else read_nvcc_errors(printed, "source.cu")[0]
    where = f"line {line}: " if line else ""
    raise InspectError(f"{kernel.__name__} does not compile for {arch}: {where}{message.splitlines()[0]}")


def entries_of(printed: str) -> list[tuple[str, str, dict[str, int]]]:
    """What ptxas printed: [(symbol, architecture, figures by the names of COUNTS), ...]."""
    entries = []
    for symbol, arch, text in ENTRY.findall(printed):
        found = {name: re.search(pattern, text) for name, pattern in COUNTS.items()}
        entries.append((symbol, arch, {name: int(match[1]) if match else 0 for name, match in found.items()}))
    return entries


def _read_report(printed: str, compiler: str, cubin: Path) -> Compiled | None:
    """The figures of the kernel that the marker names; None if there is no marker."""
    entries = {symbol: figures for symbol, _, figures in entries_of(printed)}
    markers = [name for name in entries if MARKER in name]
    named = [name for name in entries
             if markers and name not in markers and _alike(name) in _alike(markers[0])]
    if not named:
        return None
    symbol = max(named, key=len)
    return Compiled(symbol, compiler=compiler, cubin=cubin, **entries[symbol])


def _alike(symbol: str) -> str:
    """A mangled name without the numbers of its back references, which begin elsewhere in the marker's."""
    return re.sub(r"S[0-9A-Z]*_", "S_", symbol)


def disassembled(made: Compiled) -> str | None:
    """The machine code as text with source lines; None without nvdisasm."""
    tool = nvdisasm()
    if tool is None:
        return None
    version = identify((tool,), os.stat(tool).st_mtime_ns).version
    folder = made.cubin.parent
    kept = folder / f"sass-{digest(tool, version)}.txt"
    with locked(folder):
        if not kept.exists():
            run = subprocess.run([tool, "-gi", "-c", str(made.cubin)], capture_output=True, encoding="utf-8",
                                 errors="replace")
            if run.returncode:
                last = (run.stderr.strip().splitlines() or ["no message"])[-1]
                raise InspectError(f"nvdisasm does not read this machine code: {last}")
            kept.with_suffix(".new").write_text(run.stdout, encoding="utf-8")
            kept.with_suffix(".new").replace(kept)
        return kept.read_text(encoding="utf-8")


def figures(made: Compiled) -> dict[str, int | str]:
    """What the compiler decided, without paths and names of symbols."""
    return {name: value for name, value in asdict(made).items() if name not in ("symbol", "cubin")}
