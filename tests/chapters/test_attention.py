"""Chapter 1 against torch's own attention, forward and backward; its kernels right, sanitized and counted."""
import math
from functools import partial

import pytest
import torch
from hypothesis import given, settings, strategies as st
from torch import nn
from torch.nn import functional as F

from course_lib.attention import (MultiHeadAttention, attention_kernel, causal_mask, online_softmax,
                                  padding_mask, scaled_dot_product_attention as attention, softmax,
                                  softmax_kernel)
from references import asked, launches_of, names_the_argument, rand, rand64, same_numbers

TOLERANCE = {torch.float64: 1e-12, torch.float32: 1e-5, torch.bfloat16: 3e-2}
SIZES = [(1, 1), (31, 31), (33, 63), (63, 33), (100, 1), (1, 100)]


def qkv(n, m, d=16, v_dim=None, dtype=torch.float64, batch=2, heads=3):
    shapes = [(batch, heads, n, d), (batch, heads, m, d), (batch, heads, m, v_dim or d)]
    return [rand64(*shape, seed=i, dtype=dtype).requires_grad_() for i, shape in enumerate(shapes)]


def same_forward_and_backward(ours, theirs, inputs, tolerance):
    same_numbers(ours, theirs, inputs, tolerance, tolerance, slack=2)


@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize("shape, dim", [((5, 7), -1), ((5, 7), 0), ((2, 3, 100), 1), ((1,), 0), ((), -1),
                                        ((3, 0), -1)])
def test_softmax_is_torchs(shape, dim, dtype):
    x = (4 * rand64(*shape, dtype=dtype)).detach().requires_grad_()
    same_forward_and_backward(softmax(x, dim), torch.softmax(x, dim), [x], TOLERANCE[dtype])


KERNELS = "stable", "online", "warp", "block", "on_chip", "registers"
SOFTMAXES = {"softmax": softmax, "online_softmax": online_softmax,
             **{f"{name} kernel": partial(softmax_kernel, kernel=f"softmax_{name}") for name in KERNELS}}


@pytest.mark.parametrize("name", SOFTMAXES)
@pytest.mark.parametrize("row", [[1000.0, 1001, 999], [-1e30, 0, 5], [-math.inf, 1, 2], [1, -math.inf, 2],
                                 [-math.inf, -math.inf], [math.nan, 0], [0, math.nan], [math.inf, 0], [7.0],
                                 [torch.finfo(torch.float32).min] * 2])
def test_softmax_edges_are_torchs(name, row):
    row = row + row[-1:] * (4 - len(row)) * (name == "registers kernel")     # which takes whole 16 bytes
    x = torch.tensor([row, [0.5, 1, 2, 3][:len(row)]])
    torch.testing.assert_close(SOFTMAXES[name](x), torch.softmax(x, -1), equal_nan=True)
    assert SOFTMAXES[name](torch.zeros(0, 4)).shape == (0, 4)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.floats(-1e4, 1e4), min_size=1, max_size=40), st.floats(-1e3, 1e3))
def test_softmax_properties(row, shift):
    x = torch.tensor(row, dtype=torch.float64)
    p = online_softmax(x)
    torch.testing.assert_close(p, torch.softmax(x, -1), atol=1e-12, rtol=1e-9)
    torch.testing.assert_close(softmax(x + shift), p, atol=1e-9, rtol=1e-7)
    assert abs(p.sum() - 1) < 1e-12


@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize("n, m", SIZES)
@pytest.mark.parametrize("v_dim", [None, 5])
def test_attention_is_torchs(n, m, v_dim, dtype):
    q, k, v = qkv(n, m, v_dim=v_dim, dtype=dtype)
    same_forward_and_backward(attention(q, k, v), F.scaled_dot_product_attention(q, k, v), [q, k, v],
                              TOLERANCE[dtype])
    theirs = F.scaled_dot_product_attention(q, k, v, scale=0.3)
    same_forward_and_backward(attention(q, k, v, scale=0.3), theirs, [q, k, v], TOLERANCE[dtype])


