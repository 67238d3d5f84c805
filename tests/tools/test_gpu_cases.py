"""The cases of all kernels: on the CPU engine with the small shapes, on a card with all of them."""
import math
import re
import secrets

import pytest
import torch

from course_lib import cuda
from course_lib.gpu import build, pretend, registers
from course_lib.gpu.case import BF16, F16, Case, poisoned
from course_lib.gpu.cases import CASES
from course_lib.gpu.results import CHAPTERS, kernels_of
from course_lib.kv_cache import StaticCache, decode_kernel, tensor_core
from laptop_cuda import gpu

by_case = pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)


# in float16 and bfloat16, which differ in how they round: the slow suite runs both
TWINS = [c for c in CASES if c.dtype is F16 and (c.kernels, BF16) in {(k.kernels, k.dtype) for k in CASES}]

# two to four seconds each, and their chapters run these kernels in quick tests
LONG = {"w2_backward_keys", "flash3_three_groups", "flash3_forward"}
SLOW = [c for c in CASES if c in TWINS or LONG & {*c.kernels}]


@pytest.mark.parametrize("case", [pytest.param(case, id=case.name, marks=[pytest.mark.slow] * (case in SLOW))
                                  for case in CASES])
def test_on_the_engine(case):
    for seed, shape in enumerate(case.small):
        assert case.error(shape, seed=seed) <= case.tolerance, shape
    sanitized(case, case.small[:1])


def sanitized(case, shapes):
    for seed, shape in enumerate(shapes):
        with cuda.sanitize():
            assert case.error(shape, seed=seed) <= case.tolerance, shape


@pytest.mark.slow
@by_case
def test_sanitized_in_every_other_shape(case):
    sanitized(case, case.small[1:])


@pytest.mark.gpu
@pytest.mark.parametrize("size", ["small", "large"])
@by_case
def test_on_the_card(case, size):
    """Fresh inputs each time: the seed is in the message."""
    for shape in getattr(case, size):
        if why := case.unfit(shape, "cuda"):
            pytest.skip(why)
        seed = secrets.randbits(32)
        error = case.error(shape, "cuda", seed)
        assert error <= case.tolerance, f"error {error:g} at {shape}, seed {seed}"


def test_every_kernel_has_a_case():
    launched = {kernel for case in CASES for kernel in case.kernels}
    for chapter in CHAPTERS:
        assert set(kernels_of(chapter)) <= launched, chapter
        assert [case for case in CASES if case.chapter == chapter]
    assert len({case.name for case in CASES}) == len(CASES)


@pytest.fixture(scope="module")
def launched():
    """case -> the card after a run in all its shapes, small and large, without computing anything."""
    seen = {}
    for case in CASES:
        with pretend.card(run=False) as card:
            for shape in (*case.small, *case.large):
                case.run(*case.arguments(shape, "cuda"))
        seen[case.name] = card
    return seen


@pytest.mark.slow
@by_case
def test_a_case_launches_what_it_names(case, launched):
    assert set(case.kernels) <= launched[case.name].kernels()


@pytest.mark.slow
def test_the_table_of_registers_has_every_instance_that_a_card_would_launch(launched):
    """`python -m course_lib gpu-registers` makes it again after a change of kernels or cases."""
    listed = set(re.findall(r"^  (\w+(?:<.*>)?) ", registers.FILE.read_text(), re.M))
    assert listed == {launch.name for card in launched.values() for launch in card.launches}


@pytest.mark.slow
@pytest.mark.parametrize("chapter", CHAPTERS)
def test_nvcc_takes_every_instance_that_a_card_would_launch(chapter):
    if gpu.nvcc() is None:
        pytest.skip("not run: nvcc is missing (NVIDIA's CUDA toolkit)")
    files = {}
    for launch in build.instances([case for case in CASES if case.chapter == chapter]).values():
        files.setdefault(launch.module.path, []).append(launch.name)
    for path, names in files.items():
        oldest = build.architectures(path)[:1]          # later cards take what it takes
        assert "__CUDA_ARCH__" not in path.read_text()
        gpu.compile_check(path, oldest, tuple(name for name in names if "<" in name))


