"""Every file in kernels/: it compiles for the CPU, and on the card of this machine."""
import pytest
import torch

from course_lib import cuda
from course_lib.cuda import KERNELS
from course_lib.launching import runs_tensor_cores
from laptop_cuda import gpu
from laptop_cuda.launch.library import load_library


def test_every_kernel_file_compiles():
    for path in sorted(KERNELS.rglob("*.cu")):
        mod = cuda.load(path)
        assert mod.kernels, path


@pytest.mark.gpu
@pytest.mark.parametrize("path", sorted(KERNELS.rglob("*.cu")),
                         ids=lambda p: p.relative_to(KERNELS).as_posix())
def test_every_kernel_file_builds_for_this_card(path):
    """Before sm_80 all but the one whose kernels, no templates, are of tensor-core instructions."""
    if "tensor_core.cuh" in path.read_text() and not runs_tensor_cores("cuda"):
        pytest.skip("not run: it needs a GPU from sm_80 on")
    mod = cuda.load(path)
    wanted = mod._wanted(None, "")
    made = load_library(gpu.library(mod._files, mod.name, mod._folder, wanted, torch.device("cuda", 0)),
                        wanted, gpu.PROTOTYPE)
    assert set(made.entries) == set(wanted)             # templates are built when they are launched


def test_a_file_that_is_not_there_names_those_that_are():
    with pytest.raises(FileNotFoundError, match="there is no nothing.cu in kernels/; it has: "
                       ".*flash_attention"):
        cuda.load("nothing")
