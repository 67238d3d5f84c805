"""The same file on a GPU: nvcc compiles it unchanged, included into a generated source that adds the entries.

A card is only reached through torch's CUDA tensors. `compile_check` compiles for cards without one."""
import ctypes
import os
import re
import shutil
import subprocess
import tempfile
from importlib import util
from pathlib import Path

from . import build
from .arguments import arrays
from .rewrite import table
from .rewrite.launches import launches_in_device_code
from .sources import files_of, split_instance
from .text import signature

RELOCATABLE = ["-rdc=true"]      # what kernels that launch kernels need
START = f"""#include <cuda_runtime.h>
#include "{build.HEADERS / "laptop_entries.h"}"
""" + """\
static int laptop_start(const void* kernel, const unsigned* grid, const unsigned* block, void** args,
                        size_t shared, void* stream, int device, bool grid_sync) {
    cudaError_t status = cudaSetDevice(device);
    if (status == cudaSuccess && shared > 48 * 1024)
        status = cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)shared);
    dim3 blocks(grid[0], grid[1], grid[2]), threads(block[0], block[1], block[2]);
    if (status == cudaSuccess && grid_sync)
        status = cudaLaunchCooperativeKernel(kernel, blocks, threads, args, shared, (cudaStream_t)stream);
    else if (status == cudaSuccess)
        status = cudaLaunchKernel(kernel, blocks, threads, args, shared, (cudaStream_t)stream);
    if (status != cudaSuccess) cudaGetLastError();      // leave no error behind for torch to find
    return (int)status;
}
extern "C" const char* laptop_error_text(int status) { return cudaGetErrorString((cudaError_t)status); }
extern "C" int laptop_write_symbol(const void* symbol, const void* data, size_t bytes, int device) {
    cudaError_t status = cudaSetDevice(device);
    return (int)(status == cudaSuccess ? cudaMemcpyToSymbol(symbol, data, bytes) : status);
}
"""


def nvcc() -> str | None:
    """NVCC, nvcc from the PATH, the toolkit of CUDA_HOME, else that of NVIDIA's wheels."""
    home = os.environ.get("CUDA_HOME") or os.environ.get("CUDA_PATH") or "/usr/local/cuda"
    candidates = (os.environ.get("NVCC"), "nvcc", str(Path(home) / "bin" / "nvcc"), *in_wheels("nvcc"))
    return next((found for c in candidates if c and (found := shutil.which(c))), None)


def in_wheels(name: str) -> list[str]:
    """Where NVIDIA's wheels put a tool; the newest toolkit first."""
    spec = util.find_spec("nvidia")
    homes = [Path(p) for p in spec.submodule_search_locations] if spec else []
    return sorted((str(p) for home in homes for p in home.glob(f"cu*/bin/{name}")), reverse=True)


def generated(sources: list, wanted: list, file: str) -> str:
    """The generated source: `file`, untouched, then the entries of the `wanted` kernels and instances."""
    def entry(number: int, address: str) -> str:
        grid_sync = str(_speaks_of_the_grid(sources, wanted[number][0])).lower()
        return (f'extern "C" int laptop_entry_{number}(const unsigned* grid, const unsigned* block, void** '
                'args, '
                f"size_t shared, void* stream, int device) {{ return laptop_start((const void*)({address}), "
                f"grid, block, args, shared, stream, device, {grid_sync}); }}\n")
    return f'{START}#include "{file}"\n' + table.table(sources, wanted, entry)


def _speaks_of_the_grid(sources: list, kernel) -> bool:
    """Whether a kernel takes the grid as a group: only a cooperative launch makes `grid.sync()` valid."""
    body = next((s.tokens[f.body[0] : f.body[1]] for s in sources for f in s.functions
                 if f is kernel.function), [])
    return any(token.text in ("this_grid", "grid_group") for token in body)


def index(device) -> int:
    return device.index if device.index is not None else arrays.torch_in_use().cuda.current_device()


def capability(device) -> tuple[int, int]:
    return arrays.torch_in_use().cuda.get_device_capability(device)


def library(sources: list, name: str, folder: Path | None, wanted: list, device, search: tuple = ()) -> Path:
    """Builds for the architecture of `device`. The first of `sources` is the file, the others it includes."""
    tool = nvcc()
    if tool is None:
        raise build.NoCompiler("nvcc was not found; CUDA tensors need it. Install the CUDA toolkit, or set "
                               "CUDA_HOME. CPU tensors run the same kernel without it.")
    architecture = architecture_flag(capability(device))
    flags = [f"-std={sources[0].std}", "-O3", "-lineinfo", "-Xcompiler=-fPIC", architecture]
    flags += [f"-I{p}" for p in ([folder] if folder else []) + list(search)]
    flags += [f"-D{d}" for d in sources[0].defines]
    files = {"source.cu": sources[0].text, "kernel.cu": generated(sources, wanted, "source.cu")}
    nested = launches_in_device_code(sources)
    link = ["-shared", architecture] + ["-lcudadevrt"] * nested
    return build.gpu_library(files, name, flags + RELOCATABLE * nested, link, tool)


