"""kernels/w2_attention.cu against the direct form in float64: values, gradients, counts, faults and
mutants."""
import math
import re
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings, strategies as st

from course_lib import cuda
from course_lib.gpu.case import poisoned
from course_lib.w2_attention import kernels as w2_kernels
from course_lib.launching import C_TYPES
from course_lib.flash_attention.kernels import forward_kernel as flash_kernel
from course_lib.w2_attention import W2Attention, w2_attention
from course_lib.w2_attention.kernels import dot_product_operands, w2_attention_kernel, w2_flash_attention
from course_lib.w2_attention.scores import product_and_bias, joined

KERNELS = Path(__file__).resolve().parents[2] / "kernels"
TOLERANCE = {torch.float32: 3e-5, torch.float16: 4e-3, torch.bfloat16: 3e-2}
SHAPES = [(1, 1, 4, 4), (33, 63, 31, 20), (100, 31, 32, 7), (64, 64, 16, 32), (5, 130, 9, 40)]


def gaussians(n, m, d, v_dim, b=1, h=2, seed=0, dtype=torch.float32, at=0.0):
    """Means around `at`, widths below 1."""
    draw = torch.Generator().manual_seed(seed)
    mu_q, sigma_q, mu_k, sigma_k = (torch.randn(b, h, rows, d, generator=draw) for rows in (n, n, m, m))
    return [x.to(dtype) for x in (mu_q + at, sigma_q.sigmoid(), mu_k + at, sigma_k.sigmoid(),
                                  torch.randn(b, h, m, v_dim, generator=draw))]


def exact(inputs, tau, causal, upstream=None):
    """The direct form in float64, and the gradients of the five tensors and of tau."""
    leaves = [x.detach().double().requires_grad_() for x in (*inputs, torch.as_tensor(tau))]
    out = w2_attention(*leaves, causal=causal)
    return out.detach(), None if upstream is None else torch.autograd.grad(out, leaves, upstream.double())


def agree(got, want, dtype=torch.float32, slack=1):
    scale = max(1.0, want.abs().max().item())
    return (bool(got.isfinite().all()) and (got.double() - want).abs().max().item() < slack * TOLERANCE[dtype]
            * scale)


@pytest.mark.parametrize("rung", [1, 2])
@pytest.mark.parametrize("causal", [False, True])
def test_every_rung_equals_the_direct_form(rung, causal):
    for seed, shape in enumerate(SHAPES):
        inputs, tau = gaussians(*shape, b=2, seed=seed), torch.tensor([1.5, 6.0])
        with poisoned():
            got = w2_attention_kernel(*inputs, tau, causal, rung)
        assert agree(got, exact(inputs, tau, causal)[0])


@pytest.mark.parametrize("rung", [1, 2])
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision(rung, dtype):
    inputs = gaussians(40, 70, 30, 32, dtype=dtype)
    got = w2_attention_kernel(*inputs, 8.0, True, rung)
    assert got.dtype == dtype and agree(got, exact(inputs, 8.0, True)[0], dtype)


@settings(max_examples=15, deadline=None)
@given(n=st.integers(1, 70), m=st.integers(1, 70),
       width=st.sampled_from([(8, 8), (31, 17), (64, 64), (33, 100)]), causal=st.booleans(),
       seed=st.integers(0, 999))
def test_gradients_against_float64(n, m, width, causal, seed):
    inputs, tau = gaussians(n, m, *width, seed=seed), torch.tensor([2.0, 9.0])
    leaves = [x.requires_grad_() for x in (*inputs, tau)]
    out = w2_flash_attention(*leaves, causal)
    upstream = torch.randn(out.shape, generator=torch.Generator().manual_seed(seed))
    want, grads = exact(inputs, tau.detach(), causal, upstream)
    assert agree(out, want)
    *got, got_tau = torch.autograd.grad(out, leaves, upstream)
    assert all(agree(a, b, slack=4) for a, b in zip(got, grads))
    assert agree(got_tau, grads[-1], slack=16)              # one number from all pairs, whose signs differ


@pytest.mark.slow
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_gradients(dtype):
    inputs = gaussians(40, 50, 30, 32, dtype=dtype)
    leaves = [x.requires_grad_() for x in inputs]
    out = w2_flash_attention(*leaves, 8.0, True)
    grads = exact(inputs, 8.0, True, torch.ones_like(out))[1]
    for got, want in zip(torch.autograd.grad(out, leaves, torch.ones_like(out)), grads):
        assert got.dtype == dtype and agree(got, want, dtype, slack=4)


def test_backward_writes_everything_and_repeats():
    inputs, runs = [x.requires_grad_() for x in gaussians(70, 45, 20, 25)], []
    with poisoned():
        for _ in range(2):
            out = w2_flash_attention(*inputs, 3.0, True)
            runs.append(torch.autograd.grad(out.square().sum(), inputs))
    assert all(torch.equal(a, b) and a.isfinite().all() for a, b in zip(*runs))