@pytest.mark.parametrize("mask_shape", [(33,), (31, 33), (3, 31, 33), (2, 1, 1, 33), (1, 3, 31, 33),
                                        (2, 3, 31, 33)])
@pytest.mark.parametrize("kind", ["boolean", "additive", "additive with -inf"])
def test_masks_are_torchs(mask_shape, kind):
    q, k, v = qkv(31, 33)
    mask = rand64(*mask_shape, seed=4) > 0 if kind == "boolean" else rand64(*mask_shape, seed=4)
    if kind == "additive with -inf":
        mask = mask.masked_fill(rand64(*mask_shape, seed=5) > 0.5, -math.inf)
    theirs = F.scaled_dot_product_attention(q, k, v, attn_mask=mask.expand(2, 3, 31, 33))
    same_forward_and_backward(attention(q, k, v, mask), theirs, [q, k, v], 1e-12)


@pytest.mark.parametrize("n, m", [(1, 9), (4, 9), (9, 4)])
def test_causal_means_last_query_sees_last_key(n, m):
    q, k, v = qkv(n, m)
    full_q = torch.cat([rand64(2, 3, m - n, 16), q], 2) if m > n else q[:, :, n - m:]
    full = attention(full_q, k, v, causal=True)
    ours = attention(q, k, v, causal=True)
    torch.testing.assert_close(ours[:, :, -min(n, m):], full[:, :, -min(n, m):])
    assert n <= m or bool((ours[:, :, : n - m] == 0).all())


def test_causal_and_mask_combine():
    q, k, v = qkv(9, 9)
    keep = padding_mask(torch.tensor([9, 4]), 9)
    torch.testing.assert_close(attention(q, k, v, keep, causal=True),
                               attention(q, k, v, keep & causal_mask(9)))
    bias = rand64(9, 9, seed=7)
    torch.testing.assert_close(attention(q, k, v, bias, causal=True),
                               attention(q, k, v, bias.masked_fill(~causal_mask(9), -math.inf)))


@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize("additive", [False, True])
def test_a_row_with_nothing_to_attend_to_is_zero_and_so_is_its_gradient(dtype, additive):
    q, k, v = qkv(5, 6, dtype=dtype)
    mask = torch.ones(5, 6, dtype=torch.bool)
    mask[2] = False
    if additive:
        mask = torch.zeros(5, 6).masked_fill(~mask, -math.inf)
    out, weights = attention(q, k, v, mask, return_weights=True)
    assert (out[:, :, 2] == 0).all() and (weights[:, :, 2] == 0).all()
    out.float().sum().backward()
    assert all(x.grad.isfinite().all() for x in (q, k, v))
    assert (q.grad[:, :, 2] == 0).all()
    everything_hidden = attention(q, k, v, torch.zeros(5, 6, dtype=torch.bool))
    assert (everything_hidden == 0).all()


def test_no_keys_no_queries_no_batch():
    q, k, v = qkv(4, 0, v_dim=5)
    assert attention(q, k, v).shape == (2, 3, 4, 5) and (attention(q, k, v, causal=True) == 0).all()
    q, k, v = qkv(0, 4)
    assert attention(q, k, v, causal=True).shape == (2, 3, 0, 16)
    q, k, v = qkv(3, 4, batch=0)
    assert attention(q, k, v).shape == (0, 3, 3, 16)


@pytest.mark.parametrize("which", ["k", "v"])
@pytest.mark.parametrize("additive", [False, True])
def test_a_hidden_key_may_be_nan(which, additive):
    q, k, v = (x.detach() for x in qkv(6, 6))
    {"k": k, "v": v}[which][1, 2, 4] = math.nan
    mask = causal_mask(6)
    if additive:
        mask = torch.zeros(6, 6, dtype=q.dtype).masked_fill(~mask, -math.inf)
    broken = attention(q, k, v, mask).isnan().any(-1)
    assert broken[1, 2].tolist() == [False] * 4 + [True] * 2 and broken.sum() == 2