def architecture_flag(capability: tuple[int, int]) -> str:
    """The card's own instructions: wgmma needs sm_90a, which -arch=sm_90a does not assemble."""
    major, minor = capability
    number = f"{major}{minor}" + ("a" if major >= 9 else "")
    return f"-gencode=arch=compute_{number},code=sm_{number}"


PROTOTYPE = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.POINTER(ctypes.c_uint), ctypes.POINTER(ctypes.c_uint),
                             ctypes.POINTER(ctypes.c_void_p), ctypes.c_size_t, ctypes.c_void_p, ctypes.c_int)


def cells(values: list) -> list:
    """Each argument in memory of its own: the bytes of a value, the address of an array's data."""
    return [ctypes.create_string_buffer(v, len(v)) if isinstance(v, bytes)
            else ctypes.c_void_p(None if v is None else arrays.address(v)) for v in values]


def run(entry, kernel: str, grid, block, shared_bytes: int, values: list, device) -> None:
    """Launches on the current torch stream. Errors of the launch are raised here, the kernel's later."""
    from .report import KernelError
    torch = arrays.torch_in_use()
    arguments_in_c = cells(values)
    arguments = (ctypes.c_void_p * max(len(values), 1))(*(ctypes.addressof(c) for c in arguments_in_c))
    stream = torch.cuda.current_stream(device).cuda_stream
    at = index(device)
    with torch.cuda.device(at):
        status = entry.call((ctypes.c_uint * 3)(*grid), (ctypes.c_uint * 3)(*block), arguments, shared_bytes,
                            stream, at)
    if status:
        raise KernelError("bad launch", kernel=kernel, message=f"{kernel} was not launched with grid "
                          f"{grid}, block {block} and {shared_bytes} bytes of shared memory: "
                          f"{_text(entry.library, status)}" + _limit(grid))


GRID_LIMITS = (2**31 - 1, 65535, 65535)


def _limit(grid) -> str:
    """What a card says only as "invalid argument"."""
    over = next((i for i in range(3) if grid[i] > GRID_LIMITS[i]), None)
    if over is None:
        return ""
    return f". The grid's {'xyz'[over]} is at most {GRID_LIMITS[over]:,}; split the work into launches"


def _text(handle: ctypes.CDLL, status: int) -> str:
    handle.laptop_error_text.restype = ctypes.c_char_p
    return handle.laptop_error_text(status).decode()


def write_symbol(library, name: str, raw: bytes, device: int) -> None:
    row = library.symbols[name]
    with arrays.torch_in_use().cuda.device(device):
        status = library.handle.laptop_write_symbol(ctypes.c_void_p(row.address), raw,
                                                    ctypes.c_size_t(len(raw)), device)
    if status:
        raise RuntimeError(f"`{name}` was not written: {_text(library.handle, status)}")


def compile_check(path: Path, architectures: tuple[str, ...] = ("sm_80", "sm_90"),
                  instances: tuple[str, ...] = ()) -> None:
    """Compiles the file with nvcc for each architecture, entries and the named `instances` included.

    Raises CompileError. A template kernel without an instance is only parsed. What compiled is not again."""
    tool = nvcc()
    if tool is None:
        raise build.NoCompiler("nvcc was not found")
    path = Path(path).resolve()
    sources = files_of(path.read_text(encoding="utf-8-sig"), path.parent)
    kernels = [k for source in sources for k in signature.kernels(source)]
    wanted = [(k, "") for k in kernels if not k.template]
    for name, arguments in map(split_instance, instances):
        wanted += [(k, arguments) for k in kernels if k.name == name]
    text = generated(sources, wanted, str(path))
    command = [tool, "-std=c++17", "-c", *(f"-gencode=arch=compute_{a[3:]},code={a}" for a in architectures)]
    command += RELOCATABLE * launches_in_device_code(sources)
    version = build.identify((tool,), os.stat(tool).st_mtime_ns).version
    if not re.search(r"release (\d|1[012])\.", version):         # the same language, in a fifth of the time
        command.append("-Ofc=max")
    texts = [source.text for source in sources]
    passed = build.cache() / ("checked-" + build.digest(*texts, text, *command, version))
    if passed.exists():
        return
    with tempfile.TemporaryDirectory() as folder:
        made = Path(folder) / "check.cu"
        made.write_text(text)
        run = subprocess.run([*command, str(made), "-o", str(Path(folder) / "check.o")], capture_output=True,
                             text=True, env=os.environ | {"LC_ALL": "C"})
    if run.returncode:
        output = run.stdout + run.stderr
        raise build.CompileError(path.name, sources[0].text, build.read_nvcc_errors(output, path.name),
                                 output)
    passed.mkdir(parents=True, exist_ok=True)