def test_tokens_far_from_the_origin_lose_nothing():
    near, far = gaussians(40, 40, 16, 16), gaussians(40, 40, 16, 16, at=1000.0)
    for x in far[0], far[2]:
        x.copy_(x.mul(64).round() / 64)                 # so that moving back to the origin is exact
    for x, y in zip(near, far):
        x.copy_(y)
    near[0].sub_(1000)
    near[2].sub_(1000)
    outs = [w2_flash_attention(*(x.requires_grad_() for x in inputs), 2.0, True) for inputs in (near, far)]
    assert torch.equal(*outs)
    grads = [torch.autograd.grad(out.sum(), inputs) for out, inputs in zip(outs, (near, far))]
    assert all(torch.equal(a, b) for a, b in zip(*grads))


@pytest.mark.parametrize("tau", [0.0, 1e-3, 1.0])
@pytest.mark.parametrize("size", [0.0, 1.0, 1e4, 1e24])
def test_no_nan_whatever_the_temperature_and_the_norms(tau, size):
    """size 0: all tokens equal. 1e24: the squares overflow; every key is then equally, very far."""
    mu_q, sigma_q, mu_k, sigma_k, v = (size * x if i < 4 else x
                                       for i, x in enumerate(gaussians(33, 40, 8, 8)))
    inputs, tau = [x.requires_grad_()
                   for x in (mu_q, sigma_q, mu_k, sigma_k, v)], torch.tensor(tau, requires_grad=True)
    out = w2_flash_attention(*inputs, tau, True)
    assert (out.isfinite().all()
            and all(g.isfinite().all() for g in torch.autograd.grad(out.sum(), [*inputs, tau])))
    torch.testing.assert_close(w2_attention_kernel(*inputs, tau, True, 1), out, atol=1e-4, rtol=1e-3)
    if size in (0.0, 1e24):
        torch.testing.assert_close(out[:, :, -1], v.mean(2), atol=1e-5, rtol=1e-4)


def test_queries_without_keys_and_empty_inputs():
    inputs = [x.requires_grad_() for x in gaussians(9, 4, 8, 8)]
    out = w2_flash_attention(*inputs, 1.0, True)
    grads = torch.autograd.grad(out.sum(), inputs)
    assert ((out[:, :, :5] == 0).all() and all(g.isfinite().all() for g in grads)
            and (grads[0][:, :, :5] == 0).all())
    for n, m in ((0, 3), (3, 0)):
        inputs = [x.requires_grad_() for x in gaussians(n, m, 8, 8)]
        for rung in (1, 2):
            assert (w2_attention_kernel(*inputs, 1.0, rung=rung) == 0).all()
        assert torch.autograd.grad(w2_flash_attention(*inputs, 1.0).sum(), inputs)[0].shape == (1, 2, n, 8)


def test_views_and_addresses():
    inputs = gaussians(20, 20, 16, 16)
    want = w2_flash_attention(*inputs, 1.0)
    assert torch.equal(w2_flash_attention(*(x.mT.contiguous().mT for x in inputs), 1.0), want)
    offset = [torch.cat([torch.zeros(1), x.flatten()])[1:].view(x.shape) for x in inputs]
    assert torch.equal(w2_flash_attention(*offset, 1.0), want)


def test_the_layer_runs_on_the_kernel():
    x = torch.randn(1, 20, 32, generator=torch.Generator().manual_seed(0))
    torch.manual_seed(0)
    layer = W2Attention(32, 4)
    want = torch.autograd.grad(layer(x).square().sum(), [*layer.parameters()])
    layer.form = "fused"
    for a, b in zip(torch.autograd.grad(layer(x).square().sum(), [*layer.parameters()]), want):
        torch.testing.assert_close(a, b, atol=1e-4, rtol=1e-3)


def test_the_operator_passes_opcheck():
    inputs = [x.requires_grad_() for x in (*gaussians(9, 12, 8, 8), torch.tensor([1.0, 2.0]))]
    torch.library.opcheck(w2_kernels._w2, (*inputs, True))


@pytest.mark.parametrize("order", ["forward", "reverse", "seeded"])
def test_no_kernel_has_a_fault_in_any_thread_order(order):
    inputs = [x.requires_grad_() for x in gaussians(35, 40, 20, 19)]
    with cuda.sanitize(order=order):
        for rung in (1, 2):
            w2_attention_kernel(*inputs, 2.0, True, rung)
        w2_flash_attention(*inputs, 2.0, True).sum().backward()


def asked(function):
    with cuda.profile() as report:
        function()
    return {launch.kernel.split("<")[0]: launch.global_load.bytes + launch.global_store.bytes
            for launch in report.launches}


