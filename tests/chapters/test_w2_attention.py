"""Chapter 9: the distance against samples, four forms that agree; the kernels' values and counts."""
import math
import re
from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings, strategies as st

from course_lib import cuda
from course_lib.attention import causal_mask
from course_lib.flash_attention.kernels import forward_kernel as flash_kernel
from course_lib.gpu.case import F16
from course_lib.gpu.cases import BF16, F32, case_of
from course_lib.launching import C_TYPES
from course_lib.rope import rope_table
from course_lib.w2_attention import (RotaryEmbedding, W2Attention, W2Config, W2TransformerBlock, augment,
                                     gaussian_overlap, gaussian_w2, kernels as w2_kernels, w2_attention,
                                     w2_distance, w2_scores)
from course_lib.w2_attention.kernels import dot_product_operands, w2_attention_kernel, w2_flash_attention
from references import launches_of, names_the_argument, rand64 as rand, same_numbers


def gaussians(b=2, h=2, n=5, m=7, d=4, dv=3, dtype=torch.float64):
    mu_q, mu_k, v = rand(b, h, n, d, dtype=dtype), rand(b, h, m, d, seed=1,
                                                        dtype=dtype), rand(b, h, m, dv, seed=4, dtype=dtype)
    return mu_q, rand(b, h, n, d, seed=2, dtype=dtype).exp(), mu_k, rand(b, h, m, d, seed=3,
                                                                         dtype=dtype).exp(), v


@given(st.integers(1, 5), st.integers(0, 10_000))
@settings(max_examples=30, deadline=None)
def test_diagonal_is_the_general_formula_and_a_metric(d, seed):
    mu, sigma = rand(3, d, seed=seed), rand(3, d, seed=seed + 1).exp()
    cov = [torch.diag(s**2) for s in sigma]
    pairs = [w2_distance(mu[i], sigma[i], mu[j], sigma[j]).item() for i, j in ((0, 1), (1, 2), (0, 2))]
    general = [gaussian_w2(mu[i], cov[i], mu[j], cov[j]).item() for i, j in ((0, 1), (1, 2), (0, 2))]
    assert pairs == pytest.approx(general, abs=1e-6)
    assert pairs[2] <= pairs[0] + pairs[1] + 1e-9
    assert pairs[0] == pytest.approx(w2_distance(mu[1], sigma[1], mu[0], sigma[0]).item())
    assert w2_distance(mu[0], sigma[0], mu[0], sigma[0]) == 0


def test_general_formula_for_covariances_that_do_not_commute():
    a, b = rand(4, 4), rand(4, 4, seed=1)
    a, b = a @ a.T, b @ b.T
    # Bures: the trace term is min over rotations u of |a^1/2 - b^1/2 u|^2, reached by the polar factor.
    la, ua = torch.linalg.eigh(a)
    lb, ub = torch.linalg.eigh(b)
    ra, rb = ua * la.sqrt() @ ua.T, ub * lb.sqrt() @ ub.T
    x, _, y = torch.linalg.svd(rb @ ra)
    want = (ra - rb @ (x @ y)).square().sum().sqrt()
    torch.testing.assert_close(gaussian_w2(torch.zeros(4).double(), a, torch.zeros(4).double(), b), want)


def test_equal_gaussians_have_a_finite_gradient():
    mu = rand(3).requires_grad_()
    w2_distance(mu, torch.ones(3).double(), mu.detach(), torch.ones(3).double()).backward()
    assert torch.equal(mu.grad, torch.zeros(3).double())


def test_overlap_is_the_integral_of_the_product():
    x = torch.linspace(-30, 30, 60_001, dtype=torch.float64)
    va, vb = 0.7, 1.9                                            # variances
    density = lambda m, v: torch.exp(-(x - m) ** 2 / (2 * v)) / math.sqrt(2 * math.pi * v)
    integral = (torch.log((density(0.5, va) * density(-1.0, vb)).sum() * (x[1] - x[0])) + 0.5
                * math.log(2 * math.pi))
    got = gaussian_overlap(*(torch.tensor([t]).double() for t in (0.5, va, -1.0, vb)))
    assert abs(got - integral) < 1e-6


@pytest.mark.parametrize("tau", [1.0, torch.tensor([0.5, 3.0])])
@pytest.mark.parametrize("causal", [False, True])
def test_forms_agree_forward_and_backward(tau, causal):
    inputs = [x.requires_grad_() for x in gaussians(n=6, m=9)]
    mask = None if causal else torch.rand(6, 9, generator=torch.Generator().manual_seed(0)) > 0.3
    results = [w2_attention(*inputs, tau, mask, causal, form) for form in ("direct", "expanded", "augmented")]
    for out in results[1:]:
        same_numbers(out, results[0], inputs, 1e-9, 1e-6, slack=10)