def test_an_output_that_is_not_written_is_not_right():
    def half_written(x):
        out = torch.empty_like(x)
        out[:1] = x[:1]
        return out
    lazy = Case(chapter="attention", kernels=("none",), inputs=lambda draw, n: (draw(n, 3),),
                run=half_written, oracle=lambda x: x, small=())
    assert lazy.error({"n": 1}) == 0 and math.isnan(lazy.error({"n": 2}))
    with poisoned():
        assert torch.empty(3, dtype=torch.bfloat16).isnan().all()
    assert not torch.are_deterministic_algorithms_enabled()


@pytest.mark.slow
@pytest.mark.parametrize("model", [pretend.T4, pretend.RTX_4090, pretend.A100], ids=lambda model: model.name)
def test_a_lesser_card_gets_what_fits_it(model):
    """Every case runs there, or says why not; the wrappers by themselves choose kernels that the card has."""
    left_out = set()
    for case in CASES:
        with pretend.card(model, run=False) as card:
            for shape in (*case.small, *case.large):
                why = case.unfit(shape, "cuda")
                left_out |= {(case.kernels[0], why)} if why and not case.hopper else set()
                assert why or not case.hopper
                if not why:
                    case.run(*case.arguments(shape, "cuda"))
        if model.capability < (8, 0):
            assert not any("tensor_core" in kernel or kernel == "linear_walk" for kernel in card.kernels())
    names = {name for name, _ in left_out}
    assert names == {pretend.RTX_4090: {"linear_walk"}, pretend.A100: set()}.get(model, names)
    assert model.capability >= (8, 0) or {"flash_tensor_core", "decode_tensor_core", "linear_walk"} <= names


def test_half_precision_on_a_card_without_bfloat16_is_refused_by_name():
    with pretend.card(pretend.T4, run=False):
        q, k = torch.randn(1, 8, 1, 64, device="cuda").half(), torch.randn(1, 2, 40, 64, device="cuda").half()
        with pytest.raises(ValueError, match="need a GPU from sm_80 on; Pretend T4 is sm_75"):
            tensor_core.dense(q, k, k, torch.tensor([40]))
        with pytest.raises(ValueError, match="float32"):
            decode_kernel(q, k, k)


def test_a_static_cache_is_read_where_it_is():
    cache = StaticCache(64)
    cache.append(*(torch.randn(2, 2, 40, 64).half() for _ in "kv"))
    q = torch.randn(2, 8, 1, 64).half()
    want = decode_kernel(q, *(x.contiguous() for x in cache.view()))
    assert torch.equal(decode_kernel(q, *cache.view()), want)
    k, v = cache.view()
    assert not k.is_contiguous() and tensor_core._cache_of(k).data_ptr() == cache.k.data_ptr()
    assert tensor_core._cache_of(k[:, :, 1:]) is None and tensor_core._cache_of(k[..., ::2]) is None
    assert torch.equal(decode_kernel(q, k[:, :, 1:], v[:, :, 1:]),
                       decode_kernel(q, k[:, :, 1:].contiguous(), v[:, :, 1:].contiguous()))
    same = k[:1, :1].expand(2, 2, 40, 64)
    assert tensor_core._cache_of(same) is None and decode_kernel(q, same, same).isfinite().all()
    odd = torch.cat([q.flatten()[:1], q.flatten()])[1:].view_as(q)          # begins between two vectors
    assert torch.equal(decode_kernel(odd, k, v), want)
    with pytest.raises(ValueError, match="splits must be None or an integer"):
        decode_kernel(q, k, v, splits=0)


def test_what_does_not_build_is_named_and_does_not_stop_the_others():
    class Module:
        def __init__(self):
            self.built = []

        def _library_gpu(self, text, instance, device):
            self.built.append(instance)
            if instance == "<2>":
                raise cuda.ArgumentError("no\nmore")
    module, said = Module(), []
    launches = [pretend.Launch(module, None, f"<{i}>", f"k<{i}>", (1,), (1,), 0) for i in range(4)]
    assert build.build(launches, "cuda", lambda text, **_: said.append(text)) == ["k<2>"]
    assert sorted(module.built) == ["<0>", "<1>", "<2>", "<3>"] and "k<2> was not built: no" in said
    assert build.main([]) == 1 or torch.cuda.is_available()
