"""Chapter 3 against torch's own attention, in float64 where it matters; its kernels, counted."""
import math

import pytest
import torch
from torch.nn import functional as F

from course_lib.attention import MultiHeadAttention
from course_lib.gpu.cases.gqa import latents as case_latents
from course_lib.gqa import (GroupedQueryAttention, LatentAttention, flops_per_key, gqa_kernel,
                            grouped_query_attention, kv_bytes_per_token, latent_decode_kernel, pool_heads,
                            repeat_kv)
from course_lib.kv_cache import GrowingCache
from course_lib.rope import rope_table
from references import launches_of, names_the_argument, rand, same_numbers


def inputs(b=2, n_heads=6, n_kv_heads=2, n=5, m=7, d=8, dtype=torch.float64, seed=0):
    g = torch.Generator().manual_seed(seed)
    shapes = (b, n_heads, n, d), (b, n_kv_heads, m, d), (b, n_kv_heads, m, d)
    return [torch.randn(s, generator=g, dtype=torch.float64).to(dtype) for s in shapes]


@pytest.mark.parametrize("n_heads, n_kv_heads", [(4, 4), (4, 2), (6, 2), (6, 1)])
@pytest.mark.parametrize("n, m, d", [(1, 1, 2), (5, 5, 8), (31, 33, 5), (1, 63, 16)])
def test_equals_torch_with_gradients(n_heads, n_kv_heads, n, m, d):
    q, k, v = [x.requires_grad_() for x in inputs(2, n_heads, n_kv_heads, n, m, d)]
    ours = grouped_query_attention(q, k, v)
    theirs = F.scaled_dot_product_attention(q, k, v, enable_gqa=True)
    same_numbers(ours, theirs, (q, k, v))


def test_masks_and_the_rule_for_empty_rows():
    q, k, v = inputs(n=4, m=4)
    hidden = torch.zeros(2, 1, 4, 4, dtype=torch.bool)
    assert torch.equal(grouped_query_attention(q, k, v, mask=hidden), torch.zeros_like(q))
    a_head = torch.rand(6, 4, 4) > 0.4
    a_head[..., 0] = True
    torch.testing.assert_close(grouped_query_attention(q, k, v, mask=a_head), F.scaled_dot_product_attention(
        q, k, v, attn_mask=a_head.expand(2, 6, 4, 4), enable_gqa=True))
    out, weights = grouped_query_attention(q, k, v, causal=True, return_weights=True)
    assert weights.shape == (2, 6, 4, 4) and weights.triu(1).abs().max() == 0
    assert grouped_query_attention(q, k[:, :, :0], v[:, :, :0]).abs().sum() == 0
    assert grouped_query_attention(q[:, :, :0], k, v).shape == (2, 6, 0, 8)


def test_one_head_each_is_multi_head_attention():
    torch.manual_seed(0)
    many, grouped = MultiHeadAttention(16, 4, bias=False), GroupedQueryAttention(16, 4, 4)
    grouped.load_state_dict(many.state_dict())
    x = torch.randn(2, 7, 16)
    torch.testing.assert_close(grouped(x), many(x, causal=True))


def test_window_hides_what_is_older():
    torch.manual_seed(0)
    layer = GroupedQueryAttention(8, 2, 1, window=3)
    x = torch.randn(1, 6, 8)
    changed = x.clone()
    changed[:, 2] += 1
    same = torch.isclose(layer(x), layer(changed)).all(-1)[0].tolist()
    assert same == [True, True, False, False, False, True]     # token 2 is seen by 2, 3 and 4
    float_mask = torch.zeros(6, 6)
    torch.testing.assert_close(layer(x, mask=float_mask), layer(x))


@pytest.mark.parametrize("with_rope", [True, False])
def test_latent_absorbed_equals_unfolded(with_rope):
    torch.manual_seed(0)
    layer = LatentAttention(24, n_heads=4, head_dim=8, latent_dim=12, rope_dim=6).double()
    x = torch.randn(2, 9, 24, dtype=torch.float64, requires_grad=True)
    rope = rope_table(9, 6, dtype=torch.float64) if with_rope else None
    plain, absorbed = layer(x, rope), layer(x, rope, absorbed=True)
    same_numbers(absorbed, plain, [x])
    cache = GrowingCache()
    pieces = [layer(x[:, a:b], rope, cache=cache, absorbed=True) for a, b in [(0, 5), (5, 6), (6, 9)]]
    torch.testing.assert_close(torch.cat(pieces, 1), plain)
    assert cache.view()[0].shape == (2, 1, 9, 12) and cache.view()[1].shape == (2, 1, 9, 6)