def test_weights_are_returned_before_dropout():
    q, k, v = qkv(8, 8)
    torch.manual_seed(0)
    dropped, weights = attention(q, k, v, dropout=0.5, return_weights=True)
    torch.testing.assert_close(weights, torch.softmax(q @ k.mT / 4, -1))
    assert not torch.allclose(dropped, weights @ v)
    mean = torch.stack([attention(q, k, v, dropout=0.5) for _ in range(3000)]).mean(0)
    assert (mean - weights @ v).abs().max() < 0.15
    assert (attention(q, k, v, dropout=1.0) == 0).all()


def paired(d_model=24, n_heads=4, context_dim=None, dtype=torch.float64, bias=True):
    """Ours and torch's multi-head attention with the same weights."""
    torch.manual_seed(0)
    ours = MultiHeadAttention(d_model, n_heads, context_dim, bias=bias).to(dtype)
    theirs = nn.MultiheadAttention(d_model, n_heads, kdim=context_dim, vdim=context_dim, bias=bias,
                                   batch_first=True).to(dtype)
    projections = [ours.q_proj, ours.k_proj, ours.v_proj]
    with torch.no_grad():
        if context_dim is None:
            theirs.in_proj_weight.copy_(torch.cat([p.weight for p in projections]))
        else:
            for name, p in zip("qkv", projections):
                getattr(theirs, f"{name}_proj_weight").copy_(p.weight)
        theirs.out_proj.weight.copy_(ours.out_proj.weight)
        if bias:
            theirs.in_proj_bias.copy_(torch.cat([p.bias for p in projections]))
            theirs.out_proj.bias.copy_(ours.out_proj.bias)
    return ours, theirs


@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize("context_dim", [None, 40])
@pytest.mark.parametrize("bias", [True, False])
def test_multi_head_is_torchs(dtype, context_dim, bias):
    ours, theirs = paired(context_dim=context_dim, dtype=dtype, bias=bias)
    x = rand64(2, 9, 24, dtype=dtype).requires_grad_()
    context = x if context_dim is None else rand64(2, 13, context_dim, dtype=dtype).requires_grad_()
    inputs = [x] if context is x else [x, context]
    mine, my_weights = ours(x, None if context is x else context, return_weights=True)
    reference, weights = theirs(x, context, context, average_attn_weights=False)
    same_forward_and_backward(mine, reference, inputs, TOLERANCE[dtype])
    torch.testing.assert_close(my_weights, weights, atol=TOLERANCE[dtype], rtol=TOLERANCE[dtype])


def test_multi_head_masks_are_torchs():
    ours, theirs = paired()
    x = rand64(2, 9, 24)
    keep = padding_mask([9, 6], 9)
    reference, _ = theirs(x, x, x, key_padding_mask=~keep[:, 0, 0], attn_mask=~causal_mask(9))
    torch.testing.assert_close(ours(x, mask=keep, causal=True), reference)
    context, keep = rand64(2, 11, 24, seed=1), padding_mask([11, 4], 11)
    reference, _ = theirs(x, context, context, key_padding_mask=~keep[:, 0, 0])
    torch.testing.assert_close(ours(x, context, mask=keep), reference)


def test_multi_head_parameters_permutation_and_dropout():
    layer = MultiHeadAttention(24, 4, dropout=0.5).double()
    assert sum(p.numel() for p in layer.parameters()) == 4 * (24 * 24 + 24)
    x, order = rand64(2, 9, 24), torch.randperm(9, generator=torch.Generator().manual_seed(0))
    layer.eval()
    torch.testing.assert_close(layer(x[:, order]), layer(x)[:, order])
    assert not torch.allclose(layer.train()(x), layer.eval()(x))


def test_padding_mask():
    mask = padding_mask(torch.tensor([0, 2, 3]), 3)
    assert mask.shape == (3, 1, 1, 3) and mask[:, 0, 0].int().tolist() == [[0, 0, 0], [1, 1, 0], [1, 1, 1]]
    assert padding_mask([], 3).shape == (0, 1, 1, 3)


Q, X, LAYER = torch.zeros(2, 3, 4, 8), torch.zeros(2, 5, 24), MultiHeadAttention(24, 4)


