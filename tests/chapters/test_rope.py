"""Rotary positions: the rotation, its relative property, the table; the kernels sanitized and counted."""
import math

import pytest
import torch

from course_lib import cuda
from course_lib.rope import (RUNGS, RoPEAttention, alibi_bias, apply_rope, axes_table, interleaved_to_half,
                             rope_kernel, rope_table, sinusoidal_table, yarn_magnitude)
from course_lib.studies import rope_needle
from references import launches_of, names_the_argument, rand, rand64


@pytest.mark.parametrize("layout", ["interleaved", "half"])
@pytest.mark.parametrize("rotary_dim", [None, 6])
def test_scores_depend_on_the_distance_only(layout, rotary_dim):
    cos, sin = rope_table(64, rotary_dim or 10, dtype=torch.float64)
    q, k = rand64(1, 2, 1, 10), rand64(1, 2, 1, 10, seed=1)

    def score(m, n):
        turned = [apply_rope(x, cos, sin, torch.tensor([p]), layout, rotary_dim) for x, p in ((q, m), (k, n))]
        return (turned[0] * turned[1]).sum(-1)

    torch.testing.assert_close(score(3, 10), score(40, 47))
    assert not torch.allclose(score(3, 10), score(3, 11))
    torch.testing.assert_close(score(5, 5), (q * k).sum(-1))


def test_positions_by_row_and_by_batch():
    cos, sin = rope_table(9, 8, dtype=torch.float64)
    x = rand64(2, 3, 4, 8)
    torch.testing.assert_close(apply_rope(x, cos, sin), apply_rope(x, cos, sin, torch.arange(4)))
    both = apply_rope(x, cos, sin, torch.tensor([[0, 1, 2, 3], [5, 6, 7, 8]]))
    torch.testing.assert_close(both[1:], apply_rope(x[1:], cos, sin, torch.arange(5, 9)))
    assert torch.equal(apply_rope(x, cos, sin, [5, 6, 7, 8]), apply_rope(x, cos, sin, torch.arange(5, 9)))


test_bad_input_is_named = names_the_argument({
    "head_dim": [lambda x, c, s: rope_table(4, 7)], "n": [lambda x, c, s: rope_table(-1, 8)],
    "base": [lambda x, c, s: rope_table(4, 8, base=0), lambda x, c, s: rope_table(4, 8, base="10000")],
    "x": [lambda x, c, s: apply_rope(x[0], c, s)], "cos": [lambda x, c, s: apply_rope(x[..., :6], c, s),
        lambda x, c, s: apply_rope(x, c.long(), s), lambda x, c, s: apply_rope(x, c.to("meta"), s)],
    "sin": [lambda x, c, s: apply_rope(x, c, s[:3]), lambda x, c, s: apply_rope(x, c, None),
        lambda x, c, s: apply_rope(x, c, s.double())],
    "layout": [lambda x, c, s: apply_rope(x, c, s, layout="pairs")],
    "rotary_dim": [lambda x, c, s: apply_rope(x, c, s, rotary_dim=3)],
    "positions": [lambda x, c, s: apply_rope(x, c[:3], s[:3]),
        lambda x, c, s: apply_rope(x, c, s, torch.tensor([0, 1, 2, 9])),
        lambda x, c, s: apply_rope(x, c, s, torch.tensor([0, 1, 2, -1])),
        lambda x, c, s: apply_rope(x, c, s, torch.tensor([0, 1])),
        lambda x, c, s: apply_rope(x, c, s, torch.tensor([0.0, 1, 2, 3])),
        lambda x, c, s: apply_rope(x, c, s, torch.ones(4, dtype=torch.bool))],
    "dtype": [lambda x, c, s: rope_table(4, 8, dtype=torch.int32)],
    "scaling.*": [lambda x, c, s, scaling=scaling: rope_table(4, 8, scaling=scaling) for scaling in (
        "linear", {}, {"kind": "magic"}, {"kind": "linear"}, {"kind": "yarn", "factor": 2.0},
        {"kind": "linear", "factor": -1.0}, {"kind": "linear", "factor": "4"},
        {"kind": "yarn", "factor": 2.0, "original_length": 64, "fast": 0.0},
        {"kind": "llama3", "factor": 2.0, "original_length": 64, "low": 4.0},
        {"kind": "linear", "factor": 2.0, "extra": 1})]},
    given=lambda: (torch.zeros(2, 3, 4, 8), *rope_table(9, 8)), begin="must .*; got ")