X = torch.randn(1, 5, 24)

test_bad_input_names_the_argument = names_the_argument({
    "q": [lambda q, k, v: grouped_query_attention(q[0], k, v),
        lambda q, k, v: grouped_query_attention(q[:, :5], k, v),
        lambda q, k, v: grouped_query_attention(q[:, :0], k, v), lambda q, k, v: gqa_kernel(q, k, v),
        lambda q, k, v: gqa_kernel(torch.ones(1, 32, 1, 128), *2 * [torch.ones(1, 1, 1, 128)])],
    "k": [lambda q, k, v: grouped_query_attention(q, k[..., :4], v),
        lambda q, k, v: grouped_query_attention(q, k.float(), v)],
    "v": [lambda q, k, v: grouped_query_attention(q, k, v[:, :, :3]),
        lambda q, k, v: grouped_query_attention(q, k, v[:1])],
    "mask": [lambda q, k, v: grouped_query_attention(q, k, v, mask=torch.ones(3, 3, dtype=torch.bool)),
        lambda q, k, v: grouped_query_attention(q, k, v, mask=torch.ones(5, 7, dtype=torch.int64)),
        lambda q, k, v: GroupedQueryAttention(24, 6, 2, window=2)(X, mask=torch.ones(5, 5)),
        lambda q, k, v: GroupedQueryAttention(24, 6, 2, window=2)(X, mask=torch.ones(4, 4).bool())],
    "scale": [lambda q, k, v: grouped_query_attention(q, k, v, scale=math.nan)],
    "group_size": [lambda q, k, v: repeat_kv(k, 0)],
    "n_heads": [lambda q, k, v: GroupedQueryAttention(24, 6, 4),
        lambda q, k, v: pool_heads(torch.randn(8, 3), 4, 3),
        lambda q, k, v: pool_heads(torch.randn(8, 3), 0, 2)],
    "d_model": [lambda q, k, v: GroupedQueryAttention(25, 6, 2)],
    "window": [lambda q, k, v: GroupedQueryAttention(24, 6, 2, window=0)],
    "x": [lambda q, k, v: GroupedQueryAttention(24, 6, 2)(torch.randn(2, 24)),
        lambda q, k, v: LatentAttention(8, 2, 4, 4, 2)(torch.randn(5, 8)),
        lambda q, k, v: LatentAttention(8, 2, 4, 4, 2)(torch.randn(1, 5, 8).double()),
        lambda q, k, v: GroupedQueryAttention(24, 6, 2)(X.double())],
    "positions": [lambda q, k, v: GroupedQueryAttention(24, 6, 2)(X, rope_table(4, 4))],
    "weight": [lambda q, k, v: pool_heads(torch.randn(9, 3), 4, 2)],
    "rope_layout": [lambda q, k, v: GroupedQueryAttention(24, 6, 2, rope_layout="split")],
    "layers": [lambda q, k, v: kv_bytes_per_token(0, 8, 128)],
    "rope_dim": [lambda q, k, v: LatentAttention(8, 2, 4, 4, 3)],
    "latent_dim": [lambda q, k, v: LatentAttention(8, 2, 4, 0, 2)],
    "rope": [lambda q, k, v: GroupedQueryAttention(24, 6, 2)(X, rope_table(5, 4)[0])],
    "head_dim": [lambda q, k, v: GroupedQueryAttention(24, 6, 2, head_dim=0)],
    "rung": [lambda q, k, v: gqa_kernel(q.float(), k.float(), v.float(), rung=4)]},
    given=inputs, begin="(must .*; got |needs )")


@pytest.mark.parametrize("rung", [1, 2, 3])
def test_without_keys_or_queries(rung):
    assert (gqa_kernel(*inputs(1, 4, 2, 3, 0, 8, torch.float32), rung=rung) == 0).all()
    assert gqa_kernel(*inputs(1, 4, 2, 0, 3, 8, torch.float32), rung=rung).shape == (1, 4, 0, 8)