test_bad_input_is_named = names_the_argument({
    "x": [lambda: softmax(torch.arange(3)), lambda: online_softmax(torch.arange(3)), lambda: LAYER(X[0]),
        lambda: LAYER(X[..., :23]), lambda: LAYER(X.double()), lambda: LAYER(X.to("meta"))],
    "dim": [lambda: softmax(torch.ones(3), 1)], "q": [lambda: attention(Q[0], Q[0], Q[0]),
        lambda: attention(Q.int(), Q.int(), Q.int())], "k": [lambda: attention(Q, Q[0], Q),
        lambda: attention(Q, Q[..., :7], Q), lambda: attention(Q, Q[:, :1], Q[:, :1]),
        lambda: attention(Q, Q.double(), Q)], "v": [lambda: attention(Q, Q, Q[0]),
        lambda: attention(Q, Q, Q[:, :, :3]), lambda: attention(Q, Q, Q.to("meta"))],
    "scale": [lambda: attention(Q, Q, Q, scale=math.inf)],
    "dropout": [lambda: attention(Q, Q, Q, dropout=1.5), lambda: MultiHeadAttention(12, 3, dropout=-0.1)],
    "mask": [lambda: attention(Q, Q, Q, torch.ones(4, 4, dtype=torch.int64)),
        lambda: attention(Q, Q, Q, torch.ones(4, 4).tril()), lambda: attention(Q, Q, Q, torch.ones(4, 4)),
        lambda: attention(Q, Q, Q, torch.ones(5, 4, dtype=torch.bool)),
        lambda: attention(Q, Q, Q, torch.zeros(4, 4).fill_diagonal_(math.nan)),
        lambda: attention(Q, Q, Q, torch.ones(2, 4, 4, dtype=torch.bool)),
        lambda: attention(Q, Q, Q, torch.ones(1, 2, 3, 4, 4, dtype=torch.bool)),
        lambda: attention(Q, Q, Q, [[True]]),
        lambda: attention(Q, Q, Q, torch.ones(4, 4, dtype=torch.bool, device="meta"))],
    "n_q": [lambda: causal_mask(-1)], "n_k": [lambda: causal_mask(2, 2.0)],
    "lengths": [lambda: padding_mask([5], 4), lambda: padding_mask([1.5], 4), lambda: padding_mask([[1]], 4)],
    "n": [lambda: padding_mask([1], -1)], "d_model": [lambda: MultiHeadAttention(10, 3)],
    "n_heads": [lambda: MultiHeadAttention(10, 0), lambda: MultiHeadAttention(12, True)],
    "context_dim": [lambda: MultiHeadAttention(12, 3, context_dim=0)],
    "context": [lambda: LAYER(X, torch.zeros(2, 5, 23)), lambda: LAYER(X, torch.zeros(1, 5, 24)),
        lambda: LAYER(X, X.double()), lambda: MultiHeadAttention(24, 4, context_dim=8)(X)]})


def test_autocast_may_mix_dtypes():
    layer, x = MultiHeadAttention(24, 4), torch.randn(2, 5, 24)
    with torch.autocast("cpu", torch.bfloat16):
        assert layer(x.bfloat16(), context=x).dtype == torch.bfloat16


def test_a_mask_with_two_readings_is_asked_about():
    """(2, n, n) for 2 sequences of 2 heads: per sequence or per head? Other sizes leave one of the two."""
    q = torch.randn(2, 2, 3, 4)
    mask = torch.randn(2, 3, 3)
    with pytest.raises(ValueError, match=r"mask\[:, None\] .*mask\[None\]"):
        attention(q, q, q, mask)
    per_head = attention(q, q, q, mask[None])
    assert not torch.allclose(per_head, attention(q, q, q, mask[:, None]))
    torch.testing.assert_close(attention(q[:1], q[:1], q[:1], mask), per_head[:1])
    with pytest.raises(ValueError, match=r"One mask per sequence is mask\[:, None\]"):
        attention(*3 * [q.repeat(1, 2, 1, 1)], mask)


