"""CUDA C++ on any machine: compile a `.cu`, launch its kernels, count what they do, find their bugs.

    mod = laptop_cuda.load("flash.cu")            # or compile(source), CUDA C++ as text
    mod.flash[grid, block](q, k, v, out, n, scale)
    with laptop_cuda.profile() as report: ...     # counts, access by access
    with laptop_cuda.sanitize(): ...              # a bug is a KernelError
    laptop_cuda.prove(mod.add, {"n": (1, 2**30)}, "(n + 255) // 256", 256, arrays={"x": "n"})     # for every n
    laptop_cuda.inspect(mod.flash, arch="sm_90")  # registers, occupancy, machine code: by nvcc, no card

Arrays are NumPy's, or torch's tensors where torch is installed; CUDA tensors run on the GPU, from the same
file. In a notebook, importing this defines the cell magic `%%cuda`."""
from . import magic, packs
from .arguments import ArgumentError
from .arguments.pointers import pointers
from .build import CompileError, NoCompiler
from .inside import inspect
from .kernel import Kernel
from .machine import Machine
from .memory import empty
from .module import Module, compile, load
from .only_kernels import NotAllowed, only_kernels
from .ops import custom_op
from .profile import profile
from .report import KernelError
from .sanitize import sanitize
from .show import show

__all__ = ["ArgumentError", "CompileError", "Kernel", "KernelError", "Machine", "Module", "NoCompiler",
           "NotAllowed", "compile", "custom_op", "empty", "inspect", "load", "only_kernels", "pointers",
           "profile", "prove", "run", "sanitize", "show", "tensor_map"]
IN_PACKS = {"prove": "proofs", "run": "programs", "tensor_map": "asynchronous.tensor_map"}


def __getattr__(name: str):
    if name in IN_PACKS:
        return getattr(packs.part(IN_PACKS[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


magic.register()
