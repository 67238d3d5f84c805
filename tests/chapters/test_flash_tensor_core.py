"""Tensor cores: the parts of their kernels, and flash attention's rung 7 with its backward, counted."""
import pytest
import torch

from course_lib import cuda, flash_attention as fa
from course_lib.flash_attention import kernels as flash_kernels
from course_lib.gpu.case import BF16, attention, relative
from course_lib.gpu.cases import case_of
from course_lib.gpu.cases.flash_attention import dealt_out
from references import asked, excess, launches_of, rand

def inputs(n_q, n_k, d=64, v_dim=None, heads=1, kv_heads=1, dtype=BF16, device="cpu"):
    g = torch.Generator().manual_seed(0)
    return [torch.randn(1, *shape, generator=g).to(device, dtype) for shape in (
        (heads, n_q, d), (kv_heads, n_k, d), (kv_heads, n_k, v_dim or d))]


@pytest.mark.parametrize("n_q, n_k, d, causal", [(70, 50, 64, True), (130, 200, 64, True),
                                                 pytest.param(130, 70, 128, False, marks=pytest.mark.slow)])
def test_traffic_is_what_was_predicted_and_no_bank_is_asked_twice(n_q, n_k, d, causal):
    """A block reads its 128 queries once and every tile of 64 keys it visits; out and lse are written once."""
    q, k, v = inputs(n_q, n_k, d)
    launches = launches_of(lambda: fa.forward_kernel(q, k, v, causal, rung=7))
    assert asked(launches) == fa.traffic(n_q, d, 128, 64, n_k=n_k, causal=causal, itemsize=2) + 4 * n_q
    assert excess(launches) == 0


@pytest.mark.parametrize("n_q, n_k, d, causal",
                         [(70, 50, 64, True), pytest.param(130, 70, 128, False, marks=pytest.mark.slow)])
def test_traffic_of_the_backward_is_what_was_predicted(n_q, n_k, d, causal):
    """In rows of both operands, q and dO or k and v: the own ones once, the passing ones once per block."""
    q, k, v = inputs(n_q, n_k, d)
    out, lse = fa.forward_kernel(q, k, v, causal, rung=7)
    deltas, keys, queries = launches_of(lambda: fa.backward_kernels(out, q, k, v, out, lse, causal, rung=7))
    row, keys_a_block = 2 * 2 * d, 128 if d == 64 else 64
    pass_keys = sum(n_q - max(0, k0 - (n_k - n_q) if causal else 0) for k0 in range(0, n_k, keys_a_block))
    pass_queries = sum(fa.keys_seen(min(q0 + 128, n_q) - 1, n_q, n_k, causal) for q0 in range(0, n_q, 128))
    assert asked([deltas]) == n_q * (row + 4)
    assert asked([keys]) == 2 * n_k * row + pass_keys * (row + 8)  # k, v in, dk, dv out; lse and D
    # four lanes ask for lse and D
    assert asked([queries]) == n_q * (row + row // 2) + pass_queries * row + 4 * 8 * n_q
    assert excess([deltas, keys, queries]) == 0


@pytest.mark.parametrize("change, scale, words", [
    (dict(dtype=torch.float32), None, "rung must be 1 to 6, or 7 for float16"),
    *((change, None, "widths that are multiples of 8") for change in (dict(d=60), dict(v_dim=20))),
    ({}, -1.0, "a scale above 0; got 7")])
def test_what_the_tensor_cores_do_not_take(change, scale, words):
    q, k, v = inputs(3, 3, **change)
    with pytest.raises(ValueError, match=words):
        fa.forward_kernel(q, k, v, scale=scale, rung=7)
    assert flash_kernels.best_rung(q, v, 0.1 if scale is None else scale) == 6


@pytest.mark.gpu
def test_autograd_takes_the_tensor_cores_on_the_card():
    leaves = [x.requires_grad_() for x in inputs(300, 300, heads=4, kv_heads=2, device="cuda")]
    out = fa.flash_attention(*leaves, causal=True)
    assert torch.equal(out, fa.forward_kernel(*leaves, True, rung=7)[0])
    wide = [x.detach().double().requires_grad_() for x in leaves]
    pairs = zip(torch.autograd.grad(out.sum(), leaves),
                torch.autograd.grad(attention(*wide, True)[0].sum(), wide))
    assert all(relative(got, want) < 1.6e-2 for got, want in pairs)


@pytest.mark.parametrize("swizzle", [0, 1])
def test_the_swizzle_removes_every_conflict(swizzle):
    """load_matrix reads 8 rows of 16 bytes at once: 128 bytes, one wavefront without conflict. Four loads of
    four pieces; unswizzled, 8 rows lie in the same 4 banks: 8 wavefronts for each piece."""
    launch, = launches_of(lambda: dealt_out(rand(16, 64).bfloat16(), swizzle))
    assert launch.shared_load.requests == 4
    assert launch.shared_load.excess == (0 if swizzle else 7 * 4 * 4)


@pytest.mark.parametrize("old, new, case, line", [
    ("wait<0>();", "", "read_tile", "load_matrix_x4(r, &tile"),
    ("float rd[4] = {};", "float rd[4] = {}; if (lane < 16) return;", "one_product", "multiply_add(rd, ra")],
    ids=["a missing wait", "half a warp"])
def test_what_the_sanitizer_says_of(old, new, case, line, tmp_path, monkeypatch):
    """A tile that has not arrived is read; a product is asked of 16 lanes."""
    text = (cuda.KERNELS / "flash_attention/fragments.cu").read_text().replace("../common/", "")
    (tmp_path / "tensor_core.cuh").write_text((cuda.KERNELS / "common/tensor_core.cuh").read_text())
    (tmp_path / "changed.cu").write_text(text.replace(old, new))
    changed = cuda.load(tmp_path / "changed.cu")
    monkeypatch.setattr(cuda, "load", lambda name: changed)
    case = case_of(case)
    with pytest.raises(cuda.KernelError) as caught, cuda.sanitize():
        case.run(*case.arguments(case.small[-1]))
    assert line in text.split("\n")[caught.value.line - 1], caught.value.message
