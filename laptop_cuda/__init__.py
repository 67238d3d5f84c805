"""CUDA C++ on any machine: compile a `.cu`, launch its kernels on tensors, count what they do, catch their bugs.

    mod = cuda.load("flash_attention")            # kernels/flash_attention.cu
    mod.flash[grid, block](q, k, v, out, n, scale)
    with cuda.profile() as report: ...            # exact counts
    with cuda.sanitize(): ...                     # a bug is a KernelError

CPU tensors run on the CPU, CUDA tensors on the GPU, from the same file. In a notebook, importing this
defines the cell magic `%%cuda`.
"""
import sys

from .build import CompileError, NoCompiler
from .memory import empty
from .module import Kernel, Module, compile, load
from .ops import custom_op
from .profile import profile
from .report import KernelError
from .sanitize import sanitize
from .show import show
from .signature import ArgumentError

__all__ = ["ArgumentError", "CompileError", "Kernel", "KernelError", "Module", "NoCompiler", "compile", "custom_op",
           "empty", "load", "profile", "sanitize", "show"]

if "IPython" in sys.modules:
    from .magic import register
    register()
