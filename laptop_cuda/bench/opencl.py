"""`bench`'s kernels on an OpenCL device (pocl, Oclgrind), in a process that prints its times as JSON.

    python -m laptop_cuda.bench.opencl KERNEL N TIMES

The kernels are those of `bench/kernels.py`; what OpenCL spells otherwise is replaced, and a shuffle, which
OpenCL 1.2 lacks, goes through local memory.
"""
import ctypes
import json
import os
import sys
import time
from ctypes import byref, c_char_p, c_float, c_int, c_size_t, c_uint, c_ulong, c_void_p

import numpy as np

from .kernels import CASES, Case

SHUFFLE = """
float from_other(__local float* given, float value, int other) {
    int i = get_local_id(0);
    given[i] = value;
    barrier(CLK_LOCAL_MEM_FENCE);
    float found = given[i ^ other];
    barrier(CLK_LOCAL_MEM_FENCE);
    return found;
}
"""
SPELLED = {
    "__global__ void": "__kernel void", "const float* __restrict__ ": "__global const float* ",
    "float* __restrict__ ": "__global float* ", "__shared__": "__local",
    "__syncthreads()": "barrier(CLK_LOCAL_MEM_FENCE)",
    "__syncwarp()": "barrier(CLK_LOCAL_MEM_FENCE)",
    "__shfl_xor_sync(0xffffffffu, ": "from_other(given, ",
    "fmaxf(": "fmax(", "__expf(": "exp(", "blockDim.x": "(int)get_local_size(0)",
    **{f"{ours}.{axis}": f"(int){theirs}({i})" for i, axis in enumerate("xy")
       for ours, theirs in (("threadIdx", "get_local_id"), ("blockIdx", "get_group_id"))}}
USE_HOST_POINTER, DEVICE_ALL, DEVICE_NAME = 8, 0xFFFFFFFF, 0x102B


def spelled(case: Case) -> str:
    text = case.source
    for ours, theirs in SPELLED.items():
        text = text.replace(ours, theirs)
    if "from_other(" in text:
        text = text.replace(") {\n", ") {\n    __local float given[128];\n", 1)
        text = SHUFFLE + text
    return text


def load() -> ctypes.CDLL:
    """OpenCL's loader, which finds pocl, or the library that LAPTOP_CUDA_OPENCL names, as Oclgrind's."""
    cl = ctypes.CDLL(os.environ.get("LAPTOP_CUDA_OPENCL", "libOpenCL.so.1"))
    for what in ("Context", "CommandQueue", "ProgramWithSource", "Kernel", "Buffer"):
        getattr(cl, f"clCreate{what}").restype = c_void_p
    return cl


def checked(code: int, what: str) -> None:
    if code:
        raise SystemExit(f"{what}: OpenCL error {code}")


class Device:
    """The first device of the first platform, with one kernel."""

    def __init__(self, case: Case):
        self.cl = cl = load()
        platform, self.device, error = c_void_p(), c_void_p(), c_int()
        checked(cl.clGetPlatformIDs(1, byref(platform), None), "no platform")
        kind = c_ulong(DEVICE_ALL)
        checked(cl.clGetDeviceIDs(platform, kind, 1, byref(self.device), None), "no device")
        self.context = c_void_p(cl.clCreateContext(None, 1, byref(self.device), None, None, byref(error)))
        queue = cl.clCreateCommandQueue(self.context, self.device, c_ulong(0), byref(error))
        text = c_char_p(spelled(case).encode())
        program = c_void_p(cl.clCreateProgramWithSource(self.context, 1, byref(text), None, byref(error)))
        built = cl.clBuildProgram(program, 1, byref(self.device), None, None, None)
        checked(built, "the kernel does not build")
        self.queue = c_void_p(queue)
        self.kernel = c_void_p(cl.clCreateKernel(program, case.name.encode(), byref(error)))
        checked(error.value, "no such kernel")

    def name(self) -> str:
        text = ctypes.create_string_buffer(200)
        self.cl.clGetDeviceInfo(self.device, c_uint(DEVICE_NAME), c_size_t(200), text, None)
        return text.value.decode()

    def run(self, case: Case, arrays: list[np.ndarray], n: int) -> float:
        """Seconds of all threads of this process for one run."""
        cl, error = self.cl, c_int()
        for position, array in enumerate(arrays):
            size, data = c_size_t(array.nbytes), c_void_p(array.ctypes.data)
            flags = c_ulong(USE_HOST_POINTER)
            buffer = c_void_p(cl.clCreateBuffer(self.context, flags, size, data, byref(error)))
            cl.clSetKernelArg(self.kernel, position, c_size_t(8), byref(buffer))
        for position, value in enumerate(case.scalars(n), len(arrays)):
            cell = c_float(value) if isinstance(value, float) else c_int(value)
            cl.clSetKernelArg(self.kernel, position, c_size_t(4), byref(cell))
        grid, block = case.grid(n), case.block
        sizes = (c_size_t * len(block))(*(g * b for g, b in zip(grid, block)))
        groups = (c_size_t * len(block))(*block)
        start = time.process_time()
        launched = cl.clEnqueueNDRangeKernel(
            self.queue, self.kernel, len(block), None, sizes, groups, 0, None, None
        )
        checked(launched, "the kernel does not start")
        checked(cl.clFinish(self.queue), "run")
        taken = time.process_time() - start
        cl.clEnqueueReadBuffer(self.queue, buffer, 1, c_size_t(0), size, data, 0, None, None)
        return taken


def main(name: str, n: str, times: str) -> None:
    case = next(c for c in CASES if c.name == name)
    device, arrays = Device(case), case.arrays(int(n))
    taken = [device.run(case, arrays, int(n)) for _ in range(int(times))]
    print(json.dumps({"device": device.name(), "seconds": min(taken), "error": case.error(arrays)}))


if __name__ == "__main__":
    main(*sys.argv[1:])