@pytest.mark.parametrize("n, m, causal", [(128, 128, False), (70, 50, False), (150, 150, True)])
def test_the_fused_kernel_asks_for_what_the_formula_says(n, m, causal):
    d, v_dim = 32, 32
    # keys that each block visits
    rows = [min(m, q0 + min(64, n - q0)) if causal else m for q0 in range(0, n, 64)]
    visited = sum(min(m, math.ceil(seen / 32) * 32) for seen in rows)
    # + tau, once per thread
    want = 4 * (n * (2 * d + v_dim + 2) + visited * (2 * d + v_dim) + 128 * len(rows))
    assert (asked(lambda: w2_attention_kernel(*gaussians(n, m, d, v_dim, h=1), 1.0, causal))
            == {"w2_flash": want})


@pytest.mark.slow
def test_the_header_quotes_what_is_counted():
    header = (KERNELS / "w2_attention.cu").read_text().split("#include")[0]
    quoted = [int(x.replace(",", ""))
              for x in re.findall(r" (\d[\d,]{6,})(?: |\n)", header.split("kernel   ", 1)[1])]
    inputs = gaussians(128, 128, 64, 64, h=1)
    q, k, v = torch.cat(inputs[:2], -1), torch.cat(inputs[2:4], -1), inputs[4]
    bias, wide = torch.zeros(1, 1, 128), torch.cat([v, v], -1)
    plain = sum(asked(lambda: flash_kernel(*(x[..., :64].contiguous() for x in (q, k, v)))).values())
    forward = [sum(asked(f).values()) for f in (
        lambda: w2_attention_kernel(*inputs, 1.0, rung=1), lambda: w2_attention_kernel(*inputs, 1.0, rung=2),
        lambda: flash_kernel(q, k, v, key_bias=bias), lambda: flash_kernel(q, k, wide, key_bias=bias))]
    leaves = [x.requires_grad_() for x in inputs]
    back = asked(w2_flash_attention(*leaves, 1.0).sum().backward)
    assert plain == 197_120 and quoted == [*forward, back["w2_backward_keys"], back["w2_backward_queries"]]
    for bytes_asked in forward:
        assert f" {bytes_asked / plain:.2f}\n" in header


@pytest.mark.parametrize("dtype", [torch.bfloat16, pytest.param(torch.float16, marks=pytest.mark.slow)])
def test_the_tensor_cores_take_scores_of_width_2d_and_values_of_width_d(dtype):
    """Without padding: 2 d + d products per score, 1.5 times those of plain attention of width d."""
    inputs = gaussians(70, 90, 64, 64, h=1, dtype=dtype)
    with cuda.profile() as report:
        got = w2_attention_kernel(*inputs, 8.0, True, rung=3)
    *prepared, launch = report.launches
    assert [p.kernel for p in prepared] == 2 * [f"w2_prepare<{C_TYPES[dtype]}>"]
    assert launch.kernel == f"flash_tensor_core<{C_TYPES[dtype]}, 128, 64, true>"
    assert launch.shared_load.excess + launch.shared_store.excess == 0
    assert agree(got, exact(inputs, 8.0, True)[0], dtype)


def test_the_operands_are_made_in_one_pass():
    """The header of kernels/w2_attention/tensor_core.cu quotes the bytes per row; the operands are those of
    product_and_bias."""
    *inputs, _ = gaussians(64, 64, 64, 64, h=1, dtype=torch.bfloat16)
    with cuda.profile() as report:
        got = dot_product_operands(*inputs, torch.full((1,), 8.0))
    per_row = [(launch.global_load.bytes / 64, launch.global_store.bytes / 64) for launch in report.launches]
    assert per_row == [(576, 256), (576, 260)]
    header = (KERNELS / "w2_attention/tensor_core.cu").read_text().split("#include")[0]
    assert "576 read" in header and "256 written, and 4 more per key" in header
    for mine, want in zip(got, product_and_bias(*joined(*inputs), torch.full((1,), 8.0), centred=True)):
        assert torch.allclose(mine.float(), want.float(), rtol=1e-2, atol=1e-2)


X = gaussians(5, 7, 8, 8)
WIDE = gaussians(5, 7, 65, 8)


@pytest.mark.parametrize("words, call", [
    ("mu_q must be float32", lambda: w2_flash_attention(*(x.double() for x in X), 1.0)),
    ("mu_q must have a width", lambda: w2_flash_attention(*WIDE, 1.0)),
    ("v must have a width", lambda: w2_flash_attention(*X[:4], torch.zeros(1, 2, 7, 129), 1.0)),
    ("sigma_k must be at least 0", lambda: w2_flash_attention(*X[:3], -X[3], X[4], 1.0)),
    ("v must be", lambda: w2_flash_attention(*X[:4], X[4][:, :, :6], 1.0)), ("tau must", lambda: w2_flash_attention(*X, -1.0)),
    ("rung must", lambda: w2_attention_kernel(*X, 1.0, rung=4)),
    ("rung must", lambda: w2_attention_kernel(*X, 1.0, rung=3)),            # float32
    ("mask must", lambda: w2_attention(*X, 1.0, mask=torch.ones(5, 7).bool(), form="fused")),
])
def test_the_kernels_refuse_what_they_cannot_do(words, call):
    with pytest.raises(ValueError, match=f"^{words}"):
        call()