@pytest.mark.parametrize("bias", [False, True])
def test_reordered_weights_swap_the_layouts(bias):
    n_heads, head_dim, d_model = 3, 8, 10
    x, rope = rand64(2, 5, d_model), rope_table(5, head_dim, dtype=torch.float64)
    w_q, w_k = rand64(n_heads * head_dim, d_model, seed=1), rand64(n_heads * head_dim, d_model, seed=2)

    def scores(w_q, w_k, layout):
        q, k = (apply_rope((x @ w.T).view(2, 5, n_heads, head_dim).transpose(1, 2), *rope, layout=layout)
                for w in (w_q, w_k))
        return q @ k.transpose(-2, -1)

    want = scores(w_q, w_k, "interleaved")
    torch.testing.assert_close(scores(*(interleaved_to_half(w, n_heads) for w in (w_q, w_k)), "half"), want)
    assert not torch.allclose(scores(w_q, w_k, "half"), want)
    assert interleaved_to_half(torch.arange(8.0), 2).tolist() == [0, 2, 1, 3, 4, 6, 5, 7]


def test_alibi_slopes_and_alignment():
    bias = alibi_bias(8, 1, 3)
    assert bias[0, 0].tolist() == [-1.0, -0.5, 0.0] and bias[7, 0, 0] == -2 * 2**-8
    assert alibi_bias(3, 4, 4).shape == (3, 4, 4)
    slopes = -alibi_bias(6, 1, 2)[:, 0, 0]
    torch.testing.assert_close(slopes, 2.0 ** torch.tensor([-2.0, -4, -6, -8, -1, -3]))


def test_layer_against_torchs_multi_head_attention():
    torch.manual_seed(0)
    ours, theirs = RoPEAttention(16, 4), torch.nn.MultiheadAttention(16, 4, batch_first=True)
    theirs.in_proj_weight.data = torch.cat([p.weight for p in (ours.q_proj, ours.k_proj, ours.v_proj)])
    theirs.in_proj_bias.data = torch.cat([p.bias for p in (ours.q_proj, ours.k_proj, ours.v_proj)])
    theirs.out_proj.load_state_dict(ours.out_proj.state_dict())
    query, key, value = torch.randn(2, 5, 16), torch.randn(2, 7, 16), torch.randn(2, 7, 16)
    torch.testing.assert_close(ours(query, key, value), theirs(query, key, value)[0])
    rope = rope_table(7, 4)
    out, weights = ours(query, key, value, rope, return_weights=True)
    assert weights.shape == (2, 4, 5, 7) and not torch.allclose(out, ours(query, key, value))
    one = ours(query[:, 4:], key, value, rope, positions=torch.tensor([4]))
    torch.testing.assert_close(one, out[:, 4:])


SCALINGS = [{"kind": "linear", "factor": 4.0}, {"kind": "ntk", "factor": 4.0},
            {"kind": "yarn", "factor": 4.0, "original_length": 64},
            {"kind": "llama3", "factor": 8.0, "original_length": 64}]


@pytest.mark.parametrize("scaling", SCALINGS, ids=lambda s: s["kind"])
def test_scaling_keeps_fast_pairs_or_says_so_and_slows_slow_ones(scaling):
    plain, scaled = rope_table(2, 64, dtype=torch.float64), rope_table(2, 64, scaling=scaling,
                                                                       dtype=torch.float64)
    frequency = torch.atan2(plain[1][1], plain[0][1])
    new = torch.atan2(scaled[1][1], scaled[0][1])
    ratio = frequency / new
    assert (ratio.diff() > -1e-9).all()  # slower pairs are slowed at least as much
    torch.testing.assert_close(ratio[-1].item(), scaling["factor"], rtol=1e-6, atol=0)
    if scaling["kind"] != "linear":
        torch.testing.assert_close(ratio[0].item(), 1.0)
    size = (scaled[0] ** 2 + scaled[1] ** 2).sqrt()
    magnitude = yarn_magnitude(4.0) if scaling["kind"] == "yarn" else 1.0
    torch.testing.assert_close(size, torch.full_like(size, magnitude))