@pytest.mark.parametrize("form", ["kernel", "fused"])
@pytest.mark.parametrize("n, m", [(10, 10), (33, 7), (5, 40)])
def test_kernel_forms_forward_and_backward(form, n, m):
    inputs = [x.requires_grad_()
              for x in (*gaussians(1, 2, n, m, 8, 8, torch.float32), torch.tensor([2.0, 6.0]))]
    want, got = (w2_attention(*inputs, causal=True, form=f) for f in ("direct", form))
    same_numbers(got, want, inputs, 1e-5, 1e-4, slack=20)


def test_gradcheck():
    inputs = [x.requires_grad_()
              for x in (*gaussians(1, 2, 3, 4, 2, 2), torch.tensor([1.3, 0.4], dtype=torch.float64))]
    for form in ("direct", "expanded", "augmented"):
        assert torch.autograd.gradcheck(lambda *x: w2_attention(*x, causal=True, form=form), inputs)


@given(st.integers(1, 9), st.integers(1, 9), st.integers(0, 10_000), st.booleans())
@settings(max_examples=20, deadline=None)
def test_a_shift_of_all_means_changes_nothing(n, m, seed, causal):
    """The three forms in PyTorch, float32; what is moved by 1,000 is rounded to what was there before."""
    draw = torch.Generator().manual_seed(seed)
    mu_q, mu_k = (torch.randint(-64, 65, (1, 2, rows, 4), generator=draw) / 32 for rows in (n, m))
    sigma_q, sigma_k, v = (torch.rand(1, 2, rows, 4, generator=draw) for rows in (n, m, m))
    for form in ("direct", "expanded", "augmented"):
        near, far = (w2_attention(mu_q + at, sigma_q, mu_k + at, sigma_k, v, 1.0, causal=causal, form=form)
                     for at in (0, 1000))
        torch.testing.assert_close(near, far, atol=1e-4, rtol=1e-3)


@pytest.mark.parametrize("dtype, atol", [(torch.float16, 2e-3), (torch.bfloat16, 2e-2)])
@pytest.mark.parametrize("form", ["direct", "expanded", "augmented", "kernel", "fused"])
def test_every_form_in_half_precision(form, dtype, atol):
    mu_q, sigma_q, mu_k, sigma_k, v = gaussians(1, 2, 12, 20, 8, 8)
    inputs = [x.to(dtype).requires_grad_() for x in (mu_q, sigma_q.sigmoid(), mu_k, sigma_k.sigmoid(), v)]
    want = w2_attention(*(x.double() for x in inputs), 8.0, causal=True)
    got = w2_attention(*inputs, 8.0, causal=True, form=form)
    assert got.dtype == dtype and all(g.isfinite().all() for g in torch.autograd.grad(got.sum(), inputs))
    torch.testing.assert_close(got.double(), want, atol=4 * atol, rtol=0)


@pytest.mark.parametrize("form", ["direct", "expanded", "augmented", "kernel", "fused"])
def test_an_augmented_key_depends_on_this_key_alone(form):
    """Keys may come one by one, as from a cache; in no form does a later key touch an earlier row."""
    mu_q, sigma_q, mu_k, sigma_k, v = gaussians(1, 2, 9, 9, 8, 8, torch.float32)
    together, alone = (augment(mu_q, sigma_q, mu_k[:, :, at], sigma_k[:, :, at], 2.0)[1]
                       for at in (slice(0, 9), slice(4, 5)))
    assert torch.equal(together[:, :, 4:5], alone)
    whole = w2_attention(mu_q, sigma_q, mu_k, sigma_k, v, 2.0, causal=True, form=form)
    first = w2_attention(*(x[:, :, :5] for x in (mu_q, sigma_q, mu_k, sigma_k, v)), 2.0, causal=True,
                         form=form)
    torch.testing.assert_close(whole[:, :, :5], first, atol=1e-5, rtol=1e-5)


def test_two_bias_columns_in_bfloat16():
    mu_q, sigma_q, mu_k, sigma_k, v = gaussians(1, 2, 16, 32, 64, 8)
    low = [x.bfloat16() for x in (mu_q, sigma_q, mu_k, sigma_k)]
    q, k = augment(*low, 1.0)
    exact = -k[..., :-2].double().square().sum(-1) / (1 + 1e-6)
    one = (k[..., -2].double() - exact).abs().max()
    both = (k[..., -2].double() + k[..., -1].double() - exact).abs().max()
    assert one > 0.25 and both < 0.01 * one


