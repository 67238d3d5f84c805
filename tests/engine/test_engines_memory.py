"""What the engine keeps for itself is out of a kernel's reach: a judge's counts are in the same process."""
import platform

import pytest
import torch

import laptop_cuda as cuda
from engine_kit import checked, counted

SOURCE = """
__global__ void reads(float* out) { out[0] = threadIdx.x + blockDim.y + gridDim.z + warpSize; }
__global__ void reads_beside(float* out) { out[0] = ((const int*)&threadIdx)[n_beside]; }
__global__ void writes_beside(float* out) { ((int*)&threadIdx)[n_beside] = 0; }
__global__ void writes_its_index(float* out) { ((int*)&threadIdx)[0] = 0; }
__global__ void writes_the_width(float* out) { (int&)warpSize = 1; }
__device__ float helper(float v) { ((void**)__builtin_frame_address(0))[1] = (void*)&helper; return v; }
__global__ void returns_elsewhere(float* out) { out[0] = helper(1); }
"""


def module():
    return cuda.compile(SOURCE.replace("n_beside", "16"))


def test_a_kernel_reads_its_index():
    out = torch.zeros(1)
    checked(module().reads, 1, 1, out)
    assert out[0] == 34


@pytest.mark.parametrize("watch", [cuda.sanitize, cuda.profile, lambda: cuda.profile(sanitized=True)])
@pytest.mark.parametrize("name", ["reads_beside", "writes_beside", "writes_its_index", "writes_the_width"])
def test_the_engines_variables_are_out_of_bounds(name, watch):
    with pytest.raises(cuda.KernelError) as caught, watch():
        module()[name][1, 1](torch.zeros(1))
    assert caught.value.kind == "out of bounds"


@pytest.mark.skipif(platform.machine() != "x86_64", reason="not run: checked on x86-64 alone")
def test_a_return_address_that_was_written_is_found():
    with pytest.raises(cuda.KernelError, match="writes over the address to which one of its functions "
                       "returns"):
        checked(module().returns_elsewhere, 1, 1, torch.zeros(1))


def test_a_kernel_is_counted_and_sanitized_in_one_run():
    """A sum without a barrier is right in the engine's order, and a race all the same."""
    kernel = cuda.compile("__global__ void k(float* out) { __shared__ float s; if (!threadIdx.x) s = 0;"
                          " s += 1; if (threadIdx.x == 63) out[0] = s; }").k
    out = torch.zeros(1)
    launch = counted(kernel, 1, 64, out)
    assert out[0] == 64 and launch.barriers == 0
    with pytest.raises(cuda.KernelError) as caught, cuda.profile(sanitized=True):
        kernel[1, 64](out)
    assert caught.value.kind == "race"
