"""For functions that launch kernels: number types, aligned memory, limits of a GPU, how to cut the work."""
import math

import torch
from torch import Tensor

HALF = (torch.float16, torch.bfloat16)
C_TYPES = {torch.float32: "float", torch.float16: "__half", torch.bfloat16: "__nv_bfloat16"}

# Bytes of shared memory per block. A kernel gets more than the first by kernel.shared_limit = ...
SHARED_BYTES = 48 << 10             # every GPU
SHARED_BYTES_SM80 = 99 << 10        # the smallest limit of all GPUs from sm_80 on (sm_86 and sm_89 have it)
SHARED_BYTES_A100 = 160 << 10       # sm_80 and sm_90, the data-centre GPUs: they allow 163 and 227 KiB
SHARED_BYTES_SM90 = 227 << 10       # sm_90 alone
MULTIPROCESSORS = 132               # of an H100, assumed where there is no GPU


def multiprocessors(device) -> int:
    device = torch.device(device)
    on_a_gpu = device.type == "cuda"
    return torch.cuda.get_device_properties(device).multi_processor_count if on_a_gpu else MULTIPROCESSORS


def runs_tensor_cores(device) -> bool:
    """Whether kernels with mma, ldmatrix and cp.async run there: GPUs from sm_80 on, and the CPU engine."""
    return torch.device(device).type != "cuda" or torch.cuda.get_device_capability(device) >= (8, 0)


def runs_hopper(device) -> bool:
    """Whether copies by tensor maps and products of warpgroups run there: on sm_90, and on the CPU engine."""
    return torch.device(device).type != "cuda" or torch.cuda.get_device_capability(device) == (9, 0)


def require_tensor_cores(x: Tensor) -> None:
    if not runs_tensor_cores(x.device):
        raise ValueError("the tensor-core kernels need a GPU from sm_80 on; "
                         f"{torch.cuda.get_device_name(x.device)} is "
                         "sm_{}{}. float32 tensors take the other kernels".format(
                *torch.cuda.get_device_capability(x.device)))


def shared_limit(device) -> int:
    """Bytes of shared memory that one block may ask for there. The engine allows what an A100 does."""
    if torch.device(device).type != "cuda":
        return SHARED_BYTES_A100
    return getattr(torch.cuda.get_device_properties(device), "shared_memory_per_block_optin",
                   SHARED_BYTES_SM80)


def parts_to_fill(wanted: int, blocks: int, length: int, shortest: int) -> int:
    """Parts of `length`, none shorter than `shortest`, so that blocks * parts is at least `wanted`."""
    return max(1, min(math.ceil(wanted / max(blocks, 1)), length // shortest))


def parts_that_fit(wanted: int, blocks: int, length: int, shortest: int) -> int:
    """The same, but blocks * parts is at most `wanted`, so that all of them run at once."""
    return max(1, min(wanted // max(blocks, 1), length // shortest))


def aligned(*tensors: Tensor) -> list[Tensor]:
    """Contiguous, at addresses that are multiples of 16 as vector loads need; a view may begin elsewhere."""
    return [x.contiguous() if x.data_ptr() % 16 == 0 else x.clone(memory_format=torch.contiguous_format)
            for x in tensors]


def widened(*tensors: Tensor) -> tuple[Tensor, ...]:
    """Half precision becomes float: scores, states and sums are never kept in half."""
    return tuple(x.float() if x.dtype in HALF else x for x in tensors)
