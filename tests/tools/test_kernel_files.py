"""Every file in kernels/: it compiles for the CPU, for GPUs, and on the card of this machine."""
import pytest
import torch

from course_lib import cuda
from course_lib.cuda import KERNELS
from laptop_cuda import gpu
from laptop_cuda.launch.library import load_library


def test_every_kernel_file_compiles():
    for path in sorted(KERNELS.rglob("*.cu")):
        mod = cuda.load(path)
        assert mod.kernels, path


# Template parameters of the course's kernels, by name.
SIZES = {"D": 64, "DV": 64, "ROWS": 8, "LANES": 16, "GROUP": 4, "WARPS": 4, "CHUNKS": 4, "BIAS": "true",
         "KEYS_STAY": "true", "HALF": "true", "HEADS": 16}


def instances(mod, dtype):
    """Each template kernel with `dtype` for its types and SIZES for its numbers."""
    for text in mod._texts:
        if text.template:
            given = [dtype if p.startswith(("typename", "class")) else str(SIZES[p.split("=")[0].split()[-1]])
                     for p in text.template]
            yield f"{text.name}<{', '.join(given)}>"


@pytest.mark.parametrize("path", sorted(KERNELS.rglob("*.cu")),
                         ids=lambda p: p.relative_to(KERNELS).as_posix())
def test_every_kernel_file_compiles_for_gpus(path):
    if gpu.nvcc() is None:
        pytest.skip("not run: nvcc is missing (NVIDIA's CUDA toolkit)")
    mod = cuda.load(path)
    only_half = 'tensor_tiles.cuh"' in path.read_text()    # the tensor cores' products are of 16-bit numbers
    wanted = [] if only_half else [*instances(mod, "float")]
    if any("typename" in p for text in mod._texts for p in text.template):
        wanted += instances(mod, "__half")
    gpu.compile_check(path, ("sm_80", "sm_90"), tuple(wanted))


@pytest.mark.gpu
@pytest.mark.parametrize("path", sorted(KERNELS.rglob("*.cu")),
                         ids=lambda p: p.relative_to(KERNELS).as_posix())
def test_every_kernel_file_builds_for_this_card(path):
    mod = cuda.load(path)
    wanted = mod._wanted(None, "")
    made = load_library(gpu.library(mod._files, mod.name, mod._folder, wanted, torch.device("cuda", 0)),
                        wanted, gpu.PROTOTYPE)
    assert set(made.entries) == set(wanted)             # templates are built when they are launched


def test_a_file_that_is_not_there_names_those_that_are():
    with pytest.raises(FileNotFoundError, match="there is no nothing.cu in kernels/; it has: "
                       ".*flash_attention"):
        cuda.load("nothing")