@pytest.mark.parametrize("n_kv_heads", [4, 2, 1])
def test_keys_and_values_are_read_once_a_group(n_kv_heads):
    q, k, v = inputs(1, 4, n_kv_heads, 1, 64, 16, torch.float32)
    read = {}
    for rung in (1, 2, 3):
        launches = launches_of(lambda: gqa_kernel(q, k, v, rung=rung))
        read[rung] = sum(launch.global_load.bytes for launch in launches) - 4 * q.numel()
    each_head = 4 * 2 * 64 * 16 * 4
    assert read == {1: 2 * each_head, 2: each_head, 3: each_head * n_kv_heads // 4}


def latents(n, *sizes, dtype=torch.float32):
    """One sequence of n; heads, head_dim, latent_dim and rope_dim."""
    return case_latents(lambda *shape: rand(*shape).to(dtype), (n,), *sizes)[:6]


def test_a_step_of_the_layer(monkeypatch):
    """The layer's own step, with its cache; what it attends with is the kernel."""
    torch.manual_seed(0)
    layer, x = LatentAttention(32, 4, 8, 12, 4, absorbed=True), torch.randn(2, 9, 32)
    want = layer(x)[:, -1:]
    cache = GrowingCache()
    layer(x[:, :-1], cache=cache)
    monkeypatch.setattr(layer, "_absorbed", lambda q, q_rope, latent, k_rope, mask, causal:
                        latent_decode_kernel(q, q_rope, latent, k_rope, layer.k_up, layer.v_up))
    with torch.no_grad():
        torch.testing.assert_close(layer(x[:, -1:], cache=cache), want, atol=1e-5, rtol=1e-5)


def test_a_latent_is_asked_for_once_per_block_of_heads():
    given = latents(64, 16, 4, 64, 8)
    queries, lengths, cache = 4 * 16 * 72, 4 * 128, 4 * 64 * 72
    for heads in (1, 4, 16):
        launch, = launches_of(lambda: latent_decode_kernel(*given, heads_per_block=heads))
        assert launch.global_load.bytes == queries + 16 // heads * (cache + lengths), heads
        assert launch.global_store.bytes == 4 * 16 * 64 and launch.shared_load.excess == 0


def test_its_intensity_is_that_of_the_theorem():
    """128 heads of DeepSeek-V3's proportions, bfloat16: FLOPs per unique byte, those of q and out too."""
    n, c, r = 128, 16, 2
    launch, = launches_of(lambda: latent_decode_kernel(*latents(n, 128, 4, c, r, dtype=torch.bfloat16)))
    moved = 32 * (launch.global_load.unique_sectors + launch.global_store.unique_sectors)
    limit = 128 * flops_per_key(4, c, r, absorbed=True) / (2 * (c + r))
    assert moved == 2 * (n * (c + r) + 128 * (2 * c + r)) + 32         # the last sector holds the length
    predicted = limit / (1 + 128 * (2 * c + r) / (n * (c + r)))
    assert math.isclose(128 * n * flops_per_key(4, c, r, absorbed=True) / (moved - 32), predicted)


NAMES = "q", "q_rope", "latent", "k_rope", "k_up", "v_up"


@pytest.mark.parametrize("change, told", [
    (dict(q=torch.zeros(1, 4, 2, 8)), r"q must be a tensor of shape \(b, heads, 1, head_dim\)"),
    (dict(latent=torch.zeros(1, 4, 9, 12)), r"latent must be a tensor of shape \(1, 1, n, latent_dim\)"),
    (dict(k_rope=torch.zeros(1, 1, 8, 4)), r"k_rope must be a tensor of shape \(1, 1, 9, 4\)"),
    (dict(k_up=torch.zeros(4, 8, 11)), r"k_up must be a tensor of shape \(4, 8, 12\)"),
    (dict(v_up=torch.zeros(4, 8, 12).half()), "v_up must have the dtype of q"),
    (dict(lengths=[10]), "lengths must be from 0 to 9"), (dict(heads_per_block=3), "heads_per_block must be"),
    (dict(zip(NAMES, latents(1, 1, 1, 513, 2))), "latent must be 1 to 512 wide for this kernel; got 513")])
def test_bad_latents_are_named(change, told):
    with pytest.raises(ValueError, match=told):
        latent_decode_kernel(**dict(zip(NAMES, latents(9, 4, 8, 12, 4))) | change)