test_bad_input_of_the_rest_is_named = names_the_argument({
    "weight": [lambda: interleaved_to_half(torch.zeros(9, 3), 3)], "n_heads": [lambda: alibi_bias(0, 2, 2),
        lambda: interleaved_to_half(torch.zeros(8, 3), 0), lambda: RoPEAttention(8, 0)],
    "base": [lambda: rope_table(4, 8, 1.0, {"kind": "yarn", "factor": 2.0, "original_length": 64})],
    "d_model": [lambda: RoPEAttention(8.0, 2), lambda: RoPEAttention(9, 3)],
    "query": [lambda: RoPEAttention(8, 2)(*3 * [torch.zeros(1, 2, 8).double()])],
    "key": [lambda: RoPEAttention(8, 2)(torch.zeros(2, 2, 8), *2 * [torch.zeros(1, 2, 8)]),
        lambda: RoPEAttention(8, 2)(torch.zeros(1, 2, 8), torch.zeros(1, 2, 6), torch.zeros(1, 2, 8))],
    "value": [lambda: RoPEAttention(8, 2)(*2 * [torch.zeros(1, 2, 8)], torch.zeros(1, 3, 8))],
    "rope": [lambda: RoPEAttention(8, 2)(*3 * [torch.zeros(1, 2, 8)], rope=torch.zeros(2, 2))],
    "dropout": [lambda: RoPEAttention(8, 2, 1.5)],
    "rung": [lambda: rope_kernel(torch.zeros(1, 1, 2, 8), *rope_table(2, 8), rung=2)],
    "x": [lambda: rope_kernel(torch.zeros(1, 1, 2, 6), *rope_table(2, 6), layout="half", rung=3),
        lambda: rope_kernel(torch.zeros(1, 1, 2, 8).double(), *rope_table(2, 8))],
    "cos and sin": [lambda: rope_kernel(torch.zeros(1, 1, 2, 8), *rope_table(2, 8, dtype=torch.float64))]})


def test_sinusoids_are_those_of_2017_and_their_products_know_the_distance_only():
    table = sinusoidal_table(50, 6)
    assert table.shape == (50, 6) and table[0].tolist() == [0, 1, 0, 1, 0, 1]
    want = [math.sin(7), math.cos(7), math.sin(7 * 10000 ** (-2 / 6)), math.cos(7 * 10000 ** (-2 / 6))]
    torch.testing.assert_close(table[7, :4], torch.tensor(want))
    products = table @ table.T
    torch.testing.assert_close(products[3:, 3:], products[:-3, :-3], atol=1e-5, rtol=0)


def test_several_axes_depend_on_their_differences_and_equal_ordinary_positions():
    q, k = rand64(1, 1, 1, 12), rand64(1, 1, 1, 12, seed=1)

    def score(a, b, axes=(0, 1, 2, 0, 1, 2)):
        x, y = (apply_rope(t, *axes_table(torch.tensor([place]), axes, dtype=torch.float64))
                for t, place in ((q, a), (k, b)))
        return (x * y).sum()

    torch.testing.assert_close(score([0, 2, 1], [0, 0, 0]), score([5, 9, 10], [5, 7, 9]))
    assert not torch.allclose(score([0, 2, 1], [0, 0, 0]), score([0, 1, 2], [0, 0, 0]))
    positions = torch.arange(9)[:, None].expand(9, 3)
    torch.testing.assert_close(axes_table(positions, [0, 1, 2, 0], dtype=torch.float64),
                               rope_table(9, 8, dtype=torch.float64))
    for axes in ([0, 3], [0.5], [-1]):
        with pytest.raises(ValueError, match="axis_of_pair"):
            axes_table(positions, axes)