def test_a_mask_of_nan_is_asked_about():
    q, mask = torch.randn(1, 1, 3, 4), torch.tensor([0.0, math.nan, -math.inf]).expand(3, 3)
    with pytest.raises(ValueError, match="NaN in 3 of 9 entries. Which was meant"):
        attention(q, q, q, mask)


def test_softmax_in_half_sums_in_float():
    x = torch.zeros(1, 5000, dtype=torch.float16)     # a half sum of ones stops at 2048
    torch.testing.assert_close(softmax_kernel(x, "softmax_half"), torch.softmax(x, -1), atol=0, rtol=1e-3)
    x = (3 * rand(33, 99)).half()                     # rows of no whole 16 bytes
    assert torch.equal(softmax_kernel(x), softmax_kernel(x, "softmax_half"))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
@pytest.mark.parametrize("rows, columns", [(1, 8), (5, 264), (3, 3000), *(
    pytest.param(*shape, marks=pytest.mark.slow) for shape in ((33, 1024), (2, 10000)))])
def test_softmax_in_registers(rows, columns, dtype):
    x = (3 * rand(rows, columns)).to(dtype)
    launches = launches_of(lambda: softmax_kernel(x, "softmax_registers"))
    launch, size = launches[0], x.numel() * x.element_size()
    assert launch.global_load.bytes == launch.global_store.bytes == size
    # a row may begin within a sector
    assert launch.global_load.sectors <= size // 32 + launch.global_load.requests
    if dtype != torch.float32:                        # in half precision it is taken without being named
        assert torch.equal(softmax_kernel(x), softmax_kernel(x, "softmax_registers"))


@pytest.mark.parametrize("kernel, accesses",
                         [("softmax_naive", 3), ("softmax_stable", 4), ("softmax_online", 3),
                          ("softmax_warp", 3), ("softmax_block", 3), ("softmax_on_chip", 2),
                          ("softmax_registers", 2)])
def test_accesses_an_element(kernel, accesses):
    x = rand(8, 64)
    launch = launches_of(lambda: softmax_kernel(x, kernel))[0]
    assert asked([launch]) == accesses * x.numel() * 4
    moved = 32 * (launch.global_load.sectors + launch.global_store.sectors)
    one_thread_a_row = kernel in ("softmax_naive", "softmax_stable", "softmax_online")
    assert moved == accesses * x.numel() * 4 * (8 if one_thread_a_row else 1)
    assert launch.global_load.unique_sectors * 32 == x.numel() * 4


def test_attention_kernel_without_keys_or_queries():
    q, k, v = qkv(4, 0, 8, 5, torch.float32)
    assert (attention_kernel(q, k, v) == 0).all() and attention_kernel(q, k, v).shape == (2, 3, 4, 5)
    q, k, v = qkv(0, 4, 8, 16, torch.float32)
    assert attention_kernel(q, k, v).shape == (2, 3, 0, 16)


def test_a_long_row_needs_no_name():
    """More than shared memory holds: the kernel that reads twice is taken."""
    x = torch.randn(2, 12225, generator=torch.Generator().manual_seed(0))
    torch.testing.assert_close(softmax_kernel(x), torch.softmax(x, -1))


test_bad_input_to_a_kernel_is_named = names_the_argument({
    "kernel": [lambda: softmax_kernel(torch.ones(2, 2), "softmax_fast")],
    "x": [lambda: softmax_kernel(torch.ones(2)), lambda: softmax_kernel(torch.tensor(1.0)),
        lambda: softmax_kernel(torch.ones(1, 2, 4).bfloat16()),
        lambda: softmax_kernel(torch.ones(2, 2).double()),
        lambda: softmax_kernel(torch.ones(1, 12225), "softmax_on_chip"),
        lambda: softmax_kernel(torch.ones(2, 3), "softmax_registers"),
        lambda: softmax_kernel(torch.ones(2, 3).bfloat16())],
    "q": [lambda: attention_kernel(*(torch.ones(1, 1, 2, 4).double() for _ in "qkv"))]})