def test_no_distance_is_negative():
    far, sigma = 1e4 + rand(1, 1, 6, 8, dtype=torch.float32), torch.ones(1, 1, 6, 8)
    assert (w2_scores(far, sigma, far, sigma, 1.0, "expanded") <= 0).all()


@pytest.mark.parametrize("form", ["direct", "expanded", "augmented", "kernel", "fused"])
@pytest.mark.parametrize("tau", [0.0, 1e-3, 1.0])
def test_no_nan_whatever_the_form_the_temperature_and_the_norms(form, tau):
    """size 0: all tokens equal. Then far ones, norms of 1e12, and all near 1e4. Squares of 1e24 overflow,
    which only products cannot bear; every key is then equally, very far."""
    kinds = [(0.0, 0), (1.0, 0), (1e4, 0), (1e12, 0), (1.0, 1e4)]
    kinds += [(1e24, 0)] * (form in ("direct", "expanded", "fused"))
    for size, at in kinds:
        *four, v = narrow(33, 40, 8, 8)
        four = [size * x + at * (i % 2 == 0) for i, x in enumerate(four)]
        inputs = [x.requires_grad_() for x in (*four, v)]
        temperature = torch.tensor(tau, requires_grad=True)
        out = w2_attention(*inputs, temperature, causal=True, form=form)
        grads = torch.autograd.grad(out.sum(), [*inputs, temperature])
        assert out.isfinite().all() and not any(g.isnan().any() for g in grads), size
        if form == "fused":
            assert all(g.isfinite().all() for g in grads)
            first_rung = w2_attention_kernel(*inputs, temperature, True, 1)
            torch.testing.assert_close(first_rung, out, atol=1e-4, rtol=1e-3)
        if size in (0.0, 1e24):
            torch.testing.assert_close(out[:, :, -1], v.mean(2), atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("form", ["direct", "expanded", "augmented"])
def test_a_nan_that_comes_in_goes_out(form):
    inputs = [x.clone() for x in gaussians()]
    inputs[2][0, 0, 1, 0] = torch.nan
    assert w2_attention(*inputs, 1.0, form=form)[0, 0].isnan().all(), (
        "a key is seen by every query of its head")


def test_rope_on_the_means_makes_distances_relative():
    layer = W2Attention(16, 2).double()
    x, rope = rand(1, 9, 16), rope_table(40, 8, dtype=torch.float64)
    shifted = tuple(t[20:] for t in rope)
    torch.testing.assert_close(layer(x, tuple(t[:9] for t in rope)), layer(x, tuple(t[:9] for t in shifted)))


class PublicConfig:
    """What the public quick start has: these four fields and nothing else."""
    hidden_size, num_attention_heads, intermediate_size, rms_norm_eps = 64, 4, 256, 1e-5


@pytest.mark.parametrize("config", [PublicConfig(), W2Config(64, 4, 256)], ids=["public", "ours"])
def test_the_public_quick_start(config):
    """As its README has it: tables from the rotary module, one call. It is causal, and all of it learns."""
    block, rotary = W2TransformerBlock(config), RotaryEmbedding(64 // 4)
    x = torch.randn(2, 16, 64, requires_grad=True)
    cos, sin = rotary(x, seq_len=16)
    out = block(x, rotary_emb_outputs=(cos, sin), attention_mask=None)
    assert out.shape == x.shape and cos.shape == sin.shape == (16, 8)
    assert block.attention_norm.eps == config.rms_norm_eps
    seen = torch.autograd.grad(out[:, 3].sum(), x, retain_graph=True)[0]
    assert seen[:, :4].abs().sum() > 0 and seen[:, 4:].abs().max() == 0
    out.mean().backward()
    assert out.isfinite().all() and x.grad.isfinite().all()
    assert all(p.grad.isfinite().all() and p.grad.abs().sum() > 0 for p in block.parameters())
    torch.testing.assert_close(block(x, attention_mask=causal_mask(16)), block(x))


A, X = gaussians(), [x.float().clamp(-1, 1) for x in gaussians(1, 2, 5, 7, 8, 8)]


test_bad_input_names_the_argument = names_the_argument({
    "mu_q": [lambda: w2_scores(A[0][0], *A[1:4], 1.0),
        lambda: w2_flash_attention(*(x.double() for x in X), 1.0),
        lambda: w2_flash_attention(*gaussians(1, 2, 5, 7, 65, 8, torch.float32), 1.0)],
    "sigma_q": [lambda: w2_scores(A[0], A[1][:, :, :2], *A[2:4], 1.0),
        lambda: w2_attention(A[0], A[1] * torch.nan, *A[2:], 1.0)],
    "sigma_k": [lambda: w2_scores(*A[:3], -A[3], 1.0), lambda: w2_scores(*A[:3], A[3].float(), 1.0),
        lambda: w2_flash_attention(*X[:3], -X[3], X[4], 1.0)],
    "mu_k": [lambda: w2_scores(A[0], A[1], A[2][..., :2], A[3][..., :2], 1.0)],
    "tau": [lambda: w2_scores(*A[:4], -1.0), lambda: w2_scores(*A[:4], torch.ones(3)),
        lambda: w2_scores(*A[:4], None), lambda: W2Attention(8, 2, tau=0.0),
        lambda: w2_flash_attention(*X, -1.0)],
    "form": [lambda: w2_scores(*A[:4], 1.0, "fast"), lambda: w2_attention(*A, 1.0, form="fast")],
    "v": [lambda: w2_attention(*A[:4], A[4][:, :, :3], 1.0),
        lambda: w2_flash_attention(*X[:4], X[4][:, :, :6], 1.0),
        lambda: w2_flash_attention(*X[:4], torch.zeros(1, 2, 7, 129), 1.0)],
    "mask": [lambda: w2_attention(*A, 1.0, mask=torch.ones(5, 7).bool(), form="kernel"),
        lambda: w2_attention(*X, 1.0, mask=torch.ones(5, 7).bool(), form="fused")],
    "sigma_a": [lambda: w2_distance(torch.zeros(3), torch.ones(1), torch.zeros(3), torch.ones(3))],
    "sigma_b": [lambda: gaussian_overlap(torch.zeros(3), torch.ones(3), torch.zeros(3), -torch.ones(3))],
    "mu_b": [lambda: w2_distance(torch.zeros(3), torch.ones(3), torch.zeros(1), torch.ones(1))],
    "mu_a": [lambda: w2_distance(0.0, 1.0, 0.0, 1.0)],
    "cov_b": [lambda: gaussian_w2(torch.zeros(3), torch.eye(3), torch.zeros(3), torch.eye(2)),
        lambda: gaussian_w2(torch.zeros(2), torch.eye(2), torch.zeros(2), torch.ones(2, 2).triu())],
    "cov_a": [lambda: gaussian_w2(torch.zeros(2), -torch.eye(2), torch.zeros(2), torch.eye(2))],
    "mean_b": [lambda: gaussian_w2(torch.zeros(2), torch.eye(2), torch.zeros(1), torch.eye(1))],
    "rung": [lambda: w2_attention_kernel(*(x.float() for x in A), 1.0, rung=3),       # float32
        lambda: w2_attention_kernel(*X, 1.0, rung=4)],
    "n_heads": [lambda: W2Attention(8, 0)], "d_model": [lambda: W2Attention(10, 4)],
    "x": [lambda: W2Attention(8, 2)(torch.zeros(2, 8))]})


def test_the_temperature_is_the_heads_own():
    layer = W2Attention(16, 2).double()
    x = rand(1, 6, 16)
    before = layer(x)
    with torch.no_grad():
        layer.log_tau[1] += 1
        layer.out_proj.weight.copy_(torch.eye(16))
    after = layer(x)
    with torch.no_grad():
        layer.log_tau[1] -= 1
    assert (torch.equal(after[..., :8], layer(x)[..., :8])
            and not torch.allclose(after[..., 8:], layer(x)[..., 8:]))
    assert before.shape == after.shape


def narrow(n, m, d, v_dim, b=1, h=2, seed=0, dtype=torch.float32):
    """Widths below 1."""
    draw = torch.Generator().manual_seed(seed)
    mu_q, sigma_q, mu_k, sigma_k = (torch.randn(b, h, rows, d, generator=draw) for rows in (n, n, m, m))
    return [x.to(dtype) for x in (mu_q, sigma_q.sigmoid(), mu_k, sigma_k.sigmoid(),
                                  torch.randn(b, h, m, v_dim, generator=draw))]


@pytest.mark.parametrize("dtype", [F16, pytest.param(BF16, marks=pytest.mark.slow)])
@pytest.mark.parametrize("kernel", ["w2_score_matrix", "w2_flash", "w2_backward_keys"])
def test_the_kernels_in_half_precision(kernel, dtype):
    case = replace(case_of(kernel, F32), dtype=dtype)
    shape = {"b": 1, "heads": 2, "n": 40, "m": 70, "d": 30, "v_dim": 32, "causal": True}
    assert case.error(shape) <= case.tolerance


def test_tokens_far_from_the_origin_lose_nothing():
    mu_q, sigma_q, mu_k, sigma_k, v = narrow(40, 40, 16, 16)
    mu_q, mu_k = (x.mul(64).round() / 64 for x in (mu_q, mu_k))         # so that moving them is exact
    results = []
    for at in (0, 1000):
        inputs = [x.detach().requires_grad_() for x in (mu_q + at, sigma_q, mu_k + at, sigma_k, v)]
        out = w2_flash_attention(*inputs, 2.0, True)
        results.append((out, *torch.autograd.grad(out.sum(), inputs)))
    assert all(torch.equal(a, b) for a, b in zip(*results))


def test_queries_without_keys_and_empty_inputs():
    inputs = [x.requires_grad_() for x in narrow(9, 4, 8, 8)]
    out = w2_flash_attention(*inputs, 1.0, True)
    grads = torch.autograd.grad(out.sum(), inputs)
    assert ((out[:, :, :5] == 0).all() and all(g.isfinite().all() for g in grads)
            and (grads[0][:, :, :5] == 0).all())
    for n, m in ((0, 3), (3, 0)):
        inputs = [x.requires_grad_() for x in narrow(n, m, 8, 8)]
        for rung in (1, 2):
            assert (w2_attention_kernel(*inputs, 1.0, rung=rung) == 0).all()
        assert torch.autograd.grad(w2_flash_attention(*inputs, 1.0).sum(), inputs)[0].shape == (1, 2, n, 8)


def test_views_and_addresses():
    inputs = narrow(20, 20, 16, 16)
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
    inputs = [x.requires_grad_() for x in (*narrow(9, 12, 8, 8), torch.tensor([1.0, 2.0]))]
    torch.library.opcheck(w2_kernels._w2, (*inputs, True))


def asked(function):
    launches = launches_of(function)
    return {launch.kernel.split("<")[0]: launch.global_load.bytes + launch.global_store.bytes
            for launch in launches}


@pytest.mark.parametrize("n, m, causal", [(128, 128, False), (70, 50, False), (150, 150, True)])
def test_the_fused_kernel_asks_for_what_the_formula_says(n, m, causal):
    d, v_dim = 32, 32
    # keys that each block visits
    rows = [min(m, q0 + min(64, n - q0)) if causal else m for q0 in range(0, n, 64)]
    visited = sum(min(m, math.ceil(seen / 32) * 32) for seen in rows)
    # + tau, once per thread
    want = 4 * (n * (2 * d + v_dim + 2) + visited * (2 * d + v_dim) + 128 * len(rows))
    assert (asked(lambda: w2_attention_kernel(*narrow(n, m, d, v_dim, h=1), 1.0, causal))
            == {"w2_flash": want})


@pytest.mark.slow
def test_the_header_quotes_what_is_counted():
    header = (cuda.KERNELS / "w2_attention.cu").read_text().split("#include")[0]
    quoted = [int(x.replace(",", ""))
              for x in re.findall(r" (\d[\d,]{6,})(?: |\n)", header.split("kernel   ", 1)[1])]
    inputs = narrow(128, 128, 64, 64, h=1)
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
    inputs = narrow(70, 90, 64, 64, h=1, dtype=dtype)
    *prepared, launch = launches_of(lambda: w2_attention_kernel(*inputs, 8.0, True, rung=3))
    assert [p.kernel for p in prepared] == 2 * [f"w2_prepare<{C_TYPES[dtype]}>"]
    assert launch.kernel == f"flash_tensor_core<{C_TYPES[dtype]}, 128, 64, true>"
    assert launch.shared_load.excess + launch.shared_store.excess == 0


def test_the_operands_are_made_in_one_pass():
    """The header of tensor_core.cu quotes the bytes per row."""
    *inputs, _ = narrow(64, 64, 64, 64, h=1, dtype=torch.bfloat16)
    launches = launches_of(lambda: dot_product_operands(*inputs, torch.full((1,), 8.0)))
    assert [(launch.global_load.bytes / 64, launch.global_store.bytes / 64) for launch in launches] == [
        (576, 256), (576, 260)]
    header = (cuda.KERNELS / "w2_attention/tensor_core.cu").read_text().split("#include")[0]
    assert "576 read" in header and "256 written, and 4 more per key" in header