def test_a_needle_is_a_noisy_copy_at_its_distance_and_a_window_hides_what_is_further():
    x, place = rope_needle.needle(64, 40, torch.Generator().manual_seed(0), distance=9)
    assert (place == 30).all()
    similarity = torch.nn.functional.cosine_similarity(x[:, -1:], x[:, :-1], dim=-1)
    assert (similarity.argmax(1) == 30).all()
    head = rope_needle.FindingHead(torch.Generator().manual_seed(0))
    with torch.no_grad():
        head.k.copy_(head.q)                                             # a head that compares as it is
    table = rope_table(40, rope_needle.HEAD_DIM)
    table = torch.ones_like(table[0]), torch.zeros_like(table[1])        # no positions
    near, hidden, seen = (rope_needle.found(head, table, 40, 9, window) for window in (None, 9, 10))
    assert near > 0.5 and hidden == 0.0 and seen >= near


@pytest.mark.parametrize("layout, rung", RUNGS)
def test_every_rung_is_apply_rope(layout, rung):
    for b, heads, n, d in ((1, 1, 1, 8), (2, 3, 31, 16), (1, 2, 33, 24), (2, 1, 5, 64)):
        x, table = rand(b, heads, n, d), rope_table(40, d)
        before = x.clone()
        scattered = torch.randint(0, 40, (b, n), generator=torch.Generator().manual_seed(n))
        for positions in (None, scattered[0], scattered):
            with cuda.sanitize():
                got = rope_kernel(x, *table, positions, layout, rung)
            torch.testing.assert_close(got, apply_rope(x, *table, positions, layout), atol=1e-6, rtol=1e-5)
        torch.testing.assert_close(got.norm(dim=-1), x.norm(dim=-1), atol=1e-5, rtol=1e-5)
        assert torch.equal(x, before)
    assert (rope_kernel(torch.zeros(1, 2, 0, 8), *rope_table(4, 8), layout=layout, rung=rung).shape
            == (1, 2, 0, 8))


@pytest.mark.parametrize("layout, rung", [("interleaved", 1), ("half", 2)])
def test_one_pair_a_thread_takes_any_even_width(layout, rung):
    x, table = rand(1, 2, 7, 6), rope_table(7, 6)
    for chosen in (rung, None):                          # it is also what such a width gets without asking
        with cuda.sanitize():
            got = rope_kernel(x, *table, layout=layout, rung=chosen)
        torch.testing.assert_close(got, apply_rope(x, *table, layout=layout), atol=1e-6, rtol=1e-5)


@pytest.mark.parametrize("layout", ["interleaved", "half"])
@pytest.mark.parametrize("rung", [3, 4])
def test_wide_loads_from_addresses_that_are_no_multiple_of_16(layout, rung):
    x, table = rand(1, 2, 7, 8), rope_table(7, 8)
    moved = [torch.cat([torch.zeros(1), t.flatten()])[1:].view(t.shape) for t in (x, *table)]
    torch.testing.assert_close(rope_kernel(*moved, layout=layout, rung=rung),
                               apply_rope(x, *table, layout=layout))


@pytest.mark.parametrize("rung", [1, 3, 4])
def test_a_kernel_claims_no_gradient(rung):
    """A copy that a kernel changes in place would pass for the copy itself: a gradient of ones."""
    assert not rope_kernel(rand(1, 2, 7, 8).requires_grad_(), *rope_table(7, 8), rung=rung).requires_grad


@pytest.mark.parametrize("layout, rung, waste",
                         [("interleaved", 1, 2), ("half", 2, 1), ("interleaved", 3, 1), ("half", 3, 1)])
def test_moved_by_the_stores(layout, rung, waste):
    x = rand(1, 1, 64, 64)
    store = launches_of(lambda: rope_kernel(x, *rope_table(64, 64), layout=layout, rung=rung))[0].global_store
    assert 32 * store.sectors == waste * 4 * x.numel() and store.bytes == 4 * x.numel()


def test_rope_heads_moves_x_once_and_fetches_the_angles_once_for_four_heads():
    x, table = rand(1, 8, 32, 64).bfloat16(), rope_table(32, 64)
    launch = launches_of(lambda: rope_kernel(x, *table))[0]
    rows = x.numel() * 2
    angles = 2 * table[0].numel() * 4 * 2 + 2 * 32 * 32 // 4 * 4  # two blocks of heads; a position a thread
    assert launch.global_store.bytes == launch.global_store.moved == rows
    assert launch.global_load.bytes == rows + angles
    assert launch.global_load.unique == rows + 2 * table[0].numel() * 4 + 32 * 4
