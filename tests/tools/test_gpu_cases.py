"""The table of all kernels: on the CPU engine with the small shapes, on a card with all of them."""
import math
import secrets
from pathlib import Path

import pytest
import torch

from course_lib import cuda
from laptop_cuda import gpu
from course_lib.gpu.cases import CASES, Case, build_all, poisoned
from course_lib.gpu.results import KERNELS


KERNEL_FILES = Path(__file__).resolve().parents[2] / "kernels"


def by_name(case):
    return case.name


@pytest.mark.parametrize("case", CASES, ids=by_name)
def test_on_the_engine(case):
    for seed, shape in enumerate(case.shapes):
        assert case.error(shape, seed=seed) <= case.tolerance, shape


@pytest.mark.gpu
@pytest.mark.parametrize("case", CASES, ids=by_name)
def test_on_the_card(case):
    """Fresh inputs each time: the seed is in the message."""
    for shape in (*case.shapes, *case.large):
        seed = secrets.randbits(32)
        error = case.error(shape, "cuda", seed)
        assert error <= case.tolerance, f"error {error:g} at {shape}, seed {seed}"


def test_every_kernel_has_a_case_of_its_chapter():
    launched = {}
    for case in CASES:
        for kernel in case.kernels:
            launched.setdefault(case.chapter, set()).add(kernel)
    for chapter, kernels in KERNELS.items():
        assert set(kernels) - {k for names in launched.values() for k in names} == set(), chapter
        assert launched[chapter], chapter


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES, ids=by_name)
def test_a_case_launches_what_it_names(case):
    with cuda.profile() as report:
        case.run(*case.arguments(case.shapes[0]))
    seen = {launch.kernel.partition("<")[0] for launch in report.launches}
    assert set(case.kernels) <= seen


TYPES, HALVES = ("float", "__half", "__nv_bfloat16"), ("__half", "__nv_bfloat16")
INSTANCES = {
    "attention": [f"softmax_registers<{t}, {w}, {c}>" for t in TYPES for w, c in ((1, 1), (1, 4), (4, 4), (16, 4), (32, 4))],
    "rope": [f"rope_heads<{t}, {half}>" for t in TYPES for half in ("true", "false")],
    "kv_cache/tensor_core": [f"{kernel}<{t}, {d}>" for t in HALVES for d in (64, 128) for kernel in ("decode_tensor_core", "paged_tensor_core")]
                          + [f"merge_splits<{t}>" for t in HALVES],
    "linear_attention/tensor_core": [f"linear_walk<{d}, {output}>" for d in (64, 128) for output in ("true", "false")],
    "sparse_attention/tensor_core": [f"{kernel}<{t}, {d}>" for t in HALVES for d in (64, 128) for kernel in ("window_tensor_core", "block_sparse_tensor_core")],
}


@pytest.mark.slow
@pytest.mark.parametrize("file", INSTANCES)
def test_nvcc_takes_the_rungs_for_a_card(file):
    if gpu.nvcc() is None:
        pytest.skip("not run: nvcc is missing (NVIDIA's CUDA toolkit)")
    gpu.compile_check(KERNEL_FILES / f"{file}.cu", ("sm_80", "sm_90"), tuple(INSTANCES[file]))


def test_an_output_that_is_not_written_is_not_right():
    def half_written(x):
        out = torch.empty_like(x)
        out[:1] = x[:1]
        return out
    lazy = Case("attention", ("none",), lambda draw, n: (draw(n, 3),), half_written, lambda x: x, ({"n": 1}, {"n": 2}))
    assert lazy.error({"n": 1}) == 0 and math.isnan(lazy.error({"n": 2}))
    with poisoned():
        assert torch.empty(3, dtype=torch.bfloat16).isnan().all()
    assert not torch.are_deterministic_algorithms_enabled()


def test_a_case_that_fails_does_not_stop_the_others():
    seen = []

    def launched(x):
        seen.append(len(x))
        assert len(x) > 1
    shapes = {"n": 1}, {"n": 2}
    case = Case("attention", ("none",), lambda draw, n: (draw(n, 3),), launched, lambda x: x, shapes, ({"n": 3},))
    build_all([case, case], "cpu")
    assert sorted(seen) == [1, 1, 2, 2, 3, 3]
